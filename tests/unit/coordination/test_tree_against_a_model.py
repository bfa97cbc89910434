"""Any sequence of operations leaves a tree as it leaves a dict, and is told of as the dict says.

The embedded tree tells of each change. ZooKeeper may tell of several once, so what is held there is what a watch is
for: whoever looks again at whatever was told ends up with what there is.
"""

import asyncio
import copy
import tempfile
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from leadline.coordination.embedded import EmbeddedTree
from leadline.coordination.tree import (
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
    SetData,
    Tree,
    TreeError,
    child_of,
    parent_of,
)
from leadline.runtime.ports import SystemTime
from tests.conformance.kafka.broker import ZooKeeper
from tests.support.memory_tree import CountingTree

from .conftest import InZooKeeper

PATHS = ["/a", "/b", "/a/a", "/a/b", "/b/a", "/a/a/a"]


@dataclass
class Entry:
    data: bytes = b""
    version: int = 0
    ephemeral: bool = False
    born: int = 0


@dataclass
class Model:
    nodes: dict[str, Entry] = field(default_factory=lambda: {"/": Entry()})
    events: list[Event] = field(default_factory=list)

    def multi(self, operations: list[Operation]) -> list[object]:
        """The outcomes, without transaction ids; or the kind of error, and nothing has changed."""
        before = copy.deepcopy(self.nodes), list(self.events)
        try:
            return [self.apply(operation) for operation in operations]
        except TreeError as error:
            self.nodes, self.events = before
            return [type(error), error.path]

    def apply(self, operation: Operation) -> object:
        if isinstance(operation, Create):
            return self.create(operation)
        entry = self.nodes.get(operation.path)
        if entry is None:
            raise NoNode(operation.path, "")
        if operation.expected_version not in (-1, entry.version):
            raise BadVersion(operation.path, "")
        if isinstance(operation, SetData):
            entry.data, entry.version = operation.data, entry.version + 1
            self.events.append(Event(Change.SET, operation.path))
            return entry.version
        if isinstance(operation, Delete):
            if self.children(operation.path):
                raise NotEmpty(operation.path, "")
            del self.nodes[operation.path]
            self.tell(Change.DELETED, operation.path)
        return None

    def create(self, operation: Create) -> str:
        above = self.nodes.get(parent_of(operation.path))
        if above is None:
            raise NoNode(parent_of(operation.path), "")
        if above.ephemeral:
            raise NoChildrenForEphemerals(parent_of(operation.path), "")
        path = f"{operation.path}{above.born:010}" if operation.sequential else operation.path
        if path in self.nodes:
            raise NodeExists(path, "")
        above.born += 1
        self.nodes[path] = Entry(operation.data, ephemeral=operation.ephemeral)
        self.tell(Change.CREATED, path)
        return path

    def tell(self, change: Change, path: str) -> None:
        self.events += [Event(change, path), Event(Change.CHILDREN, parent_of(path))]

    def children(self, path: str) -> list[str]:
        return sorted(name[len(child_of(path, "")) :] for name in self.nodes if name != "/" and parent_of(name) == path)

    def visible(self, ephemerals: bool = True) -> dict[str, tuple[bytes, int, bool]]:
        return {
            path: (entry.data, entry.version, entry.ephemeral)
            for path, entry in self.nodes.items()
            if ephemerals or not entry.ephemeral
        }


paths = st.sampled_from(PATHS)
versions = st.sampled_from([-1, -1, -1, 0, 1, 2])
data = st.binary(max_size=4)
operations = st.one_of(
    st.builds(Create, paths, data, st.booleans(), st.sampled_from([False, False, True])),
    st.builds(Create, paths, data),
    st.builds(SetData, paths, data, versions),
    st.builds(Delete, paths, versions),
    st.builds(Check, paths, versions),
)
multis = st.lists(st.lists(operations, min_size=1, max_size=4), max_size=25)


async def walk(tree: Tree, path: str = "/") -> dict[str, tuple[bytes, int, bool]]:
    node = await tree.get(path)
    assert node is not None
    nodes = {path: (node.data, node.version, node.owner != 0)}
    for name in await tree.children(path) or []:
        nodes |= await walk(tree, child_of(path, name))
    return nodes


