"""Replies of a connection: their order, how many may wait, and large ones, which leave in steps."""

import asyncio
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from leadline.broker.connection import LARGE_BYTES, Connection
from leadline.broker.connection_state import CloseConnection
from leadline.broker.pending_slice import LOAD_BYTES, PendingSlice
from leadline.broker.reply_queue import MAX_QUEUED, PendingReply, Reply, unchanged
from leadline.broker.sender import STEP_BYTES, TURN_BYTES
from leadline.log.open_files import OpenFile
from leadline.log.segment import FileSlice
from leadline.runtime.network import Socket
from leadline.runtime.ports import OsFiles
from leadline.wire.primitives import Piece
from tests.support.loopback_server import SECONDS, Raw, Served, is_blocked, loopback_server, run, sized, turns
from tests.support.waiting import eventually


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
