"""Blocks of producer ids: /latest_producer_id_block holds the last block that was assigned to a broker."""

from collections.abc import Callable
from contextlib import suppress

from leadline.coordination import znodes
from leadline.coordination.tree import BadVersion, NodeExists, Tree
from leadline.model import BrokerId, ProducerId

BLOCK_SIZE = 1000


class ProducerIdBlocks:
    """`first_id`: the first id of a tree that has no block yet."""

    def __init__(self, tree: Tree, first_id: Callable[[], ProducerId]) -> None:
        self._tree, self._first_id = tree, first_id

    async def claim(self, broker: BrokerId) -> range | None:
        """Assigns a block to a broker. None: another block was assigned at the same time, so the caller retries."""
        node = await self._tree.get(znodes.PRODUCER_ID_BLOCK)
        last = None if node is None else znodes.decode_producer_id_block(node.data)
        start = self._first_id() if last is None else last.last + 1
        data = znodes.encode_producer_id_block(znodes.ProducerIdBlock(broker, start, start + BLOCK_SIZE - 1))
        with suppress(BadVersion, NodeExists):
            if node is None:
                await self._tree.create(znodes.PRODUCER_ID_BLOCK, data, make_parents=True)
            else:
                await self._tree.set(znodes.PRODUCER_ID_BLOCK, data, node.version)
            return range(start, start + BLOCK_SIZE)
        return None
