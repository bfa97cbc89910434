"""The memory of requests that are being received: its bound, who waits for it, and the buffers that are used again."""

from collections.abc import Callable

import pytest

from leadline.broker.connection_state import CloseConnection
from leadline.broker.frame_memory import (
    GROWTH_BYTES,
    MAX_LOGIN_BYTES,
    MAX_SPARE_BUFFERS,
    SCRATCH_BYTES,
    FrameMemory,
    LoginMemory,
)


@pytest.fixture
def scheduled() -> list[Callable[[], None]]:
    return []


@pytest.fixture
def memory(scheduled: list[Callable[[], None]]) -> FrameMemory:
    memory = FrameMemory(scheduled.append)
    memory.configure(max_frame_bytes=1000, queued_max_bytes=100)
    return memory


def test_it_is_full_beyond_queued_max_request_bytes(memory: FrameMemory) -> None:
    memory.reserve(100)
    assert not memory.is_full
    memory.reserve(1)
    assert memory.is_full
    memory.release(1)
    assert not memory.is_full


@pytest.mark.parametrize("unbounded", [-1, 0])
def test_without_queued_max_request_bytes_it_is_never_full(memory: FrameMemory, unbounded: int) -> None:
    memory.configure(1000, unbounded)
    memory.reserve(1 << 40)
    assert not memory.is_full


def test_waiting_connections_resume_in_their_order_once_it_is_no_longer_full(
    memory: FrameMemory, scheduled: list[Callable[[], None]]
) -> None:
    first, left, last = (lambda: None), (lambda: None), (lambda: None)
    memory.reserve(150)
    for resume in (first, left, last, first):
        memory.wait(resume)
    memory.stop_waiting(left)
    memory.release(49)
    assert scheduled == []
    memory.release(1)
    assert scheduled == [first, last]
    memory.release(100)
    assert scheduled == [first, last]


def test_a_larger_bound_lets_waiting_connections_resume(
    memory: FrameMemory, scheduled: list[Callable[[], None]]
) -> None:
    memory.reserve(150)
    memory.wait(waiting := lambda: None)
    memory.configure(1000, 200)
    assert (scheduled, memory.is_full) == ([waiting], False)


def test_a_large_buffer_is_used_again_for_a_frame_that_fits_into_it(memory: FrameMemory) -> None:
    spare = memory.buffer(SCRATCH_BYTES + 10)
    memory.keep_spare(spare)
    assert memory.buffer(SCRATCH_BYTES + 11) is not spare
    assert memory.buffer(SCRATCH_BYTES) is not spare
    assert memory.buffer(SCRATCH_BYTES + 1) is spare
    assert memory.buffer(SCRATCH_BYTES + 1) is not spare


@pytest.mark.parametrize(
    ("size", "is_kept"), [(SCRATCH_BYTES, False), (2 * GROWTH_BYTES, True), (2 * GROWTH_BYTES + 1, False)]
)
def test_buffers_that_are_small_or_huge_are_not_kept(memory: FrameMemory, size: int, is_kept: bool) -> None:
    buffer = bytearray(size)
    memory.keep_spare(buffer)
    assert (memory.buffer(SCRATCH_BYTES + 1) is buffer) is is_kept


def test_only_a_few_spare_buffers_are_kept(memory: FrameMemory) -> None:
    buffers = [bytearray(SCRATCH_BYTES + 1) for _ in range(MAX_SPARE_BUFFERS + 1)]
    for buffer in buffers:
        memory.keep_spare(buffer)
    taken = [memory.buffer(SCRATCH_BYTES + 1) for _ in buffers]
    assert sum(any(view is buffer for buffer in buffers) for view in taken) == MAX_SPARE_BUFFERS


def test_before_the_login_arrived_bytes_are_bounded_over_all_connections() -> None:
    memory = LoginMemory(lambda resume: None, max_frame_bytes=1000)
    memory.arrived(MAX_LOGIN_BYTES)
    with pytest.raises(CloseConnection, match=f"more than {MAX_LOGIN_BYTES} bytes"):
        memory.arrived(1)
    memory.arrived(-1)
    memory.arrived(1)
