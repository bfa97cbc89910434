"""The effects of a decision: nodes to write, then requests to brokers, both in order.

Pure: collects the effects, and builds the requests from the controller's state at the end of the decision.

    nothing is sent before it is written
    a request shows a partition's state at the end of a decision, not on the way to it
    the order within one batch is LeaderAndIsr, UpdateMetadata, StopReplica

A decision may concern all partitions of a large cluster, so writes and requests are built one at a time, as they are
carried out, and before anything else is decided. The state of a partition is built once for all brokers that get it.
UpdateMetadata is sent in portions, internal topics first: no broker stops to serve clients while it applies one.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from leadline.controller.state import ControlledPartition, ControllerState, RegisteredBroker
from leadline.controller.topics import INTERNAL
from leadline.coordination.registration import PROTOCOLS
from leadline.coordination.tree import Operation
from leadline.model import DURING_DELETE, NO_EPOCH, BrokerId, TopicId, TopicPartition
from leadline.runtime.steps import portions
from leadline.wire.classes import SharedArray
from leadline.wire.messages import LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest

AT_ONCE = 2000  # partitions in one LeaderAndIsr or UpdateMetadata

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
    """What must happen, top to bottom. Writes and requests are built as they are taken."""

    writes: Iterator[Write]
    requests: Iterator[BrokerRequest]
    stranded: set[str]  # topics with partitions that need an unclean election: their settings decide


@dataclass(slots=True)
class RequestBatch:
    """Requests that are sent together."""

    leader_and_isr: dict[BrokerId, dict[TopicPartition, bool]] = field(
        default_factory=dict
    )  # whether the replica is new
    update_metadata: dict[BrokerId, None] = field(default_factory=dict)
    partitions: dict[TopicPartition, None] = field(default_factory=dict)  # that UpdateMetadata includes
    has_all_partitions: bool = False  # in UpdateMetadata
    deleted: dict[TopicPartition, TopicId] = field(default_factory=dict)  # in UpdateMetadata as well
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

    @property
    def is_empty(self) -> bool:
        return not (self.leader_and_isr or self.update_metadata or self.stop_replica)

    def requests(self, state: ControllerState, listener: str) -> Iterator[BrokerRequest]:
        """Brokers that are not registered get none."""
        registered, built = state.brokers, BuiltStates({}, {})
        for to, partitions in self.leader_and_isr.items():
            for portion in portions(partitions.items(), AT_ONCE) if to in registered else ():
                yield BrokerRequest(to, _leader_and_isr_request(state, registered[to], portion, listener, built))
        del built
        yield from self._updates(state)
        for to, partitions in self.stop_replica.items():
            if to in registered:
                yield BrokerRequest(to, _stop_replica_request(state, registered[to], partitions))

    def _updates(self, state: ControllerState) -> Iterator[BrokerRequest]:
        to = [state.brokers[broker] for broker in self.update_metadata if broker in state.brokers]
        if not to:
            return
        live = [_live_broker(broker) for broker in state.brokers.values()]
        partitions = portions(self._important_first(state), AT_ONCE)
        existing = (_metadata_topics(state, portion) for portion in partitions)
        with_topics = filter(None, chain((_deleted_topics(self.deleted),), existing))
        first = next(with_topics, SharedArray())  # at least one request, with the live brokers
        for topics in chain((first,), with_topics):
            for broker in to:
                request = UpdateMetadataRequest(
                    controller_id=state.me,
                    controller_epoch=state.epoch,
                    broker_epoch=broker.epoch,
                    topic_states=topics,
                    live_brokers=live,
                )
                yield BrokerRequest(broker.id, request)

    def _important_first(self, state: ControllerState) -> Iterable[TopicPartition]:
        """Groups and transactions wait for the leaders of the internal topics."""
        if self.has_all_partitions:
            return (
                TopicPartition(name, number)
                for name in sorted(state.topics, key=lambda name: name not in INTERNAL)
                for number in state.topics[name].partitions
            )
        if len(self.partitions) <= AT_ONCE:
            return self.partitions
        return chain(
            (tp for tp in self.partitions if tp.topic in INTERNAL),
            (tp for tp in self.partitions if tp.topic not in INTERNAL),
        )


class BuiltStates(NamedTuple):
    """The states of partitions in LeaderAndIsr: the replicas of a partition share one."""

    of_new: dict[TopicPartition, _LeaderAndIsrPartition]  # with is_new
    of_others: dict[TopicPartition, _LeaderAndIsrPartition]


def _leader_and_isr_request(
    state: ControllerState,
    broker: RegisteredBroker,
    partitions: Iterable[tuple[TopicPartition, bool]],
    listener: str,
    built: BuiltStates,
) -> LeaderAndIsrRequest:
    topics: dict[str, LeaderAndIsrRequest.LeaderAndIsrTopicState] = {}
    leaders: set[BrokerId] = set()
    for tp, is_new in partitions:
        states = built.of_new if is_new else built.of_others
        partition_state = states.get(tp)
        if partition_state is None:
            partition = state.partition(tp)
            if partition is None or partition.decision is None:
                continue
            partition_state = states[tp] = _leader_and_isr_partition(tp, partition, is_new)
        topic = topics.get(tp.topic)
        if topic is None:
            topic_id = state.topics[tp.topic].id
            topic = LeaderAndIsrRequest.LeaderAndIsrTopicState(topic_name=tp.topic, topic_id=topic_id)
            topics[tp.topic] = topic
        topic.partition_states.append(partition_state)
        leaders.add(partition_state.leader)
    is_own = broker.id == state.me  # and is never encoded
    return LeaderAndIsrRequest(
        controller_id=state.me,
        controller_epoch=state.epoch,
        broker_epoch=broker.epoch,
        topic_states=list(topics.values()) if is_own else SharedArray(topics.values()),
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
) -> SharedArray[UpdateMetadataRequest.UpdateMetadataTopicState]:
    topics: dict[str, UpdateMetadataRequest.UpdateMetadataTopicState] = {}
    for tp in partitions:
        partition = state.partition(tp)
        if partition is None or partition.decision is None:
            continue
        if tp.topic not in topics:
            topic_id = state.topics[tp.topic].id
            topics[tp.topic] = UpdateMetadataRequest.UpdateMetadataTopicState(topic_name=tp.topic, topic_id=topic_id)
        topics[tp.topic].partition_states.append(_metadata_partition(state, tp, partition))
    return SharedArray(topics.values())


def _deleted_topics(
    partitions: Mapping[TopicPartition, TopicId],
) -> SharedArray[UpdateMetadataRequest.UpdateMetadataTopicState]:
    topics: dict[str, UpdateMetadataRequest.UpdateMetadataTopicState] = {}
    for tp, topic_id in partitions.items():
        topic = UpdateMetadataRequest.UpdateMetadataTopicState(topic_name=tp.topic, topic_id=topic_id)
        topics.setdefault(tp.topic, topic).partition_states.append(
            _MetadataPartition(topic_name=tp.topic, partition_index=tp.partition, leader=DURING_DELETE, leader_epoch=0)
        )
    return SharedArray(topics.values())


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
