"""Watches by path. Callbacks run on the loop, one after the other, in the order of the events."""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Generic, TypeVar

from leadline.coordination.tree import Change, Event, SessionState

E = TypeVar("E")


class Subscription(Generic[E]):
    """A callback that is called until it is cancelled."""

    def __init__(self, call: Callable[[E], None], forget: "Callable[[Subscription[E]], None]") -> None:
        self._call, self._forget = call, forget
        self._cancelled = False

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._forget(self)

    def notify(self, event: E) -> None:
        if not self._cancelled:
            self._call(event)


class SessionWatches:
    """The watches on the state of the session."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._subscriptions: list[Subscription[SessionState]] = []

    def watch(self, call: Callable[[SessionState], None]) -> Subscription[SessionState]:
        subscription = Subscription(call, self._subscriptions.remove)
        self._subscriptions.append(subscription)
        return subscription

    def notify(self, state: SessionState) -> None:
        for subscription in self._subscriptions:
            self._loop.call_soon(subscription.notify, state)


Registry = dict[str, list[Subscription[Event]]]


class Watches:
    """The watches on data and on children, by path."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._data: Registry = {}
        self._children: Registry = {}

    def watch(self, path: str, call: Callable[[Event], None]) -> Subscription[Event]:
        return _register(self._data, path, call)

    def watch_children(self, path: str, call: Callable[[Event], None]) -> Subscription[Event]:
        return _register(self._children, path, call)

    def has_watch(self, path: str) -> bool:
        return path in self._data

    def has_children_watch(self, path: str) -> bool:
        return path in self._children

    def paths(self) -> list[str]:
        """The paths of all watches, each once."""
        return list(self._data | self._children)

    def notify(self, events: Iterable[Event]) -> None:
        """An exception of a callback goes to the loop's handler; the other callbacks still run."""
        for event in events:
            for subscription in self._interested(event):
                self._loop.call_soon(subscription.notify, event)

    def _interested(self, event: Event) -> list[Subscription[Event]]:
        data = self._data.get(event.path, []) if event.change is not Change.CHILDREN else []
        children = self._children.get(event.path, []) if event.change is not Change.SET else []
        return [*data, *children]


def _register(registry: Registry, path: str, call: Callable[[Event], None]) -> Subscription[Event]:
    subscription = Subscription(call, partial(_forget, registry, path))
    registry.setdefault(path, []).append(subscription)
    return subscription


def _forget(registry: Registry, path: str, subscription: Subscription[Event]) -> None:
    registry[path].remove(subscription)
    if not registry[path]:
        del registry[path]
