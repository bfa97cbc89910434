"""A `Net` on the loopback, with a handler that echoes frames, and its clients."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from leadline.broker.connection import Connection
from leadline.broker.connection_quotas import ConnectionLimits
from leadline.broker.connection_state import ReceiveState
from leadline.broker.net import Net
from leadline.broker.reply_queue import PendingReply, Reply
from leadline.runtime.event_loop import EventLoop
from leadline.runtime.network import Network
from tests.support.net import net_of

Served = Reply | PendingReply | Awaitable[Reply | None] | None
SECONDS = 60
BLOCKED = ReceiveState.BLOCKED


def sized(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def echo(connection: Connection, frame: memoryview) -> Served:
    return [sized(bytes(frame))]


class Peer:
    """The other end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, *frames: bytes) -> None:
        self.writer.write(b"".join(map(sized, frames)))

    async def receive(self) -> bytes | None:
        """A frame; None if the connection is closed."""
        try:
            size = int.from_bytes(await asyncio.wait_for(self.reader.readexactly(4), SECONDS), "big")
            return await asyncio.wait_for(self.reader.readexactly(size), SECONDS)
        except (asyncio.IncompleteReadError, ConnectionResetError):
            return None

    async def ask(self, frame: bytes) -> bytes | None:
        self.send(frame)
        return await self.receive()

    def close(self) -> None:
        self.writer.close()


class LoopbackServer:
    """A `Net` on the loopback, and its clients."""

    def __init__(self, net: Net, port: int, host: str) -> None:
        self.net, self.port, self.host = net, port, host
        self.peers: list[Peer] = []

    async def peer(self, receive_bytes: int = 0, host: str | None = None) -> Peer:
        family = socket.AF_INET6 if ":" in (host or self.host) else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        if receive_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        await asyncio.get_running_loop().sock_connect(sock, (host or self.host, self.port))
        reader, writer = await asyncio.open_connection(sock=sock, limit=1 << 20)
        peer = Peer(reader, writer)
        self.peers.append(peer)
        return peer


class Raw:
    """A peer whose bytes have arrived when `send` returns, also from within what serves another one."""

    def __init__(self, server: LoopbackServer) -> None:
        self.sock = socket.create_connection((server.host, server.port), timeout=SECONDS)

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def close(self) -> None:
        self.sock.close()


@asynccontextmanager
async def loopback_server(
    serve: Callable[[Connection, memoryview], Served] = echo,
    host: str = "127.0.0.1",
    network: Network | None = None,
    now: Callable[[], float] = time.monotonic,
    **limits: object,
) -> AsyncIterator[LoopbackServer]:
    net = net_of(ConnectionLimits(**limits), None, network, now)  # type: ignore[arg-type]
    _, port = net.listen("PLAINTEXT", host, 0)
    net.start(serve)
    server = LoopbackServer(net, port, host or "127.0.0.1")
    try:
        yield server
    finally:
        for peer in server.peers:
            peer.close()
        await net.close()


def is_blocked(server: LoopbackServer) -> bool:
    return any(connection.receive_state is ReceiveState.BLOCKED for connection in server.net.connections)


async def turns(count: int = 100) -> None:
    """Let the loop serve whatever is ready, again and again: what has not happened by then does not happen."""
    for _ in range(count):
        await asyncio.sleep(0)


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Run a test on the loop that a broker has."""

    async def main() -> None:
        await test()

    with asyncio.Runner(loop_factory=EventLoop) as runner:
        runner.run(main())


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
