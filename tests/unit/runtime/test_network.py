"""The real network: sockets that do not block, send files, and tell when they are ready."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from leadline.runtime.network import Socket, TcpNetwork

SECONDS = 60

Scenario = Callable[[Socket, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def accepted(scenario: Scenario) -> None:
    """Run a scenario with both ends of a connection: ours, accepted, and a client's."""
    listening = TcpNetwork().listen("127.0.0.1", 0, 10)
    host, port = listening.address
    with pytest.raises(BlockingIOError):
        listening.accept_connection()
    readable = asyncio.Event()
    listening.on_readable(readable.set)
    reader, writer = await asyncio.open_connection(host, port)
    await readable.wait()
    listening.on_readable(None)
    sock, peer_host, peer_port = listening.accept_connection()
    assert (peer_host, peer_port) == writer.get_extra_info("sockname")
    await scenario(sock, reader, writer)
    sock.close()
    listening.close()
    writer.close()


def run(scenario: Scenario) -> None:
    asyncio.run(asyncio.wait_for(accepted(scenario), SECONDS))


async def when_ready(watch: Callable[[Callable[[], None] | None], None]) -> None:
    ready = asyncio.Event()
    watch(ready.set)
    await ready.wait()
    watch(None)


def test_bytes_and_the_end_are_received_when_they_have_arrived() -> None:
    async def scenario(sock: Socket, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        room = bytearray(100)
        with pytest.raises(BlockingIOError):
            sock.recv_into(room)
        writer.write(b"hello")
        await when_ready(sock.on_readable)
        assert room[: sock.recv_into(room)] == b"hello"
        writer.write_eof()
        await when_ready(sock.on_readable)
        assert sock.recv_into(room) == 0

    run(scenario)


def test_bytes_and_parts_of_files_are_sent(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")

    async def scenario(sock: Socket, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await when_ready(sock.on_writable)
        assert sock.send(b"one ") == 4
        assert sock.sendmsg([b"two", b" "], (), 0) == 4
        with (tmp_path / "file").open("rb") as file:
            assert sock.send_file(file.fileno(), 2, 3) == 3
            assert sock.send_file(file.fileno(), 10, 3) == 0
        assert await reader.readexactly(11) == b"one two 234"

    run(scenario)


def test_a_full_socket_takes_no_more() -> None:
    async def scenario(sock: Socket, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sock.set_buffers(10_000, -1)

        def fill() -> None:
            while True:
                sock.send(bytes(100_000))

        with pytest.raises(BlockingIOError):
            fill()

    run(scenario)


def test_a_reset_connection_does_not_end_in_an_orderly_way() -> None:
    async def main() -> None:
        network, outcome = TcpNetwork(), asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with pytest.raises(ConnectionResetError):
                await reader.read()
            outcome.set()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            protocol = await network.connect(_Connected, "127.0.0.1", port)
            network.reset(protocol.transport)
            await asyncio.wait_for(outcome.wait(), SECONDS)

    asyncio.run(main())


class _Connected(asyncio.Protocol):
    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport


def test_an_address_in_use_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="Address already in use"):
        TcpNetwork().listen("127.0.0.1", taken.getsockname()[1], 10)


def test_an_address_resolves_to_itself() -> None:
    assert asyncio.run(TcpNetwork().addresses_of("127.0.0.1")) == ["127.0.0.1"]
