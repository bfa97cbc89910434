"""How the parts of a broker reach other brokers: the controller's requests, fetches, and requests to the controller.

All connections to other brokers are made here. They go to the inter-broker listener, or to that of
control.plane.listener.name between the controller and the other brokers, and are protected as it is.

A broker that is the controller itself serves its own requests without a connection.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

from leadline.api.authorization import OWN_REQUEST
from leadline.api.context import ClientConnection, Context, Services
from leadline.api.inter_broker import LoopbackPeer, alter_partition, controlled_shutdown
from leadline.cluster.broker_client import BrokerClient, LeaderClient, PeerLost, TcpBrokerClient
from leadline.cluster.broker_login import PeerSecurity
from leadline.cluster.metadata_cache import Endpoint
from leadline.config.live_settings import LiveSettings
from leadline.controller.state import RegisteredBroker as Registered
from leadline.model import BrokerId
from leadline.runtime.network import Network
from leadline.wire.classes import Message
from leadline.wire.messages import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)

M = TypeVar("M", bound=Message)


class UnreachableBroker:
    """A broker without the listener on which it would be reached. Another one may be protected otherwise."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    async def ask(self, request: Message, kind: type[M], version: int, timeout_s: float, /) -> M:
        raise PeerLost(self._reason)

    def close(self) -> None:
        """There is nothing to close."""


class InterBroker:
    """`services` is set before the first request: the services and this object know each other."""

    services: Services

    def __init__(
        self, settings: LiveSettings, me: BrokerId, network: Network, securities: Mapping[str, PeerSecurity]
    ) -> None:
        """`securities`: of protected listeners, by name."""
        self._settings, self._me, self._network, self._securities = settings, me, network, securities

    def channel(self, endpoint: Endpoint, lost: Callable[[], None] = lambda: None) -> TcpBrokerClient:
        """A connection to an endpoint of the inter-broker listener; `lost` is called when it breaks."""
        return self._connect(self._settings.listeners.inter_broker.name, endpoint, lost)

    def controller_channel(self, endpoint: Endpoint) -> TcpBrokerClient:
        """A connection to an endpoint of the listener on which controllers are reached."""
        return self._connect(self._settings.listeners.controllers.name, endpoint)

    def _connect(self, listener: str, endpoint: Endpoint, lost: Callable[[], None] = lambda: None) -> TcpBrokerClient:
        config = self._settings.broker
        setup_ms = config.socket_connection_setup_timeout_ms, config.socket_connection_setup_timeout_max_ms
        setup_s = setup_ms[0] / 1000, setup_ms[1] / 1000
        security = self._securities.get(listener)
        return TcpBrokerClient(endpoint, str(self._me), self._network, lost, setup_s, security)

    def source(self, id: BrokerId) -> LeaderClient:
        """A leader to fetch from. PeerLost if the metadata do not name it, or it is silent."""
        return self.channel(self.services.peers.endpoint_unless_silent(id))

    def controlled(self, broker: Registered, lost: Callable[[], None] = lambda: None) -> BrokerClient:
        """A broker, as the controller reaches it."""
        if broker.id == self._me:
            return LoopbackPeer(self.services)
        name = self._settings.listeners.controllers.name
        for endpoint in broker.endpoints:
            if endpoint.listener == name:
                return self._connect(name, Endpoint(endpoint.host or "", endpoint.port), lost)
        return UnreachableBroker(f"broker {broker.id} does not listen on {name}")

    async def alter_partition(self, request: AlterPartitionRequest, version: int) -> AlterPartitionResponse:
        """Asks the controller for another ISR."""
        if self.services.controller.is_active:
            return await alter_partition(request, self._own_request(version))
        timeout_s = self._settings.request_timeout_s
        return await self.services.peers.ask_controller(request, AlterPartitionResponse, version, timeout_s)

    async def shut_down(self, request: ControlledShutdownRequest, version: int) -> ControlledShutdownResponse:
        """Asks the controller to elect other leaders."""
        if self.services.controller.is_active:
            return await controlled_shutdown(request, self._own_request(version))
        timeout_s = self._settings.broker.controller_socket_timeout_ms / 1000
        return await self.services.peers.ask_controller(request, ControlledShutdownResponse, version, timeout_s)

    def _own_request(self, version: int) -> Context:
        return Context(self.services, version, None, ClientConnection("", ""), OWN_REQUEST)
