"""The controller's state: brokers, assignments, leaders, and the states of partitions and replicas.

Pure: values and queries. `transitions` and `decisions` change them.

The tree holds the same: a decision is in memory a moment before it is written, and is sent after that. If the two
differ, the controller resigns, and its successor reads everything again.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, TypeVar

from leadline.coordination.registration import RegisteredEndpoint
from leadline.coordination.znodes import ReplicaAssignment
from leadline.model import BrokerId, TopicId, TopicPartition
from leadline.replication.partition import LeaderAndIsr
from leadline.runtime.steps import Steps, portions

T = TypeVar("T")


class PartitionState(Enum):
    NONEXISTENT = "never created, or deleted"
    NEW = "has replicas, and never had a leader"
    ONLINE = "has a leader"
    OFFLINE = "its leader failed"


class ReplicaState(Enum):
    NONEXISTENT = "not created, or deleted"
    NEW = "about to become a follower"
    ONLINE = "on a live broker"
    OFFLINE = "its broker, or its log directory, failed"
    DELETION_STARTED = "its broker was asked to delete it"
    DELETION_INELIGIBLE = "cannot be deleted now"
    DELETION_SUCCESSFUL = "its broker has deleted it"


# A state may follow these, and no others.
PARTITION_MAY_FOLLOW: dict[PartitionState, frozenset[PartitionState]] = {
    PartitionState.NEW: frozenset({PartitionState.NONEXISTENT}),
    PartitionState.ONLINE: frozenset({PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE}),
    PartitionState.OFFLINE: frozenset({PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE}),
    PartitionState.NONEXISTENT: frozenset({PartitionState.OFFLINE}),
}
_IN_USE = frozenset({ReplicaState.NEW, ReplicaState.ONLINE, ReplicaState.OFFLINE, ReplicaState.DELETION_INELIGIBLE})
REPLICA_MAY_FOLLOW: dict[ReplicaState, frozenset[ReplicaState]] = {
    ReplicaState.NEW: frozenset({ReplicaState.NONEXISTENT}),
    ReplicaState.ONLINE: _IN_USE,
    ReplicaState.OFFLINE: _IN_USE,
    ReplicaState.DELETION_STARTED: frozenset({ReplicaState.OFFLINE}),
    ReplicaState.DELETION_SUCCESSFUL: frozenset({ReplicaState.DELETION_STARTED}),
    ReplicaState.DELETION_INELIGIBLE: frozenset({ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED}),
    ReplicaState.NONEXISTENT: frozenset({ReplicaState.DELETION_SUCCESSFUL}),
}


class RegisteredBroker(NamedTuple):
    """A broker that is registered."""

    id: BrokerId
    epoch: int  # of this run of it: the transaction that registered it
    endpoints: tuple[RegisteredEndpoint, ...]
    rack: str | None = None


class PartitionReplica(NamedTuple):
    partition: TopicPartition
    broker: BrokerId


@dataclass(slots=True)
class ControlledPartition:
    assigned: ReplicaAssignment
    decision: LeaderAndIsr | None = None  # None: no leader yet; its partition epoch is the version of its node
    controller_epoch: int = 0  # of the controller that took it
    decided_zxid: int = 0  # of the transaction that wrote it before this controller was elected; 0: unknown
    state: PartitionState = PartitionState.NONEXISTENT


@dataclass(slots=True)
class ControlledTopic:
    name: str
    id: TopicId
    partitions: dict[int, ControlledPartition] = field(default_factory=dict)


@dataclass(slots=True)
class ControllerState:
    me: BrokerId
    epoch: int  # of this controller: each has a greater one than those before it
    brokers: dict[BrokerId, RegisteredBroker] = field(
        default_factory=dict
    )  # live ones, including those that are about to stop
    gone: dict[BrokerId, RegisteredBroker] = field(default_factory=dict)  # still registered, but unreachable
    missed_deletions: dict[BrokerId, dict[TopicPartition, TopicId]] = field(default_factory=dict)  # of those in `gone`
    shutting_down: set[BrokerId] = field(default_factory=set)
    topics: dict[str, ControlledTopic] = field(default_factory=dict)
    names: dict[TopicId, str] = field(default_factory=dict)
    replicas: dict[BrokerId, dict[TopicPartition, ReplicaState]] = field(default_factory=dict)  # those that exist
    offline_dirs: dict[BrokerId, set[TopicPartition]] = field(default_factory=dict)  # replicas in failed directories
    deleting: set[str] = field(default_factory=set)  # topics
    undeletable: set[str] = field(default_factory=set)  # of `deleting`: topics whose deletion has to wait
    deletion_begun: set[str] = field(default_factory=set)
    reassigning: set[TopicPartition] = field(default_factory=set)
    requested_reassignment: dict[TopicPartition, tuple[BrokerId, ...]] = field(default_factory=dict)
    # by /admin/reassign_partitions, as far as not completed

    @property
    def alive(self) -> set[BrokerId]:
        """Brokers that may lead."""
        return self.brokers.keys() - self.shutting_down

    def is_alive(self, broker: BrokerId) -> bool:
        """Whether the broker may lead."""
        return broker in self.brokers and broker not in self.shutting_down

    @property
    def alive_epochs(self) -> dict[BrokerId, int]:
        return {id: broker.epoch for id, broker in self.brokers.items() if id not in self.shutting_down}

    def is_online(self, broker: BrokerId, tp: TopicPartition, *, or_stopping: bool = False) -> bool:
        if broker not in self.brokers or (broker in self.shutting_down and not or_stopping):
            return False
        return tp not in self.offline_dirs.get(broker, ())

    def partition(self, tp: TopicPartition) -> ControlledPartition | None:
        topic = self.topics.get(tp.topic)
        return None if topic is None else topic.partitions.get(tp.partition)

    def existing(self, tp: TopicPartition) -> ControlledPartition:
        return self.topics[tp.topic].partitions[tp.partition]

    def partitions(self) -> Iterator[tuple[TopicPartition, ControlledPartition]]:
        for name, topic in self.topics.items():
            for number, partition in topic.partitions.items():
                yield TopicPartition(name, number), partition

    def of_topic(self, name: str) -> list[TopicPartition]:
        topic = self.topics.get(name)
        return [] if topic is None else [TopicPartition(name, number) for number in topic.partitions]

    def replicas_of(self, partitions: Iterable[TopicPartition]) -> list[PartitionReplica]:
        return [PartitionReplica(tp, broker) for tp in partitions for broker in self.existing(tp).assigned.replicas]

    def replicas_on(self, brokers: Iterable[BrokerId]) -> list[PartitionReplica]:
        return [PartitionReplica(tp, broker) for broker in set(brokers) for tp in self.replicas.get(broker, ())]

    def replica_state(self, replica: PartitionReplica) -> ReplicaState:
        return self.replicas.get(replica.broker, {}).get(replica.partition, ReplicaState.NONEXISTENT)

    def put_replica(self, replica: PartitionReplica, state: ReplicaState) -> None:
        tp, broker = replica
        self.replicas.setdefault(broker, {})[tp] = state

    def forget_replica(self, replica: PartitionReplica) -> None:
        partitions = self.replicas.get(replica.broker, {})
        partitions.pop(replica.partition, None)
        if not partitions:
            self.replicas.pop(replica.broker, None)

    def waiting_for_leaders(self) -> Steps[list[TopicPartition]]:
        """The partitions without a leader, except those of topics that are being deleted."""
        waiting: list[TopicPartition] = []
        for topics in portions(self.topics.values()):
            waiting += [
                TopicPartition(topic.name, number)
                for topic in topics
                if topic.name not in self.deleting
                for number, partition in topic.partitions.items()
                if partition.state is PartitionState.OFFLINE or partition.state is PartitionState.NEW
            ]
            yield
        return waiting

    def is_deleting(self, tp: TopicPartition) -> bool:
        return tp.topic in self.deleting

    def put_topic(self, topic: ControlledTopic) -> None:
        self.topics[topic.name] = topic
        self.names[topic.id] = topic.name

    def forget_topic(self, name: str) -> None:
        for broker in self.gone:
            missed = self.missed_deletions.setdefault(broker, {})
            missed.update((tp, self.topics[name].id) for tp in self.of_topic(name))
        for replica in self.replicas_of(self.of_topic(name)):
            self.forget_replica(replica)
        self.reassigning -= set(self.of_topic(name))
        topic = self.topics.pop(name, None)
        if topic is not None:
            self.names.pop(topic.id, None)
        for topics in (self.deleting, self.undeletable, self.deletion_begun):
            topics.discard(name)

    def take_missed_deletions(self, brokers: Iterable[BrokerId]) -> dict[TopicPartition, TopicId]:
        """Partitions that were deleted while these brokers were gone, except those of a new topic of the same name."""
        missed: dict[TopicPartition, TopicId] = {}
        for broker in brokers:
            missed.update(self.missed_deletions.pop(broker, {}))
        return {tp: topic_id for tp, topic_id in missed.items() if tp.topic not in self.topics}


# The assignment of a partition while it is being reassigned


def is_reassigning(assigned: ReplicaAssignment) -> bool:
    return bool(assigned.adding or assigned.removing)


def origin(assigned: ReplicaAssignment) -> tuple[BrokerId, ...]:
    """The replicas before the reassignment."""
    return _without(assigned.replicas, assigned.adding)


def target(assigned: ReplicaAssignment) -> tuple[BrokerId, ...]:
    """The replicas after the reassignment."""
    return _without(assigned.replicas, assigned.removing)


def reassigned(assigned: ReplicaAssignment, to: tuple[BrokerId, ...]) -> ReplicaAssignment:
    """The assignment during a reassignment: the target replicas first, then the remaining ones of the origin."""
    before = origin(assigned)
    all_replicas = tuple(dict.fromkeys((*to, *before)))
    return ReplicaAssignment(all_replicas, _without(all_replicas, before), _without(all_replicas, to))


def without_replica(assigned: ReplicaAssignment, broker: BrokerId) -> ReplicaAssignment:
    return ReplicaAssignment(*(_without(group, (broker,)) for group in assigned))


def _without(brokers: tuple[T, ...], excluded: tuple[T, ...]) -> tuple[T, ...]:
    return tuple([broker for broker in brokers if broker not in excluded]) if excluded else brokers


def leaders_of(state: ControllerState, broker: BrokerId) -> list[TopicPartition]:
    """The partitions that a broker leads and that have other replicas."""
    return [
        tp
        for tp, partition in ((tp, state.existing(tp)) for tp in state.replicas.get(broker, ()))
        if partition.decision is not None
        and partition.decision.leader == broker
        and len(partition.assigned.replicas) > 1
        and not state.is_deleting(tp)
    ]


def imbalanced(state: ControllerState, percentage: int) -> Steps[list[TopicPartition]]:
    """Partitions to move back to their preferred leader: of brokers that lead too few of those that prefer them."""
    preferred: Counter[BrokerId] = Counter()  # how many partitions prefer a broker
    elsewhere: dict[BrokerId, list[TopicPartition]] = {}  # those of them that another broker leads
    for portion in portions(state.partitions()):
        for tp, partition in portion:
            if not state.is_deleting(tp) and partition.assigned.replicas:
                broker = partition.assigned.replicas[0]
                preferred[broker] += 1
                if partition.decision is not None and partition.decision.leader != broker:
                    elsewhere.setdefault(broker, []).append(tp)
        yield
    return [
        tp
        for broker, partitions in elsewhere.items()
        if len(partitions) * 100 > percentage * preferred[broker]
        for tp in partitions
        if _may_lead(state, broker, tp)
    ]


def _may_lead(state: ControllerState, broker: BrokerId, tp: TopicPartition) -> bool:
    decision = state.existing(tp).decision
    return decision is not None and broker in decision.isr and state.is_online(broker, tp)


def numbered(replicas: Mapping[int, ReplicaAssignment]) -> dict[int, ControlledPartition]:
    """New partitions, in the order of their numbers."""
    return {number: ControlledPartition(replicas[number]) for number in sorted(replicas)}
