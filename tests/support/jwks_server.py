"""A server of keys on the loopback, over https with a certificate of the tests' authority."""

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.support.certificates import server_context


class JwksServer:
    """What it answers may change at any time."""

    def __init__(self) -> None:
        self.document, self.status = b"", 200
        self.headers: dict[str, str] = {}
        self.requests: list[str] = []  # the paths
        self.forms: list[tuple[bytes, dict[str, str]]] = []  # what was posted, and with which headers
        self.port = 0

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}/keys"


@contextmanager
def jwks_server(folder: Path) -> Iterator[JwksServer]:
    state = JwksServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.requests.append(self.path)
            self.send_response(state.status)
            for name, value in state.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(state.document)))
            self.end_headers()
            self.wfile.write(state.document)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            state.forms.append((body, dict(self.headers.items())))
            self.do_GET()

        def log_message(self, format: str, *arguments: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        context: ssl.SSLContext = server_context(folder)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        server.handle_error = lambda request, client_address: None  # type: ignore[method-assign]
        state.port = server.server_port
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        serving.start()
        try:
            yield state
        finally:
            server.shutdown()
            serving.join()
