"""Bytes in, frames out: whole frames where they lie, partial ones in a buffer of their own."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from leadline.broker.connection_state import CloseConnection
from leadline.broker.frame_memory import GROWTH_BYTES, MAX_SPARE_BUFFERS, SCRATCH_BYTES, FrameMemory
from leadline.broker.frame_reader import FIRST_BYTES, FrameReader

MAX_BYTES = 100_000_000


def sized(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


class Calls(list[Callable[[], None]]):
    """The calls that the loop would make soon."""

    def run(self) -> None:
        while self:
            self.pop(0)()


def memory(queued_max_bytes: int = -1, calls: Calls | None = None) -> FrameMemory:
    made = FrameMemory((calls if calls is not None else Calls()).append)
    made.configure(MAX_BYTES, queued_max_bytes)
    return made


def frames(reader: FrameReader) -> list[bytes]:
    return [bytes(frame) for frame in iter(reader.next_frame, None)]


def receive(reader: FrameReader, data: bytes) -> bytes:
    """Put as much of the data into the partial frame as it has room for; the rest of the data."""
    with reader.room() as room:
        count = min(len(room), len(data))
        room[:count] = data[:count]
    reader.received(count)
    return data[count:]


def test_whole_frames_come_out_in_their_order() -> None:
    reader = FrameReader(memory())
    reader.feed(memoryview(sized(b"one") + sized(b"") + sized(b"three")))
    assert frames(reader) == [b"one", b"", b"three"]
    assert reader.at == reader.end


def test_a_frame_that_is_put_back_comes_again_from_what_is_kept() -> None:
    reader, shared = FrameReader(memory()), bytearray(sized(b"one") + sized(b"two") + sized(b"three"))
    reader.feed(memoryview(shared))
    reader.next_frame()
    second = reader.next_frame()
    assert second is not None
    reader.put_back(second)
    reader.keep()
    shared[:] = bytes(len(shared))  # others read into it
    assert frames(reader) == [b"two", b"three"]


def test_what_is_kept_may_be_written_to() -> None:
    """The log writes offsets into the batches of a request."""
    reader = FrameReader(memory())
    reader.feed(memoryview(sized(b"one")))
    reader.keep()
    frame = reader.next_frame()
    assert frame is not None
    frame[0] = 0


@pytest.mark.parametrize("step", [1, 3, 7, 100_000, 5_000_000])
@pytest.mark.parametrize("size", [0, 1, 255, SCRATCH_BYTES, GROWTH_BYTES, 3_000_000])
def test_a_partial_frame_is_whole_when_its_last_byte_has_arrived(size: int, step: int) -> None:
    if size > 1000 * step:
        step = size // 1000
    shared, frame = memory(), (bytes(range(251)) * (size // 251 + 1))[:size]
    reader, data = FrameReader(shared), sized(frame)
    reader.feed(memoryview(data[:1]))
    assert reader.next_frame() is None
    reader.begin_partial()
    at = 1
    while not reader.is_whole:
        arrived = data[at : at + step]
        at += len(arrived) - len(receive(reader, arrived))
    buffer, end = reader.take_partial()
    assert bytes(buffer[4:end]) == frame
    assert reader.partial is None
    assert reader.reserved == 0


def test_a_buffer_grows_with_what_arrives_not_with_what_is_announced() -> None:
    reader = FrameReader(memory())
    reader.feed(memoryview(sized(bytes(50_000_000))[:100]))
    reader.begin_partial()
    sizes = [reader.target]
    while sizes[-1] < 20_000_000:
        with reader.room() as room:
            count = len(room)
        reader.received(count)
        sizes.append(reader.target)
    assert sizes[0] == FIRST_BYTES
    assert all(after <= (4 if after <= GROWTH_BYTES else 2) * before for before, after in pairwise(sizes))


def test_much_that_arrives_at_once_has_room_for_the_rest_of_a_megabyte() -> None:
    """A request of a usual size is copied once at most."""
    reader = FrameReader(memory())
    reader.feed(memoryview(sized(bytes(50_000_000))[:SCRATCH_BYTES]))
    reader.begin_partial()
    assert reader.target == GROWTH_BYTES


@pytest.mark.parametrize("size", [MAX_BYTES + 1, 1 << 30, -1, -(1 << 31)])
@pytest.mark.parametrize("is_partial", [False, True])
def test_a_frame_of_an_impossible_size_is_refused(size: int, is_partial: bool) -> None:
    reader, data = FrameReader(memory()), size.to_bytes(4, "big", signed=True)

    def read() -> None:
        reader.feed(memoryview(data[:2] if is_partial else data))
        assert reader.next_frame() is None
        reader.begin_partial()
        receive(reader, data[2:])

    with pytest.raises(CloseConnection, match=f"a request of {size} bytes; socket.request.max.bytes={MAX_BYTES}"):
        read()


TAGGED = bytes.fromhex(
    "0012 0003 00000007 0004 74657374"
)  # ApiVersions v3 of the client "test"; then its tagged fields


@pytest.mark.parametrize("arrived", [1, 9, len(TAGGED), len(TAGGED) + 2])
def test_a_header_with_countless_tagged_fields_is_refused_before_they_arrive(arrived: int) -> None:
    reader, million = FrameReader(memory()), bytes.fromhex("c0843d")
    data = (2_000_000).to_bytes(4) + TAGGED + million
    reader.feed(memoryview(data[: 4 + arrived]))
    assert reader.next_frame() is None

    def read() -> None:
        reader.begin_partial()
        receive(reader, data[4 + arrived :])

    with pytest.raises(CloseConnection, match=r"malformed request: request header: .*: 1000000 tagged fields"):
        read()


def test_a_header_that_is_fine_or_none_at_all_is_received_on() -> None:
    for start in (TAGGED + b"\1\0\2ab", b"no request", bytes(50)):
        reader, data = FrameReader(memory()), start + bytes(5000)
        reader.feed(memoryview(sized(data)[:8]))
        reader.begin_partial()
        for at in range(4, len(data)):
            assert receive(reader, data[at : at + 1]) == b""
        assert reader.is_whole


def test_a_partial_frame_counts_for_memory_until_it_is_taken() -> None:
    calls = Calls()
    shared, resumed = memory(1000, calls), list[str]()
    reader = FrameReader(shared)
    reader.feed(memoryview(sized(bytes(1500))[:100]))
    reader.begin_partial()
    assert shared.is_full
    shared.wait(lambda: resumed.append("waited"))
    calls.run()
    assert resumed == []
    receive(reader, bytes(1404))
    reader.take_partial()
    assert not shared.is_full
    calls.run()
    assert resumed == ["waited"]


def test_a_connection_that_no_longer_waits_for_memory_is_not_resumed() -> None:
    calls = Calls()
    shared, resumed = memory(1000, calls), list[str]()

    def resume() -> None:
        resumed.append("waited")

    shared.reserve(2000)
    shared.wait(resume)
    shared.stop_waiting(resume)
    shared.release(2000)
    calls.run()
    assert resumed == []


def test_waiting_connections_go_on_once_there_is_memory() -> None:
    calls = Calls()
    shared, resumed = memory(1000, calls), list[str]()
    shared.reserve(2000)
    shared.wait(lambda: resumed.append("waited"))
    shared.configure(MAX_BYTES, 3000)
    calls.run()
    assert resumed == ["waited"]


def test_buffers_of_large_frames_are_used_again_and_only_a_few_are_kept() -> None:
    shared = memory()
    buffers = [bytearray(GROWTH_BYTES) for _ in range(MAX_SPARE_BUFFERS + 1)]
    for buffer in buffers:
        shared.keep_spare(buffer)
    shared.keep_spare(bytearray(3 * GROWTH_BYTES))
    again = [shared.buffer(SCRATCH_BYTES + 1) for _ in range(MAX_SPARE_BUFFERS + 1)]
    assert [any(buffer is spare for spare in buffers) for buffer in again] == [True] * MAX_SPARE_BUFFERS + [False]
    assert len(shared.buffer(10)) == 10
