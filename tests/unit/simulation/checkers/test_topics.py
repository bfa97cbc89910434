"""Each law about topics is broken by a cluster that was made for it."""

import pytest

from leadline.model import NO_LEADER, TopicPartition
from leadline.simulation.checkers import topics
from leadline.simulation.checkers.topics import PartitionAtRest
from leadline.simulation.client_history import ClientHistory, TopicAttempt

TP = TopicPartition("made", 0)
HEALTHY = PartitionAtRest(1, [1, 2], [2, 1])


@pytest.mark.parametrize(
    ("topic", "is_there", "broken"),
    [
        (TopicAttempt("made", 1, is_created=True), True, False),
        (TopicAttempt("made", 1, is_created=True), False, True),
        (TopicAttempt("made", 2, is_created=True), True, True),
        (TopicAttempt("made", 1), False, False),
        (TopicAttempt("made", 1, is_created=True, is_deletion_requested=True), True, False),
        (TopicAttempt("made", 1, is_created=True, is_deletion_requested=True, is_deleted=True), True, True),
        (TopicAttempt("made", 1, is_created=True, is_deletion_requested=True, is_deleted=True), False, False),
    ],
)
def test_what_was_created_is_there_and_what_was_deleted_is_not(
    topic: TopicAttempt, is_there: bool, broken: bool
) -> None:
    cluster = {TP: HEALTHY} if is_there else {}
    assert bool(list(topics.misplaced_topics(ClientHistory(topics=[topic]), cluster))) == broken


@pytest.mark.parametrize(
    ("state", "broken"),
    [
        (HEALTHY, False),
        (PartitionAtRest(NO_LEADER, [1], [1]), True),
        (PartitionAtRest(1, [1, 2], [1]), True),
    ],
)
def test_each_partition_has_a_leader_and_all_replicas_in_sync(state: PartitionAtRest, broken: bool) -> None:
    assert bool(list(topics.unhealthy_partitions({TP: state}))) == broken


def test_brokers_hold_the_replicas_that_they_are_assigned() -> None:
    assert list(topics.left_over_replicas({TP: HEALTHY}, {1: [TP], 2: [TP]})) == []
    assert len(list(topics.left_over_replicas({TP: HEALTHY}, {1: [TP], 2: [TP], 3: [TP]}))) == 1
    assert len(list(topics.left_over_replicas({TP: HEALTHY}, {1: [TP]}))) == 1
    assert len(list(topics.left_over_replicas({}, {1: [TP]}))) == 1
