"""A tree in memory with one session, that counts what it is asked."""

from collections import Counter
from collections.abc import Callable, Sequence

from leadline.coordination.memory_tree import MemoryTree, MemoryTreeServer
from leadline.coordination.tree import Check, Event, Node, Operation, Outcome
from leadline.coordination.watches import Subscription
from leadline.runtime.ports import SystemTime


class CountingTree(MemoryTree):
    """`counts`: calls by name, and "writes": the operations of all multis but checks."""

    def __init__(self) -> None:
        server = MemoryTreeServer(SystemTime())
        super().__init__(server, 18.0, lambda: True)
        server.add(self)
        self.put = server.nodes.put
        self.counts: Counter[str] = Counter()

    async def get(self, path: str, /) -> Node | None:
        self.counts["get"] += 1
        return await super().get(path)

    async def children(self, path: str, /) -> list[str] | None:
        self.counts["children"] += 1
        return await super().children(path)

    async def multi(self, operations: Sequence[Operation], /) -> list[Outcome]:
        self.counts["multi"] += 1
        self.counts["writes"] += sum(not isinstance(operation, Check) for operation in operations)
        return await super().multi(operations)

    async def watch(self, path: str, call: Callable[[Event], None], /) -> Subscription[Event]:
        self.counts["watch"] += 1
        return await super().watch(path, call)
