"""The longest time between two turns of the loop is known."""

import asyncio
import selectors
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from leadline.runtime.selector import TimedSelector


def turns(*seconds: float) -> TimedSelector:
    watchdog = TimedSelector()

    async def scene() -> None:
        await asyncio.sleep(0)
        for busy in seconds:
            time.sleep(busy)  # noqa: ASYNC251  (that it blocks is the point)
            await asyncio.sleep(0.001)

    with asyncio.Runner(loop_factory=watchdog.new_loop) as runner:
        runner.run(scene())
    return watchdog


def test_the_longest_turn_is_kept_until_it_is_taken() -> None:
    watchdog = turns(0.0, 0.08, 0.0)
    assert watchdog.turns >= 4
    assert 0.08 <= watchdog.take_longest() < 10
    assert watchdog.longest_turn == 0


def test_waiting_does_not_count() -> None:
    watchdog = TimedSelector()
    with asyncio.Runner(loop_factory=watchdog.new_loop) as runner:
        runner.run(asyncio.sleep(2))
    assert watchdog.longest_turn < 2


def test_it_knows_whether_one_is_served_alone() -> None:
    watchdog, seen = TimedSelector(), list[bool]()

    async def scene(count: int) -> None:
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def served() -> None:
            seen.append(watchdog.serves_one())
            done.set()

        with ExitStack() as opened:
            for near, far in [socket.socketpair() for _ in range(count)]:
                opened.enter_context(near)
                opened.enter_context(far)
                loop.add_reader(near, served)
                opened.callback(loop.remove_reader, near)
                far.send(b"x")
            await done.wait()

    with asyncio.Runner(loop_factory=watchdog.new_loop) as runner:
        runner.run(scene(1))
        runner.run(scene(2))
    assert seen == [True, False, False]


def brisk() -> TimedSelector:
    watchdog = TimedSelector()
    for _ in range(50):
        watchdog.spin_policy.observe(0.0005, 0.00001)
    assert watchdog.spin_policy.should_spin()
    return watchdog


@pytest.mark.parametrize("made", [TimedSelector, brisk])
def test_it_waits_as_long_as_it_is_told(made: Callable[[], TimedSelector]) -> None:
    watchdog = made()
    near, far = socket.socketpair()
    with near, far, watchdog:
        watchdog.register(near, selectors.EVENT_READ)
        for seconds in (0.0003, 0.02):
            began = time.perf_counter()
            assert watchdog.select(seconds) == []
            assert time.perf_counter() - began >= seconds
        for timeout in (0, 0.0003, 20, None):
            far.send(b"x")
            [(key, events)] = watchdog.select(timeout)
            assert (key.fileobj, events) == (near, selectors.EVENT_READ)
            near.recv(1)


@pytest.mark.parametrize("made", [TimedSelector, brisk])
def test_it_is_told_from_another_thread(made: Callable[[], TimedSelector]) -> None:
    async def scene() -> int:
        return await asyncio.to_thread(lambda: 7)

    with asyncio.Runner(loop_factory=made().new_loop) as runner:
        assert runner.run(scene()) == 7


def test_with_nothing_to_do_it_sleeps() -> None:
    watchdog = brisk()
    near, far = socket.socketpair()
    with near, far, watchdog:
        watchdog.register(near, selectors.EVENT_READ)
        began = time.thread_time()
        for _ in range(20):
            watchdog.select(0.02)
        assert time.thread_time() - began < 0.1
        assert not watchdog.spin_policy.should_spin()


def test_room_for_more_of_an_answer_is_nothing_to_stay_awake_for() -> None:
    watchdog = brisk()
    near, far = socket.socketpair()
    with near, far, watchdog:
        watchdog.register(near, selectors.EVENT_WRITE)
        for _ in range(20):
            watchdog.select(None)
        assert not watchdog.spin_policy.should_spin()
