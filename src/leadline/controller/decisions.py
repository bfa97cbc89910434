"""The controller's decisions about brokers, topics and partitions.

Pure: events come in as calls, and `take` returns their effects in order. A call that serves a request returns the
response, which may be sent once the effects are carried out. An event that may concern all partitions returns steps:
nothing else may be decided before the last of them.

    one leader per leader epoch; a leader is in sync, assigned and alive
    epochs only grow
    a topic is deleted with all its replicas, or not at all
"""

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from leadline.controller import elections
from leadline.controller.deletions import Deletions
from leadline.controller.reassignments import Reassignments
from leadline.controller.state import (
    ControlledPartition,
    ControlledTopic,
    ControllerState,
    PartitionReplica,
    PartitionState,
    RegisteredBroker,
    ReplicaState,
    imbalanced,
    leaders_of,
    numbered,
)
from leadline.controller.transitions import Transitions
from leadline.coordination import znodes
from leadline.errors import (
    BrokerNotAvailable,
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    InvalidRequest,
    InvalidTopic,
    PreferredLeaderNotAvailable,
    StaleBrokerEpoch,
    StorageError,
    UnknownTopicOrPartition,
    WireError,
)
from leadline.model import NO_LEADER, NONE, BrokerId, TopicPartition
from leadline.replication.partition import LeaderAndIsr, Proposal
from leadline.runtime.steps import Steps, portions

UNKNOWN_BROKER_EPOCH = -1


class PendingChanges(NamedTuple):
    """The requests that a controller reads from the tree when it is elected."""

    deletions: Collection[str] = ()
    reassignment: Mapping[TopicPartition, tuple[BrokerId, ...]] = MappingProxyType({})
    elections: Collection[TopicPartition] = ()


def restarted_brokers(state: ControllerState) -> Steps[list[RegisteredBroker]]:
    """The brokers that registered after a decision that counts on them: no controller has noticed their restart.

    They may have lost what they had not flushed. So they count as gone, and then join again.
    """
    brokers = state.brokers
    restarted: dict[BrokerId, RegisteredBroker] = {}
    for portion in portions(state.partitions()):
        for _, partition in portion:
            if partition.decision is not None and partition.decided_zxid:
                for id in (partition.decision.leader, *partition.decision.isr):
                    if id in brokers and brokers[id].epoch > partition.decided_zxid:
                        restarted[id] = brokers[id]
        yield
    return list(restarted.values())


