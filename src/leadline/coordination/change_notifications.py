"""Change notifications: sequential nodes below one path, with which brokers notify each other of changes.

A notification names an entity that has changed, and each broker reads the entity again. A broker handles notifications
in the order of their numbers, each once. It deletes those that are older than a quarter of an hour.

    a malformed notification is logged and ignored
    a broker that may have missed one reads everything again: after a loss of the connection, and if a number is missing
    a change whose notification was never written is noticed later, by checks of the nodes (`unannounced_changes`)
    if the tree cannot be read now, the broker retries a little later

Start this first, then load: a change between the two is seen twice, and never missed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from leadline.coordination import znodes
from leadline.coordination.node_json import MalformedNode
from leadline.coordination.tree import Event, NoNode, SessionExpired, SessionState, Tree, TreeError, TreeWatch
from leadline.coordination.unannounced_changes import UnannouncedChanges
from leadline.runtime.ended_tasks import all_ended
from leadline.runtime.periodic import every
from leadline.runtime.ports import Time

log = logging.getLogger(__name__)

KEPT_MS = 15 * 60 * 1000
RETRY_S = 1.0
CHECK_MS = 10_000  # between checks for changes without a notification


class ChangeNotifications:
    """After `start()`, `changed` is called with path and data of each notification, `missed` to read everything again.

    Both may raise TreeError, after which they are called again later. `changed` may raise MalformedNode.
    """

    def __init__(
        self,
        tree: Tree,
        path: str,
        changed: Callable[[str, bytes], Awaitable[None]],
        missed: Callable[[], Awaitable[None]],
        clock: Time,
        unannounced: UnannouncedChanges,
    ) -> None:
        self._tree, self._path, self._clock = tree, path, clock
        self._changed, self._missed, self._unannounced = changed, missed, unannounced
        self._last = -1  # the number of the last notification that was handled, or that was there at the start
        self._is_behind = False  # some may have been missed
        self._watches: list[TreeWatch] = []
        self._reading: asyncio.Task[None] | None = None
        self._checking: asyncio.Task[None] | None = None
        self._again = False
        self._is_check_due = False

    async def start(self) -> None:
        """Load after this: no later notification is missed."""
        self._watches = [
            await self._tree.watch_children(self._path, lambda event: self._schedule_read(event)),
            self._tree.watch_session(self._session),
        ]
        self._last = max(await self._numbers(), default=-1)
        if self._tree.is_shared:
            self._checking = asyncio.create_task(every(CHECK_MS, self._check), name=f"checks of {self._path}")

    async def stop(self) -> None:
        for watch in self._watches:
            watch.cancel()
        for task in (self._checking, self._reading):
            if task is not None:
                task.cancel()
                await all_ended(task)
        await self._unannounced.stop()

    async def _check(self) -> None:
        """After the notifications that are there, so that none of them is taken for missing."""
        self._is_check_due = True
        self._schedule_read()

    def _session(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._is_behind = True
            self._schedule_read()

    def _schedule_read(self, event: Event | None = None) -> None:
        self._again = True
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read_all(), name=f"notifications of {self._path}")

    async def _read_all(self) -> None:
        while self._again:
            self._again = False
            try:
                await self._read()
            except SessionExpired as error:
                log.warning("notifications wait for another session: %s", error)
            except TreeError as error:
                log.warning("notifications cannot be read now: %s", error)
                self._again = True
                await asyncio.sleep(RETRY_S)

    async def _read(self) -> None:
        if self._is_behind:
            await self._catch_up()
        numbers = await self._numbers()
        unseen = [number for number in numbers if number > self._last]
        if unseen and self._last >= 0 and unseen[0] > self._last + 1:
            await self._catch_up()
        for number, name in numbers.items():
            await self._handle(number, f"{self._path}/{name}")
        if self._is_check_due:
            self._is_check_due = False
            await self._unannounced.check_some()

    async def _numbers(self) -> dict[int, str]:
        """The notifications by number, in order. A node without a number is not a notification, and is ignored."""
        names = await self._tree.children(self._path) or []
        return dict(sorted((znodes.sequence(name), name) for name in names if znodes.is_sequential(name)))

    async def _catch_up(self) -> None:
        self._is_behind = True  # until it has succeeded
        await self._missed()
        self._is_behind = False

    async def _handle(self, number: int, path: str) -> None:
        node = await self._tree.get(path)
        if number > self._last:
            if node is not None:
                try:
                    await self._changed(path, node.data)
                except MalformedNode as error:
                    log.error("a notification is ignored: %s", error)
                except TreeError:
                    raise
                except Exception:
                    log.exception("a bug: the notification %s is ignored", path)
            self._last = number
        elif node is not None and self._clock.now_ms() - node.ctime_ms > KEPT_MS:
            with suppress(NoNode):  # another broker has deleted it
                await self._tree.delete(path)
