"""Requests to other brokers: one connection to each while it stays where it is, and none to a silent one."""

import asyncio
from typing import TypeVar

import pytest

from leadline.cluster.broker_client import PeerLost
from leadline.cluster.metadata_cache import BrokerInfo, Endpoint, MetadataCache
from leadline.cluster.peers import Peers
from leadline.wire.classes import Message
from leadline.wire.messages import ApiVersionsRequest, ApiVersionsResponse

M = TypeVar("M", bound=Message)


class FakeClient:
    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint, self.is_closed = endpoint, False

    async def ask(self, request: Message, kind: type[M], version: int, timeout_s: float, /) -> M:
        return kind()

    def close(self) -> None:
        self.is_closed = True


class Cluster:
    def __init__(self) -> None:
        self.metadata = MetadataCache(BrokerInfo(1, {}), "cluster")
        self.clients: list[FakeClient] = []
        self.peers = Peers(self.metadata, "PLAINTEXT", self._connect)
        self.place(2, 9002)

    def _connect(self, endpoint: Endpoint) -> FakeClient:
        self.clients.append(FakeClient(endpoint))
        return self.clients[-1]

    def place(self, broker: int, port: int) -> None:
        self.metadata.brokers[broker] = BrokerInfo(broker, {"PLAINTEXT": Endpoint("h", port)})

    def ask(self, broker: int) -> None:
        asyncio.run(self.peers.ask(broker, ApiVersionsRequest(), ApiVersionsResponse, 0, 1.0))


def test_a_connection_is_kept_until_the_broker_moves() -> None:
    cluster = Cluster()
    cluster.ask(2)
    cluster.ask(2)
    assert [client.endpoint.port for client in cluster.clients] == [9002]
    cluster.place(2, 9003)
    cluster.ask(2)
    assert [(client.endpoint.port, client.is_closed) for client in cluster.clients] == [(9002, True), (9003, False)]


def test_a_broker_that_the_metadata_do_not_name_is_lost() -> None:
    with pytest.raises(PeerLost):
        Cluster().ask(7)


def test_requests_to_a_silent_broker_fail_until_it_is_heard_again() -> None:
    cluster = Cluster()
    cluster.ask(2)
    cluster.peers.silence_changed(2, is_silent=True)
    assert cluster.clients[0].is_closed
    with pytest.raises(PeerLost, match="silent"):
        cluster.ask(2)
    cluster.peers.silence_changed(2, is_silent=False)
    cluster.ask(2)
    assert len(cluster.clients) == 2


def test_the_controller_is_reached_on_a_listener_of_its_own_where_there_is_one() -> None:
    cluster = Cluster()
    controllers = Peers(cluster.metadata, "CONTROL", cluster._connect)
    peers = Peers(cluster.metadata, "PLAINTEXT", cluster._connect, controllers)
    cluster.metadata.brokers[2] = BrokerInfo(2, {"PLAINTEXT": Endpoint("h", 9002), "CONTROL": Endpoint("h", 9003)})
    cluster.metadata.controller = 2
    asyncio.run(peers.ask_controller(ApiVersionsRequest(), ApiVersionsResponse, 0, 1.0))
    asyncio.run(peers.ask(2, ApiVersionsRequest(), ApiVersionsResponse, 0, 1.0))
    assert [client.endpoint.port for client in cluster.clients] == [9003, 9002]
    peers.silence_changed(2, is_silent=True)
    assert [client.is_closed for client in cluster.clients] == [True, True]
    with pytest.raises(PeerLost, match="broker 2 is silent"):
        asyncio.run(peers.ask_controller(ApiVersionsRequest(), ApiVersionsResponse, 0, 1.0))
    peers.silence_changed(2, is_silent=False)
    asyncio.run(peers.ask_controller(ApiVersionsRequest(), ApiVersionsResponse, 0, 1.0))
    peers.close()
    assert cluster.clients[-1].is_closed
