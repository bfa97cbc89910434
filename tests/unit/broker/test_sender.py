"""Bytes and slices of files leave in their order, as much of them as the socket, the disk and others allow."""

import asyncio
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from leadline.broker.connection_state import SendState
from leadline.broker.pending_slice import LOAD_BYTES, PendingSlice
from leadline.broker.sender import LARGE_SLICE_BYTES, MAX_BUFFERS, STEP_BYTES, TURN_BYTES, Sender
from leadline.log.open_files import OpenFile
from leadline.log.segment import FileSlice
from leadline.model import Buffer
from leadline.runtime.ports import OsFiles
from leadline.runtime.step_scheduler import QUIET_SECONDS, StepScheduler


class RecordingSocket:
    """A socket that takes as many bytes as it has room for."""

    def __init__(self, room: int = 1 << 40) -> None:
        self.room = room
        self.received = bytearray()
        self.calls: list[str] = []

    def _take(self, call: str, data: bytes) -> int:
        self.calls.append(call)
        if not self.room:
            raise BlockingIOError
        count = min(self.room, len(data))
        self.room -= count
        self.received += data[:count]
        return count

    def send(self, data: Buffer, flags: int = 0, /) -> int:
        return self._take("send", bytes(data))

    def sendmsg(self, buffers: Iterable[Buffer], ancillary: object, flags: int, /) -> int:
        return self._take("sendmsg", b"".join(bytes(buffer) for buffer in buffers))

    def send_file(self, fd: int, position: int, count: int, /) -> int:
        return self._take("send_file", os.pread(fd, count, position))

    def recv_into(self, buffer: bytearray | memoryview, /) -> int:
        raise BlockingIOError

    def on_readable(self, call: Callable[[], None] | None, /) -> None: ...
    def on_writable(self, call: Callable[[], None] | None, /) -> None: ...
    def set_buffers(self, send_bytes: int, receive_bytes: int, /) -> None: ...
    def shutdown(self, how: int, /) -> None: ...
    def close(self) -> None: ...


class SenderBench:
    """A sender at a time that the test sets, with or without small requests of others."""

    def __init__(self, room: int = 1 << 40, *, busy: bool = False) -> None:
        loop = asyncio.new_event_loop()
        loop.close()
        self.sock, self.scheduler = RecordingSocket(room), StepScheduler(loop)
        self.now_s = 1000.0
        self.scheduler.last_small_request_s = self.now_s if busy else 0.0
        self.readaheads: list[PendingSlice] = []
        self.sender = Sender(self.sock, self.scheduler, lambda: self.now_s, self.readaheads.append)

    def state(self) -> SendState:
        return self.sender.state


