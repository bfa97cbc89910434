"""ZooKeeper, simulated: one tree, and a client for each broker with a session that can be lost and can expire.

Calls of one client are carried out and answered in their order. A watch that fired is reported before the answer to any
later read. When a client hears nothing for two thirds of the session time-out, its connection is lost: calls under way
fail with ConnectionLost, whether they took effect or not, unless they can be repeated. When the server hears nothing
for the whole time-out, the session is over, and its ephemeral nodes are deleted.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar

from leadline.coordination.tree import (
    ANY_VERSION,
    ROOT,
    BadVersion,
    Change,
    Check,
    ConnectionLost,
    Create,
    Created,
    Delete,
    Event,
    NoChildrenForEphemerals,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Outcome,
    SessionExpired,
    SessionState,
    SetData,
    TreeError,
    check_operation,
    parent_of,
    sequential_path,
)
from leadline.coordination.watches import SessionWatches, Subscription, Watches
from leadline.runtime.ports import Time
from leadline.simulation.virtual_loop import Process, VirtualLoop
from leadline.simulation.virtual_network import VirtualNetwork

T = TypeVar("T")
HOST = "zookeeper"
TICKS = 6  # in a session time-out
FIRST_SESSION = 0x1000


@dataclass(slots=True)
class _ServerNode:
    data: bytes
    czxid: int
    ctime_ms: int
    owner: int
    mzxid: int
    version: int = 0
    children: dict[str, None] = field(default_factory=dict)
    sequence: int = 0

    def node(self) -> Node:
        return Node(self.data, self.version, self.czxid, self.ctime_ms, self.owner, self.mzxid)


class Ensemble:
    """The servers, as one."""

    def __init__(self, loop: VirtualLoop, network: VirtualNetwork, clock: Time) -> None:
        self.loop, self.network, self._clock = loop, network, clock
        self.process = Process(HOST)
        self.nodes: dict[str, _ServerNode] = {ROOT: _ServerNode(b"", 0, 0, 0, 0)}
        self.zxid = 0
        self.clients: list[VirtualTree] = []
        self.sessions: dict[int, VirtualTree] = {}
        self._next_session = FIRST_SESSION
        self.on_request: Callable[[Sequence[Operation]], None] = lambda operations: None  # when it is made
        self.on_operations: Callable[[Sequence[Operation], str], None] = lambda operations, host: None  # by a host
        self.is_down = False
        self.on_write: Callable[[Event, bytes], None] | None = None  # gets the data of the node

    def new_session(self, client: "VirtualTree") -> int:
        self._next_session += 1
        self.sessions[self._next_session] = client
        return self._next_session

    def end_session(self, session: int) -> None:
        self.sessions.pop(session, None)
        owned = [path for path, node in self.nodes.items() if node.owner == session]
        for path in owned:
            self._carry_out([Delete(path)], session)

    def is_reached_by(self, host: str) -> bool:
        return not self.is_down and not self.network.is_cut(host, HOST)

    def reaches(self, host: str) -> bool:
        return not self.is_down and not self.network.is_cut(HOST, host)

    # Operations

    def get(self, path: str) -> Node:
        return self._existing(path).node()

    def children(self, path: str) -> list[str]:
        return sorted(self._existing(path).children)

    def carry_out(self, operations: Sequence[Operation], session: int) -> list[Outcome]:
        """All or none."""
        if session not in self.sessions:
            raise SessionExpired(operations[0].path, f"session {session:#x} has expired")
        return self._carry_out(operations, session)

    def _carry_out(self, operations: Sequence[Operation], session: int) -> list[Outcome]:
        undo: list[Callable[[], object]] = []
        events: list[Event] = []
        self.zxid += 1
        try:
            outcomes = [self._apply(operation, session, undo, events) for operation in operations]
        except TreeError:
            for step in reversed(undo):
                step()
            raise
        if self.on_write is not None:
            for event in events:
                node = self.nodes.get(event.path)
                self.on_write(event, b"" if node is None else node.data)
        for client in self.clients:
            client.fired(events)
        if session in self.sessions:
            self.on_operations(operations, self.sessions[session].host)
        return outcomes

    def _apply(
        self, operation: Operation, session: int, undo: list[Callable[[], object]], events: list[Event]
    ) -> Outcome:
        match operation:
            case Create():
                return self._create(operation, session, undo, events)
            case SetData(path, data, expected):
                node = self._checked(path, expected)
                undo.append(partial(_restore, node, node.data, node.version, node.mzxid))
                node.data, node.version, node.mzxid = data, node.version + 1, self.zxid
                events.append(Event(Change.SET, path))
                return node.version
            case Delete(path, expected):
                node = self._checked(path, expected)
                if node.children:
                    raise NotEmpty(path, "it has children")
                parent = self.nodes[parent_of(path)]
                name = path.rpartition("/")[2]
                undo.append(partial(self.nodes.__setitem__, path, node))
                undo.append(partial(parent.children.__setitem__, name, None))
                del self.nodes[path], parent.children[name]
                events += [Event(Change.DELETED, path), Event(Change.CHILDREN, parent_of(path))]
                return None
            case Check(path, expected):
                self._checked(path, expected)
                return None

    def _create(
        self, operation: Create, session: int, undo: list[Callable[[], object]], events: list[Event]
    ) -> Created:
        path = operation.path
        parent = self._existing(parent_of(path))
        if operation.sequential:
            path = sequential_path(path, parent.sequence)
        if path in self.nodes:
            raise NodeExists(path, "the node exists")
        if parent.owner:
            raise NoChildrenForEphemerals(path, "the parent is ephemeral")
        name = path.rpartition("/")[2]
        parent.sequence += 1
        parent.children[name] = None
        owner = session if operation.ephemeral else 0
        self.nodes[path] = _ServerNode(operation.data, self.zxid, self._clock.now_ms(), owner, self.zxid)
        undo.append(partial(self.nodes.pop, path))
        undo.append(partial(parent.children.pop, name))
        events += [Event(Change.CREATED, path), Event(Change.CHILDREN, parent_of(path))]
        return Created(path, self.zxid)

    def _existing(self, path: str) -> _ServerNode:
        node = self.nodes.get(path)
        if node is None:
            raise NoNode(path, "the node does not exist")
        return node

    def _checked(self, path: str, expected: int) -> _ServerNode:
        node = self._existing(path)
        if expected not in (ANY_VERSION, node.version):
            raise BadVersion(path, f"it has version {node.version}, not {expected}")
        return node


def _restore(node: _ServerNode, data: bytes, version: int, mzxid: int) -> None:
    node.data, node.version, node.mzxid = data, version, mzxid


class _Call(NamedTuple):
    path: str
    run: Callable[[int], Any]  # at the server, with the session
    answered: "asyncio.Future[Any]"
    may_repeat: bool


class _MessageQueue:
    """Messages one way, in their order. While the way is closed they wait: TCP sends them again."""

    RETRY_S = 0.2

    def __init__(self, loop: VirtualLoop, delay_s: Callable[[], float], is_open: Callable[[], bool], to: Process):
        self._loop, self._delay_s, self._is_open, self._to = loop, delay_s, is_open, to
        self._messages: deque[Callable[[], None]] = deque()
        self._arrives_s = 0.0  # the last of them, at the earliest

    def put(self, message: Callable[[], None]) -> None:
        self._messages.append(message)
        self._arrives_s = max(self._arrives_s, self._loop.time() + self._delay_s())
        self._loop.call_at(self._arrives_s, self._arrive, context=self._to.context.copy())

    def _arrive(self) -> None:
        if self._messages and not self._is_open():
            self._loop.call_later(self.RETRY_S, self._arrive)
        elif self._messages:
            self._messages.popleft()()

    def clear(self) -> None:
        self._messages.clear()


class VirtualTree:
    """The coordination port of one broker."""

    is_shared = True

    def __init__(self, ensemble: Ensemble, host: str, process: Process, session_timeout_s: float) -> None:
        self._ensemble, self.host, self._process = ensemble, host, process
        self._timeout_s = session_timeout_s
        self._loop = ensemble.loop
        self._watches, self._session_watches = Watches(self._loop), SessionWatches(self._loop)
        self._calls: deque[_Call] = deque()  # not yet answered, in their order
        self._is_connected = True
        delay_to_server = partial(ensemble.network.delay_s, host, HOST)
        delay_to_client = partial(ensemble.network.delay_s, HOST, host)
        self._to_server = _MessageQueue(
            self._loop, delay_to_server, partial(ensemble.is_reached_by, host), ensemble.process
        )
        self._to_client = _MessageQueue(self._loop, delay_to_client, partial(ensemble.reaches, host), process)
        self._heard_by_server_s = self._heard_by_client_s = self._loop.time()
        self._is_closed = False
        ensemble.clients.append(self)
        self.session = ensemble.new_session(self)
        self._loop.call_later(session_timeout_s / TICKS, self._tick, context=ensemble.process.context.copy())

    # Calls

    async def get(self, path: str, /) -> Node | None:
        return await self._read(path, partial(self._ensemble.get, path))

    async def exists(self, path: str, /) -> bool:
        return await self._read(path, partial(self._ensemble.get, path)) is not None

    async def children(self, path: str, /) -> list[str] | None:
        return await self._read(path, partial(self._ensemble.children, path))

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> Created:
        parent = parent_of(path)
        if make_parents and parent != ROOT and not await self.exists(parent):
            with suppress(NodeExists):
                await self.create(parent, make_parents=True)
        created = await self._write(Create(path, data, ephemeral, sequential))
        assert isinstance(created, Created)
        return created

    async def set(self, path: str, data: bytes, expected_version: int = ANY_VERSION) -> int:
        version = await self._write(SetData(path, data, expected_version))
        assert isinstance(version, int)
        return version

    async def delete(self, path: str, expected_version: int = ANY_VERSION) -> None:
        await self._write(Delete(path, expected_version))

    async def multi(self, operations: Sequence[Operation], /) -> list[Outcome]:
        for operation in operations:
            check_operation(operation)
        if not operations:
            return []
        self._ensemble.on_request(operations)
        outcomes: list[Outcome] = await self._ask(
            operations[0].path, partial(self._ensemble.carry_out, operations), may_repeat=False
        )
        return outcomes

    async def _write(self, operation: Operation) -> Outcome:
        return (await self.multi([operation]))[0]

    async def _read(self, path: str, read: Callable[[], T]) -> T | None:
        try:
            result: T = await self._ask(path, lambda session: read(), may_repeat=True)
        except NoNode:
            return None
        return result

    def _ask(self, path: str, run: Callable[[int], Any], *, may_repeat: bool) -> "asyncio.Future[Any]":
        if self._is_closed or not self.session:
            raise SessionExpired(path, "the session is over")
        call = _Call(path, run, self._loop.create_future(), may_repeat)
        self._calls.append(call)
        if self._is_connected:
            self._send(call)
        return call.answered

    def _send(self, call: _Call) -> None:
        self._to_server.put(partial(self._received, call))

    def _received(self, call: _Call) -> None:
        """By the server."""
        error: TreeError | None = None
        result: Any = None
        try:
            if self.session not in self._ensemble.sessions:
                raise SessionExpired(call.path, "the session has expired")
            result = call.run(self.session)
        except TreeError as refused:
            error = refused
        self._to_client.put(partial(self._answer, call, result, error))

    def fired(self, events: Sequence[Event]) -> None:
        """The server has made changes that this client may watch."""
        if self._is_closed or self._process.is_dead:
            return
        watched = [
            event
            for event in events
            if self._watches.has_watch(event.path) or self._watches.has_children_watch(event.path)
        ]
        if watched and self._is_connected:
            self._to_client.put(partial(self._watches.notify, watched))

    def _answer(self, call: _Call, result: Any, error: TreeError | None) -> None:
        assert self._calls[0] is call, "answers come in the order of the calls"
        self._calls.popleft()
        if not call.answered.done():
            if error is not None:
                call.answered.set_exception(error)
            else:
                call.answered.set_result(result)

    # Watches

    async def watch(self, path: str, call: Callable[[Event], None], /) -> Subscription[Event]:
        subscription = self._watches.watch(path, call)
        await self.exists(path)
        return subscription

    async def watch_children(self, path: str, call: Callable[[Event], None], /) -> Subscription[Event]:
        subscription = self._watches.watch_children(path, call)
        await self.exists(path)
        return subscription

    def watch_session(self, call: Callable[[SessionState], None], /) -> Subscription[SessionState]:
        return self._session_watches.watch(call)

    # The session

    def _tick(self) -> None:
        """Updates what client and server know of each other. It runs on neither side."""
        now_s, ensemble = self._loop.time(), self._ensemble
        runs = not self._process.is_dead and not self._process.is_paused and not self._is_closed
        is_server_reached = runs and ensemble.is_reached_by(self.host)
        is_client_reached = runs and ensemble.reaches(self.host)
        if self._is_connected and is_server_reached:
            self._heard_by_server_s = now_s
        if self._is_connected and is_server_reached and is_client_reached:
            self._heard_by_client_s = now_s
        if ensemble.is_down:
            self._heard_by_server_s = now_s  # the next leader gives each session its whole time
        expires_s = self._heard_by_server_s + self._timeout_s
        if self.session in ensemble.sessions and now_s >= expires_s:
            ensemble.end_session(self.session)
        if self._process.is_dead or self._is_closed:
            if self.session not in ensemble.sessions:
                ensemble.clients.remove(self)
                return
        elif runs:
            context = self._process.context.copy()
            if self._is_connected and self.session not in ensemble.sessions and is_client_reached:
                self._loop.call_soon(self._expired, context=context)
            elif self._is_connected and now_s >= self._heard_by_client_s + self._timeout_s * 2 / 3:
                self._loop.call_soon(self._lost, context=context)
            elif not self._is_connected and is_server_reached and is_client_reached:
                self._loop.call_soon(self._reconnected, context=context)
        self._loop.call_later(self._timeout_s / TICKS, self._tick)

    def _lost(self) -> None:
        """By the client."""
        self._is_connected = False
        self._disconnect()
        self._session_watches.notify(SessionState.SUSPENDED)
        repeated: deque[_Call] = deque()
        for call in self._calls:
            if call.may_repeat:
                repeated.append(call)
            elif not call.answered.done():
                call.answered.set_exception(ConnectionLost(call.path, "the connection to ZooKeeper is lost"))
        self._calls = repeated

    def _disconnect(self) -> None:
        self._to_server.clear()
        self._to_client.clear()

    def _reconnected(self) -> None:
        self._heard_by_client_s = self._heard_by_server_s = self._loop.time()
        self._is_connected = True
        if self.session not in self._ensemble.sessions:
            self._expired()
            return
        self._session_watches.notify(SessionState.CONNECTED)
        for call in self._calls:
            self._send(call)

    def _expired(self) -> None:
        """Another session begins at once."""
        self._disconnect()
        self._session_watches.notify(SessionState.EXPIRED)
        calls, self._calls = self._calls, deque()
        for call in calls:
            if not call.answered.done():
                call.answered.set_exception(SessionExpired(call.path, "the session has expired"))
        self.session = self._ensemble.new_session(self)
        self._is_connected = True
        self._heard_by_client_s = self._heard_by_server_s = self._loop.time()
        self._session_watches.notify(SessionState.CONNECTED)

    async def close(self) -> None:
        if self._is_closed:
            return
        if self._is_connected:
            await self._ask(ROOT, lambda session: self._ensemble.end_session(session), may_repeat=True)
        self._is_closed = True
