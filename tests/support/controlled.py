"""A model of a cluster: the controller's decisions carried out on a dict of nodes and on brokers that are lists.

It holds the decisions to their invariants at every step, so that a test has only to say what happens.
"""

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, TypeVar, overload
from uuid import uuid4

from leadline.controller.decisions import Decisions, PendingChanges
from leadline.controller.effects import BrokerRequest, Ensure, Remove, Write
from leadline.controller.state import (
    ControlledPartition,
    ControlledTopic,
    ControllerState,
    PartitionReplica,
    RegisteredBroker,
)
from leadline.controller.transitions import Transitions
from leadline.coordination import znodes
from leadline.coordination.registration import RegisteredEndpoint
from leadline.coordination.tree import Create, Delete, SetData
from leadline.coordination.znodes import ReplicaAssignment
from leadline.model import BrokerId, TopicId, TopicPartition, new_id
from leadline.replication.partition import LeaderAndIsr, Proposal
from leadline.runtime.steps import Steps, exhaust
from leadline.wire.messages import LeaderAndIsrRequest, StopReplicaRequest

T = TypeVar("T")
LISTENER = "PLAINTEXT"
CONTROLLER = 0


def broker(id: BrokerId, epoch: int) -> RegisteredBroker:
    return RegisteredBroker(id, epoch, (RegisteredEndpoint(LISTENER, "localhost", 9000 + id, "PLAINTEXT"),))


class TakenEffects(NamedTuple):
    """The effects of a decision, all built."""

    writes: list[Write]
    requests: list[BrokerRequest]
    stranded: set[str]


def taken(source: Decisions | Transitions) -> TakenEffects:
    effects = source.take()
    if effects is None:
        return TakenEffects([], [], set())
    return TakenEffects(list(effects.writes), list(effects.requests), effects.stranded)


