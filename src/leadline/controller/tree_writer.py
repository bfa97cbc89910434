"""The controller's writes: each is conditional on that it is still the controller.

Writes happen in order, in transactions that are small enough for ZooKeeper. If one fails, those before it have taken
effect: the next controller reads a decision that is half written, and completes it.
"""

from collections.abc import Iterable

from leadline.controller import tree_reader
from leadline.controller.effects import Ensure, Remove, Write
from leadline.coordination import znodes
from leadline.coordination.tree import Check, Create, Operation, SetData, Tree

MULTI_BYTES = 100_000  # in one transaction: about 400 partitions. ZooKeeper's limit is 1 MB
NODE_BYTES = 100  # of a transaction, for each node beside its path and data


class Transactions:
    """Operations that wait for a transaction, and are written once there are enough of them."""

    def __init__(self, tree: Tree, epoch_version: int) -> None:
        self._tree, self._epoch_version = tree, epoch_version
        self._waiting: list[Operation] = []
        self._size = 0

    async def add(self, operations: Iterable[Operation]) -> None:
        for operation in operations:
            data = operation.data if isinstance(operation, Create | SetData) else b""
            operation_bytes = len(operation.path) + len(data) + NODE_BYTES
            if self._size + operation_bytes > MULTI_BYTES:
                await self.end()
            self._waiting.append(operation)
            self._size += operation_bytes

    async def end(self) -> None:
        """Writes what waits."""
        waiting, self._waiting, self._size = self._waiting, [], 0
        if waiting:
            await self._tree.multi([Check(znodes.CONTROLLER_EPOCH, self._epoch_version), *waiting])


async def write(tree: Tree, epoch_version: int, writes: Iterable[Write]) -> None:
    """`epoch_version`: of /controller_epoch since this controller's election. BadVersion: another one was elected."""
    transactions = Transactions(tree, epoch_version)
    present: dict[str, set[str]] = {}  # children of the nodes that were read
    for planned in writes:
        if isinstance(planned, Remove):
            await transactions.add(await tree_reader.removal(tree, planned.path))
        elif isinstance(planned, Ensure):
            await transactions.add(await _missing(tree, planned.path, present))
        else:
            await transactions.add((planned,))
    await transactions.end()


async def _missing(tree: Tree, path: str, present: dict[str, set[str]]) -> list[Operation]:
    parent, _, name = path.rpartition("/")
    above: list[Operation] = []
    if parent not in present:
        children = await tree.children(parent)
        present[parent] = set(children or ())
        if children is None:
            above = [Create(parent)]
    if name in present[parent]:
        return above
    present[parent].add(name)
    return [*above, Create(path)]
