"""Connections over the loopback: frames in, replies out, in order; a fault of one connection ends only that one."""

import asyncio
import errno
import os
import resource
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from leadline.broker.acceptor import SHORTAGE_SECONDS
from leadline.broker.connection import LARGE_BYTES, Connection
from leadline.broker.connection_quotas import LISTEN_BACKLOG, SEND_BUFFER_BYTES, ConnectionLimits
from leadline.broker.connection_state import CloseConnection, ReceiveState
from leadline.broker.net import Net
from leadline.broker.pending_slice import LOAD_BYTES, PendingSlice
from leadline.broker.reconfiguration import limits_of
from leadline.broker.reply_queue import MAX_QUEUED, PendingReply, Reply, unchanged
from leadline.broker.sender import STEP_BYTES, TURN_BYTES
from leadline.config.broker import broker_settings
from leadline.log.files import OpenFile
from leadline.log.segment import FileSlice
from leadline.runtime.event_loop import EventLoop
from leadline.runtime.network import UNPACED, ListeningSocket, Network, Socket, TcpNetwork, TcpSocket
from leadline.runtime.ports import OsFiles
from leadline.runtime.step_scheduler import Step
from leadline.wire.primitives import Piece
from tests.support.waiting import eventually

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


@asynccontextmanager
async def loopback_server(
    serve: Callable[[Connection, memoryview], Served] = echo,
    host: str = "127.0.0.1",
    network: Network | None = None,
    now: Callable[[], float] = time.monotonic,
    **limits: object,
) -> AsyncIterator[LoopbackServer]:
    net = Net(ConnectionLimits(**limits), network, now)  # type: ignore[arg-type]
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


def test_requests_that_arrive_together_are_answered_in_their_order() -> None:
    async def test() -> None:
        async def slowly(frame: bytes) -> Reply:
            await turns(5)
            return [sized(frame)]

        def serve(connection: Connection, frame: memoryview) -> Served:
            data = bytes(frame)
            if data.startswith(b"slow"):
                return slowly(data)
            return sized(data) if data.startswith(b"whole") else [sized(data)]

        async with loopback_server(serve) as server:
            peer = await server.peer()
            requests = [b"slow 1", b"2", b"whole 3", b"4", b"slow 5", b"slow 6", b"whole 7", b"8" * 300_000, b"9"]
            peer.send(*requests)
            assert [await peer.receive() for _ in requests] == requests

    run(test)


def test_a_buffer_that_a_handler_still_refers_to_is_used_again_without_harm() -> None:
    """As what failed may hold its records until garbage is collected, and the next frame is larger."""
    held: list[memoryview] = []

    def serve(connection: Connection, frame: memoryview) -> Served:
        held.append(frame[:])
        return [sized(bytes(frame))]

    async def test() -> None:
        async with loopback_server(serve) as server:
            peer = await server.peer()
            for request in (b"1" * 1_500_000, b"2" * 1_900_000, b"3" * 1_200_000):
                peer.send(request)
                assert await peer.receive() == request

    run(test)


