"""Whatever happens to a cluster, in whatever order: after every step the controller's invariants hold, and the tree
says what it knows. `Paper` checks them: one leader per epoch, in sync, assigned and alive; epochs grow; what is deleted
is gone.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from leadline.controller.state import PartitionReplica
from leadline.coordination import znodes
from leadline.errors import BrokerNotAvailable, StorageError
from leadline.model import BrokerId, TopicPartition
from leadline.replication.partition import ANY_EPOCH, LeaderAndIsr, Proposal
from tests.support.controlled import Paper

BROKERS = 4
ids = st.integers(0, BROKERS - 1)
names = st.sampled_from(["a", "b", "c"])
some = st.lists(ids, min_size=1, max_size=BROKERS, unique=True).map(tuple)


class AnyCluster(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.paper = Paper(BROKERS)

    def partitions(self) -> list[TopicPartition]:
        return [tp for tp, _ in self.paper.decisions.state.partitions()]

    @rule(name=names, assignment=st.lists(some, min_size=1, max_size=3))
    def create(self, name: str, assignment: list[tuple[BrokerId, ...]]) -> None:
        if znodes.topic_path(name) not in self.paper.nodes:
            self.paper.create(name, *assignment)

    @rule(name=names)
    def delete(self, name: str) -> None:
        self.paper.delete(name)

    @rule(id=ids)
    def die(self, id: BrokerId) -> None:
        if id in self.paper.registered:
            self.paper.die(id)

    @rule(id=ids)
    def come_or_bounce(self, id: BrokerId) -> None:
        self.paper.join(id)

    @rule(id=ids)
    def nobody_listens(self, id: BrokerId) -> None:
        if (there := self.paper.registered.get(id)) is not None:
            self.paper.do(lambda: self.paper.decisions.broker_gone(id, there.epoch))

    @rule(id=ids)
    def it_answers_again(self, id: BrokerId) -> None:
        if (there := self.paper.registered.get(id)) is not None:
            self.paper.do(lambda: self.paper.decisions.broker_back(id, there.epoch))

    @rule(id=ids)
    def shut_down(self, id: BrokerId) -> None:
        try:
            self.paper.do(lambda: self.paper.decisions.shut_down(id))
        except BrokerNotAvailable:
            assert id not in self.paper.decisions.state.brokers

    @precondition(lambda self: self.partitions())
    @rule(data=st.data(), isr=some, leader_epoch=st.integers(-1, 1), partition_epoch=st.integers(-1, 1))
    def alter(self, data: st.DataObject, isr: tuple[BrokerId, ...], leader_epoch: int, partition_epoch: int) -> None:
        """By the leader or another broker, with current or old epochs."""
        tp = data.draw(st.sampled_from(self.partitions()))
        now = self.paper.decisions.state.existing(tp).decision or LeaderAndIsr(0, 0, (0,))
        asking = data.draw(st.sampled_from([now.leader, *range(BROKERS)]))
        there = self.paper.decisions.state.brokers.get(asking)
        if there is not None:
            epochs = (now.leader_epoch + leader_epoch, now.partition_epoch + partition_epoch)
            proposal = Proposal(LeaderAndIsr(asking, epochs[0], isr, epochs[1]), (ANY_EPOCH,) * len(isr))
            self.paper.do(lambda: self.paper.decisions.alter_partition(asking, there.epoch, {tp: proposal}))

    @precondition(lambda self: self.partitions())
    @rule(data=st.data())
    def catch_up(self, data: st.DataObject) -> None:
        """All replicas that are there are in sync."""
        tp = data.draw(st.sampled_from(self.partitions()))
        now, alive = self.paper.decisions.state.existing(tp).decision, self.paper.decisions.state.alive
        if now is not None and now.leader in alive:
            self._all_in_sync(tp, tuple(id for id in self.paper.assigned(tp).replicas if id in alive))

    def _all_in_sync(self, tp: TopicPartition, isr: tuple[BrokerId, ...]) -> None:
        now = self.paper.led(tp)
        proposal = Proposal(now._replace(isr=isr, recovering=False), (ANY_EPOCH,) * len(isr))
        epoch = self.paper.registered[now.leader].epoch
        self.paper.do(lambda: self.paper.decisions.alter_partition(now.leader, epoch, {tp: proposal}))

    @precondition(lambda self: self.partitions())
    @rule(data=st.data(), to=st.none() | some)
    def reassign(self, data: st.DataObject, to: tuple[BrokerId, ...] | None) -> None:
        tp = data.draw(st.sampled_from(self.partitions()))
        self.paper.do(lambda: self.paper.decisions.reassignments.alter({tp: to}))

    @precondition(lambda self: self.partitions())
    @rule(data=st.data(), unclean=st.booleans())
    def elect(self, data: st.DataObject, unclean: bool) -> None:
        tp = data.draw(st.sampled_from(self.partitions()))
        self.paper.do(lambda: self.paper.decisions.elect((tp,), unclean=unclean))

    @rule(percentage=st.sampled_from([0, 10, 50]))
    def rebalance(self, percentage: int) -> None:
        self.paper.do(lambda: self.paper.decisions.rebalance(percentage))

    @rule(name=names)
    def toggle_unclean(self, name: str) -> None:
        self.paper.unclean ^= {name}

    @precondition(lambda self: self.partitions())
    @rule(data=st.data(), id=ids, code=st.sampled_from([0, StorageError.code]))
    def answer_about_a_directory(self, data: st.DataObject, id: BrokerId, code: int) -> None:
        tp = data.draw(st.sampled_from(self.partitions()))
        if (there := self.paper.registered.get(id)) is not None and id in self.paper.assigned(tp).replicas:
            self.paper.do(lambda: self.paper.decisions.replicas_answered(id, there.epoch, {tp: code}))

    @precondition(lambda self: self.paper.deleting)
    @rule(data=st.data(), fails=st.booleans())
    def answer_one_deletion(self, data: st.DataObject, fails: bool) -> None:
        at = data.draw(st.integers(0, len(self.paper.deleting) - 1))
        id, tp = self.paper.deleting.pop(at)
        deletions = self.paper.decisions.deletions
        answered = deletions.failed if fails and self.paper.decisions.state.is_deleting(tp) else deletions.deleted
        self.paper.do(lambda: answered([PartitionReplica(tp, id)]))

    @rule()
    def another_controller(self) -> None:
        self.paper.restart()

    def teardown(self) -> None:
        """With all brokers there and all answers given, everything has a leader that was ever in sync, and what was to
        go is gone."""
        paper = self.paper
        for id in range(BROKERS):
            paper.join(id)
        paper.answer_deletions()
        for tp in sorted(paper.decisions.state.reassigning):
            self._all_in_sync(tp, paper.assigned(tp).replicas)
        paper.answer_deletions()
        assert paper.children(znodes.DELETE_TOPICS) == []
        assert paper.decisions.state.reassigning == set()
        for tp in self.partitions():
            assert paper.led(tp).leader in paper.registered


AnyCluster.TestCase.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
test_any_cluster = AnyCluster.TestCase
