"""The loop serves ready sockets before what was scheduled, and only those still open; its clock is the time port."""

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from leadline.runtime.event_loop import EventLoop
from tests.support.logs import ManualClock

Pair = tuple[socket.socket, socket.socket]


@contextmanager
def ready_sockets(count: int) -> Iterator[list[Pair]]:
    """Sockets with a byte to read each."""
    with ExitStack() as held:
        pairs = [socket.socketpair() for _ in range(count)]
        for ours, theirs in pairs:
            held.enter_context(ours)
            held.enter_context(theirs)
            theirs.send(b"x")
        yield pairs


def run(scenario: Callable[[asyncio.AbstractEventLoop, asyncio.Event], None]) -> None:
    """Run a scenario until it sets its event."""

    async def main() -> None:
        over = asyncio.Event()
        scenario(asyncio.get_running_loop(), over)
        async with asyncio.timeout(120):
            await over.wait()

    with asyncio.Runner(loop_factory=EventLoop) as runner:
        runner.run(main())


def test_sockets_that_are_ready_are_served_before_scheduled_calls() -> None:
    done: list[str] = []
    with ready_sockets(1) as [(ours, _)]:

        def scenario(loop: asyncio.AbstractEventLoop, over: asyncio.Event) -> None:
            def write() -> None:
                done.append("write")
                loop.remove_writer(ours)

            def soon() -> None:
                done.append("soon")
                over.set()

            loop.add_reader(ours, lambda: done.append("read " + ours.recv(1).decode()))
            loop.add_writer(ours, write)
            loop.call_soon(soon)

        run(scenario)
    assert done == ["read x", "write", "soon"]


def test_a_socket_that_was_closed_in_this_turn_is_not_served_but_the_next_one_with_its_descriptor_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    done: list[str] = []
    with ready_sockets(2) as pairs:

        def scenario(loop: asyncio.AbstractEventLoop, over: asyncio.Event) -> None:
            def read(n: int) -> None:
                done.append("first")
                first, other = pairs[n][0], pairs[1 - n][0]
                loop.remove_reader(first)
                loop.remove_reader(other)
                number = other.detach()
                os.dup2(first.fileno(), number)
                loop.add_reader(number, read_later, number)

            def read_later(number: int) -> None:
                done.append("later " + os.read(number, 1).decode())
                loop.remove_reader(number)
                os.close(number)
                over.set()

            for n, (ours, _) in enumerate(pairs):
                loop.add_reader(ours, read, n)

        run(scenario)
    assert done == ["first", "later x"]
    assert not caplog.records


def test_a_callback_that_fails_does_not_hold_up_the_others(caplog: pytest.LogCaptureFixture) -> None:
    served: list[int] = []
    with ready_sockets(2) as pairs:

        def scenario(loop: asyncio.AbstractEventLoop, over: asyncio.Event) -> None:
            def read(n: int) -> None:
                pairs[n][0].recv(1)
                served.append(n)
                if len(served) == 2:
                    over.set()
                raise ValueError(f"a fault of {n}")

            for n, (ours, _) in enumerate(pairs):
                loop.add_reader(ours, read, n)

        run(scenario)
    assert sorted(served) == [0, 1]
    assert "a fault of 0" in caplog.text
    assert "a fault of 1" in caplog.text


@pytest.mark.parametrize(("count", "answers"), [(1, [True]), (2, [False, False])])
def test_the_loop_reports_whether_an_iteration_serves_one_socket(count: int, answers: list[bool]) -> None:
    results: list[bool] = []
    with ready_sockets(count) as pairs:

        def scenario(loop: asyncio.AbstractEventLoop, over: asyncio.Event) -> None:
            assert isinstance(loop, EventLoop)
            serves_one = loop.serves_one

            def read(ours: socket.socket) -> None:
                ours.recv(1)
                results.append(serves_one())
                if len(results) == count:
                    over.set()

            for ours, _ in pairs:
                loop.add_reader(ours, read, ours)

        run(scenario)
    assert results == answers


def test_the_clock_of_the_loop_is_the_monotonic_clock_of_the_time_port() -> None:
    clock = ManualClock()
    loop = EventLoop(time=clock)
    try:
        assert loop.time() == clock.monotonic_s()
        clock.ms += 5000
        assert loop.time() == clock.monotonic_s()
    finally:
        loop.close()
