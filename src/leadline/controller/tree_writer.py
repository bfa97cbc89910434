"""What a controller writes: all of it under the condition that it is still the controller.

Writes are made in their order, in transactions of a size that ZooKeeper takes. One that fails leaves those before it
done: whoever reads the tree then finds a decision half written, and goes on with it.
"""

from collections.abc import Collection, Iterator

from leadline.controller import tree_reader
from leadline.controller.effects import Ensure, Remove, Write
from leadline.coordination import znodes
from leadline.coordination.tree import Check, Create, Operation, SetData, Tree

MULTI_BYTES = 500_000  # in one transaction: ZooKeeper takes 1 MB
NODE_BYTES = 100  # of a transaction, for each node beside its path and data


async def write(tree: Tree, epoch_version: int, writes: Collection[Write]) -> None:
    """`epoch_version`: of /controller_epoch, as this controller left it. BadVersion: there is another by now."""
    operations: list[Operation] = []
    present: dict[str, set[str]] = {}  # children of nodes that were looked at
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
    """In their order, each small enough for one transaction."""
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
