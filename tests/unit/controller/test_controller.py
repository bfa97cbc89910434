"""The controller over a tree, with brokers that are only written down: what they are told, and what is in the tree."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from leadline.cluster import metadata_cache
from leadline.cluster.broker_client import PeerGone, PeerLost
from leadline.cluster.dynamic_configs import DynamicConfigs
from leadline.cluster.metadata_cache import BrokerInfo, MetadataCache
from leadline.cluster.peers import Peers
from leadline.config.broker import broker_settings
from leadline.config.live_settings import LiveSettings
from leadline.controller.cluster_admin import ClusterAdmin
from leadline.controller.controller import Controller
from leadline.controller.controller_election import ControllerElection
from leadline.controller.decisions import Decisions
from leadline.controller.state import RegisteredBroker
from leadline.coordination import znodes
from leadline.coordination.embedded import EmbeddedTree
from leadline.coordination.membership import make_persistent_nodes
from leadline.coordination.registration import RegisteredEndpoint, Registration, encode_registration
from leadline.coordination.tree import Event, SessionExpired, SessionState, Tree, TreeWatch
from leadline.coordination.watches import Subscription
from leadline.errors import CoordinatorLoadInProgress, NotController, StorageError, TopicAlreadyExists
from leadline.model import BrokerId, TopicPartition
from leadline.runtime.ports import SystemTime
from leadline.runtime.steps import exhaust
from leadline.wire.classes import Message
from leadline.wire.messages import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
)
from tests.support import in_memory
from tests.support.chance import SeededChance
from tests.support.waiting import eventually

M = TypeVar("M", bound=Message)
T0 = TopicPartition("t", 0)
PATIENCE_MS = 120_000


class RecordingBroker:
    """A broker that records the requests of the controller."""

    def __init__(self, id: BrokerId) -> None:
        self.metadata = MetadataCache(BrokerInfo(id, {}), "cluster")
        self.holds: dict[TopicPartition, LeaderAndIsrRequest.LeaderAndIsrPartitionState] = {}
        self.deleted: list[TopicPartition] = []
        self.failing: set[TopicPartition] = set()  # lie in a directory that failed
        self.attempts = 0
        self.trouble: PeerLost | None = None  # raised by whatever it is asked
        self.received_states = asyncio.Event()  # set by each LeaderAndIsr request

    async def ask(self, request: Message, kind: type[M], version: int, timeout_s: float, /) -> M:
        self.attempts += 1
        if self.trouble is not None:
            raise self.trouble
        answer: Message = kind()
        if isinstance(request, UpdateMetadataRequest):
            self.metadata.update(request)
        elif isinstance(request, LeaderAndIsrRequest):
            self.metadata.check(request.controller_epoch, request.broker_epoch)
            answer = self._hold(request)
        elif isinstance(request, StopReplicaRequest):
            answer = self._stop(request)
        elif isinstance(request, AllocateProducerIdsRequest):
            answer = AllocateProducerIdsResponse(producer_id_start=1000 * self.metadata.me.id, producer_id_len=2)
        assert isinstance(answer, kind)
        return answer

    def _hold(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        answer = LeaderAndIsrResponse()
        self.received_states.set()
        for topic in request.topic_states:
            errors = LeaderAndIsrResponse.LeaderAndIsrTopicError(topic_id=topic.topic_id)
            for state in topic.partition_states:
                tp = TopicPartition(topic.topic_name, state.partition_index)
                self.holds[tp] = state
                code = StorageError.code if tp in self.failing else 0
                errors.partition_errors.append(
                    LeaderAndIsrResponse.LeaderAndIsrPartitionError(partition_index=tp.partition, error_code=code)
                )
            answer.topics.append(errors)
        return answer

    def _stop(self, request: StopReplicaRequest) -> StopReplicaResponse:
        answer = StopReplicaResponse()
        for topic in request.topic_states:
            for state in topic.partition_states:
                tp = TopicPartition(topic.topic_name, state.partition_index)
                self.holds.pop(tp, None)
                if state.delete_partition:
                    self.deleted.append(tp)
                answer.partition_errors.append(
                    StopReplicaResponse.StopReplicaPartitionError(
                        topic_name=topic.topic_name, partition_index=tp.partition
                    )
                )
        return answer

    def close(self) -> None: ...


def live_settings(session_timeout_ms: int = 60_000) -> LiveSettings:
    return LiveSettings(
        broker_settings({"log.dirs": "/nowhere", "zookeeper.session.timeout.ms": str(session_timeout_ms)})
    )


ENDPOINT_OF_1 = RegisteredEndpoint("PLAINTEXT", "localhost", 9001, "PLAINTEXT")


class FixedMonitor:
    """What a monitor would say."""

    def __init__(self, *silent: BrokerId, hears_most: bool = True) -> None:
        self.silent, self.unheard, self.hears_most = set(silent), set(silent), hears_most

    def change_to(self, other: "FixedMonitor") -> None:
        self.silent, self.unheard, self.hears_most = other.silent, other.unheard, other.hears_most


class ThreeBrokers:
    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.brokers = {id: RecordingBroker(id) for id in range(3)}
        self.monitor = FixedMonitor()
        self.controller = self.new_controller(0)
        configs = DynamicConfigs(tree, 0, SystemTime())
        self.connected: list[metadata_cache.Endpoint] = []
        peers = Peers(self.brokers[0].metadata, "PLAINTEXT", self._controllers_peer)
        self.view = ClusterAdmin(
            self.brokers[0].metadata, configs, self.controller, peers, live_settings(), SeededChance()
        )

    def new_controller(
        self, me: BrokerId, monitor: "FixedMonitor | None" = None, session_timeout_ms: int = 60_000
    ) -> Controller:
        election = ControllerElection(self.tree, me, SystemTime(), monitor or self.monitor)
        return Controller(election, live_settings(session_timeout_ms), self._peer, SeededChance())

    def _peer(self, broker: RegisteredBroker, lost: Callable[[], None]) -> RecordingBroker:
        return self.brokers[broker.id]

    def _controllers_peer(self, at: metadata_cache.Endpoint) -> RecordingBroker:
        self.connected.append(at)
        return self.brokers[at.port - 9000]

    async def register(self, id: BrokerId) -> None:
        data = encode_registration(
            Registration((RegisteredEndpoint("PLAINTEXT", "localhost", 9000 + id, "PLAINTEXT"),), 0)
        )
        await self.tree.create(znodes.broker_path(id), data, ephemeral=True)

    async def create(self, name: str, *assignment: tuple[BrokerId, ...]) -> None:
        await self.view.create_topic(name, assignment, {})

    async def until_led_by(self, leader: BrokerId, tp: TopicPartition = T0) -> None:
        await self.view.until_led(tp, lambda now: now == leader, PATIENCE_MS)

    async def state(self, tp: TopicPartition = T0) -> znodes.PartitionStateNode:
        node = await self.tree.get(znodes.state_path(tp))
        assert node is not None
        return znodes.decode_state(tp, node.data)

    async def idle(self) -> None:
        """Waits until all events so far are decided, sent and answered."""
        for _ in range(5):
            await self.controller.do(lambda decisions: None)
            for _ in range(20):
                await asyncio.sleep(0)


@asynccontextmanager
async def three_brokers(path: Path) -> AsyncIterator[ThreeBrokers]:
    tree = await EmbeddedTree.open(str(path), SystemTime())
    await make_persistent_nodes(tree)
    cluster = ThreeBrokers(tree)
    for id in range(3):
        await cluster.register(id)
    await cluster.controller.start()
    try:
        yield cluster
    finally:
        await cluster.controller.stop()
        await tree.close()


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    yield from in_memory.directory()


def run(path: Path, test: Callable[[ThreeBrokers], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(120), three_brokers(path) as cluster:
            await test(cluster)

    asyncio.run(main())


def test_a_topic_is_known_to_all_brokers_once_it_is_created(tmp_path: Path) -> None:
    async def test(cluster: ThreeBrokers) -> None:
        await cluster.create("t", (1, 2), (2, 0))
        await cluster.idle()
        assert set(cluster.brokers[2].holds) == {T0, TopicPartition("t", 1)}
        for broker in cluster.brokers.values():
            assert [partition.leader for partition in broker.metadata.topics["t"].partitions.values()] == [1, 2]
            assert (broker.metadata.controller, set(broker.metadata.brokers)) == (0, {0, 1, 2})
        with pytest.raises(TopicAlreadyExists):
            await cluster.view.create_topic("t", ((0,),), {})

    run(tmp_path, test)


def test_the_controller_is_in_the_tree_with_its_epoch(tmp_path: Path) -> None:
    async def test(cluster: ThreeBrokers) -> None:
        node = await cluster.tree.get(znodes.CONTROLLER)
        assert node is not None
        assert node.owner == cluster.tree.session
        assert znodes.decode_controller(node.data)[::2] == (0, -1)
        epoch = await cluster.tree.get(znodes.CONTROLLER_EPOCH)
        assert epoch is not None
        assert (epoch.data, epoch.version) == (b"1", 1)

    run(tmp_path, test)


def test_what_a_dead_broker_led_is_led_by_another(tmp_path: Path) -> None:
    async def test(cluster: ThreeBrokers) -> None:
        await cluster.create("t", (1, 2))
        await cluster.tree.delete(znodes.broker_path(1))
        await cluster.until_led_by(2)
        assert await cluster.state() == znodes.PartitionStateNode(2, 1, (2,), 1)
        assert set(cluster.brokers[0].metadata.brokers) == {0, 2}
        await cluster.register(1)
        await cluster.idle()
        assert cluster.brokers[1].holds[T0].leader == 2

    run(tmp_path, test)


def test_a_registration_that_changes_reaches_the_metadata_of_all_brokers(tmp_path: Path) -> None:
    async def test(cluster: ThreeBrokers) -> None:
        await cluster.create("t", (1, 2))
        extra = RegisteredEndpoint("EXTRA", "there", 7, "SSL")
        for endpoints in ((ENDPOINT_OF_1, extra), (ENDPOINT_OF_1,)):
            await cluster.tree.set(znodes.broker_path(1), encode_registration(Registration(endpoints, 0)))
            await cluster.idle()
            for broker in cluster.brokers.values():
                assert list(broker.metadata.brokers[1].endpoints) == [endpoint.listener for endpoint in endpoints]
        assert (await cluster.state()).leader == 1, "it never left"

    run(tmp_path, test)


def test_a_broker_that_refuses_connections_is_gone_until_it_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leadline.controller.broker_channel.PROBE_S", 0.01)

    async def test(cluster: ThreeBrokers) -> None:
        await cluster.create("t", (1, 2))
        cluster.brokers[1].trouble = PeerGone("nobody listens")
        await cluster.create("u", (2,))  # of which it would be told
        await cluster.until_led_by(2)
        assert await cluster.tree.exists(znodes.broker_path(1))
        cluster.brokers[1].received_states.clear()
        cluster.brokers[1].trouble = None
        await cluster.brokers[1].received_states.wait()
        assert cluster.brokers[1].holds[T0].leader == 2
        await cluster.idle()
        assert "u" in cluster.brokers[1].metadata.topics

    run(tmp_path, test)


def test_a_broker_that_was_gone_hears_of_topics_that_were_deleted_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leadline.controller.broker_channel.PROBE_S", 0.01)

    async def test(cluster: ThreeBrokers) -> None:
        for name in ("t", "u", "again"):
            await cluster.create(name, (2, 0))
        await cluster.idle()
        assert {"t", "u", "again"} <= cluster.brokers[1].metadata.topics.keys()
        cluster.brokers[1].trouble = PeerGone("nobody listens")
        for name in ("u", "again"):
            await cluster.view.delete_topic(name)
        await cluster.create("again", (0, 2))
        cluster.brokers[1].trouble = None
        await eventually(lambda: "u" not in cluster.brokers[1].metadata.topics)
        await cluster.idle()
        assert cluster.brokers[1].metadata.topics.keys() == {"t", "again"}
        assert cluster.brokers[1].metadata.topics["again"].partitions[0].leader == 0

    run(tmp_path, test)


def test_a_broker_that_does_not_answer_yet_is_waited_for(tmp_path: Path) -> None:
    """A lost connection proves nothing, nor does a refused one of a broker that has just registered."""

    async def test(cluster: ThreeBrokers) -> None:
        await cluster.create("t", (1, 2))
        cluster.brokers[1].trouble = PeerLost("the line is bad")
        await cluster.create("u", (1, 2))
        assert (await cluster.state(TopicPartition("u", 0))).leader == 1
        cluster.brokers[1].trouble = None
        await cluster.tree.delete(znodes.broker_path(1))
        await cluster.until_led_by(2)
        cluster.brokers[1] = RecordingBroker(1)
        cluster.brokers[1].trouble = PeerGone("not listening yet")
        await cluster.register(1)
        await cluster.idle()
        await eventually(lambda: cluster.brokers[1].attempts >= 3)
        assert cluster.controller.decisions is not None
        assert not cluster.controller.decisions.state.gone
        cluster.brokers[1].trouble = None
        await cluster.brokers[1].received_states.wait()

    run(tmp_path, test)


def test_a_silent_broker_is_gone_until_it_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leadline.controller.broker_channel.PROBE_S", 0.01)

    async def test(cluster: ThreeBrokers) -> None:
        await cluster.create("t", (1, 2))
        cluster.brokers[1].trouble = PeerLost("no answer in time")
        cluster.monitor.change_to(FixedMonitor(1))
        cluster.controller.silence_changed()
        await cluster.until_led_by(2)
        assert await cluster.state() == znodes.PartitionStateNode(2, 1, (2,), 1)
        assert await cluster.tree.exists(znodes.broker_path(1))
        cluster.monitor.change_to(FixedMonitor())
        cluster.brokers[1].received_states.clear()
        cluster.brokers[1].trouble = None
        await cluster.brokers[1].received_states.wait()
        assert cluster.brokers[1].holds[T0].leader == 2

    run(tmp_path, test)


@pytest.mark.parametrize(
    "monitor", [FixedMonitor(1, 2), FixedMonitor(1, hears_most=False)], ids=["no longer", "not for long"]
)
def test_a_controller_that_does_not_hear_most_brokers_counts_none_as_gone(
    tmp_path: Path, monitor: FixedMonitor
) -> None:
    async def test(cluster: ThreeBrokers) -> None:
        await cluster.create("t", (1, 2))
        cluster.monitor.change_to(monitor)
        cluster.controller.silence_changed()
        await cluster.idle()
        assert cluster.controller.decisions is not None
        assert not cluster.controller.decisions.state.gone
        assert (await cluster.state()).leader == 1

    run(tmp_path, test)


def test_a_new_controller_knows_who_is_silent(tmp_path: Path) -> None:
    async def test(cluster: ThreeBrokers) -> None:
        await cluster.create("t", (1, 2))
        await cluster.controller.stop()
        cluster.brokers[1].trouble = PeerLost("no answer in time")
        cluster.controller = cluster.view.controller = cluster.new_controller(0, FixedMonitor(1))
        await cluster.controller.start()
        await cluster.until_led_by(2)

    run(tmp_path, test)


def test_a_broker_that_hears_all_others_is_elected_first(tmp_path: Path) -> None:
    async def test(cluster: ThreeBrokers) -> None:
        await cluster.controller.stop()
        deaf, hearing = cluster.new_controller(1, FixedMonitor(0)), cluster.new_controller(2)
        standing = asyncio.create_task(deaf.start())
        await asyncio.sleep(0)
        await hearing.start()
        await standing
        assert hearing.is_active
        assert not deaf.is_active
        await deaf.stop()
        await hearing.stop()

    run(tmp_path, test)


def test_a_new_controller_counts_a_registered_broker_that_refuses_as_gone(tmp_path: Path) -> None:
    """The one before it was killed together with it, say, and their sessions are not over."""

    async def test(cluster: ThreeBrokers) -> None:
        await cluster.create("t", (1, 2))
        await cluster.controller.stop()
        cluster.brokers[1].trouble = PeerGone("killed, and still registered")
        cluster.controller = cluster.view.controller = cluster.new_controller(0)
        await cluster.controller.start()
        await cluster.until_led_by(2)

    run(tmp_path, test)


def test_a_topic_is_gone_once_all_brokers_have_deleted_it(tmp_path: Path) -> None:
    async def test(cluster: ThreeBrokers) -> None:
        await cluster.create("t", (1, 2))
        await cluster.view.delete_topic("t")
        assert cluster.brokers[1].deleted == cluster.brokers[2].deleted == [T0]
        for path in (znodes.DELETE_TOPICS, znodes.TOPICS, f"{znodes.CONFIG}/topics"):
            assert await cluster.tree.children(path) == []
        await cluster.create("t", (0,))
        assert await cluster.state() == znodes.PartitionStateNode(0, 0, (0,), 1)

    run(tmp_path, test)


def test_partitions_are_added_to_a_topic(tmp_path: Path) -> None:
    async def test(cluster: ThreeBrokers) -> None:
        await cluster.create("t", (1, 2))
        await cluster.view.add_partitions("t", lambda topic: ((2, 0), (0, 1)))
        assert (await cluster.state(TopicPartition("t", 2))).isr == (0, 1)

    run(tmp_path, test)


def test_a_replica_in_a_failed_directory_is_led_by_another(tmp_path: Path) -> None:
    async def test(cluster: ThreeBrokers) -> None:
        await cluster.create("t", (1, 2), (1, 0))
        cluster.brokers[1].failing = {T0}
        await cluster.tree.create(znodes.LOG_DIR_EVENT, znodes.encode_log_dir_event(1), sequential=True)
        await cluster.until_led_by(2)
        assert (await cluster.state(TopicPartition("t", 1))).leader == 1
        assert cluster.brokers[0].metadata.topics["t"].partitions[0].offline == (1,)
        await cluster.idle()
        assert await cluster.tree.children(znodes.LOG_DIR_EVENTS) == []

    run(tmp_path, test)


def _reassign(tp: TopicPartition, to: tuple[BrokerId, ...], decisions: Decisions) -> None:
    assert exhaust(decisions.reassignments.alter({tp: to})) == {tp: None}


def test_an_unclean_election_needs_a_setting(tmp_path: Path) -> None:
    async def test(cluster: ThreeBrokers) -> None:
        for name, config in (("t", {"unclean.leader.election.enable": "true"}), ("u", {})):
            await cluster.view.create_topic(name, ((1,),), config)
            tp = TopicPartition(name, 0)
            await cluster.controller.do(partial(_reassign, tp, (1, 2)))
        await cluster.tree.delete(znodes.broker_path(1))
        await cluster.until_led_by(2)
        await cluster.idle()
        assert (await cluster.state()).recovering
        u = TopicPartition("u", 0)
        assert (await cluster.state(u)).leader == -1
        await cluster.view.configs.alter_topic("u", lambda before: {"unclean.leader.election.enable": "true"})
        cluster.controller.settings_changed("u")
        await cluster.until_led_by(2, u)

    run(tmp_path, test)


def test_what_tools_ask_for_through_nodes_is_done(tmp_path: Path) -> None:
    async def test(cluster: ThreeBrokers) -> None:
        await cluster.create("t", (1, 2))
        await cluster.tree.create(znodes.REASSIGN_PARTITIONS, znodes.encode_reassignment({T0: (2, 1)}))
        while await cluster.tree.exists(znodes.REASSIGN_PARTITIONS):
            await cluster.idle()
        assert (await cluster.state()).leader == 1
        await cluster.tree.create(
            znodes.PREFERRED_REPLICA_ELECTION, b'{"version":1,"partitions":[{"topic":"t","partition":0}]}'
        )
        await cluster.until_led_by(2)
        while await cluster.tree.exists(znodes.PREFERRED_REPLICA_ELECTION):
            await cluster.idle()

    run(tmp_path, test)


def test_the_next_controller_takes_over_when_one_stops(tmp_path: Path) -> None:
    async def test(cluster: ThreeBrokers) -> None:
        await cluster.create("t", (1, 2))
        second, elected = cluster.new_controller(1), asyncio.Event()
        second.on_decided.append(elected.set)
        await second.start()
        assert not second.is_active
        with pytest.raises(NotController):
            await second.do(lambda decisions: None)
        await cluster.controller.stop()
        cluster.controller = second
        await elected.wait()
        await cluster.idle()
        assert cluster.brokers[2].metadata.controller == 1
        await cluster.tree.delete(znodes.broker_path(1))
        await cluster.until_led_by(2)
        assert (await cluster.state()).controller_epoch == 2

    run(tmp_path, test)


def test_a_controller_that_was_replaced_without_knowing_cannot_write(tmp_path: Path) -> None:
    async def test(cluster: ThreeBrokers) -> None:
        await cluster.create("t", (1, 2))
        before = await cluster.state()
        await cluster.tree.set(znodes.CONTROLLER_EPOCH, b"7")
        with pytest.raises(NotController):
            await cluster.controller.do_in_steps(lambda decisions: decisions.shut_down(1))
        assert await cluster.state() == before
        assert not cluster.controller.is_active

    run(tmp_path, test)


def test_what_contradicts_its_memory_makes_the_controller_read_everything_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leadline.controller.controller.AFTER_FAILURE_S", 0.01)

    async def test(cluster: ThreeBrokers) -> None:
        await cluster.create("t", (1, 2))
        edited = znodes.PartitionStateNode(1, 5, (1, 2), 1)
        await cluster.tree.set(znodes.state_path(T0), znodes.encode_state(edited))
        await cluster.tree.delete(znodes.broker_path(1))
        await cluster.until_led_by(2)
        assert await cluster.state() == znodes.PartitionStateNode(2, 7, (2,), 2)

    run(tmp_path, test)


def test_a_topic_that_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    async def test(cluster: ThreeBrokers) -> None:
        await cluster.tree.create(znodes.topic_path("broken"), b"no json")
        await cluster.create("t", (1, 2))
        assert set(cluster.brokers[0].metadata.topics) == {"t"}

    run(tmp_path, test)


def test_leadership_goes_back_to_preferred_leaders_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leadline.controller.controller.FIRST_REBALANCE_S", 0.01)

    async def test(cluster: ThreeBrokers) -> None:
        await cluster.create("t", (1, 2))
        again = cluster.new_controller(0)
        await cluster.controller.do(partial(_lead, T0, 2))
        await cluster.until_led_by(2)
        await cluster.controller.stop()
        await again.start()
        cluster.controller = again
        await cluster.until_led_by(1)

    run(tmp_path, test)


def _lead(tp: TopicPartition, leader: BrokerId, decisions: Decisions) -> None:
    now = decisions.state.existing(tp).decision
    assert now is not None
    decisions.transitions.decide(tp, now._replace(leader=leader, leader_epoch=now.leader_epoch + 1))
    decisions.transitions.add_leader_and_isr((1, 2), tp)


def test_producer_ids_are_handed_out_once(tmp_path: Path) -> None:
    async def test(cluster: ThreeBrokers) -> None:
        blocks = await asyncio.gather(*(cluster.controller.producer_ids(id) for id in (0, 1, 2)))
        assert sorted(block.start for block in blocks) == [0, 1000, 2000]

    run(tmp_path, test)


def test_a_broker_requests_producer_ids_from_the_controller(tmp_path: Path) -> None:
    async def test(cluster: ThreeBrokers) -> None:
        await cluster.create("t", (1, 2))
        await cluster.controller.stop()
        cluster.brokers[0].metadata.controller = 7  # of whom nothing is known
        with pytest.raises(CoordinatorLoadInProgress):
            await cluster.view.next_producer_id()
        cluster.brokers[0].metadata.controller = 2
        assert [await cluster.view.next_producer_id() for _ in range(3)] == [2000, 2001, 2000]
        cluster.brokers[0].metadata.controller = 1
        assert [await cluster.view.next_producer_id() for _ in range(2)] == [2001, 1000]
        assert [at.port for at in cluster.connected] == [9002, 9001]

    run(tmp_path, test)


def test_producer_ids_that_the_tree_does_not_give_are_requested_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller whose session has expired learns of it a moment later."""

    async def expired(path: str) -> None:
        raise SessionExpired(path, "the session has expired")

    async def test(cluster: ThreeBrokers) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(cluster.tree, "get", expired)
            with pytest.raises(NotController, match="the session has expired"):
                await cluster.controller.producer_ids(2)
            with pytest.raises(CoordinatorLoadInProgress):
                await cluster.view.next_producer_id()
        assert await cluster.view.next_producer_id() >= 0

    run(tmp_path, test)


