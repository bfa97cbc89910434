"""The requests of a decision: who gets which, in which order, and what they say of the state at the end."""

from uuid import UUID

import pytest

from leadline.controller import effects
from leadline.controller.effects import RequestBatch
from leadline.controller.state import ControlledPartition, ControlledTopic, ControllerState, RegisteredBroker
from leadline.coordination.registration import RegisteredEndpoint
from leadline.coordination.znodes import ReplicaAssignment
from leadline.model import DURING_DELETE, NO_EPOCH, TopicPartition
from leadline.replication.partition import LeaderAndIsr
from leadline.wire.messages import LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
LISTENER = "INTERNAL"


def broker(id: int) -> RegisteredBroker:
    """It listens for clients first, then for brokers."""
    endpoints = RegisteredEndpoint("PUBLIC", "p", 1000 + id, "SSL"), RegisteredEndpoint(LISTENER, "i", id, "PLAINTEXT")
    return RegisteredBroker(id, 10 * id, endpoints, f"rack {id}")


def controller_state(*decisions: LeaderAndIsr | None) -> ControllerState:
    state = ControllerState(1, 5, brokers={id: broker(id) for id in (1, 2)})
    partitions = {
        number: ControlledPartition(ReplicaAssignment((1, 2, 3)), decision, controller_epoch=4)
        for number, decision in enumerate(decisions)
    }
    state.put_topic(ControlledTopic("t", UUID(int=7), partitions))
    return state


DECISION = LeaderAndIsr(2, 6, (2, 1), 8)


def test_a_batch_has_leader_and_isr_first_and_stop_replica_last() -> None:
    batch = RequestBatch()
    batch.add_stop_replica(1, T0, delete=False)
    batch.add_update_metadata((1, 2), (T0,))
    batch.add_leader_and_isr((2,), T0)
    requests = list(batch.requests(controller_state(DECISION), LISTENER))
    assert [(id, type(request)) for id, request in requests] == [
        (2, LeaderAndIsrRequest),
        (1, UpdateMetadataRequest),
        (2, UpdateMetadataRequest),
        (1, StopReplicaRequest),
    ]
    assert [request.broker_epoch for _, request in requests] == [20, 10, 20, 10]
    assert {request.controller_epoch for _, request in requests} == {5}


def test_a_broker_that_is_not_registered_gets_nothing() -> None:
    batch = RequestBatch()
    batch.add_leader_and_isr((3,), T0)
    batch.add_update_metadata((3,), (T0,))
    batch.add_stop_replica(3, T0, delete=True)
    assert list(batch.requests(controller_state(DECISION), LISTENER)) == []


def test_a_replica_stays_new_and_a_deletion_stays_one_within_a_batch() -> None:
    batch = RequestBatch()
    for is_new in (True, False):
        batch.add_leader_and_isr((1,), T0, is_new=is_new)
        batch.add_stop_replica(1, T1, delete=is_new)
    (_, lead), (_, stop) = batch.requests(controller_state(DECISION, DECISION), LISTENER)
    assert isinstance(lead, LeaderAndIsrRequest)
    assert isinstance(stop, StopReplicaRequest)
    assert lead.topic_states[0].partition_states[0].is_new
    assert stop.topic_states[0].partition_states[0].delete_partition


def test_leader_and_isr_names_the_leaders_at_the_listener_of_the_brokers() -> None:
    batch = RequestBatch()
    batch.add_leader_and_isr((1,), T0)
    ((_, request),) = batch.requests(controller_state(DECISION), LISTENER)
    assert isinstance(request, LeaderAndIsrRequest)
    (leader,) = request.live_leaders
    assert (leader.broker_id, leader.host_name, leader.port) == (2, "i", 2)
    (partition,) = request.topic_states[0].partition_states
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (2, 6, 8)
    assert (partition.isr, partition.replicas, partition.controller_epoch) == ([2, 1], [1, 2, 3], 4)


def test_a_leader_without_the_listener_of_the_brokers_is_named_at_its_first_one() -> None:
    batch = RequestBatch()
    batch.add_leader_and_isr((1,), T0)
    ((_, request),) = batch.requests(controller_state(DECISION), "OTHER")
    assert isinstance(request, LeaderAndIsrRequest)
    assert (request.live_leaders[0].host_name, request.live_leaders[0].port) == ("p", 1002)


def test_a_partition_without_a_decision_is_left_out() -> None:
    batch = RequestBatch()
    batch.add_leader_and_isr((1,), T0)
    batch.add_leader_and_isr((1,), T1)
    batch.add_update_metadata((1,), (T0, T1, TopicPartition("unknown", 0)))
    (_, lead), (_, update) = batch.requests(controller_state(DECISION, None), LISTENER)
    assert isinstance(lead, LeaderAndIsrRequest)
    assert isinstance(update, UpdateMetadataRequest)
    for topics in (lead.topic_states, update.topic_states):
        assert [state.partition_index for topic in topics for state in topic.partition_states] == [0]


