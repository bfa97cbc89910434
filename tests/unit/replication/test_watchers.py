"""Watchers: when they leave a partition."""

import asyncio
from collections.abc import Callable

from leadline.replication.watchers import MOST_CHANGES, SessionWatcher, Watcher
from leadline.runtime.ordered_set import OrderedSet


class Session:
    def __init__(self) -> None:
        self.fresh: dict[object, None] = {}
        self.waiting: Callable[[], None] | None = None


def test_a_session_that_reads_nothing_is_left_alone_until_it_reads_again() -> None:
    async def main() -> None:
        session, watchers = Session(), OrderedSet[Watcher]()
        watcher = SessionWatcher(session, "key", watchers)
        for _ in range(MOST_CHANGES):
            assert list(watchers) == [watcher]
            watcher.note_change()
        await asyncio.sleep(0)
        assert not watchers
        watcher.note_read()
        assert list(watchers) == [watcher]
        watcher.end()
        assert not watchers

    asyncio.run(main())


def test_a_session_that_reads_is_never_left() -> None:
    async def main() -> None:
        session, watchers = Session(), OrderedSet[Watcher]()
        watcher = SessionWatcher(session, "key", watchers)
        for _ in range(3 * MOST_CHANGES):
            watcher.note_change()
            watcher.note_read()
        await asyncio.sleep(0)
        assert list(watchers) == [watcher]

    asyncio.run(main())
