"""The tree in a real ZooKeeper: `tree = await ZooKeeperTree.open(connect, ...)`.

When the connection is lost, calls that can be repeated wait for the next connection, and the others fail with
ConnectionLost (`calls`). If a repeated create finds an ephemeral node of this session, the node counts as created. When
the session has expired, all waiting calls fail with SessionExpired, and so do new calls until the next session begins.

A watch of ZooKeeper fires once. It is set again as soon as it has fired, before callbacks run: a callback that reads
again misses nothing. A watch on children needs the node to exist, so a second watch, on the node itself, reports its
creation. After each loss of the connection all watches are set again, before CONNECTED is reported.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import partial
from typing import Any, TypeVar

from leadline.coordination.tree import (
    ANY_VERSION,
    ROOT,
    Change,
    ConnectionLost,
    Create,
    Created,
    Delete,
    Event,
    Node,
    NodeExists,
    NoNode,
    Operation,
    Outcome,
    SessionExpired,
    SessionState,
    SetData,
    check_operation,
    check_path,
    parent_of,
)
from leadline.coordination.watches import SessionWatches, Subscription, Watches
from leadline.coordination.zookeeper.access import PLAIN_ACCESS, ZooKeeperAccess
from leadline.coordination.zookeeper.calls import PendingCall, PendingCalls
from leadline.coordination.zookeeper.requests import Chroot, Request, check_size, node_of, or_error
from leadline.coordination.zookeeper.session import ConnectString, ZooKeeperSession

log = logging.getLogger(__name__)

T = TypeVar("T")


class WatchKind(Enum):
    """ZooKeeper's kinds of watches."""

    NODE = "node"
    CHILDREN = "children"


WatchKey = tuple[WatchKind, str]  # kind and path of a watch

FIRED_BY: dict[Change, tuple[WatchKind, ...]] = {
    Change.CREATED: (WatchKind.NODE,),
    Change.SET: (WatchKind.NODE,),
    Change.DELETED: (WatchKind.NODE, WatchKind.CHILDREN),
    Change.CHILDREN: (WatchKind.CHILDREN,),
}