class Session:
    """The session of a tree, as a test wants it."""

    def __init__(self, tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[Callable[[SessionState], None]] = []
        monkeypatch.setattr(tree, "watch_session", self._watch)

    def _watch(self, call: Callable[[SessionState], None]) -> TreeWatch:
        self.calls.append(call)
        return Subscription(call, lambda subscription: None)

    def tell(self, state: SessionState) -> None:
        for call in self.calls:
            call(state)


@pytest.mark.parametrize("expired", [False, True])
def test_out_of_reach_for_too_long_it_is_not_the_controller_until_it_is_elected_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expired: bool
) -> None:
    async def test(cluster: ThreeBrokers) -> None:
        await cluster.create("t", (1, 2))
        await cluster.controller.stop()
        session = Session(cluster.tree, monkeypatch)
        cluster.controller = again = cluster.new_controller(0, session_timeout_ms=60_000 if expired else 1)
        await again.start()
        assert again.is_active
        before = again.decisions
        session.tell(SessionState.SUSPENDED)
        assert again.is_active
        if expired:
            session.tell(SessionState.EXPIRED)
            await cluster.tree.delete(znodes.CONTROLLER)
        else:
            await eventually(lambda: again.decisions is not before)  # it may be elected again at once
        elected = asyncio.Event()
        again.on_decided.append(elected.set)
        session.tell(SessionState.CONNECTED)
        await elected.wait()
        node = await cluster.tree.get(znodes.CONTROLLER_EPOCH)
        assert node is not None
        assert node.data == b"3"

    run(tmp_path, test)


