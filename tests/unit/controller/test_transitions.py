"""State transitions of partitions and replicas: the tables, and the writes and requests that are collected."""

import itertools

from leadline.controller.state import (
    PARTITION_MAY_FOLLOW,
    REPLICA_MAY_FOLLOW,
    PartitionReplica,
    PartitionState,
    ReplicaState,
)
from leadline.coordination import znodes
from leadline.coordination.tree import SetData
from leadline.model import TopicPartition
from tests.support.controlled import ModelCluster, taken

T0 = TopicPartition("t", 0)


def test_every_state_of_a_partition_can_be_left_and_nothing_follows_what_it_may_not() -> None:
    allowed = {(before, after) for after, predecessors in PARTITION_MAY_FOLLOW.items() for before in predecessors}
    for before, after in itertools.product(PartitionState, PartitionState):
        cluster = ModelCluster(2)
        cluster.create("t", (1,))
        cluster.decisions.state.existing(T0).state = before
        moved = cluster.decisions.transitions.move_partitions((T0,), after)
        assert bool(moved) is ((before, after) in allowed)
        assert cluster.decisions.state.existing(T0).state is (after if moved else before)
    assert {before for before, _ in allowed} == set(PartitionState)


def test_every_state_of_a_replica_can_be_left_and_nothing_follows_what_it_may_not() -> None:

    allowed = {(before, after) for after, predecessors in REPLICA_MAY_FOLLOW.items() for before in predecessors}
    for before, after in itertools.product(ReplicaState, ReplicaState):
        cluster = ModelCluster(3)
        cluster.create("t", (1, 2))
        replica = PartitionReplica(T0, 2)
        cluster.decisions.state.put_replica(replica, before)
        moved = cluster.decisions.transitions.move_replicas((replica,), after)
        assert bool(moved) is ((before, after) in allowed)
    assert {before for before, _ in allowed} == set(ReplicaState)


def test_a_decision_is_written_once_however_often_it_changes() -> None:
    cluster = ModelCluster()
    cluster.create("t", (1, 2, 0))
    transitions, before = cluster.decisions.transitions, cluster.led(T0)
    for epoch in (1, 2, 3):
        transitions.decide(T0, before._replace(leader_epoch=epoch))
    (write,) = taken(transitions).writes
    assert isinstance(write, SetData)
    assert (write.path, write.expected_version) == (znodes.state_path(T0), before.partition_epoch)
    assert znodes.decode_state(T0, write.data).leader_epoch == 3
    assert cluster.led(T0).partition_epoch == before.partition_epoch + 1
    assert transitions.take() is None


def test_states_are_written_before_assignments_and_these_before_other_writes() -> None:
    cluster = ModelCluster()
    cluster.create("t", (1, 2))
    transitions = cluster.decisions.transitions
    transitions.remove("/other")
    transitions.write_assignment("t")
    transitions.decide(T0, cluster.led(T0)._replace(leader_epoch=1))
    paths = [write.path for write in taken(transitions).writes]
    assert paths == [znodes.state_path(T0), znodes.topic_path("t"), "/other"]


def test_a_topic_that_is_gone_when_effects_are_taken_is_not_written() -> None:
    cluster = ModelCluster()
    cluster.create("t", (1, 2))
    transitions = cluster.decisions.transitions
    transitions.write_assignment("t")
    transitions.decide(T0, cluster.led(T0)._replace(leader_epoch=1))
    cluster.decisions.state.forget_topic("t")
    assert taken(transitions).writes == []


def test_requests_of_a_later_batch_are_sent_after_all_of_an_earlier_one() -> None:
    cluster = ModelCluster()
    cluster.create("t", (1, 2))
    transitions = cluster.decisions.transitions
    transitions.batch.add_stop_replica(1, T0, delete=False)
    transitions.next_batch()
    transitions.batch.add_leader_and_isr((1,), T0)
    kinds = [type(request).__name__ for _, request in taken(transitions).requests]
    assert kinds == ["StopReplicaRequest", "LeaderAndIsrRequest"]


def test_a_partition_is_stranded_if_live_replicas_exist_and_none_is_in_sync() -> None:
    cluster = ModelCluster()
    cluster.create("t", (1, 2))
    cluster.in_sync(T0, 1)
    transitions, decision = cluster.decisions.transitions, cluster.led(T0)
    cluster.decisions.state.brokers.pop(1)
    assert transitions.elect_offline(T0, decision) is None
    assert taken(transitions).stranded == {"t"}
    cluster.decisions.state.brokers.pop(2)
    assert transitions.elect_offline(T0, decision) is None
    assert taken(transitions).stranded == set()
