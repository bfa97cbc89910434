"""The controller's queue: one event after the other, named ones once, and what becomes of those that fail."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from leadline.controller.event_queue import EventQueue
from leadline.errors import NotController
from leadline.runtime.turns import Turns


class Recorder:
    def __init__(self) -> None:
        self.ran: list[str] = []
        self.abandoned: list[str] = []
        self.failures: list[Exception] = []
        self.queue = EventQueue(self._failed, Turns())

    async def _failed(self, error: Exception) -> None:
        self.failures.append(error)

    def event(self, name: str, error: Exception | None = None) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            self.ran.append(name)
            await asyncio.sleep(0)
            if error is not None:
                raise error

        return run

    def put(self, name: str, error: Exception | None = None) -> None:
        self.queue.put(self.event(name, error), lambda: self.abandoned.append(name), name)

    def run(self) -> None:
        """All events that are queued."""

        async def main() -> None:
            over = asyncio.Event()

            async def end() -> None:
                over.set()

            self.queue.put(end)
            task = asyncio.create_task(self.queue.run())
            await asyncio.wait_for(over.wait(), 60)
            task.cancel()

        asyncio.run(main())


def test_events_run_in_their_order_and_a_named_one_that_waits_is_not_queued_again() -> None:
    recorder = Recorder()
    for name in ("a", "b", "a"):
        recorder.queue.put_once(name, recorder.event(name))
    recorder.run()
    assert recorder.ran == ["a", "b"]
    recorder.queue.put_once("a", recorder.event("a"))
    recorder.run()
    assert recorder.ran == ["a", "b", "a"]


@pytest.mark.parametrize("error", [OSError("a bug"), NotController("resigned")])
def test_an_event_that_fails_is_abandoned_and_the_next_one_runs(error: Exception) -> None:
    recorder = Recorder()
    recorder.put("fails", error)
    recorder.put("next")
    recorder.run()
    assert recorder.ran == ["fails", "next"]
    assert recorder.abandoned == ["fails"]
    assert recorder.failures == ([] if isinstance(error, NotController) else [error])


def test_all_events_but_one_kind_are_abandoned_and_can_be_queued_again() -> None:
    recorder = Recorder()
    recorder.put("x")
    for name in ("a", "elect"):
        recorder.queue.put_once(name, recorder.event(name))
    recorder.queue.abandon_all_but("elect")
    for name in ("a", "elect"):
        recorder.queue.put_once(name, recorder.event(name))
    recorder.run()
    assert recorder.abandoned == ["x"]
    assert recorder.ran == ["elect", "a"]