@pytest.mark.parametrize("size", [0, 1, 255, 262_140, 262_144, 1_048_576, 3_000_000])
def test_a_frame_of_any_size_comes_whole_however_it_is_cut(size: int) -> None:
    async def test() -> None:
        async with loopback_server() as server:
            peer = await server.peer()
            data, step = sized(bytes(n % 251 for n in range(size))), max(size // 3, 1)
            for at in range(0, len(data), step):
                peer.writer.write(data[at : at + step])
                await peer.writer.drain()
                await turns(5)
            assert await peer.receive() == data[4:]
            assert await peer.ask(b"next") == b"next"

    run(test)


def test_a_frame_may_come_byte_by_byte() -> None:
    async def test() -> None:
        async with loopback_server() as server:
            peer = await server.peer()
            for byte in sized(b"abc") + sized(b"de"):
                peer.writer.write(bytes([byte]))
                await turns(5)
            assert (await peer.receive(), await peer.receive()) == (b"abc", b"de")

    run(test)


@pytest.mark.parametrize("size", [1001, 1 << 30, -1, -(1 << 31)])
def test_a_frame_of_an_impossible_size_closes_its_connection_with_one_line(
    size: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with loopback_server(socket_request_max_bytes=1000) as server:
            peer, other = await server.peer(), await server.peer()
            peer.send(b"fine")
            peer.writer.write(size.to_bytes(4, "big", signed=True) + b"rest")
            assert await peer.receive() == b"fine"
            assert await peer.receive() is None
            assert await other.ask(b"still here") == b"still here"

    run(test)
    (line,) = complaints(caplog)
    assert f"a request of {size} bytes; socket.request.max.bytes=1000" in line


def test_requests_before_a_malformed_one_are_still_answered(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        def serve(connection: Connection, frame: memoryview) -> Served:
            if bytes(frame) == b"bad":
                raise CloseConnection("it is bad")
            return [sized(bytes(frame))]

        async with loopback_server(serve) as server:
            peer = await server.peer()
            peer.send(b"one", b"two", b"bad")
            assert [await peer.receive() for _ in range(3)] == [b"one", b"two", None]

    run(test)
    (line,) = complaints(caplog)
    assert line.endswith("closed: it is bad")


@pytest.mark.parametrize("later", [False, True])
def test_a_fault_in_serving_ends_one_connection_and_is_logged_in_full(
    later: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async def fail() -> Reply:
            raise ZeroDivisionError

        def serve(connection: Connection, frame: memoryview) -> Served:
            if bytes(frame) == b"bad":
                if later:
                    return fail()
                raise ZeroDivisionError
            return [sized(bytes(frame))]

        async with loopback_server(serve) as server:
            peer, other = await server.peer(), await server.peer()
            assert await peer.ask(b"bad") is None
            assert await other.ask(b"good") == b"good"

    run(test)
    assert "serving it failed: ZeroDivisionError()" in complaints(caplog)[0]
    assert [record.levelname for record in caplog.records if record.name == "asyncio"] == ["ERROR"]


def test_a_peer_that_leaves_in_the_middle_of_a_frame_is_forgotten_quietly(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with loopback_server(queued_max_request_bytes=1000) as server:
            peer = await server.peer()
            peer.writer.write((5000).to_bytes(4, "big") + b"half")
            await eventually(lambda: len(server.net.connections) == 1 and server.net.memory.is_full)
            peer.close()
            await eventually(lambda: not server.net.connections and not server.net.memory.is_full)

    run(test)
    assert complaints(caplog) == []


def test_a_request_under_way_is_cancelled_when_the_broker_closes_its_connection() -> None:
    async def test() -> None:
        cancelled = asyncio.Event()

        async def wait() -> Reply:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise
            return []

        async with loopback_server(lambda *_: wait()) as server:
            peer = await server.peer()
            peer.send(b"wait")
            await eventually(lambda: is_blocked(server))
            next(iter(server.net.connections)).close("it is enough")
            await asyncio.wait_for(cancelled.wait(), SECONDS)

    run(test)


@pytest.mark.parametrize("leave", ["close", "abort"])
def test_a_request_under_way_is_carried_out_though_its_peer_leaves(
    leave: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As in Kafka, which reads nothing from a connection while its request is under way. The reply goes nowhere."""

    async def test() -> None:
        begun, go_on, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def work() -> Reply:
            begun.set()
            await go_on.wait()
            done.set()
            return sized(b"answer" * 10_000)

        async with loopback_server(lambda *_: work()) as server:
            peer = await server.peer()
            peer.send(b"work")
            await asyncio.wait_for(begun.wait(), SECONDS)
            peer.close() if leave == "close" else peer.writer.transport.abort()
            await asyncio.wait_for(peer.writer.wait_closed(), SECONDS)
            other = await server.peer()
            other.send(b"work")  # the broker has been in its loop since
            go_on.set()
            assert await other.receive() == b"answer" * 10_000
            assert done.is_set()
            await eventually(lambda: len(server.net.connections) == 1)

    run(test)
    assert complaints(caplog) == []


def test_connections_beyond_the_rate_wait() -> None:
    """As in Kafka: those of ten seconds may come at once, and the next one waits for a second."""

    async def test() -> None:
        async with loopback_server(max_connection_creation_rate=1) as server:
            began = asyncio.get_running_loop().time()
            peers = [await server.peer() for _ in range(11)]
            assert await asyncio.gather(*(peer.ask(b"hello") for peer in peers)) == [b"hello"] * 11
            assert asyncio.get_running_loop().time() - began >= 0.5

    run(test)


def test_an_address_that_connects_too_often_is_closed_unread_and_counts_nowhere() -> None:
    async def test() -> None:
        async with loopback_server() as server:
            server.net.rates.address_limits["127.0.0.1"] = 1
            peers = [await server.peer() for _ in range(10)]
            assert await asyncio.gather(*(peer.ask(b"x") for peer in peers)) == [b"x"] * 10
            refused = await server.peer()
            refused.send(b"never read")
            assert await refused.receive() is None
            assert len(server.net.connections) == 10
            del server.net.rates.address_limits["127.0.0.1"]
            assert await (await server.peer()).ask(b"x") == b"x"

    run(test)


def test_a_muted_connection_is_not_read_until_its_time_is_over() -> None:
    async def test() -> None:
        served = list[bytes]()

        def mute(connection: Connection, frame: memoryview) -> Served:
            served.append(bytes(frame))
            if bytes(frame) == b"mute":
                connection.mute(60_000)
            return [sized(bytes(frame))]

        async with loopback_server(mute) as server:
            peer, other = await server.peer(), await server.peer()
            peer.send(b"mute", b"next")
            assert await peer.receive() == b"mute"  # the reply leaves at once
            peer.send(b"after")
            assert await other.ask(b"other") == b"other"
            await turns()
            assert served == [b"mute", b"other"]
            (muted,) = [connection for connection in server.net.connections if connection.receive_state is BLOCKED]
            assert muted._unmuting is not None
            muted._unmuting.cancel()
            muted._unmute()
            assert [await peer.receive(), await peer.receive()] == [b"next", b"after"]

    run(test)


def test_muted_time_is_not_idle_time_but_a_longer_one_ends_in_a_close() -> None:
    async def test() -> None:
        now_s = 1000.0

        def mute(connection: Connection, frame: memoryview) -> Served:
            if bytes(frame) == b"mute":
                connection.mute(600_000)
            return [sized(bytes(frame))]

        async with loopback_server(mute, now=lambda: now_s, connections_max_idle_ms=60_000) as server:
            peer, other = await server.peer(), await server.peer()
            assert await peer.ask(b"mute") == b"mute"
            (muted,) = [connection for connection in server.net.connections if connection.receive_state is BLOCKED]
            now_s += 50
            muted._unmute()
            assert await other.ask(b"other") == b"other"
            now_s += 50
            server.net._close_idle()
            assert muted in server.net.connections  # idle since it was no longer muted
            assert await peer.ask(b"mute") == b"mute"
            now_s += 61
            server.net._close_idle()
            assert muted not in server.net.connections

    run(test)


def test_connections_of_clients_give_way_to_those_between_brokers() -> None:
    async def test() -> None:
        net = Net(ConnectionLimits(max_connections=2, protected_listener="BROKERS"))
        ports = {name: net.listen(name, "127.0.0.1", 0)[1] for name in ("CLIENTS", "BROKERS")}
        net.start(echo)
        clients, brokers = (LoopbackServer(net, ports[name], "127.0.0.1") for name in ("CLIENTS", "BROKERS"))
        first, second = await clients.peer(), await clients.peer()
        assert [await first.ask(b"1"), await second.ask(b"2")] == [b"1", b"2"]
        assert await first.ask(b"1") == b"1"  # used after the second
        third = await brokers.peer()
        assert await third.ask(b"3") == b"3"
        assert await second.receive() is None
        assert await first.ask(b"1") == b"1"
        for server in (clients, brokers):
            for peer in server.peers:
                peer.close()
        await net.close()

    run(test)


def test_a_connection_that_is_muted_twice_stays_so_for_the_longer_time() -> None:
    async def test() -> None:
        times_ms = iter([60_000, 1])

        def mute(connection: Connection, frame: memoryview) -> Served:
            connection.mute(next(times_ms))
            connection.mute(next(times_ms))
            return [sized(bytes(frame))]

        async with loopback_server(mute) as server:
            peer = await server.peer()
            assert await peer.ask(b"x") == b"x"
            (connection,) = server.net.connections
            assert connection.receive_state is BLOCKED
            assert connection._unmuting is not None
            assert connection._unmuting.when() > asyncio.get_running_loop().time() + 30

    run(test)


def test_a_peer_that_sends_no_more_still_gets_its_answer() -> None:
    async def test() -> None:
        go_on = asyncio.Event()

        async def work() -> Reply:
            await go_on.wait()
            return sized(b"answer")

        async with loopback_server(lambda *_: work()) as server:
            peer = await server.peer()
            peer.send(b"work")
            peer.writer.write_eof()
            await eventually(lambda: is_blocked(server))
            go_on.set()
            assert await peer.receive() == b"answer"
            await eventually(lambda: not server.net.connections)

    run(test)


class DeferredReplies:
    """Serves every request at once. The test decides when a request that begins with p gets its reply."""

    def __init__(self) -> None:
        self.served: list[bytes] = []
        self.pending: dict[bytes, asyncio.Future[Reply | None]] = {}

    def __call__(self, connection: Connection, frame: memoryview) -> Served:
        request = bytes(frame)
        self.served.append(request)
        if not request.startswith(b"p"):
            return [sized(request)]
        self.pending[request] = asyncio.get_running_loop().create_future()
        return PendingReply(self.pending[request], unchanged, blocks=False)

    def complete(self, request: bytes) -> None:
        self.pending.pop(request).set_result([sized(request)])


def test_a_reply_that_does_not_block_does_not_hold_up_the_next_requests() -> None:
    async def test() -> None:
        replies = DeferredReplies()
        async with loopback_server(replies) as server:
            peer = await server.peer()
            peer.send(b"p1", b"p2", b"now", b"p3")
            await eventually(lambda: replies.served == [b"p1", b"p2", b"now", b"p3"])
            replies.complete(b"p2")
            replies.complete(b"p1")
            assert [await peer.receive() for _ in range(3)] == [b"p1", b"p2", b"now"]
            replies.complete(b"p3")
            assert await peer.receive() == b"p3"
            assert await peer.ask(b"more") == b"more"

    run(test)


def test_no_further_request_is_served_while_the_queue_of_replies_is_full() -> None:
    async def test() -> None:
        replies = DeferredReplies()
        requests = [f"p{n}".encode() for n in range(MAX_QUEUED + 5)]
        async with loopback_server(replies) as server:
            peer = await server.peer()
            peer.send(*requests)
            await eventually(lambda: len(replies.served) == MAX_QUEUED)
            await turns()
            assert replies.served == requests[:MAX_QUEUED]
            for request in requests:
                await eventually(lambda request=request: request in replies.pending)  # type: ignore[misc]
                replies.complete(request)
                assert await peer.receive() == request

    run(test)


def test_an_answer_that_fails_ends_its_connection_after_the_replies_before_it() -> None:
    async def test() -> None:
        replies = DeferredReplies()
        async with loopback_server(replies) as server:
            peer = await server.peer()
            peer.send(b"p1", b"p2")
            await eventually(lambda: len(replies.pending) == 2)
            replies.complete(b"p1")
            replies.pending[b"p2"].set_exception(CloseConnection("it cannot be answered"))
            assert [await peer.receive(), await peer.receive()] == [b"p1", None]

    run(test)


def test_an_acknowledgement_is_cancelled_when_its_peer_leaves() -> None:
    async def test() -> None:
        replies = DeferredReplies()
        async with loopback_server(replies) as server:
            peer = await server.peer()
            peer.send(b"p1")
            await eventually(lambda: len(replies.pending) == 1)
            peer.close()
            peer = await server.peer()
            await eventually(lambda: len(server.net.connections) == 1)
            assert replies.pending[b"p1"].cancelled()

    run(test)


@pytest.mark.parametrize("shape", [bytes, lambda frame: [frame]])
def test_a_slow_reader_stops_only_its_own_requests(shape: Callable[[bytes], Reply]) -> None:
    """Ten thousand requests for 100 KB each, unread: what piles up is bounded by what the kernel takes."""

    async def test() -> None:
        served = 0

        def serve(connection: Connection, frame: memoryview) -> Served:
            nonlocal served
            served += 1
            return shape(sized(b"x" * 100_000 if bytes(frame) == b"much" else b"little"))

        async with loopback_server(serve) as server:
            slow, quick = await server.peer(receive_bytes=4096), await server.peer()
            slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
            slow.send(*[b"much"] * 10_000)
            for _ in range(200):
                assert await quick.ask(b"a") == b"little"
            assert served < 300
            slow.writer.transport.resume_reading()  # type: ignore[attr-defined]
            for _ in range(50):
                assert await slow.receive() == b"x" * 100_000

    run(test)


class Raw:
    """A peer whose bytes have arrived when `send` returns, also from within what serves another one."""

    def __init__(self, server: LoopbackServer) -> None:
        self.sock = socket.create_connection((server.host, server.port), timeout=SECONDS)

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def close(self) -> None:
        self.sock.close()


def test_small_requests_are_served_between_large_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leadline.runtime.step_scheduler.QUIET_SECONDS", 1000)
    served: list[bytes] = []

    async def test() -> None:
        async with loopback_server(serve) as server:
            peers.extend(Raw(server) for _ in range(3))
            for large in peers[1:]:
                large.send(LARGE[:70_000])
            await eventually(
                lambda: sum(connection._reader._filled == 70_000 for connection in server.net.connections) == 2
            )
            peers[0].send(sized(b"small"))
            await eventually(lambda: len(served) == 1)
            peers[0].send(sized(b"small"))
            for large in peers[1:]:
                large.send(LARGE[70_000:])
            await eventually(lambda: len(served) == 6)
            for peer in peers:
                peer.close()

    def serve(connection: Connection, frame: memoryview) -> Served:
        served.append(bytes(frame[:5]))
        if served[-1] == b"large":
            peers[0].send(sized(b"small"))
        return None

    LARGE, peers = sized(b"large" + bytes(100_000)), list[Raw]()
    run(test)
    assert served == [b"small", b"small", b"large", b"small", b"large", b"small"]


def test_a_connection_that_waits_for_its_step_does_not_read_until_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next request has begun to arrive, and no small requests are left."""
    monkeypatch.setattr("leadline.runtime.step_scheduler.QUIET_SECONDS", 1000)
    waiting: list[Step] = []

    async def test() -> None:
        async with loopback_server() as server:
            monkeypatch.setattr(server.net.scheduler, "schedule", waiting.append)
            peer, small = await server.peer(), await server.peer()
            assert await small.ask(b"small") == b"small"
            peer.send(LARGE, LARGE)
            for _ in range(100):
                await eventually(lambda: bool(waiting))
                (connection,) = [
                    connection for connection in server.net.connections if connection._reader.partial is not None
                ]
                if connection._reader.is_whole:
                    break
                waiting.pop()()
            server.net.scheduler.last_small_request_s = -2000.0
            await turns()
            waiting.pop()()
            assert [await peer.receive() for _ in range(2)] == [LARGE, LARGE]

    LARGE = bytes(300_000)
    run(test)


def test_large_requests_are_served_at_once_while_no_small_ones_come() -> None:
    async def test() -> None:
        async with loopback_server(serve) as server:
            peer = Raw(server)
            peer.send(LARGE[:70_000])
            await eventually(lambda: any(connection._reader._filled == 70_000 for connection in server.net.connections))
            peer.send(LARGE[70_000:])
            await eventually(lambda: len(lines) == 1)
            peer.close()

    def serve(connection: Connection, frame: memoryview) -> Served:
        lines.append(len(connection.net.scheduler._steps))
        return None

    LARGE, lines = sized(bytes(100_000)), list[int]()
    run(test)
    assert lines == [0]


def test_other_clients_are_served_between_the_many_small_requests_of_one() -> None:
    served: list[bytes] = []
    seconds = 0.0

    async def test() -> None:
        async with loopback_server(serve, now=lambda: seconds) as server:
            peers.extend([await server.peer(), await server.peer()])
            many = [b"many %d" % n for n in range(50)]
            peers[0].send(*many)
            other = Raw(server)
            peers.append(other)
            assert [await peers[0].receive() for _ in many] == many
            other.close()

    def serve(connection: Connection, frame: memoryview) -> Served:
        nonlocal seconds
        seconds += 0.0004
        served.append(bytes(frame))
        if served[-1] == b"many 1":
            peers[2].send(sized(b"other"))
        return [sized(bytes(frame))]

    peers: list[Any] = []
    run(test)
    assert served.index(b"other") < 10
    assert len(served) == 51


def test_slices_of_files_and_bytes_go_out_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(n % 251 for n in range(2_000_000)))
    content = path.read_bytes()

    async def test() -> None:
        file = OpenFile(OsFiles(), str(path))

        def serve(connection: Connection, frame: memoryview) -> Served:
            pieces: list[Piece] = [b"<", FileSlice(file, 100, 1_500_000), b"|", b"|", FileSlice(file, 5, 1), b">"]
            size = 1_500_000 + 5
            return [size.to_bytes(4, "big"), *pieces]

        async with loopback_server(serve) as server:
            peers = [await server.peer(receive_bytes=10_000), await server.peer()]
            for peer in peers:
                peer.send(b"1", b"2")
            for peer in peers:
                for _ in range(2):
                    assert await peer.receive() == b"<" + content[100:1_500_100] + b"||" + content[5:6] + b">"

    run(test)


def test_small_requests_are_served_between_the_steps_of_a_large_reply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leadline.runtime.step_scheduler.QUIET_SECONDS", 1000)
    happened: list[str] = []
    path = tmp_path / "file"
    path.write_bytes(bytes(4 * STEP_BYTES))
    send = PendingSlice.send

    def step(part: PendingSlice, sock: Socket, count: int) -> int:
        happened.append("step")
        raw[0].send(sized(b"small"))
        assert count <= STEP_BYTES
        return send(part, sock, count)

    def serve(connection: Connection, frame: memoryview) -> Served:
        happened.append(bytes(frame).decode())
        if happened[-1] == "small":
            return None
        return [(4 * STEP_BYTES).to_bytes(4, "big"), FileSlice(file, 0, 4 * STEP_BYTES)]

    async def test() -> None:
        async with loopback_server(serve) as server:
            raw.append(Raw(server))
            raw[0].send(sized(b"small"))
            await eventually(lambda: len(happened) == 1)
            assert await (await server.peer()).ask(b"much") == bytes(4 * STEP_BYTES)
            raw[0].close()

    file, raw = OpenFile(OsFiles(), str(path)), list[Raw]()
    monkeypatch.setattr(PendingSlice, "send", step)
    run(test)
    assert happened.count("step") >= 4
    assert not any(pair == ("step", "step") for pair in pairwise(happened)), happened


def test_a_fast_reader_gets_part_of_a_large_reply_in_one_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No small request has come for a while; then one does."""
    happened: list[str] = []
    path = tmp_path / "file"
    path.write_bytes(bytes(5 * TURN_BYTES))

    def takes_all(part: PendingSlice, sock: Socket, count: int) -> int:
        if not happened:
            raw[0].send(sized(b"small"))
        happened.append("step")
        assert count <= TURN_BYTES
        part.position, part.length, part.cached = part.position + count, part.length - count, part.cached - count
        return count

    def serve(connection: Connection, frame: memoryview) -> Served:
        if bytes(frame) == b"much":
            return [FileSlice(file, 0, 5 * TURN_BYTES)]
        happened.append("small")
        return None

    async def test() -> None:
        async with loopback_server(serve) as server:
            raw.append(Raw(server))
            (await server.peer()).send(b"much")
            await eventually(lambda: happened.count("step") >= 5)
            raw[0].close()

    file, raw = OpenFile(OsFiles(), str(path)), list[Raw]()
    monkeypatch.setattr(PendingSlice, "send", takes_all)
    run(test)
    assert "small" in happened[1:3]


def test_a_small_request_for_a_large_reply_does_not_count_as_small(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(LARGE_BYTES))

    def serve(connection: Connection, frame: memoryview) -> Served:
        count = int(frame)
        return [count.to_bytes(4, "big"), FileSlice(file, 0, count)]

    async def test() -> None:
        async with loopback_server(serve) as server:
            peer, before = await server.peer(), server.net.scheduler.last_small_request_s
            await peer.ask(b"%d" % LARGE_BYTES)
            assert server.net.scheduler.last_small_request_s == before
            await peer.ask(b"%d" % (LARGE_BYTES - 1))
            assert server.net.scheduler.last_small_request_s > before

    file = OpenFile(OsFiles(), str(path))
    run(test)


class ColdFiles(OsFiles):
    """Nothing of it is in memory. `loading` gets the position of each range that is to be."""

    def __init__(self, loading: Callable[[int], None]) -> None:
        super().__init__()
        self._loading = loading

    def is_cached(self, fd: int, position: int, length: int, /) -> bool:
        return False

    def load(self, fd: int, position: int, length: int, /) -> None:
        self._loading(position)


def test_the_disk_reads_each_part_of_a_slice_once(tmp_path: Path) -> None:
    """However long it takes, and although the socket has room for more all the time."""
    path = tmp_path / "file"
    path.write_bytes(bytes(3 * LOAD_BYTES))
    positions: list[int] = []

    async def test() -> None:
        loop = asyncio.get_running_loop()

        async def several_turns() -> None:
            for _ in range(10):
                await asyncio.sleep(0)

        def loading(position: int) -> None:
            positions.append(position)
            asyncio.run_coroutine_threadsafe(several_turns(), loop).result(SECONDS)

        file = OpenFile(ColdFiles(loading), str(path))

        def serve(connection: Connection, frame: memoryview) -> Served:
            size = 3 * LOAD_BYTES
            return [size.to_bytes(4, "big"), FileSlice(file, 0, size)]

        async with loopback_server(serve) as server:
            assert await (await server.peer()).ask(b"all of it") == bytes(3 * LOAD_BYTES)

    run(test)
    assert positions == [0, LOAD_BYTES, 2 * LOAD_BYTES]


def test_the_send_buffer_is_ours_unless_it_is_set() -> None:
    def send_buffer(**settings: str) -> int:
        texts = {name.replace("_", "."): text for name, text in settings.items()}
        return limits_of(broker_settings(texts)).socket_send_buffer_bytes

    assert send_buffer() == SEND_BUFFER_BYTES
    assert [send_buffer(socket_send_buffer_bytes=text) for text in ("102400", "-1")] == [102_400, -1]


@pytest.mark.parametrize("host", ["127.0.0.1", ""])
def test_connections_within_a_machine_are_not_paced(host: str) -> None:
    async def test() -> None:
        async with loopback_server(host=host) as server:
            assert await (await server.peer()).ask(b"x") == b"x"
            (connection,) = server.net.connections
            assert isinstance(connection.sock, TcpSocket)
            used = connection.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
            assert used.rstrip(b"\0") == UNPACED

    run(test)


def test_beyond_max_connections_new_ones_wait_for_room(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with loopback_server(max_connections=2) as server:
            first, second, third = [await server.peer() for _ in range(3)]
            assert (await first.ask(b"1"), await second.ask(b"2")) == (b"1", b"2")
            third.send(b"3")
            await turns()
            assert len(server.net.connections) == 2
            first.close()
            assert await third.receive() == b"3"

    run(test)
    assert "max.connections=2 is reached: new connections have to wait" in complaints(caplog)[0]


def test_beyond_max_connections_per_ip_new_ones_are_closed(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with loopback_server(
            max_connections_per_ip=1, max_connections_per_ip_overrides=(("127.0.0.2", 0),)
        ) as server:
            first = await server.peer()
            assert await first.ask(b"1") == b"1"
            second = await server.peer()
            assert await second.receive() is None
            first.close()
            await eventually(lambda: not server.net.connections)
            assert await (await server.peer()).ask(b"3") == b"3"

    run(test)
    assert complaints(caplog) == ["connection from 127.0.0.1 refused: max.connections.per.ip=1 is reached"]


def test_an_override_counts_for_its_address_alone() -> None:
    async def test() -> None:
        async with loopback_server(
            max_connections_per_ip=0, max_connections_per_ip_overrides=(("127.0.0.1", 2),)
        ) as server:
            peers = [await server.peer() for _ in range(3)]
            assert [await peer.ask(b"x") for peer in peers] == [b"x", b"x", None]

    run(test)


def test_idle_connections_are_closed_and_busy_ones_are_not() -> None:
    async def test() -> None:
        async with loopback_server(connections_max_idle_ms=3000) as server:
            idle, busy = await server.peer(), await server.peer()
            gone = asyncio.create_task(idle.receive())
            while not gone.done():
                assert await busy.ask(b"x") == b"x"
                await asyncio.sleep(0.05)
            assert await gone is None
            assert await busy.ask(b"x") == b"x"

    run(test)


def test_a_connection_whose_request_is_waiting_is_not_idle() -> None:
    async def test() -> None:
        other_is_gone = asyncio.Event()

        async def wait() -> Reply:
            await other_is_gone.wait()
            return [sized(b"done")]

        async with loopback_server(lambda *_: wait(), connections_max_idle_ms=2000) as server:
            waiting = await server.peer()
            waiting.send(b"wait")
            await eventually(lambda: is_blocked(server))
            idle = await server.peer()  # which came later
            assert await idle.receive() is None
            other_is_gone.set()
            assert await waiting.receive() == b"done"

    run(test)


def test_with_queued_max_request_bytes_frames_wait_for_each_other() -> None:
    async def test() -> None:
        async with loopback_server(queued_max_request_bytes=1_500_000) as server:
            peers = [await server.peer() for _ in range(6)]
            data = b"x" * 3_000_000
            for peer in peers:
                peer.send(data)
            assert [await peer.receive() for peer in peers] == [data] * 6
            assert not server.net.memory.is_full

    run(test)


@pytest.mark.parametrize("host", ["::1", ""])
def test_it_listens_on_ipv6(host: str) -> None:
    if not socket.has_ipv6:
        pytest.skip("needs IPv6")

    async def test() -> None:
        try:
            context = loopback_server(host=host)
            server = await context.__aenter__()
        except OSError as error:
            pytest.skip(f"needs IPv6: {error}")
        for address in ("::1", "127.0.0.1") if not host else ("::1",):
            assert await (await server.peer(host=address)).ask(b"hello") == b"hello"
        hosts = {connection.host for connection in server.net.connections}
        assert hosts == ({"::1", "127.0.0.1"} if not host else {"::1"})
        await context.__aexit__(None, None, None)

    run(test)


def test_an_address_in_use_is_named() -> None:
    async def test() -> None:
        async with loopback_server() as server:
            with pytest.raises(OSError, match=rf"cannot listen on 127.0.0.1:{server.port} \(TWO\): Address already"):
                Net(ConnectionLimits()).listen("TWO", "127.0.0.1", server.port)

    run(test)


def test_requests_under_way_may_finish_before_the_connections_are_closed() -> None:
    async def test() -> None:
        go_on = asyncio.Event()

        async def finish() -> Reply:
            await go_on.wait()
            return [sized(b"done")]

        async with loopback_server(lambda *_: finish()) as server:
            peer = await server.peer()
            peer.send(b"x")
            await eventually(lambda: is_blocked(server))
            closing = asyncio.create_task(server.net.close(SECONDS))
            await turns()
            assert not closing.done()
            go_on.set()
            assert await peer.receive() == b"done"
            await closing

    run(test)


# Bursts and shortages

BURST = 2000
SOMAXCONN = Path("/proc/sys/net/core/somaxconn")


@pytest.mark.skipif(int(SOMAXCONN.read_text()) < BURST, reason=f"needs net.core.somaxconn of {BURST}")
def test_a_burst_of_connections_is_accepted_at_once_and_served() -> None:
    async def scenario() -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        net = Net(limits_of(broker_settings({"listeners": "PLAINTEXT://localhost:0"})))
        _, port = net.listen("PLAINTEXT", "127.0.0.1", 0)
        clients = []
        for _ in range(BURST):  # nobody accepts meanwhile; one that finds no room would wait for a second or more
            clients.append(socket.socket())
            clients[-1].settimeout(SECONDS)
            clients[-1].connect(("127.0.0.1", port))
        net.start(echo)
        await eventually(lambda: len(net.connections) == BURST)
        for client in clients:
            client.sendall(sized(b"here"))
        for client in clients:
            client.setblocking(False)
            assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(client, 100), SECONDS) == sized(b"here")
            client.close()
        await net.close()

    started = time.monotonic()
    asyncio.run(scenario())
    assert time.monotonic() - started < SECONDS


def test_the_listen_backlog_is_ours_unless_it_is_set() -> None:
    settings = {"listeners": "PLAINTEXT://localhost:0"}
    assert limits_of(broker_settings(settings)).socket_listen_backlog_size == LISTEN_BACKLOG
    settings["socket.listen.backlog.size"] = "50"
    assert limits_of(broker_settings(settings)).socket_listen_backlog_size == 50


class FailingListener:
    """A listening socket whose accept fails with `error`, while that is set."""

    def __init__(self, sock: ListeningSocket) -> None:
        self._sock = sock
        self.error = 0
        self.accepts = 0  # how often it was called

    @property
    def address(self) -> tuple[str, int]:
        return self._sock.address

    def accept_connection(self) -> tuple[Socket, str, int]:
        self.accepts += 1
        if self.error:
            raise OSError(self.error, os.strerror(self.error))
        return self._sock.accept_connection()

    def on_readable(self, call: Callable[[], None] | None, /) -> None:
        self._sock.on_readable(call)

    def close(self) -> None:
        self._sock.close()


class EveryOtherFails(FailingListener):
    def accept_connection(self) -> tuple[Socket, str, int]:
        self.error = 0 if self.error else errno.ECONNABORTED
        return super().accept_connection()


class FailingNetwork(TcpNetwork):
    """The loopback, with a listener that can fail."""

    listener: FailingListener

    def __init__(self, kind: type[FailingListener] = FailingListener) -> None:
        self._kind = kind

    def listen(self, host: str, port: int, backlog: int) -> ListeningSocket:
        self.listener = self._kind(super().listen(host, port, backlog))
        return self.listener


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS])
def test_a_shortage_makes_new_connections_wait_and_the_loop_does_not_spin(
    error: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        network = FailingNetwork()
        async with loopback_server(network=network) as server:
            first = await server.peer()
            assert await first.ask(b"first") == b"first"
            network.listener.error, network.listener.accepts = error, 0
            waiting = await server.peer()
            await eventually(lambda: network.listener.accepts > 2)
            turns = 0
            began = time.monotonic()
            while time.monotonic() - began < 2 * SHORTAGE_SECONDS:
                turns += 1
                await asyncio.sleep(0)
            assert turns > 10 * network.listener.accepts, "it is tried now and then, not in each turn"
            assert await first.ask(b"again") == b"again"
            network.listener.error = 0
            assert await waiting.ask(b"at last") == b"at last"

    monkeypatch.setattr("leadline.broker.acceptor.SHORTAGE_LOG_SECONDS", 10 * SECONDS)
    run(test)
    assert caplog.text.count("connections cannot be accepted for now") == 1


def test_a_connection_that_ends_lets_the_next_one_in_at_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leadline.broker.acceptor.SHORTAGE_SECONDS", 10 * SECONDS)

    async def test() -> None:
        network = FailingNetwork()
        async with loopback_server(network=network) as server:
            first = await server.peer()
            assert await first.ask(b"first") == b"first"
            network.listener.error = errno.EMFILE
            waiting = await server.peer()
            await eventually(lambda: "connections cannot be accepted for now" in caplog.text)
            network.listener.error = 0
            first.close()
            assert await waiting.ask(b"at last") == b"at last"

    run(test)


def test_a_connection_that_failed_before_it_was_accepted_does_not_stop_the_listener() -> None:
    async def test() -> None:
        async with loopback_server(network=FailingNetwork(EveryOtherFails)) as server:
            for _ in range(5):
                assert await (await server.peer()).ask(b"here") == b"here"

    run(test)
