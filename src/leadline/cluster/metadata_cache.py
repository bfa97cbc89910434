"""A broker's cache of the cluster's metadata: brokers, topics, leaders.

Pure: UpdateMetadata changes it, the handlers of requests read it. `on_change` is called after each change.

    each request replaces all brokers, and the partitions that it names
    a partition whose leader is -2 is deleted, and so is a topic without partitions
    a request of an older controller is refused
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from leadline.coordination.registration import PROTOCOLS
from leadline.errors import StaleBrokerEpoch, StaleControllerEpoch, UnknownTopicOrPartition
from leadline.model import DURING_DELETE, NO_ID, NO_LEADER, BrokerId, LeaderEpoch, TopicId, TopicPartition
from leadline.wire.messages import UpdateMetadataRequest

NO_CONTROLLER: BrokerId = -1
NO_BROKER_EPOCH = -1

_State = UpdateMetadataRequest.UpdateMetadataPartitionState


class Endpoint(NamedTuple):
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    id: BrokerId
    endpoints: Mapping[str, Endpoint]  # by listener
    rack: str | None = None


class CachedPartition(NamedTuple):
    leader: BrokerId  # -1: none
    leader_epoch: LeaderEpoch
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    offline: tuple[BrokerId, ...] = ()  # of the replicas, those that cannot serve


class LeaderAndReplicas(NamedTuple):
    """The leader of a partition, and its ISR."""

    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]


@dataclass(slots=True)
class CachedTopic:
    name: str
    id: TopicId
    partitions: dict[int, CachedPartition] = field(default_factory=dict)  # in the order of their numbers


class MetadataCache:
    def __init__(self, me: BrokerInfo, cluster_id: str) -> None:
        self.me, self.cluster_id = me, cluster_id
        self.broker_epoch = NO_BROKER_EPOCH  # of this run of this broker; -1: not registered yet
        self.brokers: dict[BrokerId, BrokerInfo] = {}
        self.suspected: set[BrokerId] = set()  # those that may have ended a moment ago: see PeerMonitor
        self.is_isolated = False  # other brokers may lead this broker's partitions: see Leadership
        self.departed: dict[BrokerId, BrokerInfo] = {}  # left a moment ago: see PeerMonitor
        self.controller: BrokerId = NO_CONTROLLER
        self.controller_epoch = 0  # the latest in any request
        self.topics: dict[str, CachedTopic] = {}
        self.by_id: dict[TopicId, CachedTopic] = {}
        self.on_change: list[Callable[[], None]] = []

    @property
    def racks(self) -> dict[BrokerId, str | None]:
        return {id: broker.rack for id, broker in self.brokers.items()}

    def has_partition(self, tp: TopicPartition) -> bool:
        topic = self.topics.get(tp.topic)
        return topic is not None and tp.partition in topic.partitions

    def partition_count(self, name: str) -> int | None:
        """None: there is no such topic."""
        topic = self.topics.get(name)
        return None if topic is None else len(topic.partitions)

    def leader_of(self, tp: TopicPartition) -> BrokerId:
        """NO_LEADER also for a partition that does not exist."""
        topic = self.topics.get(tp.topic)
        partition = None if topic is None else topic.partitions.get(tp.partition)
        return NO_LEADER if partition is None else partition.leader

    def reachable(self, leader: BrokerId, listener: str) -> Endpoint | None:
        """Where clients reach a leader. None: it may not run, and clients should ask again."""
        broker = None if leader in self.suspected else self.brokers.get(leader)
        return None if broker is None else broker.endpoints.get(listener)

    def may_have_moved(self, partition: CachedPartition) -> bool:
        """Whether another broker may lead the partitions that this one led when it was cut off."""
        return self.is_isolated and partition.leader == self.me.id and len(partition.isr) > 1

    def learn(self, leaders: Mapping[TopicPartition, LeaderAndReplicas]) -> list[TopicPartition]:
        """Takes newer leaders over from another broker's metadata. Returns the partitions that changed."""
        later = [tp for tp, leading in leaders.items() if self._learn(tp, leading)]
        if later:
            for changed in list(self.on_change):
                changed()
        return later

    def _learn(self, tp: TopicPartition, leading: LeaderAndReplicas) -> bool:
        if not self.has_partition(tp):
            return False
        partitions = self.topics[tp.topic].partitions
        if leading.leader_epoch <= partitions[tp.partition].leader_epoch:
            return False
        partitions[tp.partition] = partitions[tp.partition]._replace(**leading._asdict())
        return True

    def topic(self, name: str) -> CachedTopic:
        try:
            return self.topics[name]
        except KeyError:
            raise UnknownTopicOrPartition(f"The topic '{name}' does not exist.") from None

    def check(self, controller_epoch: int, broker_epoch: int) -> None:
        """Checks any request of a controller. StaleBrokerEpoch: it was sent to an earlier run of this broker."""
        if broker_epoch != NO_BROKER_EPOCH and broker_epoch < self.broker_epoch:
            raise StaleBrokerEpoch(f"broker epoch {broker_epoch} is old; the current one is {self.broker_epoch}")
        if controller_epoch < self.controller_epoch:
            raise StaleControllerEpoch(
                f"controller epoch {controller_epoch} is old; the current one is {self.controller_epoch}"
            )
        self.controller_epoch = controller_epoch

    def update(self, request: UpdateMetadataRequest) -> list[str]:
        """Returns the topics that are deleted now. StaleBrokerEpoch, StaleControllerEpoch."""
        self.check(request.controller_epoch, request.broker_epoch)
        self.controller = request.controller_id
        before, self.brokers = self.brokers, {broker.id: _broker(broker) for broker in request.live_brokers}
        self.departed = {id: info for id, info in (before | self.departed).items() if id not in self.brokers}
        topics = [(topic.topic_name, topic.topic_id, topic.partition_states) for topic in request.topic_states]
        topics += [(state.topic_name, NO_ID, [state]) for state in request.ungrouped_partition_states]
        deleted = [name for name, topic_id, states in topics if self._update(name, topic_id, states)]
        for changed in list(self.on_change):
            changed()
        return deleted

    def _update(self, name: str, topic_id: TopicId, states: Iterable[_State]) -> bool:
        """Whether the topic is deleted now."""
        before = self.topics.get(name)
        if before is not None and topic_id == NO_ID:
            topic_id = before.id  # older controllers send no ids
        if before is not None and before.id != topic_id:
            del self.by_id[before.id]
            before = None
        partitions = {} if before is None else dict(before.partitions)
        for state in states:
            if state.leader == DURING_DELETE:
                partitions.pop(state.partition_index, None)
            else:
                partitions[state.partition_index] = _partition(state)
        if not partitions:
            self.topics.pop(name, None)
            self.by_id.pop(topic_id, None)
            return True
        topic = CachedTopic(name, topic_id, {number: partitions[number] for number in sorted(partitions)})
        self.topics[name] = self.by_id[topic_id] = topic
        return False


def _broker(broker: UpdateMetadataRequest.UpdateMetadataBroker) -> BrokerInfo:
    """Older controllers name listeners by their protocols; the oldest send one endpoint."""
    if not broker.endpoints:
        return BrokerInfo(broker.id, {PROTOCOLS[0]: Endpoint(broker.v0_host, broker.v0_port)}, broker.rack)
    endpoints = {
        endpoint.listener or PROTOCOLS[endpoint.security_protocol]: Endpoint(endpoint.host, endpoint.port)
        for endpoint in broker.endpoints
    }
    return BrokerInfo(broker.id, endpoints, broker.rack)


def _partition(state: _State) -> CachedPartition:
    replicas, isr, offline = tuple(state.replicas), tuple(state.isr), tuple(state.offline_replicas)
    return CachedPartition(state.leader, state.leader_epoch, replicas, isr, offline)
