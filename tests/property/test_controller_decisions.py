"""Any events in any order: after every step the controller's invariants hold, and the tree equals its state.

`ModelCluster` checks them: one leader per epoch, in sync, assigned and alive; epochs grow; what is deleted is gone.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from leadline.controller.state import PartitionReplica
from leadline.coordination import znodes
from leadline.errors import BrokerNotAvailable, StorageError
from leadline.model import BrokerId, TopicPartition
from leadline.replication.partition import ANY_EPOCH, LeaderAndIsr, Proposal
from tests.support.controlled import ModelCluster

BROKERS = 4
ids = st.integers(0, BROKERS - 1)
names = st.sampled_from(["a", "b", "c"])
some = st.lists(ids, min_size=1, max_size=BROKERS, unique=True).map(tuple)


class AnyCluster(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.cluster = ModelCluster(BROKERS)

    def partitions(self) -> list[TopicPartition]:
        return [tp for tp, _ in self.cluster.decisions.state.partitions()]

    @rule(name=names, assignment=st.lists(some, min_size=1, max_size=3))
    def create(self, name: str, assignment: list[tuple[BrokerId, ...]]) -> None:
        if znodes.topic_path(name) not in self.cluster.nodes:
            self.cluster.create(name, *assignment)

    @rule(name=names)
    def delete(self, name: str) -> None:
        self.cluster.delete(name)

    @rule(id=ids)
    def die(self, id: BrokerId) -> None:
        if id in self.cluster.registered:
            self.cluster.die(id)

    @rule(id=ids)
    def come_or_bounce(self, id: BrokerId) -> None:
        self.cluster.join(id)

    @rule(id=ids)
    def nobody_listens(self, id: BrokerId) -> None:
        if (registered := self.cluster.registered.get(id)) is not None:
            self.cluster.do(lambda: self.cluster.decisions.broker_gone(id, registered.epoch))

    @rule(id=ids)
    def it_answers_again(self, id: BrokerId) -> None:
        if (registered := self.cluster.registered.get(id)) is not None:
            self.cluster.do(lambda: self.cluster.decisions.broker_back(id, registered.epoch))

    @rule(id=ids)
    def shut_down(self, id: BrokerId) -> None:
        try:
            self.cluster.do(lambda: self.cluster.decisions.shut_down(id))
        except BrokerNotAvailable:
            assert id not in self.cluster.decisions.state.brokers

    @precondition(lambda self: self.partitions())
    @rule(data=st.data(), isr=some, leader_epoch=st.integers(-1, 1), partition_epoch=st.integers(-1, 1))
    def alter(self, data: st.DataObject, isr: tuple[BrokerId, ...], leader_epoch: int, partition_epoch: int) -> None:
        """By the leader or another broker, with current or old epochs."""
        tp = data.draw(st.sampled_from(self.partitions()))
        now = self.cluster.decisions.state.existing(tp).decision or LeaderAndIsr(0, 0, (0,))
        asking = data.draw(st.sampled_from([now.leader, *range(BROKERS)]))
        broker = self.cluster.decisions.state.brokers.get(asking)
        if broker is not None:
            epochs = (now.leader_epoch + leader_epoch, now.partition_epoch + partition_epoch)
            proposal = Proposal(LeaderAndIsr(asking, epochs[0], isr, epochs[1]), (ANY_EPOCH,) * len(isr))
            self.cluster.do(lambda: self.cluster.decisions.alter_partition(asking, broker.epoch, {tp: proposal}))

    @precondition(lambda self: self.partitions())
    @rule(data=st.data())
    def catch_up(self, data: st.DataObject) -> None:
        """All replicas that are there are in sync."""
        tp = data.draw(st.sampled_from(self.partitions()))
        now, alive = self.cluster.decisions.state.existing(tp).decision, self.cluster.decisions.state.alive
        if now is not None and now.leader in alive:
            self._all_in_sync(tp, tuple(id for id in self.cluster.assigned(tp).replicas if id in alive))

    def _all_in_sync(self, tp: TopicPartition, isr: tuple[BrokerId, ...]) -> None:
        now = self.cluster.led(tp)
        proposal = Proposal(now._replace(isr=isr, recovering=False), (ANY_EPOCH,) * len(isr))
        epoch = self.cluster.registered[now.leader].epoch
        self.cluster.do(lambda: self.cluster.decisions.alter_partition(now.leader, epoch, {tp: proposal}))

    @precondition(lambda self: self.partitions())
    @rule(data=st.data(), to=st.none() | some)
    def reassign(self, data: st.DataObject, to: tuple[BrokerId, ...] | None) -> None:
        tp = data.draw(st.sampled_from(self.partitions()))
        self.cluster.do(lambda: self.cluster.decisions.reassignments.alter({tp: to}))

    @precondition(lambda self: self.partitions())
    @rule(data=st.data(), unclean=st.booleans())
    def elect(self, data: st.DataObject, unclean: bool) -> None:
        tp = data.draw(st.sampled_from(self.partitions()))
        self.cluster.do(lambda: self.cluster.decisions.elect((tp,), unclean=unclean))

    @rule(percentage=st.sampled_from([0, 10, 50]))
    def rebalance(self, percentage: int) -> None:
        self.cluster.do(lambda: self.cluster.decisions.rebalance(percentage))

    @rule(name=names)
    def toggle_unclean(self, name: str) -> None:
        self.cluster.unclean ^= {name}

    @precondition(lambda self: self.partitions())
    @rule(data=st.data(), id=ids, code=st.sampled_from([0, StorageError.code]))
    def answer_about_a_directory(self, data: st.DataObject, id: BrokerId, code: int) -> None:
        tp = data.draw(st.sampled_from(self.partitions()))
        if (registered := self.cluster.registered.get(id)) is not None and id in self.cluster.assigned(tp).replicas:
            self.cluster.do(lambda: self.cluster.decisions.replicas_answered(id, registered.epoch, {tp: code}))

    @precondition(lambda self: self.cluster.deleting)
    @rule(data=st.data(), fails=st.booleans())
    def answer_one_deletion(self, data: st.DataObject, fails: bool) -> None:
        at = data.draw(st.integers(0, len(self.cluster.deleting) - 1))
        id, tp = self.cluster.deleting.pop(at)
        deletions = self.cluster.decisions.deletions
        answered = deletions.failed if fails and self.cluster.decisions.state.is_deleting(tp) else deletions.deleted
        self.cluster.do(lambda: answered([PartitionReplica(tp, id)]))

    @rule()
    def another_controller(self) -> None:
        self.cluster.restart()

    def teardown(self) -> None:
        """With all brokers there and all answers given, everything has a leader that was ever in sync, and what was to
        go is gone."""
        cluster = self.cluster
        for id in range(BROKERS):
            cluster.join(id)
        cluster.answer_deletions()
        for tp in sorted(cluster.decisions.state.reassigning):
            self._all_in_sync(tp, cluster.assigned(tp).replicas)
        cluster.answer_deletions()
        assert cluster.children(znodes.DELETE_TOPICS) == []
        assert cluster.decisions.state.reassigning == set()
        for tp in self.partitions():
            assert cluster.led(tp).leader in cluster.registered


AnyCluster.TestCase.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
test_any_cluster = AnyCluster.TestCase
