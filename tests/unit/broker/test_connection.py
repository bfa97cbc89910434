"""Connections over the loopback: frames in, replies out, in order; a fault of one connection ends only that one."""

import asyncio
from typing import Any

import pytest

from leadline.broker.connection import LARGE_BYTES, Connection
from leadline.broker.connection_state import CloseConnection
from leadline.broker.frame_reader import FrameReader
from leadline.broker.reply_queue import Reply
from leadline.runtime.step_scheduler import Step
from tests.support.loopback_server import (
    BLOCKED,
    SECONDS,
    Raw,
    Served,
    complaints,
    is_blocked,
    loopback_server,
    run,
    sized,
    turns,
)
from tests.support.waiting import eventually


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


def test_a_request_that_waits_is_answered_before_an_impossible_size_behind_it_closes_its_connection() -> None:
    async def test() -> None:
        async def later() -> Reply:
            await turns()
            return [sized(b"answer")]

        async with loopback_server(lambda connection, frame: later()) as server:
            peer = await server.peer()
            peer.writer.write(sized(b"request") + (-1).to_bytes(4, "big", signed=True))
            assert await peer.receive() == b"answer"
            assert await peer.receive() is None

    run(test)


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


def test_a_frame_that_memory_is_too_short_for_ends_its_connection_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_memory(reader: FrameReader, partial: bytearray, whole: int) -> bytearray:
        raise MemoryError

    async def test() -> None:
        reported: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
        async with loopback_server() as server:
            small, large = await server.peer(), await server.peer()
            with monkeypatch.context() as patch:
                patch.setattr(FrameReader, "_grown", no_memory)
                large.send(bytes(10 * LARGE_BYTES))
                assert await large.receive() is None
                assert await small.ask(b"small") == b"small"
            assert await (await server.peer()).ask(bytes(10 * LARGE_BYTES)) == bytes(10 * LARGE_BYTES)
        assert reported == []

    run(test)
    assert "its request could not be received: out of memory" in caplog.text