def test_a_session_that_ends_while_all_is_read_makes_no_controller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(cluster: ThreeBrokers) -> None:
        await cluster.controller.stop()
        session = Session(cluster.tree, monkeypatch)
        cluster.controller = again = cluster.new_controller(0)
        read = cluster.tree.children

        async def children(path: str) -> list[str] | None:
            if path == znodes.DELETE_TOPICS:
                session.tell(SessionState.EXPIRED)
            return await read(path)

        monkeypatch.setattr(cluster.tree, "children", children)
        with pytest.raises(NotController):
            await again.start()
        assert not again.is_active
        monkeypatch.setattr(cluster.tree, "children", read)
        elected = asyncio.Event()
        again.on_decided.append(elected.set)
        session.tell(SessionState.CONNECTED)
        await elected.wait()
        assert again.is_active

    run(tmp_path, test)


def test_a_short_absence_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(cluster: ThreeBrokers) -> None:
        await cluster.controller.stop()
        session = Session(cluster.tree, monkeypatch)
        cluster.controller = again = cluster.new_controller(0)
        await again.start()
        session.tell(SessionState.SUSPENDED)
        session.tell(SessionState.CONNECTED)
        await cluster.idle()
        assert again.is_active
        node = await cluster.tree.get(znodes.CONTROLLER_EPOCH)
        assert node is not None
        assert node.data == b"2"

    run(tmp_path, test)