def test_metadata_name_all_endpoints_and_the_replicas_that_are_offline() -> None:
    batch = RequestBatch()
    batch.add_update_metadata((1,), (T0,))
    ((_, request),) = batch.requests(controller_state(DECISION), LISTENER)
    assert isinstance(request, UpdateMetadataRequest)
    (partition,) = request.topic_states[0].partition_states
    assert (partition.leader, partition.zk_version, partition.offline_replicas) == (2, 8, [3])
    endpoints = [(at.listener, at.port, at.security_protocol) for at in request.live_brokers[0].endpoints]
    assert endpoints == [("PUBLIC", 1001, 1), (LISTENER, 1, 0)]
    assert request.live_brokers[0].rack == "rack 1"


def test_a_topic_that_is_being_deleted_has_the_leader_and_epoch_of_a_deletion() -> None:
    state = controller_state(DECISION)
    state.deleting.add("t")
    batch = RequestBatch()
    batch.add_update_metadata((1,), (T0,))
    batch.add_stop_replica(1, T0, delete=True)
    (_, update), (_, stop) = batch.requests(state, LISTENER)
    assert isinstance(update, UpdateMetadataRequest)
    assert isinstance(stop, StopReplicaRequest)
    assert update.topic_states[0].partition_states[0].leader == DURING_DELETE
    assert stop.topic_states[0].partition_states[0].leader_epoch == DURING_DELETE


def test_a_replica_without_a_decision_is_stopped_whatever_its_epoch() -> None:
    batch = RequestBatch()
    batch.add_stop_replica(1, T0, delete=False)
    batch.add_stop_replica(1, TopicPartition("unknown", 3), delete=False)
    ((_, stop),) = batch.requests(controller_state(None), LISTENER)
    assert isinstance(stop, StopReplicaRequest)
    assert [topic.partition_states[0].leader_epoch for topic in stop.topic_states] == [NO_EPOCH, NO_EPOCH]


def test_the_replicas_of_a_partition_share_its_state_unless_one_of_them_is_new() -> None:
    batch = RequestBatch()
    batch.add_leader_and_isr((1, 2), T0)
    batch.add_leader_and_isr((2,), T1, is_new=True)
    batch.add_leader_and_isr((1,), T1)
    first, second = [
        [state for topic in request.topic_states for state in topic.partition_states]
        for _, request in batch.requests(controller_state(DECISION, DECISION), LISTENER)
        if isinstance(request, LeaderAndIsrRequest)
    ]
    assert first[0] is second[0]
    assert [(state.partition_index, state.is_new) for state in (*first, *second)] == [
        (0, False),
        (1, False),
        (0, False),
        (1, True),
    ]


def test_leaders_of_many_partitions_are_sent_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "AT_ONCE", 3)
    state, batch = controller_state(*[DECISION] * 4), RequestBatch()
    for tp, _ in state.partitions():
        batch.add_leader_and_isr((1, 2), tp)
    portions = [
        (to, [len(topic.partition_states) for topic in request.topic_states])
        for to, request in batch.requests(state, LISTENER)
        if isinstance(request, LeaderAndIsrRequest)
    ]
    assert portions == [(1, [3]), (1, [1]), (2, [3]), (2, [1])]


def test_metadata_of_many_partitions_are_sent_in_portions_internal_topics_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(effects, "AT_ONCE", 3)
    state = controller_state(*[DECISION] * 4)
    offsets = ControlledTopic("__consumer_offsets", UUID(int=9), dict(state.topics["t"].partitions))
    state.put_topic(offsets)
    for is_full in (False, True):
        batch = RequestBatch(has_all_partitions=is_full)
        batch.add_update_metadata((1, 2), () if is_full else [tp for tp, _ in state.partitions()])
        portions = [
            (to, [(topic.topic_name, len(topic.partition_states)) for topic in request.topic_states])
            for to, request in batch.requests(state, LISTENER)
            if isinstance(request, UpdateMetadataRequest)
        ]
        assert portions == [
            (to, topics)
            for topics in (
                [("__consumer_offsets", 3)],
                [("__consumer_offsets", 1), ("t", 2)],
                [("t", 2)],
            )
            for to in (1, 2)
        ]


def test_metadata_name_the_brokers_even_if_no_partition_has_a_leader() -> None:
    batch = RequestBatch(has_all_partitions=True)
    batch.add_update_metadata((1,))
    ((_, request),) = batch.requests(controller_state(None), LISTENER)
    assert isinstance(request, UpdateMetadataRequest)
    assert not request.topic_states
    assert [live.id for live in request.live_brokers] == [1, 2]
