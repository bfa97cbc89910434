"""The controller's writes: each is conditional on that it is still the controller.

Writes happen in order, in transactions that are small enough for ZooKeeper. If one fails, those before it have taken
effect: the next controller reads a decision that is half written, and completes it.
"""

from collections.abc import Collection, Iterator

from leadline.controller import tree_reader
from leadline.controller.effects import Ensure, Remove, Write
from leadline.coordination import znodes
from leadline.coordination.tree import Check, Create, Operation, SetData, Tree

MULTI_BYTES = 500_000  # in one transaction; ZooKeeper's limit is 1 MB
NODE_BYTES = 100  # of a transaction, for each node beside its path and data


async def write(tree: Tree, epoch_version: int, writes: Collection[Write]) -> None:
    """`epoch_version`: of /controller_epoch since this controller's election. BadVersion: another one was elected."""
    operations: list[Operation] = []
    present: dict[str, set[str]] = {}  # children of the nodes that were read
    for planned in writes:
        if isinstance(planned, Remove):
            operations += await tree_reader.removal(tree, planned.path)
        elif isinstance(planned, Ensure):
            operations += await _missing(tree, planned.path, present)
        else:
            operations.append(planned)
    for portion in in_portions(operations):
        await tree.multi([Check(znodes.CONTROLLER_EPOCH, epoch_version), *portion])


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


def in_portions(operations: Collection[Operation]) -> Iterator[list[Operation]]:
    """The operations in order, in lists that are small enough for one transaction."""
    portion: list[Operation] = []
    size = 0
    for operation in operations:
        data = operation.data if isinstance(operation, Create | SetData) else b""
        operation_bytes = len(operation.path) + len(data) + NODE_BYTES
        if portion and size + operation_bytes > MULTI_BYTES:
            yield portion
            portion, size = [], 0
        portion.append(operation)
        size += operation_bytes
    if portion:
        yield portion
