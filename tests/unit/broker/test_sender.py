"""Bytes and slices of files leave in their order, as much of them as the socket, the disk and others allow."""

import asyncio
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from leadline.broker.connection_state import SendState
from leadline.broker.pending_slice import LOAD_BYTES, PendingSlice
from leadline.broker.sender import LARGE_SLICE_BYTES, MAX_BUFFERS, STEP_BYTES, TURN_BYTES, Sender
from leadline.log.files import OpenFile
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
    def close(self) -> None: ...


class Scene:
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


def send_all(scene: Scene) -> None:
    """As if the socket had room again and again."""
    scene.sender.flush()
    while scene.state() is SendState.AWAITING_ROOM:
        scene.sender.writable()


def test_small_replies_leave_in_one_call() -> None:
    scene = Scene()
    for reply in (b"one", b"two", b"three"):
        scene.sender.put(reply)
    scene.sender.flush()
    assert scene.sock.received == b"onetwothree"
    assert scene.sock.calls == ["send"]
    assert scene.state() is SendState.READY
    assert scene.sender.queued_bytes == 0


def test_bytes_and_slices_leave_in_their_order(file: OpenFile) -> None:
    scene = Scene()
    scene.sender.put(b"first")
    scene.sender.put([b"<", bytearray(b"-"), FileSlice(file, 5, 100_000), b"|", FileSlice(file, 7, 1), b">"])
    scene.sender.put(b"last")
    scene.sender.flush()
    assert scene.sock.received == b"first<-" + content(file, 5, 100_000) + b"|" + content(file, 7, 1) + b">last"
    assert scene.state() is SendState.READY


@pytest.mark.parametrize("room", [1, 3, 1000])
def test_what_the_socket_does_not_take_leaves_when_it_has_room(room: int, file: OpenFile) -> None:
    scene = Scene(0)
    scene.sender.put(b"first")
    scene.sender.put([b"second", FileSlice(file, 0, 3000), b"third"])
    scene.sender.flush()
    turns = 0
    while scene.state() is not SendState.READY:
        assert scene.state() is SendState.AWAITING_ROOM
        scene.sock.room = room
        scene.sender.writable()
        turns += 1
    assert scene.sock.received == b"firstsecond" + content(file, 0, 3000) + b"third"
    assert turns >= len(scene.sock.received) // room


def test_replies_behind_those_that_wait_are_not_sent_before_them() -> None:
    scene = Scene(2)
    scene.sender.put(b"first")
    scene.sender.flush()
    scene.sock.room = 100
    scene.sender.put(b"second")
    scene.sender.flush()
    assert scene.sock.received == b"fi"
    scene.sender.writable()
    assert scene.sock.received == b"firstsecond"


def test_no_more_buffers_leave_in_one_call_than_the_system_takes() -> None:
    scene = Scene()
    scene.sender.put([b"x"] * (2 * MAX_BUFFERS + 1))
    scene.sender.flush()
    assert scene.sock.calls == ["sendmsg", "sendmsg", "send"]


def test_queued_bytes_are_counted_until_they_have_left(file: OpenFile) -> None:
    scene = Scene(3)
    scene.sender.put(b"first")
    scene.sender.put([b"second", FileSlice(file, 0, 3000)])
    assert (scene.sender.queued_bytes, len(scene.sender.queue)) == (11, 3)
    scene.sender.flush()
    assert scene.sender.queued_bytes == 11
    scene.sock.room = 10_000
    scene.sender.writable()
    assert (scene.sender.queued_bytes, len(scene.sender.queue)) == (0, 0)


@pytest.mark.parametrize(
    ("busy", "size", "state"),
    [(True, STEP_BYTES, SendState.AWAITING_STEP), (False, TURN_BYTES, SendState.AWAITING_ROOM)],
)
def test_a_large_slice_leaves_in_parts(busy: bool, size: int, state: SendState, file: OpenFile) -> None:
    scene = Scene(busy=busy)
    scene.sender.put([FileSlice(file, 0, 3 * size), b"end"])
    scene.sender.flush()
    sizes = []
    while scene.state() is not SendState.READY:
        assert scene.state() is state
        sizes.append(len(scene.sock.received))
        scene.sender.resume()
    assert sizes == [size, 2 * size]
    assert scene.sock.received == content(file, 0, 3 * size) + b"end"


def test_a_slice_that_waits_for_room_gives_way_to_small_requests(file: OpenFile) -> None:
    scene = Scene(1000)
    scene.sender.put([FileSlice(file, 0, 5000)])
    scene.sender.flush()
    assert scene.state() is SendState.AWAITING_ROOM
    scene.sock.room = 10_000
    scene.scheduler.last_small_request_s = scene.now_s
    scene.sender.writable()
    assert scene.state() is SendState.AWAITING_STEP
    assert len(scene.sock.received) == 1000
    scene.now_s += 2 * QUIET_SECONDS
    scene.sender.resume()
    assert scene.sock.received == content(file, 0, 5000)


def test_a_slice_that_is_not_in_memory_waits_for_the_disk(file: OpenFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leadline.broker.pending_slice.is_cached", lambda *_: False)
    scene = Scene()
    scene.sender.put([b"<", FileSlice(file, 0, 2 * LOAD_BYTES), b">"])
    scene.sender.flush()
    for loaded in range(2):
        assert scene.state() is SendState.AWAITING_DISK
        assert len(scene.sock.received) == 1 + loaded * LOAD_BYTES
        scene.sender.cold_slice().loaded()
        scene.sender.resume()
        if scene.state() is SendState.AWAITING_ROOM:
            scene.sender.writable()
    assert scene.state() is SendState.READY
    assert scene.sock.received == b"<" + content(file, 0, 2 * LOAD_BYTES) + b">"
    assert len(scene.readaheads) == 1


def test_a_file_that_ends_within_a_slice_breaks_the_connection(file: OpenFile) -> None:
    scene = Scene()
    scene.sender.put([FileSlice(file, 4 * TURN_BYTES - 10, 20)])
    with pytest.raises(OSError, match="the file ends at byte"):
        send_all(scene)


def test_a_reply_with_a_large_slice_is_known_until_it_has_left(file: OpenFile) -> None:
    scene = Scene()
    scene.sender.put([FileSlice(file, 0, LARGE_SLICE_BYTES - 1)])
    assert not scene.sender.has_large_slice
    scene.sender.put([FileSlice(file, 0, LARGE_SLICE_BYTES)])
    assert scene.sender.has_large_slice
    scene.sender.flush()
    assert not scene.sender.has_large_slice


def test_a_closed_sender_sends_nothing() -> None:
    scene = Scene()
    scene.sender.put(b"never")
    scene.sender.close()
    scene.sender.flush()
    assert scene.sock.calls == []


def test_a_reply_holds_nothing_but_bytes_and_slices_of_files() -> None:
    class OtherSlice:
        length = 3

    scene = Scene()
    scene.sender.put([OtherSlice()])
    with pytest.raises(AssertionError, match="a reply holds bytes and slices of files"):
        scene.sender.flush()
