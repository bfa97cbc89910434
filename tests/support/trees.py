"""A tree in memory for one test: the embedded one, in a directory that no disk holds."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, contextmanager

from leadline.coordination.embedded import EmbeddedTree
from leadline.coordination.membership import make_persistent_nodes
from leadline.coordination.tree import Tree
from leadline.runtime.ports import SystemTime
from tests.support import in_memory

TEST_S = 120.0


@asynccontextmanager
async def in_memory_tree() -> AsyncIterator[Tree]:
    """It has Kafka's persistent nodes."""
    with contextmanager(in_memory.directory)() as directory:
        tree = await EmbeddedTree.open(str(directory), SystemTime())
        try:
            await make_persistent_nodes(tree)
            yield tree
        finally:
            await tree.close()


def run_on_tree(test: Callable[[Tree], Awaitable[None]]) -> None:
    """Runs a test on a tree of its own, on a loop of its own."""

    async def run() -> None:
        async with asyncio.timeout(TEST_S), in_memory_tree() as tree:
            await test(tree)

    asyncio.run(run())
