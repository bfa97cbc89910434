"""Reassignments: partitions that move to other replicas.

Pure: state transitions of partitions and replicas, and assignments to be written.

    requested   the new replicas are assigned beside the old ones, in a new leader epoch
    in sync     once all target replicas are in sync, one of them leads; the others are stopped and deleted
    completed   the assignment names the target replicas alone. Until then the next controller sees both

Another target, or a cancellation, may be requested meanwhile. Replicas that are no longer needed are then deleted.
"""

from collections.abc import Collection, Iterable, Mapping

from leadline.controller import elections
from leadline.controller.deletions import Deletions
from leadline.controller.state import PartitionReplica, ReplicaState, is_reassigning, origin, reassigned, target
from leadline.controller.topics import scala_buffer
from leadline.controller.transitions import Transitions
from leadline.coordination.znodes import ReplicaAssignment
from leadline.errors import (
    InvalidReplicaAssignment,
    NoReassignmentInProgress,
    UnknownTopicOrPartition,
    WireError,
)
from leadline.model import BrokerId, TopicPartition
from leadline.runtime.steps import Steps, portions

Target = tuple[BrokerId, ...] | None  # None: cancel, back to the replicas before


class Reassignments:
    def __init__(self, transitions: Transitions, deletions: Deletions) -> None:
        self.transitions, self.state, self.deletions = transitions, transitions.state, deletions

    def resume(self, requested: Mapping[TopicPartition, tuple[BrokerId, ...]]) -> Steps[None]:
        """A new controller continues the reassignments in progress, and starts those that the tree requests."""
        for portion in portions(self.state.partitions()):
            self.state.reassigning |= {tp for tp, partition in portion if is_reassigning(partition.assigned)}
            yield
        yield from self.requested_by_node(requested)
        for tps in portions(self.state.reassigning - requested.keys()):
            for tp in tps:
                self._continue(tp, self.state.existing(tp).assigned)
            yield

    def brokers_joined(self, brokers: Collection[BrokerId]) -> Steps[None]:
        for tps in portions(list(self.state.reassigning)):
            for tp in tps:
                assigned = self.state.existing(tp).assigned
                if not set(target(assigned)).isdisjoint(brokers):
                    self._continue(tp, assigned)
            yield

    def isr_changed(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in partitions:
            if tp in self.state.reassigning and self._is_in_sync(tp, self.state.existing(tp).assigned):
                self._continue(tp, self.state.existing(tp).assigned)

    def requested_by_node(self, requested: Mapping[TopicPartition, tuple[BrokerId, ...]]) -> Steps[None]:
        """`requested`: by /admin/reassign_partitions. A partition leaves the node when it is done, or fails."""
        self.state.requested_reassignment = dict(requested)
        for portion in portions(requested.items()):
            for tp, to in portion:
                try:
                    self._reassign(tp, to)
                except WireError:
                    self._drop_request(tp)
            yield

    def alter(self, targets: Mapping[TopicPartition, Target]) -> Steps[dict[TopicPartition, WireError | None]]:
        """AlterPartitionReassignments. A new target replaces an earlier one."""
        answers: dict[TopicPartition, WireError | None] = {}
        for portion in portions(targets.items()):
            for tp, to in portion:
                answers[tp] = self._alter(tp, to)
            yield
        return answers

    def _alter(self, tp: TopicPartition, to: Target) -> WireError | None:
        try:
            self._check(tp, to)
            self._drop_request(tp)
            self._reassign(tp, to)
        except WireError as error:
            return error
        return None

    def under_way(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, ReplicaAssignment]:
        """ListPartitionReassignments."""
        selected = sorted(self.state.reassigning) if partitions is None else partitions
        assignments = {tp: partition.assigned for tp in selected if (partition := self.state.partition(tp)) is not None}
        return {tp: assigned for tp, assigned in assignments.items() if is_reassigning(assigned)}

    def _check(self, tp: TopicPartition, to: Target) -> None:
        if to is None:
            return
        if not to:
            raise InvalidReplicaAssignment("Empty replica list specified in partition reassignment.")
        if len(set(to)) != len(to):
            raise InvalidReplicaAssignment(
                f"Duplicate replica ids in partition reassignment replica list: {scala_buffer(to)}"
            )
        if any(broker < 0 for broker in to):
            raise InvalidReplicaAssignment(f"Invalid broker id in replica list: {scala_buffer(to)}")
        partition = self.state.partition(tp)
        adding = reassigned(ReplicaAssignment(()) if partition is None else partition.assigned, to).adding
        if not all(map(self.state.is_alive, adding)):
            raise InvalidReplicaAssignment(
                f"Replica assignment has brokers that are not alive. Replica list: {scala_buffer(adding)}, "
                f"live broker list: Set({', '.join(map(str, sorted(self.state.alive)))})"
            )

    def _reassign(self, tp: TopicPartition, to: Target) -> None:
        partition = self.state.partition(tp)
        if to is None and (partition is None or not is_reassigning(partition.assigned)):
            raise NoReassignmentInProgress(NoReassignmentInProgress.default_message)
        if partition is None or not partition.assigned.replicas or self.state.is_deleting(tp):
            raise UnknownTopicOrPartition("The partition does not exist.")
        assigned = reassigned(partition.assigned, origin(partition.assigned) if to is None else to)
        if partition.decision is not None and set(partition.decision.isr).isdisjoint(assigned.replicas):
            raise InvalidReplicaAssignment(
                f"{tp} is in sync only on {list(partition.decision.isr)}: at least one of them must stay"
            )
        self._continue(tp, assigned)

    def _continue(self, tp: TopicPartition, assigned: ReplicaAssignment) -> None:
        self.deletions.postpone((tp.topic,))
        self._assign(tp, assigned)
        if self._is_in_sync(tp, assigned):
            self._complete(tp, assigned)
        else:
            self._new_epoch(tp, assigned)
            self.transitions.move_replicas(
                [PartitionReplica(tp, broker) for broker in assigned.adding], ReplicaState.NEW
            )

    def _assign(self, tp: TopicPartition, assigned: ReplicaAssignment) -> None:
        before = self.state.existing(tp).assigned
        if before != assigned:
            self.transitions.assign(tp, assigned)
            self.transitions.write_assignment(tp.topic)
            self._stop([PartitionReplica(tp, broker) for broker in before.replicas if broker not in assigned.replicas])
        self.state.reassigning.add(tp)

    def _is_in_sync(self, tp: TopicPartition, assigned: ReplicaAssignment) -> bool:
        decision = self.state.existing(tp).decision
        if not is_reassigning(assigned):
            return True
        return decision is not None and elections.is_reassigned(decision, target(assigned))

    def _complete(self, tp: TopicPartition, assigned: ReplicaAssignment) -> None:
        self.transitions.move_replicas(
            [PartitionReplica(tp, broker) for broker in assigned.adding], ReplicaState.ONLINE
        )
        completed = ReplicaAssignment(target(assigned))
        self.transitions.assign(tp, completed)
        self._lead_among(tp, completed)
        self._stop([PartitionReplica(tp, broker) for broker in assigned.removing])
        self.transitions.write_assignment(tp.topic)
        self.state.reassigning.discard(tp)
        if self.state.requested_reassignment.get(tp) == completed.replicas:
            self._drop_request(tp)
        self.transitions.add_update_metadata(tp)
        self.deletions.resume_for((tp.topic,))

    def _lead_among(self, tp: TopicPartition, assigned: ReplicaAssignment) -> None:
        decision = self.state.existing(tp).decision
        if decision is None:
            return
        if decision.leader in assigned.replicas and self.state.is_online(decision.leader, tp):
            self._new_epoch(tp, assigned)
        else:
            self.transitions.bring_online((tp,), self.transitions.elect_reassigned, self.transitions.all_assigned)

    def _new_epoch(self, tp: TopicPartition, assigned: ReplicaAssignment) -> None:
        decision = self.state.existing(tp).decision
        if decision is not None:
            self.transitions.decide(tp, elections.new_epoch(decision))
            self.transitions.add_leader_and_isr(origin(assigned), tp)
            self.transitions.add_leader_and_isr(assigned.adding, tp, is_new=True)

    def _stop(self, replicas: list[PartitionReplica]) -> None:
        """Stops and deletes replicas, without waiting for the responses."""
        for state in (
            ReplicaState.OFFLINE,
            ReplicaState.DELETION_STARTED,
            ReplicaState.DELETION_SUCCESSFUL,
            ReplicaState.NONEXISTENT,
        ):
            self.transitions.move_replicas(replicas, state)

    def _drop_request(self, tp: TopicPartition) -> None:
        if self.state.requested_reassignment.pop(tp, None) is not None:
            self.transitions.write_reassignment_request()
