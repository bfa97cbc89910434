"""The effects of a decision: nodes to write, then requests to brokers, both in order.

Pure: collects the effects, and builds the requests from the controller's state at the end of the decision.

    nothing is sent before it is written
    a request shows a partition's state at the end of a decision, not on the way to it
    the order within one batch is LeaderAndIsr, UpdateMetadata, StopReplica
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from leadline.controller.state import ControlledPartition, ControllerState, RegisteredBroker
from leadline.coordination.registration import PROTOCOLS
from leadline.coordination.tree import Operation
from leadline.model import DURING_DELETE, NO_EPOCH, BrokerId, TopicPartition
from leadline.wire.messages import LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest

Request = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest
_LeaderAndIsrPartition = LeaderAndIsrRequest.LeaderAndIsrPartitionState
_MetadataPartition = UpdateMetadataRequest.UpdateMetadataPartitionState
_StopReplicaPartition = StopReplicaRequest.StopReplicaPartitionState


@dataclass(frozen=True, slots=True)
class Remove:
    """Deletes a node and all below it, if it exists."""

    path: str


@dataclass(frozen=True, slots=True)
class Ensure:
    """Creates an empty node and its parents, unless they exist."""

    path: str


Write = Operation | Remove | Ensure


class BrokerRequest(NamedTuple):
    broker: BrokerId
    request: Request


class ControllerEffects(NamedTuple):
    """What must happen, top to bottom."""

    writes: list[Write]
    requests: list[BrokerRequest]
    stranded: set[str]  # topics with partitions that need an unclean election: their settings decide

    def __bool__(self) -> bool:
        return bool(self.writes or self.requests or self.stranded)


@dataclass(slots=True)
class RequestBatch:
    """Requests that are sent together."""

    leader_and_isr: dict[BrokerId, dict[TopicPartition, bool]] = field(
        default_factory=dict
    )  # whether the replica is new
    update_metadata: dict[BrokerId, None] = field(default_factory=dict)
    partitions: dict[TopicPartition, None] = field(default_factory=dict)  # that UpdateMetadata includes
    stop_replica: dict[BrokerId, dict[TopicPartition, bool]] = field(default_factory=dict)  # whether to delete it

    def add_leader_and_isr(self, brokers: Iterable[BrokerId], tp: TopicPartition, *, is_new: bool = False) -> None:
        for broker in brokers:
            partitions = self.leader_and_isr.setdefault(broker, {})
            partitions[tp] = is_new or partitions.get(tp, False)

    def add_stop_replica(self, broker: BrokerId, tp: TopicPartition, *, delete: bool) -> None:
        partitions = self.stop_replica.setdefault(broker, {})
        partitions[tp] = delete or partitions.get(tp, False)

    def add_update_metadata(self, brokers: Iterable[BrokerId], partitions: Iterable[TopicPartition] = ()) -> None:
        self.update_metadata.update(dict.fromkeys(brokers))
        self.partitions.update(dict.fromkeys(partitions))

    def requests(self, state: ControllerState, listener: str) -> list[BrokerRequest]:
        """Brokers that are not registered get none."""
        registered = state.brokers
        return [
            *(
                BrokerRequest(to, _leader_and_isr_request(state, registered[to], partitions, listener))
                for to, partitions in self.leader_and_isr.items()
                if to in registered
            ),
            *self._updates(state),
            *(
                BrokerRequest(to, _stop_replica_request(state, registered[to], partitions))
                for to, partitions in self.stop_replica.items()
                if to in registered
            ),
        ]

    def _updates(self, state: ControllerState) -> list[BrokerRequest]:
        to = [state.brokers[broker] for broker in self.update_metadata if broker in state.brokers]
        if not to:
            return []
        topics, live = (
            _metadata_topics(state, self.partitions),
            [_live_broker(broker) for broker in state.brokers.values()],
        )
        return [
            BrokerRequest(
                broker.id,
                UpdateMetadataRequest(
                    controller_id=state.me,
                    controller_epoch=state.epoch,
                    broker_epoch=broker.epoch,
                    topic_states=topics,
                    live_brokers=live,
                ),
            )
            for broker in to
        ]


def _leader_and_isr_request(
    state: ControllerState, broker: RegisteredBroker, partitions: dict[TopicPartition, bool], listener: str
) -> LeaderAndIsrRequest:
    topics: dict[str, LeaderAndIsrRequest.LeaderAndIsrTopicState] = {}
    leaders: set[BrokerId] = set()
    for tp, is_new in partitions.items():
        partition = state.partition(tp)
        if partition is None or partition.decision is None:
            continue
        if tp.topic not in topics:
            topic_id = state.topics[tp.topic].id
            topics[tp.topic] = LeaderAndIsrRequest.LeaderAndIsrTopicState(topic_name=tp.topic, topic_id=topic_id)
        topics[tp.topic].partition_states.append(_leader_and_isr_partition(tp, partition, is_new))
        leaders.add(partition.decision.leader)
    return LeaderAndIsrRequest(
        controller_id=state.me,
        controller_epoch=state.epoch,
        broker_epoch=broker.epoch,
        topic_states=list(topics.values()),
        live_leaders=[_live_leader(other, listener) for other in state.brokers.values() if other.id in leaders],
    )


def _leader_and_isr_partition(
    tp: TopicPartition, partition: ControlledPartition, is_new: bool
) -> _LeaderAndIsrPartition:
    decision = partition.decision
    assert decision is not None
    return _LeaderAndIsrPartition(
        topic_name=tp.topic,
        partition_index=tp.partition,
        controller_epoch=partition.controller_epoch,
        leader=decision.leader,
        leader_epoch=decision.leader_epoch,
        isr=list(decision.isr),
        partition_epoch=decision.partition_epoch,
        replicas=list(partition.assigned.replicas),
        adding_replicas=list(partition.assigned.adding),
        removing_replicas=list(partition.assigned.removing),
        is_new=is_new,
        leader_recovery_state=int(decision.recovering),
    )


def _live_leader(broker: RegisteredBroker, listener: str) -> LeaderAndIsrRequest.LeaderAndIsrLiveLeader:
    at = next((endpoint for endpoint in broker.endpoints if endpoint.listener == listener), broker.endpoints[0])
    return LeaderAndIsrRequest.LeaderAndIsrLiveLeader(broker_id=broker.id, host_name=at.host or "", port=at.port)


def _metadata_topics(
    state: ControllerState, partitions: Iterable[TopicPartition]
) -> list[UpdateMetadataRequest.UpdateMetadataTopicState]:
    topics: dict[str, UpdateMetadataRequest.UpdateMetadataTopicState] = {}
    for tp in partitions:
        partition = state.partition(tp)
        if partition is None or partition.decision is None:
            continue
        if tp.topic not in topics:
            topic_id = state.topics[tp.topic].id
            topics[tp.topic] = UpdateMetadataRequest.UpdateMetadataTopicState(topic_name=tp.topic, topic_id=topic_id)
        topics[tp.topic].partition_states.append(_metadata_partition(state, tp, partition))
    return list(topics.values())


def _metadata_partition(
    state: ControllerState, tp: TopicPartition, partition: ControlledPartition
) -> _MetadataPartition:
    decision, is_deleting = partition.decision, state.is_deleting(tp)
    assert decision is not None
    replicas = partition.assigned.replicas
    return _MetadataPartition(
        topic_name=tp.topic,
        partition_index=tp.partition,
        controller_epoch=partition.controller_epoch,
        leader=DURING_DELETE if is_deleting else decision.leader,
        leader_epoch=0 if is_deleting else decision.leader_epoch,
        isr=list(decision.isr),
        zk_version=0 if is_deleting else decision.partition_epoch,
        replicas=list(replicas),
        offline_replicas=[broker for broker in replicas if not state.is_online(broker, tp)],
    )


def _live_broker(broker: RegisteredBroker) -> UpdateMetadataRequest.UpdateMetadataBroker:
    return UpdateMetadataRequest.UpdateMetadataBroker(
        id=broker.id,
        rack=broker.rack,
        endpoints=[
            UpdateMetadataRequest.UpdateMetadataEndpoint(
                port=endpoint.port,
                host=endpoint.host or "",
                listener=endpoint.listener,
                security_protocol=PROTOCOLS.index(endpoint.protocol),
            )
            for endpoint in broker.endpoints
        ],
    )


def _stop_replica_request(
    state: ControllerState, broker: RegisteredBroker, partitions: dict[TopicPartition, bool]
) -> StopReplicaRequest:
    topics: dict[str, StopReplicaRequest.StopReplicaTopicState] = {}
    for tp, delete in partitions.items():
        topic = topics.setdefault(tp.topic, StopReplicaRequest.StopReplicaTopicState(topic_name=tp.topic))
        topic.partition_states.append(
            _StopReplicaPartition(
                partition_index=tp.partition, leader_epoch=_stop_epoch(state, tp), delete_partition=delete
            )
        )
    return StopReplicaRequest(
        controller_id=state.me,
        controller_epoch=state.epoch,
        broker_epoch=broker.epoch,
        topic_states=list(topics.values()),
    )


def _stop_epoch(state: ControllerState, tp: TopicPartition) -> int:
    if state.is_deleting(tp):
        return DURING_DELETE  # the broker accepts it, whatever its own epoch is
    partition = state.partition(tp)
    return NO_EPOCH if partition is None or partition.decision is None else partition.decision.leader_epoch
