"""The brokers' responses to the controller's requests, and the events that follow from them.

Pure: responses in, events for the controller's decisions out.
"""

from collections.abc import Callable

from leadline.controller.decisions import Decisions
from leadline.controller.effects import Request
from leadline.controller.state import PartitionReplica, RegisteredBroker
from leadline.model import NONE, TopicPartition
from leadline.runtime.steps import Steps
from leadline.wire.classes import Message
from leadline.wire.messages import LeaderAndIsrResponse, StopReplicaRequest, StopReplicaResponse

Event = Callable[[Decisions], Steps[None]]


def event_after(broker: RegisteredBroker, request: Request, response: Message) -> Event | None:
    """Returns None if there is nothing to decide."""
    if isinstance(response, LeaderAndIsrResponse) and response.error_code == NONE:
        return lambda decisions: _leader_and_isr_answered(decisions, broker, response)
    if isinstance(request, StopReplicaRequest) and isinstance(response, StopReplicaResponse):
        deletions = _to_be_deleted(request)
        if deletions:
            return lambda decisions: _stop_replica_answered(decisions, broker, deletions, response)
    return None


def _leader_and_isr_answered(
    decisions: Decisions, broker: RegisteredBroker, response: LeaderAndIsrResponse
) -> Steps[None]:
    names = decisions.state.names
    if broker.id not in decisions.state.offline_dirs and not _has_errors(response):
        return  # as nearly always
    codes = {
        TopicPartition(name, partition.partition_index): partition.error_code
        for topic in response.topics
        if (name := names.get(topic.topic_id)) is not None
        for partition in topic.partition_errors
    }
    yield from decisions.replicas_answered(broker.id, broker.epoch, codes)


def _has_errors(response: LeaderAndIsrResponse) -> bool:
    return any(partition.error_code != NONE for topic in response.topics for partition in topic.partition_errors)


def _to_be_deleted(request: StopReplicaRequest) -> set[TopicPartition]:
    return {
        TopicPartition(topic.topic_name, partition.partition_index)
        for topic in request.topic_states
        for partition in topic.partition_states
        if partition.delete_partition
    }


def _stop_replica_answered(
    decisions: Decisions, broker: RegisteredBroker, deletions: set[TopicPartition], response: StopReplicaResponse
) -> Steps[None]:
    """Only deletions count, and only those of topics that are being deleted."""
    codes = {
        TopicPartition(partition.topic_name, partition.partition_index): partition.error_code
        for partition in response.partition_errors
    }
    deleting = [tp for tp in sorted(deletions) if decisions.state.is_deleting(tp)]
    failed = [tp for tp in deleting if response.error_code != NONE or codes.get(tp, NONE) != NONE]
    decisions.deletions.failed([PartitionReplica(tp, broker.id) for tp in failed])
    yield
    not_deleted = set(failed)
    decisions.deletions.deleted([PartitionReplica(tp, broker.id) for tp in deleting if tp not in not_deleted])
