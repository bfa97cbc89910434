"""The nodes of a tree in memory: what a server of the tree knows, without sessions, watches or waiting.

Pure: operations in, outcomes and events out. The embedded tree and ZooKeeper have their own; these nodes are those of
the trees of tests (`memory_tree`).
    all operations of an `apply` take effect, or none
"""

from collections.abc import Iterator, Sequence
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
    SetData,
    TreeError,
    parent_of,
    sequential_path,
)


class _Entry:
    __slots__ = ("born", "children", "node")

    def __init__(self, node: Node, born: int = 0) -> None:
        self.node, self.born = node, born
        self.children: dict[str, None] | None = None  # None: it never had any


class _Undo(NamedTuple):
    path: str
    entry: _Entry | None  # before the change; None: there was none


class StoredNode(NamedTuple):
    """A node as a snapshot holds it. Ephemeral nodes are not in it."""

    path: str
    node: Node
    born: int  # children that it has had


class MemoryNodes:
    def __init__(self) -> None:
        self._entries = {ROOT: _Entry(Node(b"", 0, 0, 0, 0))}
        self.zxid = 0

    def get(self, path: str) -> Node | None:
        entry = self._entries.get(path)
        return None if entry is None else entry.node

    def children(self, path: str) -> list[str] | None:
        """The names, sorted."""
        entry = self._entries.get(path)
        return None if entry is None else sorted(entry.children or ())

    def owned_by(self, session: int) -> list[str]:
        return [path for path, entry in self._entries.items() if entry.node.owner == session]

    def put(self, path: str, data: bytes = b"") -> None:
        """Creates a node, and those above it, as others have left them."""
        for missing in [*ancestors(path), path]:
            if missing not in self._entries:
                self.zxid += 1
                self._insert(missing, _Entry(Node(data if missing == path else b"", 0, self.zxid, 0, 0)))

    def apply(self, operations: Sequence[Operation], session: int, now_ms: int) -> tuple[list[Outcome], list[Event]]:
        """Raises the error of the first operation that fails."""
        self.zxid += 1
        undo: list[_Undo] = []
        events: list[Event] = []
        try:
            outcomes = [self._apply(operation, session, now_ms, undo, events) for operation in operations]
        except TreeError:
            for path, before in reversed(undo):
                self._restore(path, before)
            raise
        return outcomes, events

    def _apply(
        self, operation: Operation, session: int, now_ms: int, undo: list[_Undo], events: list[Event]
    ) -> Outcome:
        match operation:
            case Create():
                return self._create(operation, session, now_ms, undo, events)
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

    def _create(self, operation: Create, session: int, now_ms: int, undo: list[_Undo], events: list[Event]) -> Created:
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
        owner = session if operation.ephemeral else 0
        self._insert(path, _Entry(Node(operation.data, 0, self.zxid, now_ms, owner)))
        events += (Event(Change.CREATED, path), Event(Change.CHILDREN, parent_of(path)))
        return Created(path, self.zxid)

    def _checked(self, path: str, expected: int) -> _Entry:
        entry = self._entries.get(path)
        if entry is None:
            raise NoNode(path, "the node does not exist")
        if expected != ANY_VERSION and expected != entry.node.version:
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
            self._entries[parent_of(path)].born -= 1
        else:
            self._insert(path, before)

    # Snapshots

    def stored(self) -> Iterator[StoredNode]:
        """All nodes that no session owns, each after its parent."""
        for path, entry in sorted(self._entries.items()):
            if not entry.node.owner:
                yield StoredNode(path, entry.node, entry.born)

    def restore(self, stored: Sequence[StoredNode], zxid: int) -> None:
        """Into an empty tree."""
        for path, node, born in stored:
            if path == ROOT:
                self._entries[ROOT].born = born
            else:
                self._insert(path, _Entry(node, born))
        self.zxid = zxid


def _copy(entry: _Entry) -> _Entry:
    copy = _Entry(entry.node, entry.born)
    copy.children = entry.children
    return copy


def ancestors(path: str) -> list[str]:
    """The paths above a node, from the top, without the root."""
    parent = parent_of(path)
    return [] if parent == ROOT else [*ancestors(parent), parent]
