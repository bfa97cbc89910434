"""What a broker asks of the controller, whoever that is at the moment.

The controller is who the last UpdateMetadata came from. A connection to it is kept until there is another.
"""

from collections.abc import Callable
from typing import TypeVar

from leadline.controller.metadata import BrokerInfo, Endpoint, Metadata
from leadline.replication.channel import Peer, PeerLost
from leadline.wire.classes import Message

M = TypeVar("M", bound=Message)


class ToController:
    """A peer, like any other. PeerLost also if nobody is known to be the controller."""

    def __init__(self, metadata: Metadata, listener: str, connect: Callable[[Endpoint], Peer]) -> None:
        self._metadata, self._listener, self._connect = metadata, listener, connect
        self._to: BrokerInfo | None = None
        self._peer: Peer | None = None

    async def ask(self, request: Message, kind: type[M], version: int, timeout_s: float, /) -> M:
        return await self._current().ask(request, kind, version, timeout_s)

    def _current(self) -> Peer:
        controller = self._metadata.brokers.get(self._metadata.controller)
        at = None if controller is None else controller.endpoints.get(self._listener)
        if at is None:
            raise PeerLost(f"no controller is known that listens on {self._listener}")
        if self._peer is None or self._to != controller:
            self.close()
            self._to, self._peer = controller, self._connect(at)
        return self._peer

    def close(self) -> None:
        if self._peer is not None:
            self._peer.close()
        self._to = self._peer = None
