"""Watches by path: which of them an event concerns, and in which order their callbacks run."""

import asyncio
from collections.abc import Callable

import pytest

from leadline.coordination.tree import Change, Event, SessionState
from leadline.coordination.watches import SessionWatches, Subscription, Watches


def notified(events: list[Event], prepare: Callable[[Watches, list[str]], object]) -> list[str]:
    """What callbacks write down when these events happen."""
    notes: list[str] = []

    async def run() -> None:
        watches = Watches(asyncio.get_running_loop())
        prepare(watches, notes)
        watches.notify(events)
        await asyncio.sleep(0)  # callbacks run in the next iteration of the loop

    asyncio.run(run())
    return notes


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (Change.CREATED, ["node", "children"]),
        (Change.SET, ["node"]),
        (Change.DELETED, ["node", "children"]),
        (Change.CHILDREN, ["children"]),
    ],
)
def test_each_kind_of_watch_reports_its_changes(change: Change, expected: list[str]) -> None:
    def prepare(watches: Watches, notes: list[str]) -> None:
        watches.watch("/a", lambda event: notes.append("node"))
        watches.watch_children("/a", lambda event: notes.append("children"))
        watches.watch("/a/b", lambda event: notes.append("another node"))

    assert notified([Event(change, "/a")], prepare) == expected


def test_callbacks_run_in_the_order_of_the_events() -> None:
    def prepare(watches: Watches, notes: list[str]) -> None:
        for path in ("/b", "/a"):
            watches.watch(path, lambda event: notes.append(event.path))

    events = [Event(Change.SET, path) for path in ("/a", "/b", "/a")]
    assert notified(events, prepare) == ["/a", "/b", "/a"]


def test_a_watch_that_is_cancelled_is_not_called_even_for_an_event_that_happened() -> None:
    def prepare(watches: Watches, notes: list[str]) -> None:
        second: list[Subscription[Event]] = []
        watches.watch("/a", lambda event: second[0].cancel())
        second.append(watches.watch("/a", lambda event: notes.append("called")))

    assert notified([Event(Change.SET, "/a")], prepare) == []


def test_a_callback_that_raises_does_not_stop_the_others() -> None:
    def fail(event: Event) -> None:
        raise RuntimeError("a bug")

    def prepare(watches: Watches, notes: list[str]) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: notes.append("reported"))
        watches.watch("/a", fail)
        watches.watch("/a", lambda event: notes.append("called"))

    assert notified([Event(Change.SET, "/a")], prepare) == ["reported", "called"]


def test_a_path_is_watched_until_its_last_watch_is_cancelled() -> None:
    async def run() -> None:
        watches = Watches(asyncio.get_running_loop())
        first, second = watches.watch("/a", print), watches.watch("/a", print)
        children = watches.watch_children("/b", print)
        assert (watches.has_watch("/a"), watches.has_children_watch("/a")) == (True, False)
        assert watches.paths() == ["/a", "/b"]
        first.cancel()
        first.cancel()
        assert watches.has_watch("/a")
        second.cancel()
        children.cancel()
        assert watches.paths() == []

    asyncio.run(run())


def test_states_of_the_session_reach_all_watches_in_order() -> None:
    async def run() -> None:
        watches = SessionWatches(asyncio.get_running_loop())
        states: list[SessionState] = []
        watches.watch(states.append)
        cancelled = watches.watch(states.append)
        watches.notify(SessionState.SUSPENDED)
        cancelled.cancel()
        watches.notify(SessionState.CONNECTED)
        await asyncio.sleep(0)
        assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]

    asyncio.run(run())
