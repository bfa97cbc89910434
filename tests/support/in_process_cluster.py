"""Brokers of one cluster in the process of the test: they share a tree in memory, and reach each other by TCP."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

from leadline.broker.broker import Broker
from leadline.broker.ports import Ports
from leadline.config.broker import BrokerConfig, broker_settings
from leadline.coordination.tree import Create, Created, Node, Operation, Outcome, Tree
from tests.support.trees import in_memory_tree

_SESSIONS = count(1000)


class SharedTree:
    """One broker's session with a tree that several share: its ephemeral nodes end with it."""

    def __init__(self, tree: Tree, owners: dict[str, int]) -> None:
        self._tree, self._owners, self.session = tree, owners, next(_SESSIONS)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tree, name)

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, **options: bool) -> Created:
        created = await self._tree.create(path, data, ephemeral=ephemeral, **options)
        if ephemeral:
            self._owners[created.path] = self.session
        return created

    async def multi(self, operations: Sequence[Operation]) -> list[Outcome]:
        outcomes = await self._tree.multi(operations)
        for operation in operations:
            if isinstance(operation, Create) and operation.ephemeral:
                self._owners[operation.path] = self.session
        return outcomes

    async def get(self, path: str) -> Node | None:
        node = await self._tree.get(path)
        return node if node is None or not node.owner else node._replace(owner=self._owners.get(path, 0))

    async def close(self) -> None:
        for path in [path for path, owner in self._owners.items() if owner == self.session]:
            del self._owners[path]
            if await self._tree.exists(path):
                await self._tree.delete(path)


@asynccontextmanager
async def cluster_in_process(
    path: Path,
    settings: Callable[[int], Mapping[str, str]],
    brokers: int = 3,
    prepare: Callable[[Tree], Any] | None = None,
) -> AsyncIterator[list[Broker]]:
    """`settings` of a broker by its number, from 0. `prepare` is awaited with the tree before the first one starts."""
    async with AsyncExitStack() as stack:
        tree = await stack.enter_async_context(in_memory_tree())
        if prepare is not None:
            await prepare(tree)
        owners: dict[str, int] = {}

        async def open_tree(config: BrokerConfig, directory: str, ports: Ports) -> Tree:
            return SharedTree(tree, owners)

        started: list[Broker] = []
        for id in range(brokers):
            own = {"broker.id": str(id), "log.dirs": str(path / str(id)), "zookeeper.connect": "in-memory"}
            broker = Broker(broker_settings(own | dict(settings(id))), Ports(open_tree=open_tree))
            await broker.start()
            stack.push_async_callback(broker.stop)
            started.append(broker)
        yield started
