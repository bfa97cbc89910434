"""Addresses of servers, and the kind of server at an address that is not a Kafka broker."""

import re
import socket
import struct
import time
from collections.abc import Callable, Iterable
from threading import Thread
from typing import NamedTuple

from leadline.admin.formatting import address_text

ANSWER_S = 1.5  # a server that sends nothing for so long counts as silent
DEFAULT_PORT = 9092
_ADDRESS = re.compile(r"(?:(?:PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL)://)?(\[[^\]/]*\]|[^:/\[\]]*)(?::([^:/]*))?", re.I)
_API_VERSIONS, _CORRELATION = 18, 0x1EAD
_CLIENT = b"leadline"
_REQUEST = struct.pack(f">hhih{len(_CLIENT)}s", _API_VERSIONS, 0, _CORRELATION, len(_CLIENT), _CLIENT)
_HTTP_REQUEST = b"HEAD / HTTP/1.0\r\n\r\n"
_TLS_RECORDS = (b"\x15\x03", b"\x16\x03")  # an alert, a handshake; then the version


class ServerAddress(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return address_text(self.host, self.port)


def addresses(text: str) -> list[ServerAddress]:
    """The addresses in HOST:PORT,HOST:PORT. ValueError for the first that is malformed."""
    parts = [part for part in text.replace(" ", "").split(",") if part]
    if not parts:
        raise ValueError("expected HOST:PORT")
    return [_address(part) for part in parts]


def _address(text: str) -> ServerAddress:
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise ValueError(f"{text}: expected HOST:PORT")
    host, port = match[1].strip("[]"), match[2]
    if not host:
        raise ValueError(f"{text}: a host is missing")
    if port is not None and not (port.isascii() and port.isdigit() and 0 < int(port) <= 65_535):
        raise ValueError(f"{text}: a port is a number from 1 to 65535")
    return ServerAddress(host, DEFAULT_PORT if port is None else int(port))


class Diagnosis(NamedTuple):
    """The kind of server at an address."""

    text: str
    is_final: bool  # it will not change: no need to wait
    is_there: bool = False  # something answers that may be a broker


KAFKA = Diagnosis("it speaks Kafka's protocol", is_final=False, is_there=True)
SILENT = Diagnosis(
    "it accepts connections and does not answer: a broker that hangs, or no Kafka broker",
    is_final=False,
)
TLS = Diagnosis("it speaks TLS: set security.protocol to SSL or SASL_SSL", is_final=True, is_there=True)
HTTP = Diagnosis("an HTTP server answers there, not a Kafka broker", is_final=True)
CLOSES = Diagnosis(
    "it closes the connection: it expects TLS (security.protocol=SSL), or is no Kafka broker",
    is_final=False,
    is_there=True,
)


def diagnose(address: ServerAddress, answer_s: float = ANSWER_S) -> Diagnosis:
    """The kind of server there. Takes at most three times `answer_s`."""
    try:
        reply = _first_bytes(address, struct.pack(">i", len(_REQUEST)) + _REQUEST, answer_s)
        if reply is None and (_first_bytes(address, _HTTP_REQUEST, answer_s) or b"").startswith(b"HTTP/"):
            return HTTP
        if reply == b"" and _speaks_tls(address, answer_s):
            return TLS
    except socket.gaierror:
        return Diagnosis("there is no such host", is_final=False)
    except TimeoutError:
        return Diagnosis("connecting timed out: nothing answers at this address", is_final=False)
    except OSError as error:
        return Diagnosis(error.strerror or str(error), is_final=False)
    return _diagnosis_of(reply)


def diagnose_for_tls(address: ServerAddress, answer_s: float = ANSWER_S) -> Diagnosis:
    """The same for a client that speaks TLS itself: a server that does so, too, may be a broker."""
    diagnosis = diagnose(address, answer_s)
    return KAFKA if diagnosis == TLS else diagnosis


def _first_bytes(address: ServerAddress, request: bytes, answer_s: float) -> bytes | None:
    """The first bytes of the reply. Empty: the connection was closed instead. None: no reply in time."""
    with socket.create_connection(address, answer_s) as connection:
        connection.settimeout(answer_s)
        try:
            connection.sendall(request)
            return connection.recv(64)
        except TimeoutError:
            return None
        except ConnectionError:
            return b""


def _speaks_tls(address: ServerAddress, answer_s: float) -> bool:
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # no secret is sent
    try:
        with socket.create_connection(address, answer_s) as connection, context.wrap_socket(connection):
            return True
    except ssl.SSLError as error:
        return error.reason is not None and "ALERT" in error.reason
    except OSError:
        return False


def _diagnosis_of(reply: bytes | None) -> Diagnosis:
    if reply is None:
        return SILENT
    if not reply:
        return CLOSES
    if reply.startswith(b"HTTP/"):
        return HTTP
    if reply.startswith(_TLS_RECORDS):
        return TLS
    if reply[4:8] == struct.pack(">i", _CORRELATION):
        return KAFKA
    shown = re.sub(r"[^ -~]", ".", reply[:20].decode("ascii", "replace"))
    return Diagnosis(f"the server there is not a Kafka broker: its reply starts with {shown!r}", is_final=True)


def diagnose_broker(address: ServerAddress, answer_s: float = ANSWER_S) -> Diagnosis:
    """Whether a broker without TLS answers in time."""
    try:
        return _diagnosis_of(_first_bytes(address, struct.pack(">i", len(_REQUEST)) + _REQUEST, answer_s))
    except OSError as error:
        return Diagnosis(error.strerror or str(error), is_final=False)


def diagnose_tls_broker(address: ServerAddress, answer_s: float = ANSWER_S) -> Diagnosis:
    return TLS if _speaks_tls(address, answer_s) else SILENT


class Diagnoses:
    """Diagnoses all servers at the same time, in daemon threads."""

    def __init__(
        self,
        servers: Iterable[ServerAddress],
        answer_s: float = ANSWER_S,
        diagnose_server: Callable[[ServerAddress, float], Diagnosis] = diagnose,
    ) -> None:
        self.by_server: dict[ServerAddress, Diagnosis] = {}
        self._threads = [
            Thread(target=self._add, args=(diagnose_server, server, answer_s), daemon=True) for server in {*servers}
        ]
        for thread in self._threads:
            thread.start()

    def _add(
        self, diagnose_server: Callable[[ServerAddress, float], Diagnosis], server: ServerAddress, answer_s: float
    ) -> None:
        self.by_server[server] = diagnose_server(server, answer_s)

    @property
    def are_final(self) -> bool:
        return len(self.by_server) == len(self._threads) and all(
            diagnosis.is_final for diagnosis in self.by_server.values()
        )

    def wait(self, within_s: float) -> None:
        deadline = time.monotonic() + within_s
        for thread in self._threads:
            thread.join(max(deadline - time.monotonic(), 0))
