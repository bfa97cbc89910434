"""The responses of brokers: which of them change what the controller has decided."""

from leadline.controller.broker_responses import event_after
from leadline.controller.effects import Request
from leadline.controller.state import PartitionReplica, ReplicaState
from leadline.coordination import znodes
from leadline.errors import StaleControllerEpoch, StorageError, UnknownServerError
from leadline.model import TopicPartition
from leadline.wire.classes import Message
from leadline.wire.messages import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from tests.support.controlled import ModelCluster

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def answer(cluster: ModelCluster, id: int, request: Request, response: Message) -> bool:
    """Whether an event followed from the response."""
    event = event_after(cluster.registered[id], request, response)
    if event is not None:
        cluster.do(lambda: event(cluster.decisions))
    return event is not None


def leader_and_isr_response(cluster: ModelCluster, code: int, of_request: int = 0) -> LeaderAndIsrResponse:
    error = LeaderAndIsrResponse.LeaderAndIsrPartitionError(partition_index=0, error_code=code)
    topic_id = cluster.decisions.state.topics["t"].id
    topics = [LeaderAndIsrResponse.LeaderAndIsrTopicError(topic_id=topic_id, partition_errors=[error])]
    return LeaderAndIsrResponse(error_code=of_request, topics=topics)


def test_another_broker_leads_if_the_leader_cannot_open_its_log() -> None:
    cluster = ModelCluster()
    cluster.create("t", (1, 2))
    assert answer(cluster, 1, LeaderAndIsrRequest(), leader_and_isr_response(cluster, StorageError.code))
    assert cluster.led(T0)[:3] == (2, 1, (2,))


def test_a_leader_and_isr_that_was_rejected_as_a_whole_says_nothing_of_partitions() -> None:
    cluster = ModelCluster()
    cluster.create("t", (1, 2))
    response = leader_and_isr_response(cluster, StorageError.code, of_request=StaleControllerEpoch.code)
    assert not answer(cluster, 1, LeaderAndIsrRequest(), response)
    assert cluster.led(T0).leader == 1


def test_a_topic_that_was_deleted_meanwhile_is_ignored_in_a_response() -> None:
    cluster = ModelCluster()
    cluster.create("t", (1, 2))
    response = leader_and_isr_response(cluster, StorageError.code)
    cluster.delete("t")
    cluster.answer_deletions()
    assert answer(cluster, 1, LeaderAndIsrRequest(), response)
    assert cluster.decisions.state.topics == {}


def stop_request(cluster: ModelCluster, id: int) -> StopReplicaRequest:
    requests = [request for broker, request in cluster.last.requests if broker == id]
    return next(request for request in requests if isinstance(request, StopReplicaRequest))


def stop_response(code: int = 0, **codes: int) -> StopReplicaResponse:
    return StopReplicaResponse(
        error_code=code,
        partition_errors=[
            StopReplicaResponse.StopReplicaPartitionError(
                topic_name="t", partition_index=int(number.removeprefix("p")), error_code=partition_code
            )
            for number, partition_code in codes.items()
        ],
    )


def test_replicas_are_deleted_or_not_as_the_response_says() -> None:
    cluster = ModelCluster()
    cluster.create("t", (1,), (1,))
    cluster.delete("t")
    request = stop_request(cluster, 1)
    assert answer(cluster, 1, request, stop_response(p0=0, p1=StorageError.code))
    state = cluster.decisions.state
    assert state.replica_state(PartitionReplica(T0, 1)) is ReplicaState.DELETION_SUCCESSFUL
    assert state.replica_state(PartitionReplica(T1, 1)) is ReplicaState.DELETION_INELIGIBLE
    assert "t" in cluster.decisions.state.undeletable


def test_no_replica_counts_as_deleted_if_the_whole_request_failed() -> None:
    cluster = ModelCluster()
    cluster.create("t", (1,))
    cluster.delete("t")
    assert answer(cluster, 1, stop_request(cluster, 1), stop_response(UnknownServerError.code))
    assert znodes.topic_path("t") in cluster.nodes
    assert cluster.decisions.state.replica_state(PartitionReplica(T0, 1)) is ReplicaState.DELETION_INELIGIBLE


def test_a_replica_that_is_only_stopped_causes_no_event() -> None:
    cluster = ModelCluster()
    cluster.create("t", (1, 2))
    cluster.do(lambda: cluster.decisions.shut_down(2))
    assert not answer(cluster, 2, stop_request(cluster, 2), stop_response(p0=0))


def test_an_update_of_metadata_causes_no_event() -> None:
    assert not answer(ModelCluster(), 1, UpdateMetadataRequest(), UpdateMetadataResponse())
