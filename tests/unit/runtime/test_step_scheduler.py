"""Between two steps every client that has sent something is served."""

import asyncio
import socket
from collections.abc import Callable

import pytest

from leadline.runtime.event_loop import EventLoop
from leadline.runtime.step_scheduler import QUIET_SECONDS, StepScheduler


def run(scenario: Callable[[StepScheduler, list[str], socket.socket], None], count: int) -> list[str]:
    """What happened in which order: what the scenario does, and `read` when bytes of its socket were read."""
    done: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            loop.add_reader(ours, lambda: done.append("read " + ours.recv(100).decode()))
            scenario(StepScheduler(loop), done, theirs)
            async with asyncio.timeout(120):
                while len(done) < count:  # noqa: ASYNC110 - what changes it has no event
                    await asyncio.sleep(0)
            loop.remove_reader(ours)

    with asyncio.Runner(loop_factory=EventLoop) as runner:
        runner.run(main())
    return done


def test_a_client_that_has_sent_something_is_served_before_the_next_step() -> None:
    def scenario(scheduler: StepScheduler, done: list[str], theirs: socket.socket) -> None:
        def step(name: str) -> None:
            done.append(name)
            theirs.send(name.encode())

        for name in ("1", "2", "3"):
            scheduler.schedule(lambda name=name: step(name))  # type: ignore[misc]
        theirs.send(b"0")

    assert run(scenario, 7) == ["read 0", "1", "read 1", "2", "read 2", "3", "read 3"]


def test_steps_run_in_the_order_in_which_they_were_scheduled() -> None:
    def scenario(scheduler: StepScheduler, done: list[str], theirs: socket.socket) -> None:
        def first() -> None:
            done.append("1")
            scheduler.schedule(lambda: done.append("3"))

        scheduler.schedule(first)
        scheduler.schedule(lambda: done.append("2"))

    assert run(scenario, 3) == ["1", "2", "3"]


def test_a_step_that_fails_does_not_hold_up_the_others(caplog: pytest.LogCaptureFixture) -> None:
    def scenario(scheduler: StepScheduler, done: list[str], theirs: socket.socket) -> None:
        def fails() -> None:
            raise ValueError("a fault")

        scheduler.schedule(fails)
        scheduler.schedule(lambda: done.append("2"))

    assert run(scenario, 1) == ["2"]
    assert "a fault" in caplog.text


def test_it_is_quiet_until_a_small_request_comes_and_some_time_after_it() -> None:
    scheduler = StepScheduler(asyncio.new_event_loop())
    scheduler._loop.close()
    assert scheduler.is_quiet(0.0)
    scheduler.last_small_request_s = 5.0
    quiet = [scheduler.is_quiet(5.0 + share * QUIET_SECONDS) for share in (0, 0.5, 1.5)]
    assert quiet == [False, False, True]
