"""The HTTP server of a broker, or of another process: /metrics, /healthz and /readyz. A thin shell on the network port.

/healthz   200: the process lives, and its loop runs
/readyz    200: the process does its work; 503 with the reasons if it does not
/metrics   all metrics, as Prometheus or OpenMetrics text

a scrape is made in steps, one in a turn of the loop, and no step begins before the last one's text has left: a slow
client costs no memory, and no request waits for a step longer than a few milliseconds
a connection has one request and TIMEOUT_S; of more than MAX_CONNECTIONS the oldest gives way
while descriptors are short, scrapers wait: accept is retried at intervals, not in every turn
"""

import asyncio
from collections.abc import Iterator
from http import HTTPStatus
from typing import Protocol

from leadline.metrics.exposition import TextForm, accepted_form
from leadline.metrics.http_messages import (
    LAST_CHUNK,
    PLAIN,
    BadHttpRequest,
    HttpRequest,
    chunk,
    parse_request,
    response_head,
)
from leadline.metrics.recent_counts import PERIOD_S
from leadline.runtime.network import ListeningSocket, Network, Socket
from leadline.runtime.ordered_set import OrderedSet

MAX_CONNECTIONS = 32
MAX_SCRAPES = 4  # at the same time
TIMEOUT_S = 30.0
STEP_S = 0.002  # of one turn of the loop
STEP_BYTES = 64 * 1024
SHORTAGE_S = 0.5  # until accept is tried again after it failed
BACKLOG = 64
RECEIVE_BYTES = 4096

METRICS, HEALTH, READINESS = "/metrics", "/healthz", "/readyz"


class MeasuredProcess(Protocol):
    """What the server serves."""

    def scrape(self, form: TextForm) -> Iterator[str]:
        """The text of all metrics, portion by portion."""

    def reasons_not_ready(self) -> list[str]:
        """Empty: it does its work."""

    def end_period(self) -> None:
        """Is called every PERIOD_S."""


class MetricsServer:
    """`listen`, then `start`; in the end `stop`."""

    def __init__(self, process: MeasuredProcess, network: Network) -> None:
        self.process, self._network = process, network
        self._listener: ListeningSocket | None = None
        self.connections: OrderedSet[HttpConnection] = OrderedSet()  # the oldest first
        self.scrapes = 0  # under way
        self._period: asyncio.TimerHandle | None = None
        self._shortage: asyncio.TimerHandle | None = None  # set while accept fails

    def listen(self, host: str, port: int) -> tuple[str, int]:
        """The address that it is bound to."""
        try:
            self._listener = self._network.listen(host, port, BACKLOG)
        except OSError as error:
            raise OSError(error.errno, f"cannot listen on {host or '*'}:{port} (metrics): {error.strerror}") from None
        return self._listener.address

    def start(self) -> None:
        assert self._listener is not None
        self._watch()
        self._schedule_period()

    def stop(self) -> None:
        for timer in (self._period, self._shortage):
            if timer is not None:
                timer.cancel()
        if self._listener is not None:
            self._listener.on_readable(None)
            self._listener.close()
            self._listener = None
        for connection in list(self.connections):
            connection.close()

    def _schedule_period(self) -> None:
        self._period = asyncio.get_running_loop().call_later(PERIOD_S, self._end_period)

    def _end_period(self) -> None:
        self.process.end_period()
        self._schedule_period()

    def _watch(self) -> None:
        assert self._listener is not None
        self._listener.on_readable(self._accept)

    def _accept(self) -> None:
        """Accept one connection. The next one is accepted in the next turn."""
        assert self._listener is not None
        try:
            sock, _, _ = self._listener.accept_connection()
        except (BlockingIOError, InterruptedError):
            return  # it is gone again
        except OSError:  # descriptors or memory are short: the clients of the broker come first
            self._listener.on_readable(None)
            self._shortage = asyncio.get_running_loop().call_later(SHORTAGE_S, self._watch)
            return
        connection = HttpConnection(self, sock)
        self.connections.add(connection)
        if len(self.connections) > MAX_CONNECTIONS:
            next(iter(self.connections)).close()
        connection.start()

    # Requests

    def respond(self, request: HttpRequest) -> "HttpResponse":
        if request.path == METRICS:
            return self._metrics(request)
        if request.path == HEALTH:
            return HttpResponse(HTTPStatus.OK, "ok\n")
        if request.path == READINESS:
            if reasons := self.process.reasons_not_ready():
                return HttpResponse(HTTPStatus.SERVICE_UNAVAILABLE, "not ready: " + "; ".join(reasons) + "\n")
            return HttpResponse(HTTPStatus.OK, "ready\n")
        return HttpResponse(HTTPStatus.NOT_FOUND, f"{METRICS}, {HEALTH} and {READINESS} are served here\n")

    def _metrics(self, request: HttpRequest) -> "HttpResponse":
        form = accepted_form(request.accept)
        if request.method == "HEAD":
            return HttpResponse(HTTPStatus.OK, "", form.value)
        if self.scrapes >= MAX_SCRAPES:
            reason = f"{MAX_SCRAPES} scrapes are under way: try again\n"
            return HttpResponse(HTTPStatus.SERVICE_UNAVAILABLE, reason)
        return ScrapeResponse(self, form)


