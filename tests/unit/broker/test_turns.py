"""Turns: between two steps everybody is served who has sent something."""

import asyncio
import socket
from collections.abc import Callable

import pytest

from leadline.broker.loop import Loop
from leadline.broker.turns import QUIET_SECONDS, Turns


def run(scene: Callable[[Turns, list[str], socket.socket], None], wanted: int) -> list[str]:
    """What happened in which order: what the scene does, and `read` when bytes of its socket were read."""
    done: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            loop.add_reader(ours, lambda: done.append("read " + ours.recv(100).decode()))
            scene(Turns(loop), done, theirs)
            async with asyncio.timeout(20):
                while len(done) < wanted:  # noqa: ASYNC110 - what changes it has no event
                    await asyncio.sleep(0)
            loop.remove_reader(ours)

    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(main())
    return done


def test_who_has_sent_something_comes_before_the_next_step() -> None:
    def scene(turns: Turns, done: list[str], theirs: socket.socket) -> None:
        def step(name: str) -> None:
            done.append(name)
            theirs.send(name.encode())

        for name in ("1", "2", "3"):
            turns.take(lambda name=name: step(name))  # type: ignore[misc]
        theirs.send(b"0")

    assert run(scene, 7) == ["read 0", "1", "read 1", "2", "read 2", "3", "read 3"]


def test_steps_are_taken_in_their_order_also_those_that_steps_ask_for() -> None:
    def scene(turns: Turns, done: list[str], theirs: socket.socket) -> None:
        def first() -> None:
            done.append("1")
            turns.take(lambda: done.append("3"))

        turns.take(first)
        turns.take(lambda: done.append("2"))

    assert run(scene, 3) == ["1", "2", "3"]


def test_a_step_that_fails_does_not_hold_up_the_others(caplog: pytest.LogCaptureFixture) -> None:
    def scene(turns: Turns, done: list[str], theirs: socket.socket) -> None:
        def fails() -> None:
            raise ValueError("a fault")

        turns.take(fails)
        turns.take(lambda: done.append("2"))

    assert run(scene, 1) == ["2"]
    assert "a fault" in caplog.text


def test_it_is_quiet_until_a_small_request_comes_and_some_time_after_it() -> None:
    turns = Turns(asyncio.new_event_loop())
    turns._loop.close()
    assert turns.is_quiet(0.0)
    turns.small_at = 5.0
    told = [turns.is_quiet(5.0 + share * QUIET_SECONDS) for share in (0, 0.5, 1.5)]
    assert told == [False, False, True]