class ZooKeeperTree:
    """A Tree in ZooKeeper, below the chroot of zookeeper.connect."""

    is_shared = True

    def __init__(
        self, address: ConnectString, session_timeout_ms: int, max_in_flight: int, access: ZooKeeperAccess
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._address, self._session_timeout_ms, self._access = address, session_timeout_ms, access
        self._chroot = Chroot(address.chroot, access.set_acl)
        self._calls = PendingCalls(max_in_flight)
        self._first_connected: asyncio.Future[None] = self._loop.create_future()
        self._end_reason: str | None = None  # None: the session lives
        self._watches = Watches(self._loop)
        self._set_watches: dict[WatchKey, PendingCall[object]] = {}
        self._session_watches = SessionWatches(self._loop)
        self._ending: set[asyncio.Task[None]] = set()
        self._closing: asyncio.Task[None] | None = None
        self.session = 0
        self._begin_session()

    @classmethod
    async def open(
        cls,
        connect: str,
        *,
        session_timeout_ms: int,
        connection_timeout_ms: int,
        max_in_flight: int,
        access: ZooKeeperAccess = PLAIN_ACCESS,
    ) -> "ZooKeeperTree":
        """The arguments are Kafka's zookeeper.*.

        InvalidSetting: a bad address. ConnectionLost: no answer in time, or no login.
        """
        tree = cls(ConnectString.parse(connect), session_timeout_ms, max_in_flight, access)
        try:
            async with asyncio.timeout(connection_timeout_ms / 1000):
                await tree._first_connected
                await tree._make_chroot()
        except BaseException as error:
            await tree.close()
            if isinstance(error, TimeoutError):
                problem = tree._current.problem
                reason = f"no answer within {connection_timeout_ms / 1000:g} s (zookeeper.connection.timeout.ms). " + (
                    problem or "Does it run, and is zookeeper.connect correct?"
                )
                raise ConnectionLost(f"ZooKeeper at {connect}", reason) from None
            raise
        return tree

    async def get(self, path: str, /) -> Node | None:
        check_path(path)
        return await self._read(path, self._chroot.get(path), node_of)

    async def exists(self, path: str, /) -> bool:
        check_path(path)
        return bool(await self._read(path, self._chroot.exists(path), lambda stat, _: stat is not None))

    async def children(self, path: str, /) -> list[str] | None:
        check_path(path)
        return await self._read(path, self._chroot.children(path), lambda names, _: sorted(names))

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
        if make_parents:
            self._create_missing(self._chroot, _ancestors(path))
        request = self._chroot.write(operation)
        call = self._ask(path, request, self._chroot.created, may_repeat=not sequential, creates=True)
        try:
            return await call.answered
        except NodeExists as error:
            if not call.repeated:
                raise
            return await self._created_before(operation, error)

    async def _created_before(self, operation: Create, error: NodeExists) -> Created:
        """A repeated create found the node: was it created by this session?"""
        node = await self.get(operation.path)
        if node is not None and operation.ephemeral and node.owner == self.session:
            return Created(operation.path, node.czxid)
        if node is not None and (operation.ephemeral or node.owner):
            raise error
        raise ConnectionLost(operation.path, "it was created by this call or by another session")

    async def set(self, path: str, data: bytes, expected_version: int = ANY_VERSION) -> int:
        operation = SetData(path, data, expected_version)
        check_operation(operation)
        return await self._ask(path, self._chroot.write(operation), lambda stat, _: int(stat.version)).answered

    async def delete(self, path: str, expected_version: int = ANY_VERSION) -> None:
        operation = Delete(path, expected_version)
        check_operation(operation)
        await self._ask(path, self._chroot.write(operation), lambda *_: None).answered

    async def multi(self, operations: Sequence[Operation], /) -> list[Outcome]:
        batch = list(operations)
        for operation in batch:
            check_operation(operation)
        if not batch:
            return []
        outcomes = partial(self._chroot.outcomes, batch)
        return await self._ask(batch[0].path, self._chroot.multi(batch), outcomes).answered

    async def watch(self, path: str, call: Callable[[Event], None], /) -> Subscription[Event]:
        check_path(path)
        return await self._watched(path, self._watches.watch(path, call))

    async def watch_children(self, path: str, call: Callable[[Event], None], /) -> Subscription[Event]:
        check_path(path)
        return await self._watched(path, self._watches.watch_children(path, call))

    def watch_session(self, call: Callable[[SessionState], None], /) -> Subscription[SessionState]:
        return self._session_watches.watch(call)

    async def close(self) -> None:
        if self._closing is None:
            self._end_reason = self._end_reason or "it was closed"
            self._closing = self._loop.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if not self._current.is_connected:
            self._fail_all()
        if unanswered := self._calls.unanswered():
            await asyncio.wait(unanswered)
        self._fail_all()
        await self._current.end()
        if self._ending:
            await asyncio.wait(self._ending)

    # Calls

    async def _read(self, path: str, request: Request, read: Callable[[Any, int], T]) -> T | None:
        try:
            return await self._ask(path, request, read, may_repeat=True).answered
        except NoNode:
            return None

    def _create_missing(self, chroot: Chroot, paths: Iterable[str]) -> None:
        """Creates nodes that may exist already. Other errors show in the call that needs the nodes."""
        for path in paths:
            call = self._ask(path, chroot.write(Create(path)), chroot.created, may_repeat=True)
            call.answered.add_done_callback(_ignore_error)

    async def _make_chroot(self) -> None:
        path = self._chroot.path
        if path:
            self._create_missing(self._chroot._replace(path=""), [*_ancestors(path), path])
            if not await self.exists(ROOT):
                raise NoNode(path, "the path of zookeeper.connect does not exist and cannot be created")

    def _ask(
        self,
        path: str,
        request: Request,
        read: Callable[[Any, int], T],
        *,
        may_repeat: bool = False,
        creates: bool = False,
    ) -> PendingCall[T]:
        """SessionExpired, TooLarge."""
        if self._end_reason is not None:
            raise SessionExpired(path, f"the session is over: {self._end_reason}")
        check_size(path, request)
        call = PendingCall(
            path, request, partial(or_error, path, creates, read), self._loop.create_future(), may_repeat
        )
        self._calls.add(call)
        return call

    # The session

    def _begin_session(self) -> None:
        self._current = ZooKeeperSession(
            self._address, self._session_timeout_ms, self._state_changed, self._event_received, self._access
        )
        self._current.on_refusal = self._login_refused

    def _state_changed(self, session: ZooKeeperSession, state: SessionState) -> None:
        if session is not self._current:
            return
        if state is SessionState.CONNECTED:
            self._connected()
        elif state is SessionState.SUSPENDED:
            self._suspended()
        elif self._closing is None:
            self._expired()
        else:
            self._fail_all()

    def _login_refused(self, reason: str) -> None:
        """A start ends with it. Later it is tried again with each connection, until the session expires."""
        log.error("the login at ZooKeeper at %s failed: %s", self._address.hosts, reason)
        if not self._first_connected.done():
            self._first_connected.set_exception(ConnectionLost(f"ZooKeeper at {self._address.hosts}", reason))

    def _connected(self) -> None:
        self.session = self._current.id
        if self._closing is not None:
            return
        self._end_reason = None
        if self._first_connected.done():
            log.info("connected to ZooKeeper at %s again, in session %#x", self._address.hosts, self.session)
        self._set_all_watches()
        self._session_watches.notify(SessionState.CONNECTED)
        if not self._first_connected.done():
            self._first_connected.set_result(None)
        self._calls.connected(self._current)

    def _suspended(self) -> None:
        if self._closing is None:
            log.warning("lost the connection to ZooKeeper at %s; reconnecting", self._address.hosts)
        self._session_watches.notify(SessionState.SUSPENDED)
        self._set_watches = {arm: call for arm, call in self._set_watches.items() if not call.answered.done()}
        self._calls.disconnected()
        if self._closing is not None:
            self._fail_all()

    def _expired(self) -> None:
        self._end_reason = f"session {self._current.id:#x} has expired"
        self._session_watches.notify(SessionState.EXPIRED)
        self._fail_all()
        ended = self._loop.create_task(self._current.end())
        self._ending.add(ended)
        ended.add_done_callback(self._ending.discard)
        self._begin_session()

    def _fail_all(self) -> None:
        self._set_watches.clear()
        self._calls.fail_all(f"the session is over: {self._end_reason}")

    # Watches

    async def _watched(self, path: str, subscription: Subscription[Event]) -> Subscription[Event]:
        if self._end_reason is not None:
            subscription.cancel()
            raise SessionExpired(path, f"the session is over: {self._end_reason}")
        self._calls.add(*self._missing_watches(path))
        try:
            for kind in WatchKind:
                if (call := self._set_watches.get((kind, path))) is not None:
                    await asyncio.wait([call.answered])
                    call.answered.result()
        except BaseException as error:
            if isinstance(error, NoNode):  # of children; the watch on the node itself reports its creation
                return subscription
            subscription.cancel()
            raise
        return subscription

    def _event_received(self, event: Event) -> None:
        event = event._replace(path=self._chroot.relative(event.path))
        for kind in FIRED_BY[event.change]:
            self._set_watches.pop((kind, event.path), None)
        if self._end_reason is None:
            self._calls.add(*self._missing_watches(event.path))
        self._watches.notify([event])

    def _set_all_watches(self) -> None:
        """Sets the watches before all waiting calls, so that later reads miss no change."""
        calls = [call for path in self._watches.paths() for call in self._missing_watches(path)]
        self._calls.add_first(calls)

    def _missing_watches(self, path: str) -> list[PendingCall[object]]:
        kinds = [kind for kind in self._kinds_needed(path) if (kind, path) not in self._set_watches]
        for kind in kinds:
            self._set_watches[kind, path] = self._watch_call(kind, path)
        return [self._set_watches[kind, path] for kind in kinds]

    def _kinds_needed(self, path: str) -> Sequence[WatchKind]:
        if self._watches.has_children_watch(path):
            return (
                WatchKind.NODE,
                WatchKind.CHILDREN,
            )  # in this order: the first reports a change between the two
        return (WatchKind.NODE,) if self._watches.has_watch(path) else ()

    def _watch_call(self, kind: WatchKind, path: str) -> PendingCall[object]:
        request = self._chroot.exists if kind is WatchKind.NODE else self._chroot.children
        read = partial(or_error, path, False, lambda *_: None)
        call: PendingCall[object] = PendingCall(
            path, request(path, watch=True), read, self._loop.create_future(), may_repeat=True
        )
        call.refused = partial(self._unset, (kind, path), call)
        call.answered.add_done_callback(_ignore_error)
        return call

    def _unset(self, key: WatchKey, call: PendingCall[object]) -> None:
        if self._set_watches.get(key) is call:
            del self._set_watches[key]


def _ancestors(path: str) -> list[str]:
    """The paths of all nodes between the root and this one, from the top."""
    parent = parent_of(path)
    return [] if parent == ROOT else [*_ancestors(parent), parent]


def _ignore_error(answered: asyncio.Future[Any]) -> None:
    """asyncio must not report the exception as lost if nothing awaits the call."""
    if not answered.cancelled():
        answered.exception()
