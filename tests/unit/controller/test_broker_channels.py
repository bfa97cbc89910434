"""The controller's channels: one for each run of each registered broker, and which silent brokers are given up."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from leadline.cluster.broker_client import PeerGone, PeerLost
from leadline.config.broker import broker_settings
from leadline.config.live_settings import LiveSettings
from leadline.controller.broker_channels import BrokerChannels
from leadline.controller.effects import BrokerRequest, Request
from leadline.controller.silence_monitor import NoSilenceMonitor
from leadline.controller.state import ControllerState, RegisteredBroker
from leadline.coordination.registration import RegisteredEndpoint
from leadline.model import BrokerId
from leadline.wire.classes import Message
from leadline.wire.messages import UpdateMetadataRequest

M = TypeVar("M", bound=Message)
TEST_S = 120.0
REQUEST = UpdateMetadataRequest()


class FakeClient:
    """A connection to one run of a broker. It answers, raises its error, or hangs."""

    def __init__(self, broker: RegisteredBroker) -> None:
        self.broker, self.is_closed, self.hangs = broker, False, False
        self.error: PeerLost | None = None

    async def ask(self, request: Message, kind: type[M], version: int, timeout_s: float, /) -> M:
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        return kind()

    def close(self) -> None:
        self.is_closed = True


class FakeCluster:
    """Makes connections, and receives the events of all channels."""

    def __init__(self, *brokers: RegisteredBroker) -> None:
        self.state = ControllerState(0, 1, brokers={broker.id: broker for broker in brokers})
        self.clients: list[FakeClient] = []
        self.events: list[tuple[str, BrokerId]] = []
        self.happened = asyncio.Event()
        settings = LiveSettings(broker_settings({"zookeeper.connect": "z"}))
        self.channels = BrokerChannels(settings, self.connect, self)

    def connect(self, broker: RegisteredBroker, lost: Callable[[], None]) -> FakeClient:
        self.clients.append(FakeClient(broker))
        return self.clients[-1]

    def client(self, id: BrokerId) -> FakeClient:
        return next(client for client in reversed(self.clients) if client.broker.id == id)

    def answered(self, broker: RegisteredBroker, request: Request, response: Message) -> None:
        self._note("answered", broker)

    def gone(self, broker: RegisteredBroker) -> None:
        self._note("gone", broker)

    def back(self, broker: RegisteredBroker) -> None:
        self._note("back", broker)

    def _note(self, event: str, broker: RegisteredBroker) -> None:
        self.events.append((event, broker.id))
        self.happened.set()

    async def until(self, event: str, id: BrokerId) -> None:
        while (event, id) not in self.events:
            self.happened.clear()
            await self.happened.wait()

    async def close(self) -> None:
        self.channels.close()
        await self.channels.closed()


def broker(id: BrokerId, epoch: int = 1) -> RegisteredBroker:
    return RegisteredBroker(id, epoch, ())


def test_a_broker_that_registers_again_gets_a_new_connection_and_one_that_left_loses_its_own() -> None:
    async def scenario() -> None:
        cluster = FakeCluster(broker(1), broker(2), broker(3))
        cluster.channels.update(cluster.state)
        cluster.state.brokers = {1: broker(1), 2: broker(2, epoch=5)}
        cluster.state.gone = {3: broker(3)}
        cluster.channels.update(cluster.state)
        connections = [(client.broker.id, client.broker.epoch, client.is_closed) for client in cluster.clients]
        assert connections == [(1, 1, False), (2, 1, True), (3, 1, False), (2, 5, False)]
        cluster.state.gone.clear()
        cluster.channels.update(cluster.state)
        assert cluster.client(3).is_closed
        await cluster.close()
        assert all(client.is_closed for client in cluster.clients)

    asyncio.run(asyncio.wait_for(scenario(), TEST_S))


def test_a_broker_with_other_endpoints_is_reached_there_and_a_request_under_way_is_repeated() -> None:
    async def scenario() -> None:
        cluster = FakeCluster(broker(1))
        cluster.channels.update(cluster.state)
        cluster.client(1).error = PeerLost("its listener is closed")
        cluster.channels.send(BrokerRequest(1, REQUEST))
        await asyncio.sleep(0)
        moved = RegisteredBroker(1, 1, (RegisteredEndpoint("PLAINTEXT", "there", 9092, "PLAINTEXT"),))
        cluster.state.brokers[1] = moved
        for _ in range(2):
            cluster.channels.update(cluster.state)
        await cluster.until("answered", 1)
        assert [(client.broker, client.is_closed) for client in cluster.clients] == [(broker(1), True), (moved, False)]
        await cluster.close()

    asyncio.run(asyncio.wait_for(scenario(), TEST_S))


def test_requests_go_to_their_brokers_and_none_to_brokers_without_a_channel() -> None:
    async def scenario() -> None:
        cluster = FakeCluster(broker(1), broker(2))
        cluster.channels.update(cluster.state)
        assert cluster.channels.are_idle
        cluster.channels.send(BrokerRequest(2, REQUEST))
        cluster.channels.send(BrokerRequest(9, REQUEST))
        assert not cluster.channels.are_idle
        await cluster.channels.answered()
        assert cluster.channels.are_idle
        assert cluster.events == [("answered", 2)]
        await cluster.close()

    asyncio.run(asyncio.wait_for(scenario(), TEST_S))


def test_the_answers_of_some_brokers_are_awaited_without_those_of_others() -> None:
    async def scenario() -> None:
        cluster = FakeCluster(broker(1), broker(2))
        cluster.channels.update(cluster.state)
        cluster.client(1).hangs = True
        cluster.channels.send(BrokerRequest(1, REQUEST))
        cluster.channels.send(BrokerRequest(2, REQUEST))
        await cluster.channels.answered_by([2, 9])
        assert cluster.events == [("answered", 2)]
        await cluster.close()

    asyncio.run(asyncio.wait_for(scenario(), TEST_S))


def test_a_refusal_means_gone_only_of_a_broker_that_was_there_at_the_election() -> None:
    async def scenario() -> None:
        cluster = FakeCluster(broker(1))
        cluster.channels.elected(cluster.state)
        cluster.state.brokers[2] = broker(2, epoch=7)
        cluster.channels.update(cluster.state)
        for id in (1, 2):
            cluster.client(id).error = PeerGone("refused")
        cluster.channels.send(BrokerRequest(2, REQUEST))
        cluster.channels.send(BrokerRequest(1, REQUEST))
        await cluster.until("gone", 1)
        cluster.client(2).error = None
        await cluster.until("answered", 2)
        assert ("gone", 2) not in cluster.events
        await cluster.close()

    asyncio.run(asyncio.wait_for(scenario(), TEST_S))


def test_a_silent_broker_is_given_up_only_if_most_brokers_are_heard() -> None:
    async def scenario() -> None:
        cluster = FakeCluster(*(broker(id) for id in range(1, 5)))
        cluster.channels.update(cluster.state)
        monitor = NoSilenceMonitor()
        monitor.silent, monitor.unheard = {4}, {3, 4}
        for client in cluster.clients:
            client.hangs = True
        cluster.channels.send(BrokerRequest(4, REQUEST))
        cluster.channels.give_up_silent(cluster.state.brokers, monitor)
        monitor.unheard = {4}
        cluster.channels.give_up_silent(cluster.state.brokers, monitor)
        await cluster.until("gone", 4)
        assert cluster.events == [("gone", 4)]
        monitor.silent = monitor.unheard = {3}
        cluster.channels.give_up_silent([1, 2, 3], monitor)
        cluster.channels.send(BrokerRequest(3, REQUEST))
        cluster.client(3).hangs = False
        await cluster.until("answered", 3)
        assert ("gone", 3) not in cluster.events, "a broker that was given up still counts as not heard"
        await cluster.close()

    asyncio.run(asyncio.wait_for(scenario(), TEST_S))
