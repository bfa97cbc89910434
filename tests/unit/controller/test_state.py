"""The controller's state: queries over brokers, topics and replicas."""

from uuid import UUID

from leadline.controller.state import (
    ControlledPartition,
    ControlledTopic,
    ControllerState,
    RegisteredBroker,
    ReplicaState,
    imbalanced,
    is_reassigning,
    leaders_of,
    numbered,
    origin,
    reassigned,
    target,
    without_replica,
)
from leadline.coordination.znodes import ReplicaAssignment
from leadline.model import TopicPartition
from leadline.replication.partition import LeaderAndIsr
from leadline.runtime.steps import exhaust

T0 = TopicPartition("t", 0)


def test_the_replicas_on_the_way_are_the_new_ones_before_the_old() -> None:
    begun = reassigned(ReplicaAssignment((1, 2, 3)), (3, 4))
    assert begun == ReplicaAssignment((3, 4, 1, 2), (4,), (1, 2))
    assert reassigned(begun, (5,)) == ReplicaAssignment((5, 3, 1, 2), (5,), (3, 1, 2))


def state_with(partitions: dict[int, ControlledPartition]) -> ControllerState:
    state = ControllerState(1, 1, brokers={id: RegisteredBroker(id, id, ()) for id in (1, 2, 3)})
    state.put_topic(ControlledTopic("t", UUID(int=1), partitions))
    for replica in state.replicas_of(state.of_topic("t")):
        state.put_replica(replica, ReplicaState.ONLINE)
    return state


def led_by(leader: int, *replicas: int, isr: tuple[int, ...] | None = None) -> ControlledPartition:
    return ControlledPartition(ReplicaAssignment(replicas), LeaderAndIsr(leader, 0, isr or replicas))


def test_origin_and_target_of_a_reassignment_are_the_assignments_before_and_after_it() -> None:
    assigned = reassigned(ReplicaAssignment((1, 2, 3)), (3, 4))
    assert is_reassigning(assigned)
    assert set(origin(assigned)) == {1, 2, 3}
    assert target(assigned) == (3, 4)
    assert not is_reassigning(ReplicaAssignment((3, 4)))
    assert without_replica(assigned, 4) == ReplicaAssignment((3, 1, 2), (), (1, 2))


def test_a_replica_is_online_if_its_broker_lives_and_its_directory_works() -> None:
    state = state_with({0: led_by(1, 1, 2)})
    assert state.is_online(1, T0)
    assert not state.is_online(9, T0)
    state.offline_dirs[1] = {T0}
    assert not state.is_online(1, T0)
    assert state.is_online(1, TopicPartition("t", 1))
    state.shutting_down.add(2)
    assert not state.is_online(2, T0)
    assert state.is_online(2, T0, or_stopping=True)
    assert state.alive == {1, 3}
    assert state.alive_epochs == {1: 1, 3: 3}


def test_nothing_is_left_of_a_topic_that_is_forgotten() -> None:
    state = state_with({0: led_by(1, 1, 2)})
    for topics in (state.deleting, state.undeletable, state.deletion_begun):
        topics.add("t")
    state.reassigning.add(T0)
    state.forget_topic("t")
    state.forget_topic("never known")
    assert state == ControllerState(1, 1, brokers=state.brokers)


def test_a_broker_leads_for_others_what_has_other_replicas_and_is_not_being_deleted() -> None:
    state = state_with({0: led_by(1, 1, 2), 1: led_by(1, 1), 2: led_by(2, 1, 2)})
    assert leaders_of(state, 1) == [T0]
    state.deleting.add("t")
    assert leaders_of(state, 1) == []


def test_partitions_move_back_only_above_the_percentage_and_to_a_leader_that_can() -> None:
    partitions = {n: led_by(1, 1, 2) for n in range(8)} | {8: led_by(2, 1, 2), 9: led_by(2, 1, 2, isr=(2,))}
    state = state_with(partitions)
    assert exhaust(imbalanced(state, 20)) == []
    assert exhaust(imbalanced(state, 19)) == [TopicPartition("t", 8)], "the other one is not in sync"
    state.brokers.pop(1)
    assert exhaust(imbalanced(state, 19)) == []


def test_new_partitions_are_in_the_order_of_their_numbers() -> None:
    assert list(numbered({10: ReplicaAssignment((1,)), 2: ReplicaAssignment((1,))})) == [2, 10]