async def outcome(tree: Tree, operations: list[Operation]) -> list[object]:
    try:
        outcomes = await tree.multi(operations)
    except TreeError as error:
        return [type(error), error.path]
    return [result.path if isinstance(result, Created) else result for result in outcomes]


class Mirror:
    """A copy of the tree that is read once and then updated by events."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.events: list[Event] = []
        self.nodes: dict[str, Node | None] = {}
        self.names: dict[str, list[str] | None] = {}
        self.looking: set[asyncio.Task[None]] = set()

    async def watch(self, path: str) -> None:
        await self.tree.watch(path, lambda event: self.tell(event, self.look))
        await self.tree.watch_children(path, lambda event: self.tell(event, self.look_below))
        await self.look(path)
        await self.look_below(path)

    def tell(self, event: Event, look: Callable[[str], Coroutine[None, None, None]]) -> None:
        self.events.append(event)
        task = asyncio.create_task(look(event.path))
        self.looking.add(task)
        task.add_done_callback(self.looking.discard)

    async def look(self, path: str) -> None:
        self.nodes[path] = await self.tree.get(path)

    async def look_below(self, path: str) -> None:
        self.names[path] = await self.tree.children(path)

    async def settled(self) -> None:
        while self.looking:
            await asyncio.wait(self.looking)


async def mirror_agrees(connect: str, sequence: list[list[Operation]], at_once: bool) -> None:
    model = Model()
    tree = await InZooKeeper(connect).open()
    mirror = Mirror(tree)
    for path in ["/", *PATHS]:
        await mirror.watch(path)
    calls = [outcome(tree, operations) for operations in sequence]
    outcomes = await asyncio.gather(*calls) if at_once else [await call for call in calls]
    await mirror.settled()
    assert outcomes == [model.multi(operations) for operations in sequence]
    assert await walk(tree) == model.visible()
    assert set(mirror.events) <= set(model.events)
    assert mirror.nodes == {path: await tree.get(path) for path in mirror.nodes}
    assert mirror.names == {path: await tree.children(path) for path in mirror.names}
    await tree.close()
    again = await InZooKeeper(connect).open()
    assert await walk(again) == model.visible(ephemerals=False)
    await again.close()


async def compare(directory: str, sequence: list[list[Operation]], at_once: bool) -> None:
    tree = await EmbeddedTree.open(directory, SystemTime())
    model = await agrees(tree, sequence, at_once)
    await tree.close()
    again = await EmbeddedTree.open(directory, SystemTime())
    assert await walk(again) == model.visible(ephemerals=False)
    await again.close()


async def agrees(tree: Tree, sequence: list[list[Operation]], at_once: bool) -> Model:
    model, events = Model(), list[Event]()
    for path in ["/", *PATHS]:
        await tree.watch(path, events.append)
        await tree.watch_children(path, lambda event: events.append(event) if event.change is Change.CHILDREN else None)
    calls = [outcome(tree, operations) for operations in sequence]
    outcomes = await asyncio.gather(*calls) if at_once else [await call for call in calls]
    assert outcomes == [model.multi(operations) for operations in sequence]
    assert events == [event for event in model.events if event.path in PATHS or event.path == "/"]
    assert await walk(tree) == model.visible()
    return model


@settings(max_examples=60)
@given(multis, st.booleans())
def test_any_sequence_of_operations_is_as_on_a_dict(sequence: list[list[Operation]], at_once: bool) -> None:
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(compare(directory, sequence, at_once))


@settings(max_examples=60)
@given(multis, st.booleans())
def test_any_sequence_of_operations_on_the_tree_of_the_tests_is_as_on_a_dict(
    sequence: list[list[Operation]], at_once: bool
) -> None:
    async def main() -> None:
        await agrees(CountingTree(), sequence, at_once)

    asyncio.run(main())


folders = count()


@settings(max_examples=40)
@given(sequence=multis, at_once=st.booleans())
def test_a_mirror_that_rereads_on_events_equals_zookeeper(
    server: ZooKeeper, sequence: list[list[Operation]], at_once: bool
) -> None:
    asyncio.run(mirror_agrees(f"{server.connect}/models/{next(folders)}", sequence, at_once))
