"""State transitions of partitions and replicas, and the effects of each.

Pure: changes the controller's state, and collects writes and requests until they are taken.

A transition that may not follow the current state is skipped: what was decided meanwhile stands. A partition whose
decision changes is written once for each set of effects, on top of the version that was last read or written. So its
partition epoch grows by one for all transitions together, and its leader epoch by one for each.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import ClassVar

from leadline.controller import elections
from leadline.controller.effects import ControllerEffects, Ensure, Remove, RequestBatch, Write
from leadline.controller.state import (
    PARTITION_MAY_FOLLOW,
    REPLICA_MAY_FOLLOW,
    ControlledPartition,
    ControllerState,
    PartitionReplica,
    PartitionState,
    ReplicaState,
    target,
    without_replica,
)
from leadline.coordination import znodes
from leadline.coordination.tree import Create, SetData
from leadline.model import BrokerId, TopicPartition
from leadline.replication.partition import LeaderAndIsr

NOT_WRITTEN = -1  # as the version of a partition's node: it does not exist yet

Elect = Callable[[TopicPartition, LeaderAndIsr], LeaderAndIsr | None]
Recipients = Callable[[TopicPartition], tuple[BrokerId, ...]]


class Transitions:
    def __init__(self, state: ControllerState, listener: str) -> None:
        self.state, self.listener = state, listener
        self._batches = [RequestBatch()]
        self._dirty: dict[TopicPartition, int] = {}  # decisions to be written, and the version they replace
        self._assigned: dict[str, None] = {}  # topics whose assignment is to be written
        self._other_writes: list[Write] = []  # written after these
        self._has_new_requests = False  # /admin/reassign_partitions is to be written, or removed
        self._stranded: set[str] = set()
        self.leader_elections = 0  # of partitions that had a leader before
        self.unclean_elections = 0  # of them: the leader was not in sync

    @property
    def batch(self) -> RequestBatch:
        """The requests that are being collected."""
        return self._batches[-1]

    def next_batch(self) -> None:
        """Later requests are sent after all that were collected so far."""
        self._batches.append(RequestBatch())

    def take(self) -> ControllerEffects | None:
        """The effects of all decisions since the last call, to be carried out before the next one. None: no effects.

        States are written before assignments: after a crash the next controller repeats a reassignment whose assignment
        is not written.
        """
        batches = [batch for batch in self._batches if not batch.is_empty]
        if self._has_new_requests:
            self._has_new_requests = False
            self._other_writes.append(self._reassignment_request())
        if not (batches or self._dirty or self._assigned or self._other_writes or self._stranded):
            return None
        effects = ControllerEffects(
            self._writes(self._dirty, self._assigned, self._other_writes),
            (request for batch in batches for request in batch.requests(self.state, self.listener)),
            self._stranded,
        )
        self._batches, self._dirty, self._assigned, self._other_writes, self._stranded = (
            [RequestBatch()],
            {},
            {},
            [],
            set(),
        )
        return effects

    def _writes(
        self, dirty: Mapping[TopicPartition, int], assigned: Iterable[str], others: Iterable[Write]
    ) -> Iterator[Write]:
        for tp, version in dirty.items():
            if (partition := self.state.partition(tp)) is not None:
                yield from self._state_of(tp, partition, version)
        for name in assigned:
            if name in self.state.topics:
                yield SetData(znodes.topic_path(name), self._topic(name))
        yield from others

    def _reassignment_request(self) -> Write:
        requested = self.state.requested_reassignment
        if not requested:
            return Remove(znodes.REASSIGN_PARTITIONS)
        return SetData(znodes.REASSIGN_PARTITIONS, znodes.encode_reassignment(requested))

    def _topic(self, name: str) -> bytes:
        topic = self.state.topics[name]
        return znodes.encode_topic(
            znodes.TopicNode(topic.id, {n: partition.assigned for n, partition in topic.partitions.items()})
        )

    def _state_of(self, tp: TopicPartition, partition: ControlledPartition, version: int) -> list[Write]:
        decision = partition.decision
        assert decision is not None
        leader, leader_epoch, isr, _, recovering = decision
        state = znodes.PartitionStateNode(leader, leader_epoch, isr, partition.controller_epoch, recovering)
        data = znodes.encode_state(state)
        if version != NOT_WRITTEN:
            return [SetData(znodes.state_path(tp), data, version)]
        return [Ensure(znodes.partition_path(tp)), Create(znodes.state_path(tp), data)]

    # Writes

    def decide(self, tp: TopicPartition, decision: LeaderAndIsr) -> None:
        partition = self.state.existing(tp)
        before = NOT_WRITTEN if partition.decision is None else partition.decision.partition_epoch
        version = self._dirty.setdefault(tp, before)
        partition.decision = decision._replace(partition_epoch=version + 1)
        partition.controller_epoch = self.state.epoch

    def assign(self, tp: TopicPartition, assigned: znodes.ReplicaAssignment) -> None:
        """Changes an assignment in memory; `write_assignment` writes those of a topic."""
        self.state.existing(tp).assigned = assigned

    def write_assignment(self, topic: str) -> None:
        self._assigned[topic] = None

    def write_reassignment_request(self) -> None:
        """Writes the node that requests reassignments, once for all that are completed by then."""
        self._has_new_requests = True

    def remove(self, *paths: str) -> None:
        self._other_writes += map(Remove, paths)

    # Partitions

    def move_partitions(self, partitions: Iterable[TopicPartition], to: PartitionState) -> list[TopicPartition]:
        """Moves the partitions whose state allows it, and returns them."""
        moved = []
        for tp in partitions:
            partition = self.state.existing(tp)
            if partition.state in PARTITION_MAY_FOLLOW[to]:
                partition.state = to
                moved.append(tp)
        return moved

    def bring_online(
        self, partitions: Iterable[TopicPartition], elect: Elect, recipients: Recipients | None = None
    ) -> list[TopicPartition]:
        """Elects leaders, and returns the partitions that have one now. The first leader needs no election."""
        online = []
        for tp in partitions:
            partition = self.state.existing(tp)
            if partition.state not in PARTITION_MAY_FOLLOW[PartitionState.ONLINE]:
                continue
            is_first = partition.decision is None
            if partition.decision is None:
                elected = elections.first(partition.assigned.replicas, self.online(tp))
            else:
                elected = elect(tp, partition.decision)
            if elected is not None:
                if partition.decision is not None:
                    self.leader_elections += 1
                    self.unclean_elections += elected.leader not in partition.decision.isr
                self.decide(tp, elected)
                partition.state = PartitionState.ONLINE
                self.add_leader_and_isr(
                    elected.isr if is_first else (recipients or self.online)(tp), tp, is_new=is_first
                )
                online.append(tp)
        return online

    def online(self, tp: TopicPartition) -> tuple[BrokerId, ...]:
        """The replicas that may lead."""
        assigned = self.state.existing(tp).assigned.replicas
        return tuple(broker for broker in assigned if self.state.is_online(broker, tp))

    def elect_offline(self, tp: TopicPartition, current: LeaderAndIsr) -> LeaderAndIsr | None:
        """A clean election. If live replicas exist and none is in sync, the partition is stranded."""
        online = self.online(tp)
        elected = elections.offline(current, self.state.existing(tp).assigned.replicas, online)
        if elected is None and online:
            self._stranded.add(tp.topic)
        return elected

    def elect_unclean(self, tp: TopicPartition, current: LeaderAndIsr) -> LeaderAndIsr | None:
        return elections.offline(current, self.state.existing(tp).assigned.replicas, self.online(tp), unclean=True)

    def elect_preferred(self, tp: TopicPartition, current: LeaderAndIsr) -> LeaderAndIsr | None:
        return elections.preferred(current, self.state.existing(tp).assigned.replicas, self.online(tp))

    def elect_reassigned(self, tp: TopicPartition, current: LeaderAndIsr) -> LeaderAndIsr | None:
        return elections.reassigned(current, target(self.state.existing(tp).assigned), self.online(tp))

    def elect_for_shutdown(self, tp: TopicPartition, current: LeaderAndIsr) -> LeaderAndIsr | None:
        assigned = self.state.existing(tp).assigned.replicas
        return elections.controlled_shutdown(current, assigned, self.online_or_stopping(tp), self.state.shutting_down)

    def online_or_stopping(self, tp: TopicPartition) -> tuple[BrokerId, ...]:
        """The replicas that are online, including those on brokers that are about to stop."""
        assigned = self.state.existing(tp).assigned.replicas
        return tuple(broker for broker in assigned if self.state.is_online(broker, tp, or_stopping=True))

    def all_assigned(self, tp: TopicPartition) -> tuple[BrokerId, ...]:
        return self.state.existing(tp).assigned.replicas

    def add_leader_and_isr(self, brokers: Iterable[BrokerId], tp: TopicPartition, *, is_new: bool = False) -> None:
        """Sends LeaderAndIsr to these brokers, and UpdateMetadata to all."""
        self.batch.add_leader_and_isr(brokers, tp, is_new=is_new)
        self.add_update_metadata(tp)

    def add_update_metadata(self, tp: TopicPartition) -> None:
        """Sends UpdateMetadata to all brokers. Within a batch, brokers only leave: the first call adds them all."""
        batch = self.batch
        if len(batch.update_metadata) < len(self.state.brokers):
            batch.add_update_metadata(self.state.brokers)
        batch.partitions[tp] = None

    # Replicas

    def move_replicas(self, replicas: Iterable[PartitionReplica], to: ReplicaState) -> list[PartitionReplica]:
        """Moves the replicas whose state allows it, with the requests to their brokers, and returns them."""
        step, may_follow = self._steps.get(to), REPLICA_MAY_FOLLOW[to]
        moved = []
        for replica in replicas:
            before = self.state.replica_state(replica)
            if before not in may_follow:
                continue
            self.state.put_replica(replica, to)
            if step is not None:
                step(self, replica, before)
            moved.append(replica)
        return moved

    def _new_replica(self, replica: PartitionReplica, before: ReplicaState) -> None:
        decision = self.state.existing(replica.partition).decision
        if decision is not None and decision.leader != replica.broker:
            self.add_leader_and_isr((replica.broker,), replica.partition, is_new=True)

    def _online_replica(self, replica: PartitionReplica, before: ReplicaState) -> None:
        """A new replica got its LeaderAndIsr with the election."""
        if before is not ReplicaState.NEW and self.state.existing(replica.partition).decision is not None:
            self.add_leader_and_isr((replica.broker,), replica.partition)

    def _offline_replica(self, replica: PartitionReplica, before: ReplicaState) -> None:
        """The replica leaves the ISR, and the other replicas get the new ISR."""
        tp, broker = replica
        self.batch.add_stop_replica(broker, tp, delete=False)
        partition = self.state.existing(tp)
        if partition.decision is None:
            self.add_update_metadata(tp)
            return
        if self.state.is_deleting(tp):
            return  # its metadata is removed anyway
        shrunk = elections.without(partition.decision, broker)
        if shrunk is not None:
            self.decide(tp, shrunk)
        self.add_leader_and_isr((other for other in partition.assigned.replicas if other != broker), tp)

    def _started_deletion(self, replica: PartitionReplica, before: ReplicaState) -> None:
        self.batch.add_stop_replica(replica.broker, replica.partition, delete=True)

    def _nonexistent_replica(self, replica: PartitionReplica, before: ReplicaState) -> None:
        self.state.forget_replica(replica)
        partition = self.state.existing(replica.partition)
        partition.assigned = without_replica(partition.assigned, replica.broker)

    _steps: ClassVar["dict[ReplicaState, Step]"] = {
        ReplicaState.NEW: _new_replica,
        ReplicaState.ONLINE: _online_replica,
        ReplicaState.OFFLINE: _offline_replica,
        ReplicaState.DELETION_STARTED: _started_deletion,
        ReplicaState.NONEXISTENT: _nonexistent_replica,
    }


Step = Callable[[Transitions, PartitionReplica, ReplicaState], None]