def test_partitions_that_were_added_while_the_tree_was_out_of_reach_get_leaders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ZooKeeper reports nothing of what happened while there was no connection to it."""

    async def test(cluster: ThreeBrokers) -> None:
        await cluster.create("t", (1, 2))
        await cluster.controller.stop()
        session = Session(cluster.tree, monkeypatch)
        watch = cluster.tree.watch

        async def deaf_to_topics(path: str, call: Callable[[Event], None]) -> TreeWatch:
            is_topic = path.startswith(znodes.TOPICS)
            return await watch(path, (lambda event: None) if is_topic else call)

        monkeypatch.setattr(cluster.tree, "watch", deaf_to_topics)
        cluster.controller = again = cluster.new_controller(0)
        await again.start()
        session.tell(SessionState.SUSPENDED)
        node = await cluster.tree.get(znodes.topic_path("t"))
        assert node is not None
        topic = znodes.decode_topic("t", node.data)
        grown = topic._replace(partitions={**topic.partitions, 1: znodes.ReplicaAssignment((2, 0))})
        await cluster.tree.set(znodes.topic_path("t"), znodes.encode_topic(grown))
        session.tell(SessionState.CONNECTED)
        await cluster.until_led_by(2, TopicPartition("t", 1))

    run(tmp_path, test)


def test_a_controller_that_stops_without_a_connection_does_not_wait_to_resign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(cluster: ThreeBrokers) -> None:
        await cluster.controller.stop()
        session = Session(cluster.tree, monkeypatch)
        cluster.controller = again = cluster.new_controller(0)
        await again.start()
        session.tell(SessionState.SUSPENDED)
        monkeypatch.setattr(again._election, "resign", None)  # would wait until ZooKeeper is back
        await again.stop()
        assert not again.is_active

    run(tmp_path, test)
