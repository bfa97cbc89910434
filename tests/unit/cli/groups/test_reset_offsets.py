"""What a reset shows before it is done, and the files it takes."""

from pathlib import Path

import pytest

from leadline.admin.errors import Failure
from leadline.admin.formatting import moment_text
from leadline.admin.offset_reset import change_row, too_late_lines
from leadline.admin.partitions import OffsetRange, PartitionOffset
from leadline.admin.reset_plan import OffsetChange, ResetUndo
from leadline.cli.groups.reset_offsets import change_json, offsets_in
from leadline.model import TopicPartition

ORDERS, USERS = TopicPartition("orders", 0), TopicPartition("users", 3)
THEN_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("change", "row"),
    [
        (
            OffsetChange(ORDERS, PartitionOffset(60), PartitionOffset(20), OffsetRange(10, 60)),
            ["orders-0", "60", "the end", "20", moment_text(THEN_MS), "reads 40 again"],
        ),
        (
            OffsetChange(ORDERS, None, PartitionOffset(20), OffsetRange(10, 60)),
            ["orders-0", "-", "-", "20", moment_text(THEN_MS), "nothing was committed; 40 to read"],
        ),
        (
            OffsetChange(ORDERS, PartitionOffset(5), PartitionOffset(30), OffsetRange(10, 60)),
            ["orders-0", "5", "deleted", "30", "unknown", "skips 25"],
        ),
        (
            OffsetChange(ORDERS, PartitionOffset(5), None, None),
            ["orders-0", "5", "deleted", "-", "-", "nothing committed, as before"],
        ),
    ],
)
def test_a_change_is_shown_with_the_times_of_its_records(change: OffsetChange, row: list[str]) -> None:
    assert change_row(change, {(ORDERS, 20): THEN_MS}) == row


def test_a_program_gets_the_same_as_numbers() -> None:
    change = OffsetChange(ORDERS, PartitionOffset(60), PartitionOffset(20), OffsetRange(10, 60), "so")
    assert change_json(change, {(ORDERS, 20): THEN_MS}) == {
        "topic": "orders",
        "partition": 0,
        "current": {"offset": 60, "timestamp": None},
        "new": {"offset": 20, "timestamp": THEN_MS},
        "read_again": 40,
        "skipped": 0,
        "remark": "so",
    }


def test_a_file_has_lines_of_topic_partition_and_offset(tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text('orders,0,42\n"users","3",7\n\n')
    assert offsets_in(file) == {ORDERS: 42, USERS: 7}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no line of topic,partition,offset"),
        ("orders,0,1\norders,0\n", "line 2: expected topic,partition,offset, not 'orders,0'"),
        ("orders,0,-1\n", "line 1: expected topic,partition,offset"),
        ("orders,0,1\norders,0,2\n", "line 2: orders-0 is there twice"),
    ],
)
def test_a_file_with_anything_else_is_refused_as_a_whole(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text(text)
    with pytest.raises(Failure, match=message):
        offsets_in(file)


def test_partitions_that_are_too_late_for_an_undo_are_shown() -> None:
    reset_undo = ResetUndo(THEN_MS, [], {ORDERS: PartitionOffset(9), USERS: None})
    assert too_late_lines(reset_undo) == [
        "too late for orders-0: the group has committed 9 there since",
        "too late for users-3: nothing is committed there",
    ]
