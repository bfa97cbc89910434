"""The selector measures the turns of its loop, and waits as long as it should, asleep or spinning."""

import asyncio
import selectors
import socket
import time
from collections.abc import Callable

import pytest

from leadline.runtime.selector import TimedSelector


def run_turns(*seconds: float) -> TimedSelector:
    selector = TimedSelector()

    async def main() -> None:
        await asyncio.sleep(0)
        for busy in seconds:
            time.sleep(busy)  # noqa: ASYNC251  (that it blocks is the point)
            await asyncio.sleep(0.001)

    with asyncio.Runner(loop_factory=selector.new_loop) as runner:
        runner.run(main())
    return selector


def test_the_longest_turn_is_kept_until_it_is_taken() -> None:
    selector = run_turns(0.0, 0.08, 0.0)
    assert selector.turns >= 4
    assert 0.08 <= selector.pop_longest_turn_s() < 10
    assert selector.longest_turn_s == 0


def test_the_longest_turn_of_this_period_and_the_last_one_is_recent() -> None:
    selector = run_turns(0.0, 0.08, 0.0)
    assert selector.busy_s >= 0.08
    for _ in range(2):
        assert selector.recent_longest_turn_s >= 0.08
        selector.end_period()
    assert selector.recent_longest_turn_s == 0
    assert selector.longest_turn_s >= 0.08  # since the last report


def test_a_report_does_not_shorten_the_longest_recent_turn() -> None:
    selector = run_turns(0.0, 0.08, 0.0)
    selector.pop_longest_turn_s()
    assert selector.recent_longest_turn_s >= 0.08


def test_waiting_is_not_part_of_a_turn() -> None:
    selector = TimedSelector()
    with asyncio.Runner(loop_factory=selector.new_loop) as runner:
        runner.run(asyncio.sleep(2))
    assert selector.longest_turn_s < 2


def spinning() -> TimedSelector:
    selector = TimedSelector()
    for _ in range(50):
        selector.spin_policy.observe(0.00001, 0.0005, spun=False)
    assert selector.spin_policy.should_spin()
    return selector


@pytest.mark.parametrize("made", [TimedSelector, spinning])
def test_it_waits_no_shorter_than_the_timeout(made: Callable[[], TimedSelector]) -> None:
    selector = made()
    near, far = socket.socketpair()
    with near, far, selector:
        selector.register(near, selectors.EVENT_READ)
        for seconds in (0.0003, 0.02):
            began = time.perf_counter()
            assert selector.select(seconds) == []
            assert time.perf_counter() - began >= seconds
        for timeout in (0, 0.0003, 20, None):
            far.send(b"x")
            [(key, events)] = selector.select(timeout)
            assert (key.fileobj, events) == (near, selectors.EVENT_READ)
            near.recv(1)


@pytest.mark.parametrize("made", [TimedSelector, spinning])
def test_a_call_from_another_thread_wakes_it(made: Callable[[], TimedSelector]) -> None:
    async def main() -> int:
        return await asyncio.to_thread(lambda: 7)

    with asyncio.Runner(loop_factory=made().new_loop) as runner:
        assert runner.run(main()) == 7


def test_it_stops_spinning_when_nothing_comes() -> None:
    selector = spinning()
    near, far = socket.socketpair()
    with near, far, selector:
        selector.register(near, selectors.EVENT_READ)
        began = time.thread_time()
        for _ in range(20):
            selector.select(0.02)
        assert time.thread_time() - began < 0.1
        assert not selector.spin_policy.should_spin()


def test_it_does_not_spin_for_room_in_a_socket() -> None:
    selector = spinning()
    near, far = socket.socketpair()
    with near, far, selector:
        selector.register(near, selectors.EVENT_WRITE)
        for _ in range(20):
            selector.select(None)
        assert not selector.spin_policy.should_spin()


def test_it_does_not_spin_for_threads() -> None:
    selector = spinning()
    loop = selector.new_loop()
    try:
        for _ in range(20):
            loop.run_until_complete(loop.run_in_executor(None, time.sleep, 0.0002))
        assert not selector.spin_policy.should_spin()
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