class Decisions:
    """The decisions of one controller epoch. `state`: as read from the tree. Call `start` once."""

    def __init__(self, state: ControllerState, listener: str, *, delete_topic_enable: bool = True) -> None:
        self.state = state
        self.transitions = Transitions(state, listener)
        self.deletions = Deletions(self.transitions, enabled=delete_topic_enable)
        self.reassignments = Reassignments(self.transitions, self.deletions)
        self.take = self.transitions.take

    def start(self, pending: PendingChanges) -> Steps[None]:
        """Sends the list of brokers to all brokers, then the leaders. Completes what the last controller began."""
        self.deletions.begin(pending.deletions)
        restarted = yield from restarted_brokers(self.state)
        for broker in restarted:
            del self.state.brokers[broker.id]
        self.transitions.batch.add_update_metadata(self.state.brokers)
        self.transitions.next_batch()
        offline: list[PartitionReplica] = []
        for portion in portions(self.state.partitions()):
            replicas = [replica for tp, partition in portion for replica in self._begin_states(tp, partition)]
            online = [replica for replica in replicas if self.state.replica_state(replica) is ReplicaState.ONLINE]
            self.transitions.move_replicas(online, ReplicaState.ONLINE)
            offline += [replica for replica in replicas if self.state.replica_state(replica) is not ReplicaState.ONLINE]
            yield
        yield from self._move_replicas(offline, ReplicaState.OFFLINE)
        yield from self._elect_offline()
        yield from self._brokers_joined(restarted)
        yield from self.reassignments.resume(pending.reassignment)
        self.deletions.resume()
        yield from self.elect_requested(pending.elections)

    def _begin_states(self, tp: TopicPartition, partition: ControlledPartition) -> list[PartitionReplica]:
        if partition.decision is None:
            partition.state = PartitionState.NEW
        elif self.state.is_online(partition.decision.leader, tp):
            partition.state = PartitionState.ONLINE
        else:
            partition.state = PartitionState.OFFLINE
        replicas = [PartitionReplica(tp, broker) for broker in partition.assigned.replicas]
        for replica in replicas:
            is_online = self.state.is_online(replica.broker, tp)
            self.state.put_replica(replica, ReplicaState.ONLINE if is_online else ReplicaState.DELETION_INELIGIBLE)
        return replicas

    def _move_replicas(self, replicas: Iterable[PartitionReplica], to: ReplicaState) -> Steps[None]:
        for portion in portions(replicas):
            self.transitions.move_replicas(portion, to)
            yield

    # Brokers

    def brokers(self, registered: Collection[RegisteredBroker]) -> Steps[None]:
        """The brokers that are registered now. A broker with a new epoch was restarted, even if no event said so."""
        before = self.state.brokers
        current = {broker.id: broker for broker in registered}
        for broker in list(self.state.gone.values()):
            if broker.id not in current or current[broker.id].epoch != broker.epoch:
                del self.state.gone[broker.id]
                self.state.missed_deletions.pop(broker.id, None)
        joined = [broker for id, broker in current.items() if id not in before and id not in self.state.gone]
        restarted = [broker for id, broker in current.items() if id in before and broker.epoch > before[id].epoch]
        left = [id for id in before if id not in current]
        changed = [
            broker
            for id, broker in current.items()
            if id in before and broker != before[id] and broker not in restarted
        ]
        yield from self._brokers_joined(joined)
        yield from self._brokers_left([broker.id for broker in restarted])
        yield from self._brokers_joined(restarted)
        yield from self._brokers_left(left)
        if changed:
            before.update({broker.id: broker for broker in changed})
            self.transitions.batch.add_update_metadata(before)

    def broker_gone(self, id: BrokerId, epoch: int) -> Steps[None]:
        """The broker is unreachable, whatever the tree says: it counts as failed until it answers again."""
        broker = self.state.brokers.get(id)
        if broker is not None and broker.epoch == epoch:
            self.state.gone[id] = broker
            yield from self._brokers_left([id])

    def broker_back(self, id: BrokerId, epoch: int) -> Steps[None]:
        """The broker counted as gone, and answers again."""
        broker = self.state.gone.get(id)
        if broker is not None and broker.epoch == epoch:
            del self.state.gone[id]
            yield from self._brokers_joined([broker])

    def _brokers_joined(self, brokers: Collection[RegisteredBroker]) -> Steps[None]:
        if not brokers:
            return
        state, new = self.state, {broker.id for broker in brokers}
        existing = [id for id in state.brokers if id not in new]
        for broker in brokers:
            state.brokers[broker.id] = broker
            state.offline_dirs.pop(broker.id, None)
        self.transitions.batch.add_update_metadata(existing)
        self.transitions.next_batch()
        self.transitions.batch.add_update_metadata(new)
        self.transitions.batch.has_all_partitions = True
        self.transitions.batch.deleted = state.take_missed_deletions(new)
        self.transitions.next_batch()
        replicas = state.replicas_on(new)
        yield from self._move_replicas(replicas, ReplicaState.ONLINE)
        yield from self._elect_offline()
        yield from self.reassignments.brokers_joined(new)
        self.deletions.resume_for({replica.partition.topic for replica in replicas})

    def _brokers_left(self, brokers: Collection[BrokerId]) -> Steps[None]:
        if not brokers:
            return
        for id in brokers:
            self.state.brokers.pop(id, None)
            self.state.offline_dirs.pop(id, None)
            self.state.shutting_down.discard(id)
        yield from self._replicas_lost(self.state.replicas_on(brokers))

    def _replicas_lost(self, replicas: Collection[PartitionReplica]) -> Steps[None]:
        going: list[PartitionReplica] = []
        staying: list[PartitionReplica] = []
        for replica in replicas:
            (going if self.state.is_deleting(replica.partition) else staying).append(replica)
        yield
        leaderless = [
            tp
            for tp, _ in (*replicas, *self.state.replicas_on(self.state.shutting_down))
            if (decision := self.state.existing(tp).decision) is not None
            and not self.state.is_online(decision.leader, tp)
            and not self.state.is_deleting(tp)
        ]
        self.transitions.move_partitions(leaderless, PartitionState.OFFLINE)
        yield
        yield from self._elect_offline()
        yield from self._move_replicas(staying, ReplicaState.OFFLINE)
        self.deletions.failed(going)
        self.transitions.batch.add_update_metadata(self.state.brokers)

    def _elect_offline(self) -> Steps[None]:
        for portion in portions((yield from self.state.waiting_for_leaders())):
            self.transitions.bring_online(portion, self.transitions.elect_offline)
            yield

    def elect_stranded(self, topics: Collection[str] | None) -> Steps[None]:
        """Elects leaders for partitions without one, of these topics or of all (None): it may be possible now."""
        if topics is None:
            yield from self._elect_offline()
        for tp in [tp for name in topics or () for tp in self.state.of_topic(name) if not self.state.is_deleting(tp)]:
            if self.state.existing(tp).state is PartitionState.OFFLINE:
                self.transitions.bring_online((tp,), self.transitions.elect_offline)

    def unclean_allowed(self, topics: Iterable[str]) -> None:
        """The settings of these topics allow a replica to lead that is not in sync, if no other can."""
        for tp in [tp for name in topics for tp in self.state.of_topic(name) if not self.state.is_deleting(tp)]:
            if self.state.existing(tp).state is PartitionState.OFFLINE:
                self.transitions.bring_online((tp,), self.transitions.elect_unclean)

    def shut_down(self, id: BrokerId, epoch: int = UNKNOWN_BROKER_EPOCH) -> Steps[list[TopicPartition]]:
        """ControlledShutdown: other brokers take over the partitions of a broker that is about to stop.

        Returns the partitions that it still leads and that others could lead. StaleBrokerEpoch, BrokerNotAvailable.
        """
        broker = self.state.brokers.get(id)
        if broker is None:
            raise BrokerNotAvailable(f"broker {id} is not registered")
        if epoch != UNKNOWN_BROKER_EPOCH and epoch < broker.epoch:
            raise StaleBrokerEpoch(f"broker {id} sent epoch {epoch}, but has {broker.epoch}")
        self.state.shutting_down.add(id)
        led = leaders_of(self.state, id)
        for portion in portions(led):
            self.transitions.bring_online(
                portion, self.transitions.elect_for_shutdown, self.transitions.online_or_stopping
            )
            yield
        handed_over = set(led)
        followed = [
            replica
            for replica in self.state.replicas_on((id,))
            if replica.partition not in handed_over and self._is_shared(replica.partition)
        ]
        yield from self._move_replicas(followed, ReplicaState.OFFLINE)
        return [tp for tp in leaders_of(self.state, id) if self.transitions.online(tp)]

    def _is_shared(self, tp: TopicPartition) -> bool:
        partition = self.state.existing(tp)
        return (
            len(partition.assigned.replicas) > 1 and partition.decision is not None and not self.state.is_deleting(tp)
        )

    # Log directories

    def log_dir_failed(self, brokers: Iterable[BrokerId]) -> Steps[None]:
        """They get LeaderAndIsr again; their responses name the replicas that they have lost."""
        yield from self._move_replicas(self.state.replicas_on(brokers), ReplicaState.ONLINE)

    def replicas_answered(self, id: BrokerId, epoch: int, codes: Mapping[TopicPartition, int]) -> Steps[None]:
        """A broker's response to LeaderAndIsr: an error code for each partition."""
        broker = self.state.brokers.get(id)
        if broker is None or broker.epoch != epoch:
            return
        before = self.state.offline_dirs.get(id, set())
        offline = {tp for tp, code in codes.items() if code == StorageError.code}
        now = (before - {tp for tp, code in codes.items() if code == NONE}) | offline
        if now:
            self.state.offline_dirs[id] = now
        else:
            self.state.offline_dirs.pop(id, None)
        if newly := [PartitionReplica(tp, id) for tp in now - before if self.state.partition(tp) is not None]:
            yield from self._replicas_lost(newly)
        if before - now:  # these replicas are online again
            yield from self._elect_offline()

    def leaderless(self, topic: str) -> list[TopicPartition]:
        """The partitions of a topic that have no leader."""
        partitions = ((tp, self.state.partition(tp)) for tp in self.state.of_topic(topic))
        return [
            tp
            for tp, partition in partitions
            if partition is None or partition.decision is None or partition.decision.leader == NO_LEADER
        ]

    # Topics

    def topics(self, names: Collection[str], new: Iterable[tuple[str, znodes.TopicNode]]) -> None:
        """`names`: all topics in the tree now. `new`: the nodes of those that this controller has not seen yet."""
        for name in [name for name in self.state.topics if name not in names]:
            self.state.forget_topic(name)  # a tool deleted its node, and nothing of it is left in the tree
        for name, topic in new:
            if name not in self.state.topics:
                assert topic.id is not None
                self.state.put_topic(ControlledTopic(name, topic.id, numbered(topic.partitions)))
                self._begin(self.state.of_topic(name))

    def partitions(self, name: str, assigned: Mapping[int, znodes.ReplicaAssignment]) -> None:
        """The assignment of a topic as the tree has it now. It may have more partitions."""
        topic = self.state.topics.get(name)
        if topic is None:
            return
        added = {number: replicas for number, replicas in assigned.items() if number not in topic.partitions}
        if added and name in self.state.deleting:
            self.transitions.write_assignment(name)  # without them: the topic is being deleted
        elif added:
            topic.partitions.update(numbered(added))
            self._begin([TopicPartition(name, number) for number in added])

    def _begin(self, partitions: list[TopicPartition]) -> None:
        self.transitions.move_partitions(partitions, PartitionState.NEW)
        replicas = self.state.replicas_of(partitions)
        self.transitions.move_replicas(replicas, ReplicaState.NEW)
        self.transitions.bring_online(partitions, self.transitions.elect_offline)
        self.transitions.move_replicas(replicas, ReplicaState.ONLINE)

    # Requests of leaders and administrators

    def alter_partition(
        self, id: BrokerId, epoch: int, proposals: Mapping[TopicPartition, Proposal]
    ) -> dict[TopicPartition, LeaderAndIsr | WireError]:
        """AlterPartition: a leader proposes new ISRs. StaleBrokerEpoch if it is not registered with this epoch."""
        broker = self.state.brokers.get(id)
        if broker is None or broker.epoch != epoch:
            current = "is not registered" if broker is None else f"has {broker.epoch}"
            raise StaleBrokerEpoch(f"broker {id} sent epoch {epoch}, but {current}")
        alive = self.state.alive_epochs
        answers = {tp: self._alter(tp, proposal, alive) for tp, proposal in proposals.items()}
        self.transitions.batch.add_update_metadata(
            self.state.brokers, (tp for tp in proposals if self.state.partition(tp) is not None)
        )
        self.reassignments.isr_changed(tp for tp, answer in answers.items() if not isinstance(answer, WireError))
        return answers

    def _alter(self, tp: TopicPartition, proposal: Proposal, alive: Mapping[BrokerId, int]) -> LeaderAndIsr | WireError:
        partition = self.state.partition(tp)
        if partition is None or partition.decision is None:
            return UnknownTopicOrPartition(f"partition {tp} does not exist")
        try:
            altered = elections.altered(partition.decision, proposal, alive)
            _check_altered(partition.assigned.replicas, partition.decision, altered)
        except WireError as error:
            return error
        if altered is not partition.decision:
            self.transitions.decide(tp, altered)
        return partition.decision

    def isr_changed(self, states: Mapping[TopicPartition, tuple[LeaderAndIsr, int]]) -> None:
        """Leaders before Kafka 2.7 write ISRs to the tree. Takes over their decisions and controller epochs."""
        existing = [tp for tp in states if self.state.partition(tp) is not None]
        for tp in existing:
            partition = self.state.existing(tp)
            partition.decision, partition.controller_epoch = states[tp]
        self.transitions.batch.add_update_metadata(self.state.brokers, existing)
        self.reassignments.isr_changed(existing)

    def elect(
        self, partitions: Iterable[TopicPartition], *, unclean: bool
    ) -> Steps[dict[TopicPartition, BrokerId | WireError]]:
        """ElectLeaders: returns the elected leader of each partition, or the error."""
        answers: dict[TopicPartition, BrokerId | WireError] = {}
        for portion in portions(partitions):
            for tp in portion:
                try:
                    answers[tp] = self._elect(tp, unclean=unclean)
                except WireError as error:
                    answers[tp] = error
            yield
        return answers

    def _elect(self, tp: TopicPartition, *, unclean: bool) -> BrokerId:
        partition = self.state.partition(tp)
        if partition is None:
            raise UnknownTopicOrPartition("The partition does not exist.")
        if self.state.is_deleting(tp):
            raise InvalidTopic("The topic is being deleted")
        leader = NO_LEADER if partition.decision is None else partition.decision.leader
        preferred = partition.assigned.replicas[0]
        if self.state.is_alive(leader) if unclean else leader == preferred:
            raise ElectionNotNeeded(ElectionNotNeeded.default_message)
        if unclean:
            elected = self.transitions.bring_online((tp,), self.transitions.elect_unclean)
        else:
            elected = self.transitions.bring_online(
                (tp,), self.transitions.elect_preferred, self.transitions.all_assigned
            )
        if elected and partition.decision is not None:
            return partition.decision.leader
        if unclean:
            raise EligibleLeadersNotAvailable(f"no replica of {tp}, {list(partition.assigned.replicas)}, is online")
        raise PreferredLeaderNotAvailable(f"the preferred leader of {tp}, {preferred}, is offline or not in sync")

    def elect_requested(self, partitions: Collection[TopicPartition]) -> Steps[None]:
        """Elects what /admin/preferred_replica_election requests. The node is deleted once that is done."""
        if partitions:
            yield from self.elect(partitions, unclean=False)
            self.transitions.remove(znodes.PREFERRED_REPLICA_ELECTION)

    def rebalance(self, percentage: int) -> Steps[list[TopicPartition]]:
        """Moves leadership back to preferred leaders, where others lead too many partitions."""
        moved: list[TopicPartition] = []
        for portion in portions((yield from imbalanced(self.state, percentage))):
            moved += self.transitions.bring_online(
                portion, self.transitions.elect_preferred, self.transitions.all_assigned
            )
            yield
        return moved


def _check_altered(assigned: tuple[BrokerId, ...], current: LeaderAndIsr, altered: LeaderAndIsr) -> None:
    """Checks a proposal beyond what Kafka checks: no leader proposes anything else."""
    isr = altered.isr
    if altered.leader != current.leader:
        raise InvalidRequest(
            f"broker {altered.leader} proposes an ISR, but {current.leader} leads in epoch {current.leader_epoch}"
        )
    if altered.leader not in isr or len(set(isr)) != len(isr) or not set(isr) <= set(assigned):
        raise InvalidRequest(f"the new ISR {list(isr)} lacks the leader, or is not a subset of {list(assigned)}")
