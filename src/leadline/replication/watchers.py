"""Watchers of a partition: they mark it as changed for a fetch, and name the fetch that waits.

A partition calls nothing of a fetch. It writes into what the watcher shares with the fetch, and hands the waiting fetch
to `DeferredCompletions`, which evaluates it once the requests of one read are served.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from leadline.runtime.ordered_set import OrderedSet

MOST_CHANGES = 100  # of a partition that no fetch has read in the meantime


class WatchingFetch(Protocol):
    """A fetch or a fetch session, as far as a partition knows it."""

    fresh: dict[Any, None]  # its partitions that have changed, by its own keys
    waiting: Callable[[], None] | None  # evaluates the fetch that waits; None: none waits now


class Watcher:
    """Watches one partition for one fetch."""

    __slots__ = ("fetch", "key")

    def __init__(self, fetch: WatchingFetch, key: object) -> None:
        self.fetch, self.key = fetch, key

    def note_change(self) -> None:
        """The partition was marked as changed, and no fetch waits for that."""


class SessionWatcher(Watcher):
    """Watches one partition for a fetch session, from one fetch to the next.

    A session that is used no longer would be marked for nothing. After MOST_CHANGES that no fetch waited for, the
    watcher leaves the partition. The partition is marked by then, so the next fetch of the session reads it, and
    `note_read` puts the watcher back.
    """

    __slots__ = ("_changes", "_watchers")

    def __init__(self, fetch: WatchingFetch, key: object, watchers: OrderedSet[Watcher]) -> None:
        super().__init__(fetch, key)
        self._watchers, self._changes = watchers, 0
        watchers.add(self)

    def note_change(self) -> None:
        self._changes += 1
        if self._changes == MOST_CHANGES:
            asyncio.get_running_loop().call_soon(self._rest)  # not now: the watchers are being iterated over

    def _rest(self) -> None:
        if self._changes >= MOST_CHANGES:
            self._watchers.discard(self)

    def note_read(self) -> None:
        """A fetch reads the partition."""
        if self._changes:
            self._changes = 0
            self._watchers.add(self)

    def end(self) -> None:
        self._watchers.discard(self)
