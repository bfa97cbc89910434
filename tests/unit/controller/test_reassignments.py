"""Reassignments: the way of a partition to other replicas, step by step, and back."""

import pytest

from leadline.coordination import znodes
from leadline.coordination.znodes import ReplicaAssignment
from leadline.errors import (
    InvalidReplicaAssignment,
    NoReassignmentInProgress,
    WireError,
)
from leadline.model import TopicPartition
from leadline.replication.partition import LeaderAndIsr
from tests.support.controlled import Paper

T0 = TopicPartition("t", 0)


def reassign(paper: Paper, to: tuple[int, ...] | None) -> WireError | None:
    return paper.do(lambda: paper.decisions.reassignments.alter({T0: to}))[T0]


def test_a_partition_moves_once_its_new_replicas_are_in_sync() -> None:
    paper = Paper(6)
    paper.create("t", (1, 2, 3))
    assert reassign(paper, (4, 5, 0)) is None
    assert paper.assigned(T0) == ReplicaAssignment((4, 5, 0, 1, 2, 3), (4, 5, 0), (1, 2, 3))
    assert paper.led(T0) == LeaderAndIsr(1, 1, (1, 2, 3), 1)
    assert {id for id in range(6) if T0 in paper.received[id]} == set(range(6))
    paper.in_sync(T0, 1, 2, 3, 4, 5)
    assert paper.decisions.reassignments.under_way() == {T0: paper.assigned(T0)}
    paper.in_sync(T0, 1, 2, 3, 4, 5, 0)
    assert paper.assigned(T0) == ReplicaAssignment((4, 5, 0))
    assert paper.led(T0)[:3] == (4, 5, (4, 5, 0))
    assert paper.decisions.reassignments.under_way() == {}
    assert sorted(id for id, _ in paper.deleting) == [1, 2, 3]


def test_the_leader_stays_if_it_is_among_the_new_replicas() -> None:
    paper = Paper(4)
    paper.create("t", (1, 2))
    reassign(paper, (3, 1))
    paper.in_sync(T0, 1, 2, 3)
    assert paper.led(T0).leader == 1
    assert set(paper.led(T0).isr) == {1, 3}


def test_the_way_back_undoes_what_was_begun() -> None:
    paper = Paper(4)
    paper.create("t", (1, 2))
    reassign(paper, (3, 0))
    assert reassign(paper, None) is None
    assert paper.assigned(T0) == ReplicaAssignment((1, 2))
    assert sorted(id for id, _ in paper.deleting) == [0, 3]
    assert isinstance(reassign(paper, None), NoReassignmentInProgress)


def test_the_only_replicas_in_sync_are_not_given_up() -> None:
    paper = Paper(3)
    paper.create("t", (1,))
    reassign(paper, (1, 2))
    paper.in_sync(T0, 1, 2)
    reassign(paper, (1,))
    paper.create("u", (0,))
    u = TopicPartition("u", 0)
    paper.do(lambda: paper.decisions.reassignments.alter({u: (2, 0, 1)}))
    paper.in_sync(u, 0, 2)
    paper.do(lambda: paper.decisions.shut_down(0))
    assert paper.led(u)[:3] == (2, 2, (2,))
    answer = paper.do(lambda: paper.decisions.reassignments.alter({u: None}))[u]
    assert isinstance(answer, InvalidReplicaAssignment)
    assert paper.led(u).leader == 2


def test_the_next_controller_goes_on_with_a_reassignment() -> None:
    paper = Paper(4)
    paper.create("t", (1, 2))
    reassign(paper, (3, 0))
    paper.restart()
    paper.in_sync(T0, 1, 2, 3, 0)
    assert paper.assigned(T0) == ReplicaAssignment((3, 0))


def test_a_reassignment_in_the_node_is_done_and_removed_from_it() -> None:
    paper = Paper(4)
    paper.create("t", (1, 2), (2, 1))
    unknown, other = TopicPartition("u", 0), TopicPartition("t", 1)
    requested = {T0: (3, 0), unknown: (1,), other: (1, 2)}
    paper.nodes[znodes.REASSIGN_PARTITIONS] = (znodes.encode_reassignment(requested), 0)
    paper.do(lambda: paper.decisions.reassignments.requested_by_node(requested))
    left = znodes.decode_reassignment(paper.nodes[znodes.REASSIGN_PARTITIONS][0])
    assert left == {T0: (3, 0)}
    assert paper.assigned(other) == ReplicaAssignment((1, 2))
    paper.in_sync(T0, 1, 2, 3, 0)
    assert znodes.REASSIGN_PARTITIONS not in paper.nodes


@pytest.mark.parametrize("to", [(), (1, 1), (1, -1), (1, 9)])
def test_invalid_replicas_are_refused_and_change_nothing(to: tuple[int, ...]) -> None:
    paper = Paper(3)
    paper.create("t", (1, 2))
    assert isinstance(reassign(paper, to), InvalidReplicaAssignment)
    assert paper.assigned(T0) == ReplicaAssignment((1, 2))


def test_a_topic_is_deleted_after_it_was_moved() -> None:
    paper = Paper(4)
    paper.create("t", (1, 2))
    reassign(paper, (1, 3))
    paper.deleting.clear()
    paper.delete("t")
    assert paper.deleting == []
    paper.in_sync(T0, 1, 2, 3)
    paper.answer_deletions()
    assert znodes.topic_path("t") not in paper.nodes
