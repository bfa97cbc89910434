"""The tree of a single node: in a SQLite file, `coordination.db`, with a thread of its own.

Calls go to the thread through a queue and are answered in order. The thread takes all waiting calls as one group. Each
call that writes is a transaction of its own. One commit, which waits for the disk, makes the whole group durable. After
that, on the loop, watches are notified and calls are answered.

The session lasts as long as the process. If the disk fails, its content is unknown: the group fails with
ConnectionLost, the session expires, and every later call fails with SessionExpired. If the disk is full, the group
fails with ConnectionLost too, but has changed nothing, and the next group may succeed.
"""

import asyncio
import logging
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar

from leadline.coordination.database import Database
from leadline.coordination.tree import (
    ANY_VERSION,
    ROOT,
    ConnectionLost,
    Create,
    Created,
    Delete,
    Event,
    Node,
    Operation,
    Outcome,
    SessionExpired,
    SessionState,
    SetData,
    check_operation,
    check_path,
)
from leadline.coordination.watches import SessionWatches, Subscription, Watches
from leadline.runtime.ports import Time

T = TypeVar("T")

log = logging.getLogger(__name__)

GROUP_CALLS = 1000  # in one commit, at most: the first call waits for the last
RETRIABLE_CODES = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_NOMEM)  # disk or memory are full: nothing has changed


class QueuedCall(Generic[T]):
    """A job for the thread, and the future of its caller. The thread runs the job, the loop sets the future."""

    def __init__(self, path: str, job: Callable[[Database], T], writes: bool, answered: asyncio.Future[T]) -> None:
        self.path, self._job, self.writes, self._answered = path, job, writes, answered
        self.events: list[Event] = []

    def run(self, database: Database) -> None:
        try:
            if self.writes:
                result = database.transaction(partial(self._job, database))
            else:
                result = self._job(database)
        except sqlite3.Error:
            raise
        except Exception as error:  # noqa: BLE001  the caller gets it
            self.fail(error)
        else:
            self._settle = partial(self._answered.set_result, result)
        self.events, database.events = database.events, []

    def fail(self, error: Exception) -> None:
        self._settle = partial(self._answered.set_exception, error)
        self.events = []

    def answer(self) -> None:
        if not self._answered.done():  # the caller may have been cancelled
            self._settle()


Group = list[QueuedCall[Any]]


