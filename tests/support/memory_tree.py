"""The coordination tree in the memory of one process: no thread, no disk, nothing but the loop.

It stands behind the same port as ZooKeeper and the embedded tree. Each call is answered in the next turn of the loop,
in order, and all nodes belong to one session. It counts what it is asked.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from leadline.coordination.tree import (
    ANY_VERSION,
    ROOT,
    BadVersion,
    Change,
    Check,
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
    SessionState,
    SetData,
    check_operation,
    check_path,
    parent_of,
    sequential_path,
)
from leadline.coordination.watches import SessionWatches, Subscription, Watches

SESSION = 1


class _Entry:
    __slots__ = ("born", "children", "node")

    def __init__(self, node: Node) -> None:
        self.node, self.born = node, 0
        self.children: dict[str, None] | None = None  # None: it never had any


class _Undo(NamedTuple):
    path: str
    entry: _Entry | None  # before the change; None: there was none


class MemoryTree:
    session = SESSION

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._entries = {ROOT: _Entry(Node(b"", 0, 0, 0, 0))}
        self._zxid = 0
        self._watches, self._session_watches = Watches(self._loop), SessionWatches(self._loop)
        self.counts: Counter[str] = Counter()  # calls by name, and "writes": the operations of all multis but checks

    def put(self, path: str, data: bytes = b"") -> None:
        """Creates a node, and those above it, without a call: a tree as others have left it."""
        for missing in [*_ancestors(path), path]:
            if missing not in self._entries:
                self._zxid += 1
                self._insert(missing, _Entry(Node(data if missing == path else b"", 0, self._zxid, 0, 0)))

    async def get(self, path: str, /) -> Node | None:
        check_path(path)
        self.counts["get"] += 1
        await asyncio.sleep(0)
        entry = self._entries.get(path)
        return None if entry is None else entry.node

    async def exists(self, path: str, /) -> bool:
        return await self.get(path) is not None

    async def children(self, path: str, /) -> list[str] | None:
        check_path(path)
        self.counts["children"] += 1
        await asyncio.sleep(0)
        entry = self._entries.get(path)
        return None if entry is None else sorted(entry.children or ())

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> Created:
        for parent in _ancestors(path) if make_parents else ():
            if parent not in self._entries:
                await self.multi([Create(parent)])
        (created,) = await self.multi([Create(path, data, ephemeral, sequential)])
        assert isinstance(created, Created)
        return created

    async def set(self, path: str, data: bytes, expected_version: int = ANY_VERSION) -> int:
        await self.multi([SetData(path, data, expected_version)])
        return self._entries[path].node.version

    async def delete(self, path: str, expected_version: int = ANY_VERSION) -> None:
        await self.multi([Delete(path, expected_version)])

    async def multi(self, operations: Sequence[Operation], /) -> list[Outcome]:
        for operation in operations:
            check_operation(operation)
        self.counts["multi"] += 1
        self.counts["writes"] += sum(not isinstance(operation, Check) for operation in operations)
        await asyncio.sleep(0)
        self._zxid += 1
        undo: list[_Undo] = []
        events: list[Event] = []
        try:
            outcomes = [self._apply(operation, undo, events) for operation in operations]
        except Exception:
            for path, before in reversed(undo):
                self._restore(path, before)
            raise
        self._watches.notify(events)
        await asyncio.sleep(0)  # watches are called before the answer
        return outcomes

    def _apply(self, operation: Operation, undo: list[_Undo], events: list[Event]) -> Outcome:
        match operation:
            case Create():
                return self._create(operation, undo, events)
            case SetData(path, data, expected):
                entry = self._checked(path, expected)
                undo.append(_Undo(path, _copy(entry)))
                entry.node = entry.node._replace(data=data, version=entry.node.version + 1)
                events.append(Event(Change.SET, path))
                return entry.node.version
            case Delete(path, expected):
                entry = self._checked(path, expected)
                if entry.children:
                    raise NotEmpty(path, "the node has children")
                undo.append(_Undo(path, entry))
                self._remove(path)
                events += (Event(Change.DELETED, path), Event(Change.CHILDREN, parent_of(path)))
            case Check(path, expected):
                self._checked(path, expected)
        return None

    def _create(self, operation: Create, undo: list[_Undo], events: list[Event]) -> Created:
        parent = self._entries.get(parent_of(operation.path))
        if parent is None:
            raise NoNode(parent_of(operation.path), f"the node does not exist, so {operation.path} cannot be created")
        if parent.node.owner:
            raise NoChildrenForEphemerals(parent_of(operation.path), "an ephemeral node cannot have children")
        path = sequential_path(operation.path, parent.born) if operation.sequential else operation.path
        if path in self._entries:
            raise NodeExists(path, "the node exists already")
        undo.append(_Undo(path, None))
        parent.born += 1
        self._insert(path, _Entry(Node(operation.data, 0, self._zxid, 0, SESSION if operation.ephemeral else 0)))
        events += (Event(Change.CREATED, path), Event(Change.CHILDREN, parent_of(path)))
        return Created(path, self._zxid)

    def _checked(self, path: str, expected: int) -> _Entry:
        entry = self._entries.get(path)
        if entry is None:
            raise NoNode(path, "the node does not exist")
        if ANY_VERSION != expected != entry.node.version:
            raise BadVersion(path, f"the node has version {entry.node.version}, not {expected}")
        return entry

    def _insert(self, path: str, entry: _Entry) -> None:
        self._entries[path] = entry
        parent = self._entries[parent_of(path)]
        if parent.children is None:
            parent.children = {}
        parent.children[path.rpartition("/")[2]] = None

    def _remove(self, path: str) -> None:
        del self._entries[path]
        children = self._entries[parent_of(path)].children
        assert children is not None
        del children[path.rpartition("/")[2]]

    def _restore(self, path: str, before: _Entry | None) -> None:
        if before is None:
            self._remove(path)
        else:
            self._insert(path, before)

    async def watch(self, path: str, call: Callable[[Event], None], /) -> Subscription[Event]:
        check_path(path)
        self.counts["watch"] += 1
        await asyncio.sleep(0)
        return self._watches.watch(path, call)

    async def watch_children(self, path: str, call: Callable[[Event], None], /) -> Subscription[Event]:
        check_path(path)
        await asyncio.sleep(0)
        return self._watches.watch_children(path, call)

    def watch_session(self, call: Callable[[SessionState], None], /) -> Subscription[SessionState]:
        return self._session_watches.watch(call)

    async def close(self) -> None:
        """There is nothing to close: the session ends with the tree."""


def _copy(entry: _Entry) -> _Entry:
    copy = _Entry(entry.node)
    copy.born, copy.children = entry.born, entry.children
    return copy


def _ancestors(path: str) -> list[str]:
    """From the top."""
    parent = parent_of(path)
    return [] if parent == ROOT else [*_ancestors(parent), parent]
