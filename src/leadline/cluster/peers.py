"""Requests to other brokers, and to the present controller.

The last UpdateMetadata has their addresses. One connection to each broker is kept until its address changes. A request
to a silent broker fails at once.
"""

from collections.abc import Callable
from typing import TypeVar

from leadline.cluster.broker_client import BrokerClient, PeerLost
from leadline.cluster.metadata_cache import Endpoint, MetadataCache
from leadline.model import BrokerId
from leadline.wire.classes import Message

M = TypeVar("M", bound=Message)


class Peers:
    """The other brokers. PeerLost also for a broker that is not in the metadata.

    `controllers`: the same brokers on another listener, on which the controller is reached.
    """

    def __init__(
        self,
        metadata: MetadataCache,
        listener: str,
        connect: Callable[[Endpoint], BrokerClient],
        controllers: "Peers | None" = None,
    ) -> None:
        self._metadata, self._listener, self._connect, self._controllers = metadata, listener, connect, controllers
        self._peers: dict[BrokerId, tuple[Endpoint, BrokerClient]] = {}
        self.silent: set[BrokerId] = set()

    async def ask(self, broker: BrokerId, request: Message, kind: type[M], version: int, timeout_s: float) -> M:
        return await self._peer(broker).ask(request, kind, version, timeout_s)

    async def ask_controller(self, request: Message, kind: type[M], version: int, timeout_s: float) -> M:
        peers = self._controllers or self
        return await peers.ask(self._metadata.controller, request, kind, version, timeout_s)

    def endpoint(self, broker: BrokerId) -> Endpoint:
        info = self._metadata.brokers.get(broker)
        if info is None or self._listener not in info.endpoints:
            raise PeerLost(f"broker {broker} is unknown, or does not listen on {self._listener}")
        return info.endpoints[self._listener]

    def endpoint_unless_silent(self, broker: BrokerId) -> Endpoint:
        """As `endpoint`. PeerLost also for a silent broker."""
        if broker in self.silent:
            raise PeerLost(f"broker {broker} is silent")
        return self.endpoint(broker)

    def silence_changed(self, broker: BrokerId, *, is_silent: bool) -> None:
        """When a broker falls silent, requests to it fail."""
        if self._controllers is not None:
            self._controllers.silence_changed(broker, is_silent=is_silent)
        if not is_silent:
            self.silent.discard(broker)
        elif broker not in self.silent:
            self.silent.add(broker)
            _, peer = self._peers.pop(broker, (None, None))
            if peer is not None:
                peer.close()

    def _peer(self, broker: BrokerId) -> BrokerClient:
        endpoint = self.endpoint_unless_silent(broker)
        connected = self._peers.get(broker)
        if connected is not None and connected[0] == endpoint:
            return connected[1]
        if connected is not None:
            connected[1].close()
        peer = self._connect(endpoint)
        self._peers[broker] = endpoint, peer
        return peer

    def close(self) -> None:
        if self._controllers is not None:
            self._controllers.close()
        for _, peer in self._peers.values():
            peer.close()
        self._peers.clear()