class EmbeddedTree:
    """A Tree for one process: `tree = await EmbeddedTree.open(directory, clock)`."""

    session = 0
    is_shared = False

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls: queue.SimpleQueue[QueuedCall[Any] | None] = queue.SimpleQueue()  # None: the last one
        self._opened: asyncio.Future[int] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._watches = Watches(self._loop)
        self._session_watches = SessionWatches(self._loop)
        self._end_reason: str | None = None  # None: the session lives

    @classmethod
    async def open(cls, directory: str, clock: Time) -> "EmbeddedTree":
        """Raises TreeInUse, CorruptFile or OSError."""
        tree = cls()
        threading.Thread(target=tree._work, args=(directory, clock), name="coordination", daemon=True).start()
        try:
            tree.session = await tree._opened
        except BaseException:
            tree._calls.put(None)
            await tree._ended  # the thread may still open the database
            raise
        return tree

    async def get(self, path: str, /) -> Node | None:
        check_path(path)
        return await self._ask(path, lambda database: database.get(path))

    async def exists(self, path: str, /) -> bool:
        check_path(path)
        return await self._ask(path, lambda database: database.exists(path))

    async def children(self, path: str, /) -> list[str] | None:
        check_path(path)
        return await self._ask(path, lambda database: database.children(path))

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> Created:
        operation = Create(path, data, ephemeral, sequential)
        check_operation(operation)

        def create(database: Database) -> Created:
            if make_parents:
                database.make_parents(path)
            return database.create(operation)

        return await self._ask(path, create, writes=True)

    async def set(self, path: str, data: bytes, expected_version: int = ANY_VERSION) -> int:
        (version,) = await self.multi([SetData(path, data, expected_version)])
        assert isinstance(version, int)
        return version

    async def delete(self, path: str, expected_version: int = ANY_VERSION) -> None:
        await self.multi([Delete(path, expected_version)])

    async def multi(self, operations: Sequence[Operation], /) -> list[Outcome]:
        batch = list(operations)
        for operation in batch:
            check_operation(operation)
        path = batch[0].path if batch else ROOT
        return await self._ask(path, lambda database: database.multi(batch), writes=True)

    async def watch(self, path: str, call: Callable[[Event], None], /) -> Subscription[Event]:
        check_path(path)
        return self._watches.watch(path, call)

    async def watch_children(self, path: str, call: Callable[[Event], None], /) -> Subscription[Event]:
        check_path(path)
        return self._watches.watch_children(path, call)

    def watch_session(self, call: Callable[[SessionState], None], /) -> Subscription[SessionState]:
        return self._session_watches.watch(call)

    async def close(self) -> None:
        end = self._ask(ROOT, lambda database: database.end_sessions(), writes=True)
        self._end_reason = self._end_reason or "it was closed"
        self._calls.put(None)
        with suppress(ConnectionLost, SessionExpired):  # the ephemerals of a failed session go at the next start
            await end
        await asyncio.shield(self._ended)

    def _ask(self, path: str, job: Callable[[Database], T], writes: bool = False) -> asyncio.Future[T]:
        answered: asyncio.Future[T] = self._loop.create_future()
        if self._end_reason is None:
            self._calls.put(QueuedCall(path, job, writes, answered))
        else:
            answered.set_exception(SessionExpired(path, f"the session is over: {self._end_reason}"))
        return answered

    def _done(self, group: Group) -> None:
        for call in group:
            self._watches.notify(call.events)
            call.answer()

    def _failed(self, group: Group, error: sqlite3.Error) -> None:
        for call in group:
            call.fail(ConnectionLost(call.path, f"the database failed: {error}"))
            call.answer()
        if self._end_reason is None:
            self._end_reason = f"the database failed: {error}"
            self._session_watches.notify(SessionState.EXPIRED)

    def _refused(self, group: Group, error: sqlite3.Error) -> None:
        """The group has changed nothing. The next one may succeed."""
        log.warning("the database failed %d calls: %s; free some space or memory", len(group), error)
        for call in group:
            call.fail(ConnectionLost(call.path, f"{error}: free some space or memory"))
            call.answer()

    # Everything below runs in the thread, which shares nothing but the queue.

    def _work(self, directory: str, clock: Time) -> None:
        back = self._loop.call_soon_threadsafe
        try:
            database = Database(directory, clock)
        except Exception as error:  # noqa: BLE001  the caller of open gets it
            back(_settle, self._opened.set_exception, error)
            back(self._ended.set_result, None)
            return
        back(_settle, self._opened.set_result, database.session)
        try:
            self._serve(database)
        finally:
            database.close()
            back(self._ended.set_result, None)

    def _serve(self, database: Database) -> None:
        failure: sqlite3.Error | None = None
        is_open = True
        while is_open:
            group, is_open = self._next_group()
            try:
                if failure is None:
                    _run(database, group)
            except sqlite3.Error as error:
                if getattr(error, "sqlite_errorcode", 0) & 0xFF in RETRIABLE_CODES and database.undo():
                    self._loop.call_soon_threadsafe(self._refused, group, error)
                    continue
                failure = error
            if failure is None:
                self._loop.call_soon_threadsafe(self._done, group)
            else:
                self._loop.call_soon_threadsafe(self._failed, group, failure)

    def _next_group(self) -> tuple[Group, bool]:
        """Returns the waiting calls, and whether more may follow."""
        group: Group = []
        call = self._calls.get()
        with suppress(queue.Empty):
            while call is not None:
                group.append(call)
                if len(group) == GROUP_CALLS:
                    return group, True
                call = self._calls.get_nowait()
            return group, False
        return group, True


def _run(database: Database, group: Group) -> None:
    writes = any(call.writes for call in group)
    if writes:
        database.begin()
    for call in group:
        call.run(database)
    if writes:
        database.commit()


def _settle(set_result: Callable[[T], object], result: T) -> None:
    with suppress(asyncio.InvalidStateError):  # the caller of open was cancelled
        set_result(result)
