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
from tests.support.controlled import ModelCluster

T0 = TopicPartition("t", 0)


def reassign(cluster: ModelCluster, to: tuple[int, ...] | None) -> WireError | None:
    return cluster.do(lambda: cluster.decisions.reassignments.alter({T0: to}))[T0]


def test_a_partition_moves_once_its_new_replicas_are_in_sync() -> None:
    cluster = ModelCluster(6)
    cluster.create("t", (1, 2, 3))
    assert reassign(cluster, (4, 5, 0)) is None
    assert cluster.assigned(T0) == ReplicaAssignment((4, 5, 0, 1, 2, 3), (4, 5, 0), (1, 2, 3))
    assert cluster.led(T0) == LeaderAndIsr(1, 1, (1, 2, 3), 1)
    assert {id for id in range(6) if T0 in cluster.received[id]} == set(range(6))
    cluster.in_sync(T0, 1, 2, 3, 4, 5)
    assert cluster.decisions.reassignments.under_way() == {T0: cluster.assigned(T0)}
    cluster.in_sync(T0, 1, 2, 3, 4, 5, 0)
    assert cluster.assigned(T0) == ReplicaAssignment((4, 5, 0))
    assert cluster.led(T0)[:3] == (4, 5, (4, 5, 0))
    assert cluster.decisions.reassignments.under_way() == {}
    assert sorted(id for id, _ in cluster.deleting) == [1, 2, 3]


def test_the_leader_stays_if_it_is_among_the_new_replicas() -> None:
    cluster = ModelCluster(4)
    cluster.create("t", (1, 2))
    reassign(cluster, (3, 1))
    cluster.in_sync(T0, 1, 2, 3)
    assert cluster.led(T0).leader == 1
    assert set(cluster.led(T0).isr) == {1, 3}


def test_the_way_back_undoes_what_was_begun() -> None:
    cluster = ModelCluster(4)
    cluster.create("t", (1, 2))
    reassign(cluster, (3, 0))
    assert reassign(cluster, None) is None
    assert cluster.assigned(T0) == ReplicaAssignment((1, 2))
    assert sorted(id for id, _ in cluster.deleting) == [0, 3]
    assert isinstance(reassign(cluster, None), NoReassignmentInProgress)


def test_the_only_replicas_in_sync_are_not_given_up() -> None:
    cluster = ModelCluster(3)
    cluster.create("t", (1,))
    reassign(cluster, (1, 2))
    cluster.in_sync(T0, 1, 2)
    reassign(cluster, (1,))
    cluster.create("u", (0,))
    u = TopicPartition("u", 0)
    cluster.do(lambda: cluster.decisions.reassignments.alter({u: (2, 0, 1)}))
    cluster.in_sync(u, 0, 2)
    cluster.do(lambda: cluster.decisions.shut_down(0))
    assert cluster.led(u)[:3] == (2, 2, (2,))
    answer = cluster.do(lambda: cluster.decisions.reassignments.alter({u: None}))[u]
    assert isinstance(answer, InvalidReplicaAssignment)
    assert cluster.led(u).leader == 2


def test_the_next_controller_goes_on_with_a_reassignment() -> None:
    cluster = ModelCluster(4)
    cluster.create("t", (1, 2))
    reassign(cluster, (3, 0))
    cluster.restart()
    cluster.in_sync(T0, 1, 2, 3, 0)
    assert cluster.assigned(T0) == ReplicaAssignment((3, 0))


def test_a_reassignment_in_the_node_is_done_and_removed_from_it() -> None:
    cluster = ModelCluster(4)
    cluster.create("t", (1, 2), (2, 1))
    unknown, other = TopicPartition("u", 0), TopicPartition("t", 1)
    requested = {T0: (3, 0), unknown: (1,), other: (1, 2)}
    cluster.nodes[znodes.REASSIGN_PARTITIONS] = (znodes.encode_reassignment(requested), 0)
    cluster.do(lambda: cluster.decisions.reassignments.requested_by_node(requested))
    left = znodes.decode_reassignment(cluster.nodes[znodes.REASSIGN_PARTITIONS][0])
    assert left == {T0: (3, 0)}
    assert cluster.assigned(other) == ReplicaAssignment((1, 2))
    cluster.in_sync(T0, 1, 2, 3, 0)
    assert znodes.REASSIGN_PARTITIONS not in cluster.nodes


@pytest.mark.parametrize("to", [(), (1, 1), (1, -1), (1, 9)])
def test_invalid_replicas_are_refused_and_change_nothing(to: tuple[int, ...]) -> None:
    cluster = ModelCluster(3)
    cluster.create("t", (1, 2))
    assert isinstance(reassign(cluster, to), InvalidReplicaAssignment)
    assert cluster.assigned(T0) == ReplicaAssignment((1, 2))


def test_a_topic_is_deleted_after_it_was_moved() -> None:
    cluster = ModelCluster(4)
    cluster.create("t", (1, 2))
    reassign(cluster, (1, 3))
    cluster.deleting.clear()
    cluster.delete("t")
    assert cluster.deleting == []
    cluster.in_sync(T0, 1, 2, 3)
    cluster.answer_deletions()
    assert znodes.topic_path("t") not in cluster.nodes
