"""The way from the controller to each broker: requests in their order, each until it is answered or the broker is gone.

A broker that refuses connections has ended, whatever the tree says, unless it has just begun: Kafka's own register
before they listen. It is told to be gone at once; a connection that breaks makes us look. From then on it is asked,
every now and then, whether it is there after all. A lost connection alone says nothing. A broker that is silent counts
as gone once the controller gives up on it.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from leadline.cluster.broker_client import BrokerClient, PeerGone, PeerLost
from leadline.controller.effects import Request
from leadline.controller.state import RegisteredBroker
from leadline.wire.classes import Message
from leadline.wire.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)

log = logging.getLogger(__name__)

FIRST_BACK_OFF_S, BACK_OFF_S = 0.01, 0.1  # a process that is ending may accept a connection before it refuses the next
PROBE_S = 0.25
PROBE_PATIENCE_S = 1.0  # a probe that was lost is soon followed by another, over a new connection

Response = LeaderAndIsrResponse | UpdateMetadataResponse | StopReplicaResponse
Probe = ApiVersionsRequest
VERSIONS: dict[type[Message], tuple[type[Message], int]] = {
    LeaderAndIsrRequest: (LeaderAndIsrResponse, 7),
    UpdateMetadataRequest: (UpdateMetadataResponse, 8),
    StopReplicaRequest: (StopReplicaResponse, 4),
    Probe: (ApiVersionsResponse, 0),
}


class BrokerEvents(Protocol):
    """Who is told of what comes back."""

    def answered(self, broker: RegisteredBroker, request: Request, response: Message) -> None: ...

    def gone(self, broker: RegisteredBroker) -> None: ...

    def back(self, broker: RegisteredBroker) -> None: ...


class BrokerChannel:
    """To one run of one broker. `is_new`: it has just registered, and may not listen yet."""

    def __init__(
        self, broker: RegisteredBroker, connect: "Connect", told: BrokerEvents, timeout_s: float, *, is_new: bool
    ) -> None:
        self.broker, self._told, self._timeout_s, self._is_new = broker, told, timeout_s, is_new
        self._peer = connect(broker, self._lost)
        self._queue: asyncio.Queue[Request | Probe] = asyncio.Queue()
        self._unanswered = 0
        self.is_given_up = False  # it is silent, and counts as gone
        self._asking: asyncio.Timeout | None = None  # while a request is under way
        self._task = asyncio.create_task(self._run(), name=f"controller to broker {broker.id}")

    def _lost(self) -> None:
        """A connection broke: is somebody still there?"""
        if not self._task.done():
            self.send(Probe())

    def send(self, request: Request | Probe) -> None:
        self._unanswered += 1
        self._queue.put_nowait(request)

    def give_up(self) -> None:
        """The broker is silent, and the controller hears most of the others."""
        if not self.is_given_up and not self._task.done():
            self.is_given_up = True
            if self._asking is not None:
                self._asking.reschedule(asyncio.get_running_loop().time())
            else:
                self.send(Probe())

    @property
    def is_idle(self) -> bool:
        return self._unanswered == 0

    async def answered_all(self) -> None:
        await self._queue.join()

    def close(self) -> "asyncio.Task[None]":
        """At once. The task ends when it is its turn."""
        self._peer.close()
        self._task.cancel()
        return self._task

    async def _run(self) -> None:
        while True:
            request = await self._queue.get()
            kind, version = VERSIONS[type(request)]
            try:
                response = await self._until_answered(request, kind, version)
            except PeerGone as error:
                await self._until_back(error)
            except Exception:
                log.exception("broker %d was not told what it should be: what happened is a bug", self.broker.id)
            else:
                if not isinstance(request, Probe):
                    self._told.answered(self.broker, request, response)
            finally:
                self._done()

    async def _until_answered(self, request: Message, kind: type[Message], version: int) -> Message:
        """PeerGone."""
        try:
            async with asyncio.timeout(0 if self.is_given_up else None) as self._asking:
                return await self._ask_again(request, kind, version)
        except TimeoutError:
            raise PeerGone(f"broker {self.broker.id} is silent") from None
        finally:
            self._asking = None

    async def _ask_again(self, request: Message, kind: type[Message], version: int) -> Message:
        """PeerGone: nobody listens there."""
        complained, rest_s = False, FIRST_BACK_OFF_S
        while True:
            try:
                response = await self._peer.ask(request, kind, version, self._timeout_s)
            except PeerLost as error:
                if isinstance(error, PeerGone) and not self._is_new:
                    raise
                if not complained:
                    log.warning("broker %d is asked again until it answers: %s", self.broker.id, error)
                complained = True
                await asyncio.sleep(rest_s)
                rest_s = min(2 * rest_s, BACK_OFF_S)
            else:
                self._is_new = False
                return response

    async def _until_back(self, error: PeerGone) -> None:
        """What waits is out of date: once it is back it is told everything."""
        self._forget_all()
        log.warning("broker %d counts as gone: %s", self.broker.id, error)
        self._told.gone(self.broker)
        while True:
            await asyncio.sleep(PROBE_S)
            with suppress(PeerLost):
                await self._peer.ask(Probe(), ApiVersionsResponse, 0, PROBE_PATIENCE_S)
                break
        self._forget_all()
        self.is_given_up = False
        log.warning("broker %d was thought gone, and is not", self.broker.id)
        self._told.back(self.broker)

    def _forget_all(self) -> None:
        while not self._queue.empty():
            self._queue.get_nowait()
            self._done()

    def _done(self) -> None:
        self._unanswered -= 1
        self._queue.task_done()


Connect = Callable[
    [RegisteredBroker, Callable[[], None]], BrokerClient
]  # the second is told when a connection that stood breaks
