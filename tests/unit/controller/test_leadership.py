"""A broker that is cut off: what it still leads, and whom it asks."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, TypeVar, cast
from uuid import uuid4

import pytest

from leadline.cluster import metadata_cache
from leadline.cluster.broker_client import PeerLost
from leadline.cluster.metadata_cache import BrokerInfo, CachedPartition, CachedTopic, MetadataCache
from leadline.cluster.peers import Peers
from leadline.controller.leadership import Leadership
from leadline.coordination.tree import SessionState
from leadline.model import BrokerId, TopicPartition, new_id
from leadline.wire.classes import Message
from leadline.wire.messages import MetadataRequest, MetadataResponse
from tests.support.waiting import eventually

ME, OTHER, THIRD = 1, 2, 3
T0 = TopicPartition("t", 0)
M = TypeVar("M", bound=Message)


class FakeMonitor:
    def __init__(self) -> None:
        self.on_silence: list[Callable[[BrokerId], None]] = []
        self.silent: set[BrokerId] = set()
        self.unheard: set[BrokerId] = set()
        self.is_isolated, self.hears_most = False, True

    def silence(self, *brokers: BrokerId) -> None:
        changed = self.silent ^ set(brokers)
        self.silent = self.unheard = set(brokers)
        self.is_isolated, self.hears_most = len(brokers) > 1, len(brokers) < 2
        for broker in changed:
            for call in self.on_silence:
                call(broker)


class FakeReplicas:
    """One partition, led by this broker and followed by others."""

    def __init__(self) -> None:
        leader_state = SimpleNamespace(followers={OTHER: None})
        self.hosted = {T0: SimpleNamespace(leader_state=leader_state)}
        self.is_fenced, self.led_by = False, ME
        self.broken_off: list[BrokerId] = []
        self.shrunk_by: list[set[BrokerId]] = []

    def fence(self) -> None:
        self.is_fenced = True

    def unfence(self) -> None:
        self.is_fenced = False

    def superseded(self, tp: TopicPartition, leader: BrokerId, epoch: int) -> None:
        self.led_by = leader

    def break_off(self, broker: BrokerId) -> None:
        self.broken_off.append(broker)

    def shrink_isrs(self, silent: set[BrokerId]) -> None:
        self.shrunk_by.append(silent)


class FakePeer:
    """Answers with its leader and epoch of the topic."""

    def __init__(self) -> None:
        self.leader, self.epoch, self.trouble, self.questions = ME, 0, False, 0
        self.is_closed = False

    async def ask(self, request: Message, kind: type[M], version: int, timeout_s: float, /) -> M:
        assert isinstance(request, MetadataRequest)
        assert not request.allow_auto_topic_creation
        self.questions += 1
        if self.trouble:
            raise PeerLost("no answer in time")
        part = MetadataResponse.MetadataResponsePartition(
            partition_index=0, leader_id=self.leader, leader_epoch=self.epoch, isr_nodes=[2, 3]
        )
        topic = MetadataResponse.MetadataResponseTopic(name="t", partitions=[part])
        return cast(M, MetadataResponse(topics=[topic]))

    def close(self) -> None:
        self.is_closed = True


class CutOff:
    def __init__(self) -> None:
        self.metadata = MetadataCache(BrokerInfo(ME, {}), "cluster")
        at = metadata_cache.Endpoint("h", 9)
        self.metadata.brokers = {id: BrokerInfo(id, {"L": at}) for id in (ME, OTHER, THIRD)}
        topic = CachedTopic("t", new_id(uuid4), {0: CachedPartition(ME, 0, (1, 2, 3), (1, 2, 3))})
        self.metadata.topics["t"] = topic
        self.peer_monitor, self.replicas, self.peer = FakeMonitor(), FakeReplicas(), FakePeer()
        self.peers = Peers(self.metadata, "L", lambda _: self.peer)
        self.checks: list[None] = []  # each adds an entry at its begin
        self.controller = SimpleNamespace(is_active=False, silence_changed=lambda: self.checks.append(None))
        self.session: Callable[[SessionState], None] = lambda _: None
        self.leadership = Leadership(
            cast(Any, self), self.metadata, cast(Any, self.controller), self.peers,
            cast(Any, self.peer_monitor), cast(Any, self.replicas),
        )  # fmt: skip

    def watch_session(self, call: Callable[[SessionState], None]) -> SimpleNamespace:
        self.session = call
        return SimpleNamespace(cancel=lambda: None)


def run(test: Callable[[CutOff], Awaitable[None]]) -> None:
    async def main() -> None:
        cut_off = CutOff()
        try:
            await test(cut_off)
        finally:
            await cut_off.leadership.stop()

    asyncio.run(main())


def test_an_isolated_broker_is_fenced_until_a_peer_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leadline.controller.leadership.CHECK_S", 0.01)

    async def test(cut_off: CutOff) -> None:
        cut_off.peer_monitor.silence(OTHER, THIRD)
        await eventually(lambda: cut_off.replicas.is_fenced)
        assert cut_off.metadata.is_isolated
        assert cut_off.peer.questions == 0  # there is nobody to ask
        cut_off.peer.trouble = True
        cut_off.peer_monitor.silence(THIRD)
        await eventually(lambda: cut_off.peer.questions > 1)
        assert cut_off.replicas.is_fenced
        cut_off.peer.trouble = False
        await eventually(lambda: not cut_off.replicas.is_fenced)
        assert not cut_off.metadata.is_isolated
        assert cut_off.replicas.led_by == ME

    run(test)


def test_a_controller_in_touch_with_zookeeper_is_not_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leadline.controller.leadership.CHECK_S", 0.01)

    async def test(cut_off: CutOff) -> None:
        cut_off.controller.is_active = True
        cut_off.peer_monitor.silence(OTHER, THIRD)
        await eventually(lambda: sorted(cut_off.replicas.broken_off) == [OTHER, THIRD])
        checks = len(cut_off.checks)
        await eventually(lambda: len(cut_off.checks) >= checks + 2)
        assert not cut_off.replicas.is_fenced
        cut_off.session(SessionState.SUSPENDED)
        await eventually(lambda: cut_off.replicas.is_fenced)

    run(test)


def test_without_zookeeper_it_leads_until_others_know_of_a_later_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("leadline.controller.leadership.CHECK_S", 0.01)

    async def test(cut_off: CutOff) -> None:
        cut_off.session(SessionState.SUSPENDED)
        await eventually(lambda: cut_off.peer.questions > 2)
        assert cut_off.replicas.led_by == ME
        assert not cut_off.replicas.is_fenced
        cut_off.peer.leader, cut_off.peer.epoch = OTHER, 1
        await eventually(lambda: cut_off.replicas.led_by == OTHER)
        assert cut_off.metadata.leader_of(T0) == OTHER

    run(test)


def test_no_peer_is_queried_while_zookeeper_answers() -> None:
    async def test(cut_off: CutOff) -> None:
        cut_off.session(SessionState.CONNECTED)
        cut_off.peer_monitor.silence(THIRD)
        await eventually(lambda: bool(cut_off.replicas.shrunk_by))
        assert cut_off.replicas.shrunk_by[-1] == {THIRD}
        assert cut_off.peer.questions == 0

    run(test)


def test_a_silent_broker_gets_no_request_and_is_not_waited_for() -> None:
    async def test(cut_off: CutOff) -> None:
        await cut_off.peers.ask(THIRD, MetadataRequest(allow_auto_topic_creation=False), MetadataResponse, 9, 1.0)
        cut_off.peer_monitor.silence(THIRD)
        assert cut_off.peer.is_closed
        assert cut_off.replicas.broken_off == [THIRD]
        with pytest.raises(PeerLost, match="silent"):
            await cut_off.peers.ask(THIRD, MetadataRequest(), MetadataResponse, 9, 1.0)
        cut_off.peer_monitor.silence()
        assert cut_off.peers.endpoint_unless_silent(THIRD) == metadata_cache.Endpoint("h", 9)

    run(test)
