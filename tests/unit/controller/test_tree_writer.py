"""The controller's writes: in order, in transactions of a size that ZooKeeper accepts."""

from leadline.controller.tree_writer import in_portions
from leadline.coordination.tree import Operation, SetData


def test_writes_keep_their_order_in_portions_that_a_tree_takes() -> None:
    operations: list[Operation] = [SetData(f"/n{n}", bytes(100_000)) for n in range(12)]
    portions = list(in_portions(operations))
    assert [operation for portion in portions for operation in portion] == operations
    assert max(len(portion) for portion in portions) == 4
