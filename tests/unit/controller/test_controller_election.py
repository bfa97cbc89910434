"""Elections of the controller over a tree: who is elected, who resigns, and on whose behalf."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest

from leadline.controller.controller_election import ControllerElection, resign_on_behalf
from leadline.controller.producer_ids import ProducerIdBlocks
from leadline.controller.silence_monitor import NoSilenceMonitor
from leadline.coordination import znodes
from leadline.coordination.embedded import EmbeddedTree
from leadline.coordination.tree import Node, Tree
from leadline.runtime.ports import SystemTime
from tests.support import in_memory


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    yield from in_memory.directory()


def run(path: Path, test: Callable[[Tree], Awaitable[None]]) -> None:
    async def main() -> None:
        tree = await EmbeddedTree.open(str(path), SystemTime())
        try:
            await asyncio.wait_for(test(tree), 120)
        finally:
            await tree.close()

    asyncio.run(main())


def election(tree: Tree, broker: int) -> ControllerElection:
    return ControllerElection(tree, broker, SystemTime(), NoSilenceMonitor())


def test_one_broker_is_elected_and_the_next_after_it_resigned_with_the_next_epoch(tmp_path: Path) -> None:
    async def test(tree: Tree) -> None:
        first, second = election(tree, 1), election(tree, 2)
        assert await first.stand() == 1
        assert await second.stand() is None
        assert await first.own_node() is not None
        assert await second.own_node() is None
        await first.resign()
        assert await second.stand() == 2

    run(tmp_path, test)


def test_a_deposed_controller_cannot_resign_for_its_successor(tmp_path: Path) -> None:
    async def test(tree: Tree) -> None:
        first, second = election(tree, 1), election(tree, 2)
        await first.stand()
        await resign_on_behalf(tree, 1)
        assert await second.stand() == 2
        await first.resign()
        assert await second.own_node() is not None

    run(tmp_path, test)


def test_a_broker_resigns_on_behalf_of_the_controller_and_of_no_other_broker(tmp_path: Path) -> None:
    async def test(tree: Tree) -> None:
        await election(tree, 1).stand()
        await resign_on_behalf(tree, 2)
        assert await tree.exists(znodes.CONTROLLER)
        await resign_on_behalf(tree, 1)
        assert not await tree.exists(znodes.CONTROLLER)

    run(tmp_path, test)


def test_of_two_brokers_that_resign_on_behalf_of_another_the_second_does_not_depose_the_successor(
    tmp_path: Path,
) -> None:
    async def test(tree: Tree) -> None:
        await election(tree, 1).stand()
        successor, get = election(tree, 2), tree.get

        async def get_before_an_election(path: str) -> Node | None:
            node = await get(path)
            if path == znodes.CONTROLLER:
                with mock.patch.object(tree, "get", get):
                    await resign_on_behalf(tree, 1)
                    assert await successor.stand() == 2
            return node

        with mock.patch.object(tree, "get", get_before_an_election):
            await resign_on_behalf(tree, 1)
        assert await successor.own_node() is not None

    run(tmp_path, test)


def test_blocks_of_producer_ids_begin_where_the_tree_says_and_follow_each_other(tmp_path: Path) -> None:
    async def test(tree: Tree) -> None:
        blocks = ProducerIdBlocks(tree, lambda: 5000)
        assert await blocks.claim(1) == range(5000, 6000)
        assert await blocks.claim(2) == range(6000, 7000)
        claimed = await asyncio.gather(blocks.claim(1), blocks.claim(2))
        assert sorted(block.start for block in claimed if block is not None) == [7000]

    run(tmp_path, test)
