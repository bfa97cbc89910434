"""The network port: how a broker listens, accepts, connects, receives and sends.

No other module of a broker opens a socket or resolves a name, so a whole broker runs on any other network that
has these calls. Only the ZooKeeper client is outside: coordination has its own port.

The port creates sockets. None of their calls blocks: a call that would raises BlockingIOError. Their names and
arguments are those of Python's sockets, so the real ones are Python's own, and a hot call costs nothing extra.

A transform between the network and frames, such as TLS, is a `Socket` over another `Socket`. It decrypts in
`recv_into`, encrypts in `send`, `sendmsg` and `send_file`, and calls its reader again while it holds decrypted bytes.
"""

import asyncio
import os
import socket
import ssl
import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Protocol, TypeVar

from leadline.model import Buffer

P = TypeVar("P", bound=asyncio.BaseProtocol)

UNPACED = b"reno"  # congestion control between processes of one machine: no pacing, and every Linux has it
MSG_MORE: int = getattr(socket, "MSG_MORE", 0)  # a flag of `send` and `sendmsg`: more bytes follow at once
_CONGESTION: int | None = getattr(socket, "TCP_CONGESTION", None)  # None: the system has a single one
SHUT_WR = socket.SHUT_WR  # of `shutdown`

_NO_LINGER = struct.pack("ii", 1, 0)


class Socket(Protocol):
    """A connected stream of bytes."""

    def recv_into(self, buffer: bytearray | memoryview, /) -> int:
        """The number of bytes received; 0 if the peer has closed its side."""

    def send(self, data: Buffer, flags: int = 0, /) -> int: ...
    def sendmsg(self, buffers: Iterable[Buffer], ancillary: Iterable[tuple[int, int, bytes]], flags: int, /) -> int: ...

    def send_file(self, fd: int, position: int, count: int, /) -> int:
        """Send part of a file. 0: the file ends at the position."""

    def on_readable(self, call: Callable[[], None] | None, /) -> None:
        """Call this whenever bytes, or the peer's close, can be received. None: no longer."""

    def on_writable(self, call: Callable[[], None] | None, /) -> None:
        """Call this whenever there is room to send. None: no longer."""

    def set_buffers(self, send_bytes: int, receive_bytes: int, /) -> None:
        """Set the sizes of the socket's buffers; the system chooses a size that is not positive."""

    def shutdown(self, how: int, /) -> None:
        """With `SHUT_WR`: send nothing more. The peer reads the end after what was sent."""

    def close(self) -> None: ...


class ListeningSocket(Protocol):
    @property
    def address(self) -> tuple[str, int]:
        """The host and port that it is bound to."""

    def accept_connection(self) -> tuple[Socket, str, int]:
        """The next connection, with the host and port of the peer."""

    def on_readable(self, call: Callable[[], None] | None, /) -> None: ...
    def close(self) -> None: ...


class Network(Protocol):
    def listen(self, host: str, port: int, backlog: int) -> ListeningSocket:
        """Bind to an address. As in Kafka, an empty host means all addresses."""

    async def connect(self, protocol: Callable[[], P], host: str, port: int, tls: ssl.SSLContext | None = None) -> P:
        """Connect to an address. The protocol is asyncio's: it gets a transport, then what arrives.

        With TLS it gets the transport after the handshake, and sees plain bytes. ssl.SSLError: the handshake failed.
        """

    def reset(self, transport: asyncio.Transport) -> None:
        """Close a connection at once: data that is not sent yet is dropped."""

    async def addresses_of(self, host: str) -> list[str]:
        """The addresses that a host name resolves to. OSError: there is no such host."""

    def host_name(self) -> str:
        """The name of this host."""


class TcpSocket(socket.socket):
    """A connected stream over TCP: Python's socket, with `sendfile` and the loop's callbacks."""

    def send_file(self, fd: int, position: int, count: int, /) -> int:
        return os.sendfile(self.fileno(), fd, position, count)

    def on_readable(self, call: Callable[[], None] | None, /) -> None:
        loop = asyncio.get_running_loop()
        if call is None:
            loop.remove_reader(self.fileno())
        else:
            loop.add_reader(self.fileno(), call)

    def on_writable(self, call: Callable[[], None] | None, /) -> None:
        loop = asyncio.get_running_loop()
        if call is None:
            loop.remove_writer(self.fileno())
        else:
            loop.add_writer(self.fileno(), call)

    def set_buffers(self, send_bytes: int, receive_bytes: int, /) -> None:
        if send_bytes > 0:
            self.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_bytes)
        if receive_bytes > 0:
            self.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)


class TcpListeningSocket(TcpSocket):
    @property
    def address(self) -> tuple[str, int]:
        name = self.getsockname()
        return name[0], name[1]

    def accept_connection(self) -> tuple[Socket, str, int]:
        accepted, address = self.accept()
        sock = TcpSocket(accepted.family, accepted.type, accepted.proto, accepted.detach())
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if _CONGESTION is not None and address[0] == sock.getsockname()[0]:
            with suppress(OSError):  # the system's congestion control then stays in use
                sock.setsockopt(socket.IPPROTO_TCP, _CONGESTION, UNPACED)
        scope = f"%{address[3]}" if len(address) > 3 and address[3] else ""  # of a link-local IPv6 address
        return sock, address[0].removeprefix("::ffff:") + scope, address[1]


class TcpNetwork:
    """The real network."""

    def listen(self, host: str, port: int, backlog: int) -> ListeningSocket:
        family = socket.AF_INET6 if ":" in host or (not host and socket.has_dualstack_ipv6()) else socket.AF_INET
        sock = TcpListeningSocket(family, socket.SOCK_STREAM)  # not inherited, as all sockets of Python
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if not host else 1)
            sock.bind((host, port))
            sock.listen(backlog)
        except OSError:
            sock.close()
            raise
        return sock

    async def connect(self, protocol: Callable[[], P], host: str, port: int, tls: ssl.SSLContext | None = None) -> P:
        _, connected = await asyncio.get_running_loop().create_connection(protocol, host, port, ssl=tls)
        return connected

    def reset(self, transport: asyncio.Transport) -> None:
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        transport.abort()

    async def addresses_of(self, host: str) -> list[str]:
        infos = await asyncio.get_running_loop().getaddrinfo(host, None)  # in a thread: it may take seconds
        return sorted({str(info[4][0]) for info in infos})

    host_name = staticmethod(socket.gethostname)
