"""The controller's writes: in order, in transactions of a size that ZooKeeper accepts."""

import asyncio

from leadline.controller.effects import Write
from leadline.controller.tree_writer import write
from leadline.coordination import znodes
from leadline.coordination.tree import SetData
from tests.support.memory_tree import CountingTree


def test_writes_keep_their_order_in_transactions_that_a_tree_takes() -> None:
    async def main() -> None:
        tree = CountingTree()
        tree.put(znodes.CONTROLLER_EPOCH)
        order: list[str] = []
        writes: list[Write] = []
        for n in range(12):
            tree.put(f"/n{n}")
            await tree.watch(f"/n{n}", lambda event: order.append(event.path))
            writes.append(SetData(f"/n{n}", bytes(30_000)))
        tree.counts.clear()
        await write(tree, 0, iter(writes))
        await asyncio.sleep(0)
        assert order == [planned.path for planned in writes]
        assert (tree.counts["multi"], tree.counts["writes"]) == (4, 12)

    asyncio.run(main())
