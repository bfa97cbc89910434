"""Blocks of producer ids: each is assigned once, whatever happens at the same time."""

import asyncio

from leadline.controller.producer_ids import BLOCK_SIZE, ProducerIdBlocks
from leadline.coordination import znodes
from leadline.coordination.tree import Tree
from tests.support.trees import run_on_tree


def test_the_first_block_begins_where_it_should_and_each_next_one_follows() -> None:
    async def scenario(tree: Tree) -> None:
        blocks = ProducerIdBlocks(tree, lambda: 7000)
        assert await blocks.claim(1) == range(7000, 7000 + BLOCK_SIZE)
        assert await blocks.claim(2) == range(8000, 8000 + BLOCK_SIZE)
        node = await tree.get(znodes.PRODUCER_ID_BLOCK)
        assert node is not None
        assert znodes.decode_producer_id_block(node.data) == znodes.ProducerIdBlock(2, 8000, 8999)

    run_on_tree(scenario)


def test_a_block_that_was_assigned_before_counts_and_not_the_first_id() -> None:
    async def scenario(tree: Tree) -> None:
        data = znodes.encode_producer_id_block(znodes.ProducerIdBlock(3, 0, 41))
        await tree.set(znodes.PRODUCER_ID_BLOCK, data)
        assert await ProducerIdBlocks(tree, lambda: 7000).claim(1) == range(42, 42 + BLOCK_SIZE)

    run_on_tree(scenario)


def test_of_two_claims_at_once_one_gets_the_block_and_the_other_one_has_to_retry() -> None:
    async def scenario(tree: Tree) -> None:
        await tree.delete(znodes.PRODUCER_ID_BLOCK)
        blocks = ProducerIdBlocks(tree, lambda: 0)
        for start in (0, BLOCK_SIZE):
            results = await asyncio.gather(blocks.claim(1), blocks.claim(2))
            assert [result for result in results if result is not None] == [range(start, start + BLOCK_SIZE)]

    run_on_tree(scenario)