class ModelCluster:
    """The tree, the brokers and one controller after the other."""

    def __init__(self, brokers: int = 3) -> None:
        self.nodes: dict[str, tuple[bytes, int]] = {znodes.TOPICS: (b"", 0), znodes.DELETE_TOPICS: (b"", 0)}
        self.zxid = 0
        self.registered: dict[BrokerId, RegisteredBroker] = {}
        self.epoch = 0
        self.received: dict[BrokerId, dict[TopicPartition, tuple[int, int]]] = {}  # leader epoch, leader
        self.deleting: list[tuple[BrokerId, TopicPartition]] = []  # StopReplica with deletion, not answered yet
        self.leaders: dict[tuple[TopicPartition, TopicId, int], BrokerId] = {}  # of each leader epoch, for ever
        self.epochs: dict[tuple[TopicPartition, TopicId], int] = {}  # the latest leader epoch
        self.last = TakenEffects([], [], set())
        self.unclean: set[str] = set()
        for id in range(brokers):
            self.register(id)
        self.restart()

    # Events

    def register(self, id: BrokerId) -> None:
        self.zxid += 1
        self.registered[id] = broker(id, self.zxid)
        self.received[id] = {}
        self.deleting = [(broker, tp) for broker, tp in self.deleting if broker != id]

    def restart(self) -> None:
        """Another controller is elected, and reads the tree."""
        self.epoch += 1
        state = ControllerState(CONTROLLER, self.epoch, brokers=dict(self.registered))
        for name in self.children(znodes.TOPICS):
            state.put_topic(self._read(name))
        self.decisions = Decisions(state, LISTENER)
        node = self.nodes.get(znodes.REASSIGN_PARTITIONS)
        pending = PendingChanges(
            self.children(znodes.DELETE_TOPICS), znodes.decode_reassignment(node[0]) if node is not None else {}
        )
        self.do(lambda: self.decisions.start(pending))

    def _read(self, name: str) -> ControlledTopic:
        stored = znodes.decode_topic(name, self.nodes[znodes.topic_path(name)][0])
        assert stored.id is not None
        topic = ControlledTopic(name, stored.id)
        for number, assigned in stored.partitions.items():
            topic.partitions[number] = ControlledPartition(assigned)
            if (state := self.state_of(TopicPartition(name, number))) is not None:
                topic.partitions[number].decision = state[0]
                topic.partitions[number].controller_epoch = state[1]
        return topic

    @overload
    def do(self, event: Callable[[], Steps[T]]) -> T: ...

    @overload
    def do(self, event: Callable[[], T]) -> T: ...

    def do(self, event: Callable[[], Any]) -> Any:
        answer = event()
        if isinstance(answer, Generator):
            answer = exhaust(answer)
        self.last = taken(self.decisions)
        self._carry_out(self.last)
        if allowed := self.last.stranded & self.unclean:
            self.decisions.unclean_allowed(sorted(allowed))
            self._carry_out(taken(self.decisions))
        self.check()
        return answer

    def create(self, name: str, *assignment: Sequence[BrokerId]) -> None:
        topic = znodes.TopicNode(
            new_id(uuid4), {n: ReplicaAssignment(tuple(replicas)) for n, replicas in enumerate(assignment)}
        )
        self.nodes[znodes.topic_path(name)] = (znodes.encode_topic(topic), 0)
        self.do(lambda: self.decisions.topics(self.children(znodes.TOPICS), [(name, topic)]))

    def delete(self, name: str) -> None:
        self.nodes[znodes.delete_topic_path(name)] = (b"", 0)
        self.do(lambda: self.decisions.deletions.requested(self.children(znodes.DELETE_TOPICS)))

    def brokers_changed(self) -> None:
        self.do(lambda: self.decisions.brokers(list(self.registered.values())))

    def die(self, id: BrokerId) -> None:
        del self.registered[id]
        self.deleting = [(broker, tp) for broker, tp in self.deleting if broker != id]
        self.brokers_changed()

    def join(self, id: BrokerId) -> None:
        self.register(id)
        self.brokers_changed()

    def answer_deletions(self) -> None:
        """All brokers have deleted the replicas that they should."""
        while self.deleting:
            self.do(self._delete_all)

    def _delete_all(self) -> None:
        replicas = [PartitionReplica(tp, id) for id, tp in self.deleting]
        self.deleting.clear()
        self.decisions.deletions.deleted(replicas)

    def in_sync(self, tp: TopicPartition, *isr: BrokerId) -> LeaderAndIsr:
        """The leader proposes this ISR, and the controller accepts it."""
        current = self.led(tp)
        epoch = self.registered[current.leader].epoch
        proposals = {tp: Proposal(current._replace(isr=isr), tuple(self.registered[replica].epoch for replica in isr))}
        answer = self.do(lambda: self.decisions.alter_partition(current.leader, epoch, proposals))[tp]
        assert isinstance(answer, LeaderAndIsr), answer
        return answer

    # Queries

    def children(self, path: str) -> list[str]:
        below = (node.removeprefix(f"{path}/") for node in self.nodes if node.startswith(f"{path}/"))
        return sorted(name for name in below if "/" not in name)

    def led(self, tp: TopicPartition) -> LeaderAndIsr:
        decision = self.decisions.state.existing(tp).decision
        assert decision is not None
        return decision

    def assigned(self, tp: TopicPartition) -> ReplicaAssignment:
        return self.decisions.state.existing(tp).assigned

    def state_of(self, tp: TopicPartition) -> tuple[LeaderAndIsr, int] | None:
        if (node := self.nodes.get(znodes.state_path(tp))) is None:
            return None
        leader, leader_epoch, isr, controller_epoch, recovering = znodes.decode_state(tp, node[0])
        return LeaderAndIsr(leader, leader_epoch, isr, node[1], recovering), controller_epoch

    # Effects

    def _carry_out(self, effects: TakenEffects) -> None:
        for write in effects.writes:
            self._write(write)
        for id, request in effects.requests:
            broker = self.registered.get(id)
            if broker is None or request.broker_epoch != broker.epoch or request.controller_epoch != self.epoch:
                continue  # the broker rejects it
            if isinstance(request, LeaderAndIsrRequest):
                self._receive_leader_and_isr(id, request)
            elif isinstance(request, StopReplicaRequest):
                for topic in request.topic_states:
                    for state in topic.partition_states:
                        tp = TopicPartition(topic.topic_name, state.partition_index)
                        self.received[id].pop(tp, None)
                        if state.delete_partition:
                            self.deleting.append((id, tp))

    def _receive_leader_and_isr(self, id: BrokerId, request: LeaderAndIsrRequest) -> None:
        for topic in request.topic_states:
            for state in topic.partition_states:
                tp = TopicPartition(topic.topic_name, state.partition_index)
                now = (state.leader_epoch, state.leader)
                before = self.received[id].get(tp, (-1, -1))
                assert now >= before, f"broker {id} received {before} of {tp}, and then {now}"
                self.received[id][tp] = now

    def _write(self, write: Write) -> None:
        match write:
            case Create(path, data):
                assert path not in self.nodes, path
                self.nodes[path] = (data, 0)
            case Ensure(path):
                self.nodes.setdefault(path, (b"", 0))
            case SetData(path, data, version):
                assert version in (-1, self.nodes[path][1]), f"{path} has another version"
                self.nodes[path] = (data, self.nodes[path][1] + 1)
            case Delete(path):
                del self.nodes[path]
            case Remove(path):
                self.nodes = {
                    other: node for other, node in self.nodes.items() if not f"{other}/".startswith(f"{path}/")
                }

    # The invariants

    def check(self) -> None:
        state = self.decisions.state
        assert set(state.topics) == set(self.children(znodes.TOPICS))
        for tp, partition in state.partitions():
            stored = self.state_of(tp)
            assert (None if stored is None else stored[0]) == partition.decision, f"{tp}: the tree says {stored}"
            self._check_partition(tp, partition)
        for name, topic in state.topics.items():
            written = znodes.decode_topic(name, self.nodes[znodes.topic_path(name)][0])
            assert written.partitions == {n: partition.assigned for n, partition in topic.partitions.items()}

    def _check_partition(self, tp: TopicPartition, partition: ControlledPartition) -> None:
        decision, state = partition.decision, self.decisions.state
        if decision is None:
            return
        leader, epoch, isr, _, _ = decision
        topic_id = state.topics[tp.topic].id
        assert isr, f"{tp}: the ISR is empty"
        if leader != -1:
            assert leader in isr, f"{tp}: {leader} leads and is not in sync: {isr}"
            assert leader in partition.assigned.replicas
            assert self.leaders.setdefault((tp, topic_id, epoch), leader) == leader, (
                f"{tp} has two leaders in epoch {epoch}"
            )
            assert state.is_deleting(tp) or leader in state.brokers, f"{tp}: {leader} leads, and is dead"
        before = self.epochs.get((tp, topic_id), epoch)
        assert epoch >= before, f"{tp}: epoch {epoch} after {before}"
        self.epochs[tp, topic_id] = epoch
