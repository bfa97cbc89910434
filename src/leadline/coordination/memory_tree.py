"""The coordination tree in the memory of one process, for the brokers of a test: no disk, no ZooKeeper.

`MemoryTreeServer` holds the nodes and the sessions; `MemoryTree` is one session, the port of one broker. Sessions may
live on loops of several threads: the nodes have a lock, and events reach a session through its loop. A call takes three
turns of the loop, so that watches are called before the answer.

A session lives as long as its client `is_reachable`. `tick`, which is called at intervals, notices the others.
    after two thirds of the time-out without its client, the client's connection is lost: its calls wait
    after the whole time-out the session is over, and its ephemeral nodes are deleted
    a client that is reachable again continues, with another session if the old one is over
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from leadline.coordination.memory_nodes import MemoryNodes, ancestors
from leadline.coordination.tree import (
    ANY_VERSION,
    ROOT,
    Create,
    Created,
    Delete,
    Event,
    Node,
    NodeExists,
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
FIRST_SESSION = 0x1000
TICKS = 6  # in a session time-out, at least
LOST_SHARE = 2 / 3  # of the session time-out, until a client notices that it hears nothing


class MemoryTreeServer:
    def __init__(self, time: Time) -> None:
        self.time = time
        self.nodes = MemoryNodes()
        self.lock = threading.RLock()  # of the nodes and the sessions
        self._sessions: dict[int, MemoryTree] = {}
        self._clients: list[MemoryTree] = []  # that are not closed
        self._last_session = FIRST_SESSION

    def connect(self, timeout_s: float = 18.0, is_reachable: Callable[[], bool] = lambda: True) -> "MemoryTree":
        """A session on the running loop."""
        tree = MemoryTree(self, timeout_s, is_reachable)
        self.add(tree)
        return tree

    def add(self, client: "MemoryTree") -> None:
        with self.lock:
            self._clients.append(client)

    def new_session(self, client: "MemoryTree") -> int:
        with self.lock:
            self._last_session += 1
            self._sessions[self._last_session] = client
            return self._last_session

    def is_alive(self, session: int) -> bool:
        return session in self._sessions

    def end_session(self, session: int) -> None:
        with self.lock:
            if self._sessions.pop(session, None) is not None and (owned := self.nodes.owned_by(session)):
                self._apply([Delete(path) for path in owned], session)

    def closed(self, client: "MemoryTree") -> None:
        """Its process has ended, or closes it. A session that was not closed expires in its time."""
        client.is_closed = True
        with self.lock, suppress(ValueError):
            if not self.is_alive(client.session):
                self._clients.remove(client)

    def multi(self, operations: Sequence[Operation], session: int) -> list[Outcome]:
        with self.lock:
            if not self.is_alive(session):
                raise SessionExpired(operations[0].path, f"session {session:#x} has expired")
            return self._apply(operations, session)

    def _apply(self, operations: Sequence[Operation], session: int) -> list[Outcome]:
        outcomes, events = self.nodes.apply(operations, session, self.time.now_ms())
        for client in self._clients:
            client.deliver(events)
        return outcomes

    def tick(self) -> None:
        """Notice which clients can be reached, and which sessions are over."""
        now_s = self.time.monotonic_s()
        with self.lock:
            for client in list(self._clients):
                self._look_at(client, now_s)

    def _look_at(self, client: "MemoryTree", now_s: float) -> None:
        if not client.is_closed and client.is_reachable():
            client.heard_s = now_s
            if not client.is_connected or not self.is_alive(client.session):
                client.call_soon(client.reconnect)
            return
        silent_s = now_s - client.heard_s
        if silent_s >= client.timeout_s:
            self.end_session(client.session)
            if client.is_closed:
                self._clients.remove(client)
        if silent_s >= client.timeout_s * LOST_SHARE and client.is_connected:
            client.call_soon(client.lose)


class MemoryTree:
    """One session. All calls come from its loop, except `deliver` and `call_soon`."""

    is_shared = True

    def __init__(self, server: MemoryTreeServer, timeout_s: float, is_reachable: Callable[[], bool]) -> None:
        self._server, self.timeout_s, self.is_reachable = server, timeout_s, is_reachable
        self._loop = asyncio.get_running_loop()
        self._watches, self._session_watches = Watches(self._loop), SessionWatches(self._loop)
        self._reconnected = asyncio.Event()
        self.heard_s = server.time.monotonic_s()  # when the server last heard from it
        self.is_connected, self.is_closed = True, False
        self.session = server.new_session(self)

    # What the server does with it

    def call_soon(self, call: Callable[..., None], *args: object) -> None:
        """Schedules a call on the loop of the client, from any thread."""
        if not self.is_closed:
            with suppress(RuntimeError):  # the loop has just ended
                self._loop.call_soon_threadsafe(call, *args)

    def deliver(self, events: Sequence[Event]) -> None:
        watches = self._watches
        watched = [event for event in events if watches.has_watch(event.path) or watches.has_children_watch(event.path)]
        if watched:
            self.call_soon(watches.notify, watched)

    def lose(self) -> None:
        if self.is_connected and not self.is_reachable():
            self.is_connected = False
            self._reconnected.clear()
            self._session_watches.notify(SessionState.SUSPENDED)

    def reconnect(self) -> None:
        if self.is_closed or (self.is_connected and self._server.is_alive(self.session)):
            return
        if not self._server.is_alive(self.session):
            self._session_watches.notify(SessionState.EXPIRED)
            self.session = self._server.new_session(self)
        self.is_connected = True
        self._reconnected.set()
        self._session_watches.notify(SessionState.CONNECTED)

    # Calls

    async def _ask(self, path: str, run: Callable[[], T]) -> T:
        await asyncio.sleep(0)
        while not self.is_closed and not (self.is_connected and self.is_reachable()):
            await self._until_reachable()
        if self.is_closed:
            raise SessionExpired(path, "the session is closed")
        try:
            with self._server.lock:
                return run()
        finally:
            await asyncio.sleep(0)  # events arrive in this turn,
            await asyncio.sleep(0)  # and watches are called in this one

    async def _until_reachable(self) -> None:
        if self.is_connected:
            await asyncio.sleep(self.timeout_s / TICKS / 10)  # whether it is lost turns out soon
        else:
            await self._reconnected.wait()

    async def get(self, path: str, /) -> Node | None:
        check_path(path)
        return await self._ask(path, lambda: self._server.nodes.get(path))

    async def exists(self, path: str, /) -> bool:
        return await self.get(path) is not None

    async def children(self, path: str, /) -> list[str] | None:
        check_path(path)
        return await self._ask(path, lambda: self._server.nodes.children(path))

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> Created:
        for parent in ancestors(path) if make_parents else ():
            if self._server.nodes.get(parent) is None:
                with suppress(NodeExists):
                    await self.multi([Create(parent)])
        (created,) = await self.multi([Create(path, data, ephemeral, sequential)])
        assert isinstance(created, Created)
        return created

    async def set(self, path: str, data: bytes, expected_version: int = ANY_VERSION) -> int:
        outcomes = await self.multi([SetData(path, data, expected_version)])
        assert isinstance(outcomes[0], int)
        return outcomes[0]

    async def delete(self, path: str, expected_version: int = ANY_VERSION) -> None:
        await self.multi([Delete(path, expected_version)])

    async def multi(self, operations: Sequence[Operation], /) -> list[Outcome]:
        for operation in operations:
            check_operation(operation)
        if not operations:
            return []
        return await self._ask(operations[0].path, lambda: self._server.multi(operations, self.session))

    # Watches

    async def watch(self, path: str, call: Callable[[Event], None], /) -> Subscription[Event]:
        check_path(path)
        return await self._ask(path, lambda: self._watches.watch(path, call))

    async def watch_children(self, path: str, call: Callable[[Event], None], /) -> Subscription[Event]:
        check_path(path)
        return await self._ask(path, lambda: self._watches.watch_children(path, call))

    def watch_session(self, call: Callable[[SessionState], None], /) -> Subscription[SessionState]:
        return self._session_watches.watch(call)

    async def close(self) -> None:
        """A client that cannot be reached leaves its session behind."""
        if not self.is_closed:
            if self.is_connected and self.is_reachable():
                await self._ask(ROOT, lambda: self._server.end_session(self.session))
            self._server.closed(self)
            self._reconnected.set()