class HttpResponse:
    """A response whose body is there."""

    def __init__(self, status: HTTPStatus, body: str, content_type: str = PLAIN) -> None:
        self.status, self.content_type = status, content_type
        self.body = body.encode()

    def head(self, *, in_chunks: bool) -> bytes:
        return response_head(self.status, self.content_type, len(self.body))

    @property
    def is_over(self) -> bool:
        """There is no further part."""
        return not self.body

    def next_part(self) -> bytes:
        body, self.body = self.body, b""
        return body

    def close(self) -> None: ...


class ScrapeResponse(HttpResponse):
    """A response whose body is made in steps."""

    def __init__(self, server: MetricsServer, form: TextForm) -> None:
        super().__init__(HTTPStatus.OK, "", form.value)
        self._server, self._in_chunks, self._is_over = server, False, False
        self._portions: Iterator[str] = server.process.scrape(form)
        self._loop = asyncio.get_running_loop()
        server.scrapes += 1

    def head(self, *, in_chunks: bool) -> bytes:
        self._in_chunks = in_chunks
        return response_head(self.status, self.content_type, None, in_chunks=in_chunks)

    @property
    def is_over(self) -> bool:
        return self._is_over

    def next_part(self) -> bytes:
        """One step, which may have no text yet."""
        ends_s, texts, size = self._loop.time() + STEP_S, list[str](), 0
        for text in self._portions:
            texts.append(text)
            size += len(text)
            if size >= STEP_BYTES or self._loop.time() >= ends_s:
                break
        else:
            self._is_over = True
        data = "".join(texts).encode()
        if not self._in_chunks:
            return data
        return (chunk(data) if data else b"") + (LAST_CHUNK if self._is_over else b"")

    def close(self) -> None:
        self._server.scrapes -= 1


class HttpConnection:
    """One request and its response."""

    def __init__(self, server: MetricsServer, sock: Socket) -> None:
        self._server, self._sock = server, sock
        self._received = bytearray()
        self._response: HttpResponse | None = None
        self.unsent = b""  # of the response until now
        self._is_closed = self._awaits_room = False
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.call_later(TIMEOUT_S, self.close)

    def start(self) -> None:
        self._sock.on_readable(self._readable)

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._deadline.cancel()
        self._sock.on_readable(None)
        self._sock.on_writable(None)
        self._sock.close()
        if self._response is not None:
            self._response.close()
        self._server.connections.discard(self)

    def _readable(self) -> None:
        """Once the request is there, nothing more is read: the socket's buffer bounds what a client may send."""
        buffer = bytearray(RECEIVE_BYTES)
        try:
            count = self._sock.recv_into(buffer)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            count = 0
        if not count:
            self.close()
            return
        self._received += memoryview(buffer)[:count]
        try:
            request = parse_request(self._received)
        except BadHttpRequest as error:
            self._respond(HttpResponse(error.status, f"{error}\n"))
            return
        if request is not None:
            self._respond(self._server.respond(request), request)

    def _respond(self, response: HttpResponse, request: HttpRequest | None = None) -> None:
        self._sock.on_readable(None)
        self.unsent = response.head(in_chunks=request is not None and request.takes_chunks)
        self._response = response
        if request is not None and request.method == "HEAD":
            response.body = b""
        self._send()

    def _send(self) -> None:
        """Send the pending bytes. Once all have left, the next step follows in the next turn."""
        if self._is_closed or self._response is None:
            return
        if self.unsent:
            try:
                self.unsent = self.unsent[self._sock.send(self.unsent) :]
            except (BlockingIOError, InterruptedError):
                pass
            except OSError:
                self.close()
                return
        if bool(self.unsent) is not self._awaits_room:
            self._awaits_room = bool(self.unsent)
            self._sock.on_writable(self._send if self._awaits_room else None)
        if not self.unsent:
            self._loop.call_soon(self._step)

    def _step(self) -> None:
        if self._is_closed or self._response is None:
            return
        if self._response.is_over:
            self.close()
            return
        try:
            self.unsent = self._response.next_part()
        except Exception as error:  # noqa: BLE001  a fault of ours: logged in full, and the end of this scrape only
            self._loop.call_exception_handler({"message": "collecting metrics", "exception": error})
            self.close()
            return
        self._send()
