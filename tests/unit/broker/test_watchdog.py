"""The longest time between two turns of the loop is known."""

import asyncio
import socket
import time
from contextlib import ExitStack

from leadline.broker.watchdog import Watchdog


def turns(*seconds: float) -> Watchdog:
    watchdog = Watchdog()

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
    watchdog = Watchdog()
    with asyncio.Runner(loop_factory=watchdog.new_loop) as runner:
        runner.run(asyncio.sleep(0.3))
    assert watchdog.longest_turn < 0.3


def test_it_knows_whether_one_is_served_alone() -> None:
    watchdog, seen = Watchdog(), list[bool]()

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
