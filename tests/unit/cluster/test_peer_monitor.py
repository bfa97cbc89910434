"""The monitor of other brokers: which are suspected, for how long, and on whose behalf it resigns."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

import pytest

from leadline.cluster import peer_monitor
from leadline.cluster.broker_client import PeerGone, PeerLost
from leadline.cluster.metadata_cache import BrokerInfo, Endpoint, MetadataCache
from leadline.cluster.peer_monitor import PeerMonitor
from leadline.model import BrokerId
from leadline.runtime import periodic
from leadline.wire.classes import Message
from leadline.wire.messages import UpdateMetadataRequest
from tests.support.waiting import eventually

ME, OTHER, CONTROLLER, NOBODY = 1, 2, 3, -1
SILENCE_S = 600.0  # longer than any test
M = TypeVar("M", bound=Message)


class FakePeer:
    """Answers, is silent or fails, as the test sets it."""

    def __init__(self, lost: Callable[[], None]) -> None:
        self.lost, self.is_closed = lost, False
        self.fails_with: PeerLost | None = None
        self.answers = asyncio.Event()
        self.answers.set()

    async def ask(self, request: Message, kind: type[M], version: int, timeout_s: float, /) -> M:
        await self.answers.wait()
        if self.fails_with is not None:
            raise self.fails_with
        return kind()

    def close(self) -> None:
        self.is_closed = True

    def break_off(self, error: PeerLost) -> None:
        self.fails_with = error
        self.answers.set()
        self.lost()


class Watched:
    def __init__(self, silence_s: float = SILENCE_S) -> None:
        self.metadata = MetadataCache(BrokerInfo(ME, {}), "cluster")
        self.peers: dict[int, FakePeer] = {}
        self.resigned: list[BrokerId] = []
        self.peer_monitor = PeerMonitor(
            self.metadata, lambda id: Endpoint("h", id), self._connect, self._resign_on_behalf, silence_s
        )
        self.tell(ME, OTHER, CONTROLLER)

    def _connect(self, at: Endpoint, lost: Callable[[], None]) -> Any:
        self.peers[at.port] = FakePeer(lost)
        return self.peers[at.port]

    async def _resign_on_behalf(self, broker: BrokerId) -> None:
        self.resigned.append(broker)

    def tell(self, *brokers: BrokerId) -> None:
        live = [UpdateMetadataRequest.UpdateMetadataBroker(id=id, v0_host="h", v0_port=id) for id in brokers]
        self.metadata.update(UpdateMetadataRequest(controller_id=CONTROLLER, controller_epoch=1, live_brokers=live))


def run(test: Callable[[Watched], Awaitable[None]], silence_s: float = SILENCE_S) -> None:
    async def main() -> None:
        watched = Watched(silence_s)
        await turns()
        try:
            await test(watched)
        finally:
            await watched.peer_monitor.stop()

    asyncio.run(main())


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_all_others_are_watched() -> None:
    async def test(watched: Watched) -> None:
        assert watched.peers.keys() == {OTHER, CONTROLLER}
        watched.tell(ME, CONTROLLER)
        await turns()
        assert watched.peers[OTHER].is_closed
        assert not watched.peers[CONTROLLER].is_closed

    run(test)


def test_a_broker_whose_connection_breaks_is_suspected_at_once_until_it_answers() -> None:
    async def test(watched: Watched) -> None:
        peer = watched.peers[OTHER]
        peer.answers.clear()
        peer.lost()
        assert watched.metadata.suspected == {OTHER}
        peer.answers.set()
        await turns()
        assert watched.metadata.suspected == set()

    run(test)


def test_a_broker_that_is_suspected_for_long_is_believed_to_be_what_the_controller_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peer_monitor, "SUSPICION_S", 0.01)

    async def test(watched: Watched) -> None:
        watched.peers[OTHER].break_off(PeerGone("nobody listens"))
        await turns()
        assert watched.metadata.suspected == {OTHER}
        await eventually(lambda: not watched.metadata.suspected)

    run(test)


def test_a_controller_that_refuses_connections_is_resigned_on_behalf_of_and_no_other_broker() -> None:
    async def test(watched: Watched) -> None:
        watched.peers[OTHER].break_off(PeerGone("nobody listens"))
        watched.peers[CONTROLLER].break_off(PeerLost("it broke"))
        await turns()
        assert watched.resigned == []
        watched.peers[CONTROLLER].break_off(PeerGone("nobody listens"))
        await turns()
        assert watched.resigned == [CONTROLLER]

    run(test)


def test_a_controller_that_never_listened_stays_the_controller() -> None:
    async def test(watched: Watched) -> None:
        watched.tell(ME)
        watched.tell(ME, CONTROLLER)
        watched.peers[CONTROLLER].fails_with = PeerGone("nobody listens yet")
        await turns()
        assert watched.resigned == []

    run(test)


def test_a_leader_is_named_once_it_has_answered() -> None:
    async def test(watched: Watched) -> None:
        for peer in watched.peers.values():
            peer.answers.clear()
        settled = asyncio.create_task(watched.peer_monitor.settled(lambda: {ME, OTHER, NOBODY}))
        await turns()
        assert not settled.done()
        watched.peers[OTHER].answers.set()
        await turns()
        assert settled.done()

    run(test)


def test_a_leader_that_is_busy_is_named_after_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_monitor, "LEADER_PROBE_S", 0.01)

    async def test(watched: Watched) -> None:
        watched.peers[OTHER].answers.clear()
        async with asyncio.timeout(120):
            await watched.peer_monitor.settled(lambda: {OTHER})
        assert watched.metadata.suspected == set()

    run(test)


def test_instead_of_a_leader_that_is_gone_the_next_is_waited_for() -> None:
    async def test(watched: Watched) -> None:
        leader = OTHER
        watched.peers[OTHER].answers.clear()
        settled = asyncio.create_task(watched.peer_monitor.settled(lambda: {leader}))
        watched.peers[OTHER].break_off(PeerGone("nobody listens"))
        await turns()
        assert watched.metadata.suspected == {OTHER}
        watched.tell(ME, OTHER, CONTROLLER)  # that it leads is believed still
        await turns()
        assert not settled.done()
        leader = CONTROLLER
        watched.tell(ME, OTHER, CONTROLLER)
        await turns()
        assert settled.done()

    run(test)


def test_a_leader_that_answers_again_was_suspected_for_nothing() -> None:
    async def test(watched: Watched) -> None:
        watched.peers[OTHER].break_off(PeerLost("it broke"))
        settled = asyncio.create_task(watched.peer_monitor.settled(lambda: {OTHER}))
        await turns()
        assert not settled.done()
        watched.peers[OTHER].fails_with = None
        await asyncio.wait_for(settled, 30)
        assert watched.metadata.suspected == set()

    run(test)


def test_the_next_leader_is_not_waited_for_longer_than_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_monitor, "SETTLE_S", 0.01)

    async def test(watched: Watched) -> None:
        watched.peers[OTHER].break_off(PeerGone("nobody listens"))
        async with asyncio.timeout(120):
            await watched.peer_monitor.settled(lambda: {OTHER})
        assert watched.metadata.suspected == {OTHER}

    run(test)


def test_a_departed_broker_is_kept_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_monitor, "DEPARTED_TTL_S", 0.01)

    async def test(watched: Watched) -> None:
        watched.tell(ME, CONTROLLER)
        assert watched.metadata.departed.keys() == {OTHER}
        await eventually(lambda: not watched.metadata.departed)
        watched.tell(ME, OTHER)
        assert watched.metadata.departed.keys() == {CONTROLLER}
        watched.tell(ME, OTHER, CONTROLLER)
        assert watched.metadata.departed == {}

    run(test)


def test_a_new_broker_is_informed_once_it_has_an_update_of_the_controller() -> None:
    async def main() -> None:
        metadata = MetadataCache(BrokerInfo(ME, {}), "cluster")
        fresh = PeerMonitor(metadata, lambda id: Endpoint("h", id), cast(Any, None), cast(Any, None), SILENCE_S)
        waiting = asyncio.create_task(fresh.informed())
        await turns()
        assert not fresh.is_informed
        assert not waiting.done()
        metadata.update(UpdateMetadataRequest(controller_id=CONTROLLER, controller_epoch=1))
        await asyncio.wait_for(waiting, 30)
        assert fresh.is_informed
        await fresh.stop()

    asyncio.run(main())


def test_without_a_controller_clients_wait_for_it_once_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_monitor, "INFORMED_S", 0.01)

    async def main() -> None:
        metadata = MetadataCache(BrokerInfo(ME, {}), "cluster")
        fresh = PeerMonitor(metadata, lambda id: Endpoint("h", id), cast(Any, None), cast(Any, None), SILENCE_S)
        await fresh.informed()
        assert fresh.is_informed
        await fresh.stop()

    asyncio.run(main())


# Silence

SHORT_S = 0.04
NO_ANSWER = PeerLost("no answer in time")


def test_a_broker_that_does_not_answer_for_long_enough_is_silent_until_it_is_heard() -> None:
    async def test(watched: Watched) -> None:
        changes: list[BrokerId] = []
        watched.peer_monitor.on_silence.append(changes.append)
        watched.peers[OTHER].fails_with = NO_ANSWER
        await eventually(lambda: watched.peer_monitor.silent == {OTHER})
        assert changes == [OTHER]
        assert watched.peer_monitor.unheard == {OTHER}
        assert watched.peer_monitor.hears_most
        watched.peers[OTHER].fails_with = None
        await eventually(lambda: watched.peer_monitor.silent == set())
        assert changes == [OTHER, OTHER]
        assert watched.peer_monitor.unheard == set()

    run(test, SHORT_S)


def test_a_bug_of_whoever_hears_of_a_silence_does_not_end_the_watch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(periodic, "RESTART_S", 0.001)

    def fail(_: BrokerId) -> None:
        raise RuntimeError("Cannot change state of expiring Timeout")

    async def test(watched: Watched) -> None:
        watched.peer_monitor.on_silence.append(fail)
        watched.peers[OTHER].break_off(PeerLost("it broke"))
        await eventually(lambda: watched.peer_monitor.silent == {OTHER})
        watched.peers[OTHER].fails_with = None
        await eventually(lambda: not watched.peer_monitor.silent)

    run(test, silence_s=0.01)
    assert f"a bug in the task 'monitor of broker {OTHER}'" in caplog.text


def test_a_broker_that_missed_one_look_is_unheard_and_not_yet_silent() -> None:
    async def test(watched: Watched) -> None:
        peer = watched.peers[OTHER]
        peer.break_off(NO_ANSWER)
        await eventually(lambda: watched.peer_monitor.unheard == {OTHER})
        assert watched.peer_monitor.silent == set()
        peer.fails_with = None
        await eventually(lambda: watched.peer_monitor.unheard == set())

    run(test)


def test_a_broker_that_refuses_connections_has_ended_and_is_not_silent() -> None:
    async def test(watched: Watched) -> None:
        checks: list[None] = []
        watched.peers[OTHER].break_off(PeerGone("nobody listens"))
        watched.peers[CONTROLLER].fails_with = NO_ANSWER
        watched.peer_monitor.on_silence.append(lambda _: checks.append(None))
        await eventually(lambda: bool(checks))
        assert watched.peer_monitor.silent == {CONTROLLER}

    run(test, SHORT_S)


def test_a_broker_that_hears_no_other_is_isolated() -> None:
    async def test(watched: Watched) -> None:
        for peer in watched.peers.values():
            peer.fails_with = NO_ANSWER
        await eventually(lambda: watched.peer_monitor.is_isolated)
        assert not watched.peer_monitor.hears_most
        assert watched.resigned == []

    run(test, SHORT_S)


def test_a_broker_that_hears_most_resigns_on_behalf_of_a_silent_controller() -> None:
    async def test(watched: Watched) -> None:
        watched.peers[CONTROLLER].fails_with = NO_ANSWER
        await eventually(lambda: watched.resigned[:1] == [CONTROLLER])
        assert watched.peer_monitor.silent == {CONTROLLER}

    run(test, SHORT_S)


def test_a_broker_that_is_not_one_of_the_cluster_any_longer_is_not_silent() -> None:
    async def test(watched: Watched) -> None:
        changes: list[BrokerId] = []
        watched.peers[OTHER].fails_with = NO_ANSWER
        await eventually(lambda: watched.peer_monitor.silent == {OTHER})
        watched.peer_monitor.on_silence.append(changes.append)
        watched.tell(ME, CONTROLLER)
        assert changes == [OTHER]
        assert watched.peer_monitor.silent == set()

    run(test, SHORT_S)
