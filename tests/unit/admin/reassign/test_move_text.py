"""The moves of a plan and their progress, as text."""

import pytest

from leadline.admin.reassign.move_text import move_row, progress_text, state_text, summary
from leadline.admin.reassign.plan import ReassignmentProgress, ReplicaMove
from leadline.model import TopicPartition

ONE, TWO, THREE = (TopicPartition("orders", number) for number in range(3))
MOVES = [ReplicaMove(ONE, [1], [1, 2, 3], 4_000_000), ReplicaMove(TWO, [1], [2], 500_000)]
ORDER_ONLY = ReplicaMove(ONE, [1, 2], [2, 1], 0)


def test_the_summary_counts_the_bytes_for_each_broker() -> None:
    assert summary(MOVES) == "2 partitions change; to be copied: 4.5 MB (2.5 MB to broker 2, 2.0 MB to broker 3)"
    assert summary([ORDER_ONLY]) == "1 partition changes; to be copied: 0 B"


def test_a_row_has_no_size_where_only_the_order_of_replicas_changes() -> None:
    assert move_row(MOVES[0]) == ["orders-0", "1", "1,2,3", "4.0 MB"]
    assert move_row(ORDER_ONLY) == ["orders-0", "1,2", "2,1", "-"]


def test_a_partition_is_moving_or_done_or_elsewhere_without_a_reassignment() -> None:
    state = ReassignmentProgress(done=[ONE], moving=[TWO], left_out={THREE: [3, 1]})
    assert state_text(ONE, state) == "Reassignment of partition orders-0 is completed."
    assert state_text(TWO, state) == "Reassignment of partition orders-1 is still in progress."
    assert state_text(THREE, state) == "There is no active reassignment of partition orders-2, but it is on 3,1."
    gone = ReassignmentProgress(done=[], moving=[], left_out={THREE: []})
    assert state_text(THREE, gone) == "There is no active reassignment of partition orders-2, but it is on nowhere."


@pytest.mark.parametrize(
    ("copied_bytes", "seconds", "text"),
    [
        (0, 5, "1 of 2 partitions, 0 B of 4.5 MB"),
        (1_500_000, 0.5, "1 of 2 partitions, 1.5 MB of 4.5 MB"),
        (1_500_000, 3, "1 of 2 partitions, 1.5 MB of 4.5 MB, 500.0 KB/s, about 6 s left"),
        (9_000_000, 3, "1 of 2 partitions, 4.5 MB of 4.5 MB"),
    ],
)
def test_the_progress_has_a_rate_once_there_is_something_to_measure(
    copied_bytes: int, seconds: float, text: str
) -> None:
    assert progress_text(MOVES, 1, copied_bytes, seconds) == text