@pytest.fixture
def file(tmp_path: Path) -> OpenFile:
    path = tmp_path / "file"
    path.write_bytes((bytes(range(251)) * (4 * TURN_BYTES // 251 + 1))[: 4 * TURN_BYTES])
    return OpenFile(OsFiles(), str(path))


def content(file: OpenFile, position: int, length: int) -> bytes:
    return file.pread(length, position)


def send_all(bench: SenderBench) -> None:
    """As if the socket had room again and again."""
    bench.sender.flush()
    while bench.state() is SendState.AWAITING_ROOM:
        bench.sender.writable()


def test_small_replies_leave_in_one_call() -> None:
    bench = SenderBench()
    for reply in (b"one", b"two", b"three"):
        bench.sender.put(reply)
    bench.sender.flush()
    assert bench.sock.received == b"onetwothree"
    assert bench.sock.calls == ["send"]
    assert bench.state() is SendState.READY
    assert bench.sender.queued_bytes == 0


def test_bytes_and_slices_leave_in_their_order(file: OpenFile) -> None:
    bench = SenderBench()
    bench.sender.put(b"first")
    bench.sender.put([b"<", bytearray(b"-"), FileSlice(file, 5, 100_000), b"|", FileSlice(file, 7, 1), b">"])
    bench.sender.put(b"last")
    bench.sender.flush()
    assert bench.sock.received == b"first<-" + content(file, 5, 100_000) + b"|" + content(file, 7, 1) + b">last"
    assert bench.state() is SendState.READY


@pytest.mark.parametrize("room", [1, 3, 1000])
def test_what_the_socket_does_not_take_leaves_when_it_has_room(room: int, file: OpenFile) -> None:
    bench = SenderBench(0)
    bench.sender.put(b"first")
    bench.sender.put([b"second", FileSlice(file, 0, 3000), b"third"])
    bench.sender.flush()
    turns = 0
    while bench.state() is not SendState.READY:
        assert bench.state() is SendState.AWAITING_ROOM
        bench.sock.room = room
        bench.sender.writable()
        turns += 1
    assert bench.sock.received == b"firstsecond" + content(file, 0, 3000) + b"third"
    assert turns >= len(bench.sock.received) // room


def test_replies_behind_those_that_wait_are_not_sent_before_them() -> None:
    bench = SenderBench(2)
    bench.sender.put(b"first")
    bench.sender.flush()
    bench.sock.room = 100
    bench.sender.put(b"second")
    bench.sender.flush()
    assert bench.sock.received == b"fi"
    bench.sender.writable()
    assert bench.sock.received == b"firstsecond"


def test_no_more_buffers_leave_in_one_call_than_the_system_takes() -> None:
    bench = SenderBench()
    bench.sender.put([b"x"] * (2 * MAX_BUFFERS + 1))
    bench.sender.flush()
    assert bench.sock.calls == ["sendmsg", "sendmsg", "send"]


def test_queued_bytes_are_counted_until_they_have_left(file: OpenFile) -> None:
    bench = SenderBench(3)
    bench.sender.put(b"first")
    bench.sender.put([b"second", FileSlice(file, 0, 3000)])
    assert (bench.sender.queued_bytes, len(bench.sender.queue)) == (11, 3)
    bench.sender.flush()
    assert bench.sender.queued_bytes == 11
    bench.sock.room = 10_000
    bench.sender.writable()
    assert (bench.sender.queued_bytes, len(bench.sender.queue)) == (0, 0)


@pytest.mark.parametrize(
    ("busy", "size", "state"),
    [(True, STEP_BYTES, SendState.AWAITING_STEP), (False, TURN_BYTES, SendState.AWAITING_ROOM)],
)
def test_a_large_slice_leaves_in_parts(busy: bool, size: int, state: SendState, file: OpenFile) -> None:
    bench = SenderBench(busy=busy)
    bench.sender.put([FileSlice(file, 0, 3 * size), b"end"])
    bench.sender.flush()
    sizes = []
    while bench.state() is not SendState.READY:
        assert bench.state() is state
        sizes.append(len(bench.sock.received))
        bench.sender.resume()
    assert sizes == [size, 2 * size]
    assert bench.sock.received == content(file, 0, 3 * size) + b"end"


def test_a_slice_that_waits_for_room_gives_way_to_small_requests(file: OpenFile) -> None:
    bench = SenderBench(1000)
    bench.sender.put([FileSlice(file, 0, 5000)])
    bench.sender.flush()
    assert bench.state() is SendState.AWAITING_ROOM
    bench.sock.room = 10_000
    bench.scheduler.last_small_request_s = bench.now_s
    bench.sender.writable()
    assert bench.state() is SendState.AWAITING_STEP
    assert len(bench.sock.received) == 1000
    bench.now_s += 2 * QUIET_SECONDS
    bench.sender.resume()
    assert bench.sock.received == content(file, 0, 5000)


class ColdFiles(OsFiles):
    @staticmethod
    def is_cached(fd: int, position: int, length: int, /) -> bool:
        return False


def test_a_slice_that_is_not_in_memory_waits_for_the_disk(file: OpenFile) -> None:
    bench = SenderBench()
    bench.sender.put([b"<", FileSlice(OpenFile(ColdFiles(), file.path), 0, 2 * LOAD_BYTES), b">"])
    bench.sender.flush()
    for loaded in range(2):
        assert bench.state() is SendState.AWAITING_DISK
        assert len(bench.sock.received) == 1 + loaded * LOAD_BYTES
        bench.sender.cold_slice().loaded()
        bench.sender.resume()
        if bench.state() is SendState.AWAITING_ROOM:
            bench.sender.writable()
    assert bench.state() is SendState.READY
    assert bench.sock.received == b"<" + content(file, 0, 2 * LOAD_BYTES) + b">"
    assert len(bench.readaheads) == 1


def test_a_file_that_ends_within_a_slice_breaks_the_connection(file: OpenFile) -> None:
    bench = SenderBench()
    bench.sender.put([FileSlice(file, 4 * TURN_BYTES - 10, 20)])
    with pytest.raises(OSError, match="the file ends at byte"):
        send_all(bench)


def test_a_reply_with_a_large_slice_is_known_until_it_has_left(file: OpenFile) -> None:
    bench = SenderBench()
    bench.sender.put([FileSlice(file, 0, LARGE_SLICE_BYTES - 1)])
    assert not bench.sender.has_large_slice
    bench.sender.put([FileSlice(file, 0, LARGE_SLICE_BYTES)])
    assert bench.sender.has_large_slice
    bench.sender.flush()
    assert not bench.sender.has_large_slice


def test_a_closed_sender_sends_nothing() -> None:
    bench = SenderBench()
    bench.sender.put(b"never")
    bench.sender.close()
    bench.sender.flush()
    assert bench.sock.calls == []


def test_a_reply_holds_nothing_but_bytes_and_slices_of_files() -> None:
    class OtherSlice:
        length = 3

    bench = SenderBench()
    bench.sender.put([OtherSlice()])
    with pytest.raises(AssertionError, match="a reply holds bytes and slices of files"):
        bench.sender.flush()
