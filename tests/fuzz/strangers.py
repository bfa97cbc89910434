"""A thousand connections that never log in, from a process of their own: `-m tests.fuzz.strangers PORT FLOOD CA`.

It reads commands from stdin, one a line, and says on stdout when each is done:

    come COUNT RATE       open so many connections, so many in a second, and send on each what the flood begins with
    drip SECONDS RATE     send one byte more on one after the other, so many in a second
    leave                 close them all
"""

import os
import resource
import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from struct import pack

from leadline.wire.primitives import write_varint

PATIENCE_S = 60
PIECE_BYTES = 32 * 1024  # sent at once: a large piece would hold up the system, and with it everybody
COURTESY = 5  # nobody but the broker should be slower because of this process
TAGGED_HEADER = bytes.fromhex("0012 0003 00000007 0004 6576696c")  # of ApiVersions v3; then its tagged fields


def client_hello() -> bytes:
    outgoing = ssl.MemoryBIO()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def tagged(count: int) -> bytes:
    """A request whose header has so many tagged fields, of two bytes each."""
    body = TAGGED_HEADER + write_varint(count) + bytes(2 * count)
    return pack(">i", len(body)) + body


FLOODS: dict[str, Callable[[], bytes]] = {  # what each connection sends first
    "announce 2 GB": lambda: pack(">i", 2**31 - 1) + bytes(100),
    "drip a byte a second": lambda: pack(">i", 524_288),
    "a million tagged fields": lambda: tagged(1_000_000),
    "tagged fields up to the limit of a login": lambda: tagged(250_000),
    "half a handshake": client_hello,
}


class Strangers:
    def __init__(self, port: int, first: bytes, tls: ssl.SSLContext | None) -> None:
        self._port, self._first, self._tls = port, first, tls
        self._sockets: list[socket.socket] = []

    def come(self, count: float, rate: float) -> None:
        for _ in paced(int(count), rate):
            stranger = socket.create_connection(("127.0.0.1", self._port), timeout=PATIENCE_S)
            if self._tls is not None:
                stranger = self._tls.wrap_socket(stranger, server_hostname="localhost")
            stranger.setblocking(False)
            self._sockets.append(stranger)
            with suppress(OSError):  # it is full, or closed by the broker
                for at in range(0, len(self._first), PIECE_BYTES):
                    stranger.send(self._first[at : at + PIECE_BYTES])

    def drip(self, seconds: float, rate: float) -> None:
        for number in paced(int(seconds * rate), rate):
            with suppress(OSError):
                self._sockets[number % len(self._sockets)].send(b"\0")

    def leave(self) -> None:
        for stranger in self._sockets:
            stranger.close()
        self._sockets.clear()


def paced(count: int, rate: float) -> Iterator[int]:
    began = time.monotonic()
    for number in range(count):
        ahead_s = began + number / rate - time.monotonic()
        if ahead_s > 0:
            time.sleep(ahead_s)
        yield number


def main(port: str, flood: str, authorities: str = "") -> None:
    """`authorities`: a file of certificates; with it, each connection completes its handshake first."""
    os.nice(COURTESY)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    tls = ssl.create_default_context(cafile=authorities) if authorities else None
    strangers = Strangers(int(port), FLOODS[flood](), tls)
    for line in sys.stdin:
        command, *numbers = line.split()
        getattr(strangers, command)(*map(float, numbers))
        print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
