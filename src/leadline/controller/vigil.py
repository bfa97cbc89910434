"""Whether the controller is still there, as every other broker sees it.

A controller that is killed holds its office until its session times out, and nobody decides anything meanwhile. So each
broker keeps a connection to it. When that breaks and a new one is refused, nobody listens there: its process has ended,
and its office is given up in its name. A connection that only breaks says nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable

from leadline.controller.metadata import NO_CONTROLLER, Endpoint, Metadata
from leadline.model import BrokerId
from leadline.replication.channel import Peer, PeerGone, PeerLost
from leadline.wire.messages import ApiVersionsRequest, ApiVersionsResponse

PATIENCE_S = 10.0
RETRY_S = 0.2

Connect = Callable[[Endpoint, Callable[[], None]], Peer]  # the second is told when a connection that stood breaks


class Vigil:
    def __init__(
        self,
        metadata: Metadata,
        where: Callable[[BrokerId], Endpoint],
        connect: Connect,
        vacate: Callable[[BrokerId], Awaitable[None]],
    ) -> None:
        self._metadata, self._where, self._connect, self._vacate = metadata, where, connect, vacate
        self._watched: tuple[BrokerId, Endpoint] | None = None
        self._task: asyncio.Task[None] | None = None
        metadata.on_change.append(self._look)

    def _look(self) -> None:
        """Is it another one now?"""
        wanted = self._wanted()
        if wanted != self._watched:
            if self._task is not None:
                self._task.cancel()
            self._watched = wanted
            self._task = None if wanted is None else asyncio.create_task(self._watch(*wanted), name="vigil")

    def _wanted(self) -> tuple[BrokerId, Endpoint] | None:
        controller = self._metadata.controller
        if controller in (NO_CONTROLLER, self._metadata.me.id):
            return None
        try:
            return controller, self._where(controller)
        except PeerLost:
            return None

    async def _watch(self, controller: BrokerId, at: Endpoint) -> None:
        broke = asyncio.Event()
        peer = self._connect(at, broke.set)
        try:
            while True:
                broke.clear()
                try:
                    await peer.ask(ApiVersionsRequest(), ApiVersionsResponse, 0, PATIENCE_S)
                    await broke.wait()
                except PeerGone:
                    await self._vacate(controller)
                    await asyncio.sleep(RETRY_S)
                except PeerLost:
                    await asyncio.sleep(RETRY_S)
        finally:
            peer.close()

    async def stop(self) -> None:
        self._metadata.on_change.remove(self._look)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
