"""The controller's channel to one broker: its requests in order, each repeated until the broker answers or is gone.

`failure_detector` judges the attempts. A broker that refuses connections is reported as gone at once, whatever the tree
says, unless it has just registered: Kafka's own brokers register before they listen. A connection that breaks causes a
probe. A broker that is silent is reported as gone when the controller gives up on it. A broker that is gone is probed
until it answers, and then reported as back.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from leadline.cluster.broker_client import BrokerClient, PeerGone, PeerLost, probe_outcome
from leadline.cluster.failure_detector import FAILED_PROBE_TIMEOUT_S, FailureDetector, ProbeOutcome, Reachability
from leadline.controller.effects import Request
from leadline.controller.state import RegisteredBroker
from leadline.runtime.periodic import end_now
from leadline.wire.classes import Message
from leadline.wire.frames import encode_shared
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

PROBE_S = 0.25  # between two probes of a broker that is gone

Probe = ApiVersionsRequest
VERSIONS: dict[type[Message], tuple[type[Message], int]] = {
    LeaderAndIsrRequest: (LeaderAndIsrResponse, 7),
    UpdateMetadataRequest: (UpdateMetadataResponse, 8),
    StopReplicaRequest: (StopReplicaResponse, 4),
    Probe: (ApiVersionsResponse, 0),
}

# The callback runs when an open connection breaks.
Connect = Callable[[RegisteredBroker, Callable[[], None]], BrokerClient]


class BrokerEvents(Protocol):
    """Receives the responses and the failures of brokers."""

    def answered(self, broker: RegisteredBroker, request: Request, response: Message) -> None: ...

    def gone(self, broker: RegisteredBroker) -> None: ...

    def back(self, broker: RegisteredBroker) -> None: ...


class BrokerChannel:
    """The channel to one run of one broker. `is_new`: the broker has just registered, and may not listen yet."""

    def __init__(
        self, broker: RegisteredBroker, connect: Connect, events: BrokerEvents, timeout_s: float, *, is_new: bool
    ) -> None:
        self.broker, self._connect, self._events, self._timeout_s = broker, connect, events, timeout_s
        self._loop = asyncio.get_running_loop()
        self._detector = FailureDetector(self._loop.time(), has_answered=not is_new)
        self._client = connect(broker, self._probe)
        self._queue: asyncio.Queue[Request | Probe] = asyncio.Queue()
        self._unanswered = 0
        self.is_given_up = False  # the broker is silent and counts as gone
        self._deadline: asyncio.Timeout | None = None  # of the request in flight: it ends when the broker is given up
        self._task = asyncio.create_task(self._run(), name=f"controller to broker {broker.id}")

    def send(self, request: Request | Probe) -> None:
        if not isinstance(request, Probe):
            encode_shared(request, VERSIONS[type(request)][1])  # now, since many channels may be free to send at once
        self._unanswered += 1
        self._queue.put_nowait(request)

    def _probe(self) -> None:
        """The connection broke: does the broker still run?"""
        if not self._task.done():
            self.send(Probe())

    def reconnect(self, broker: RegisteredBroker) -> None:
        """The same run of the broker has other endpoints. A request under way is repeated there."""
        self._client.close()
        self.broker, self._client = broker, self._connect(broker, self._probe)

    def give_up(self) -> None:
        """The broker is silent, and most of the others answer: it counts as gone from now on."""
        if not self.is_given_up and not self._task.done():
            self.is_given_up = True
            if self._deadline is not None:
                end_now(self._deadline)
            else:
                self.send(Probe())

    @property
    def queue_size(self) -> int:
        """Requests that wait to be sent."""
        return self._queue.qsize()

    @property
    def is_idle(self) -> bool:
        return self._unanswered == 0

    async def answered_all(self) -> None:
        await self._queue.join()

    def close(self) -> "asyncio.Task[None]":
        """Closes the connection at once. The task that is returned ends a little later."""
        self._client.close()
        self._task.cancel()
        return self._task

    async def _run(self) -> None:
        while True:
            await self._deliver(await self._queue.get())

    async def _deliver(self, request: Request | Probe) -> None:
        """A call of its own: a channel that waits does not keep its last request and response, which may be large."""
        try:
            response = await self._until_answered(request)
        except PeerGone as error:
            await self._until_back(error)
        except Exception:
            log.exception("a bug: broker %d was not sent %s", self.broker.id, type(request).__name__)
        else:
            if not isinstance(request, Probe):
                self._events.answered(self.broker, request, response)
        finally:
            self._done()

    async def _until_answered(self, request: Message) -> Message:
        """PeerGone: the broker is gone, or is silent and given up."""
        try:
            async with asyncio.timeout(0 if self.is_given_up else None) as self._deadline:
                return await self._repeat(request)
        except TimeoutError:
            raise PeerGone(f"broker {self.broker.id} is silent") from None
        finally:
            self._deadline = None

    async def _repeat(self, request: Message) -> Message:
        response_type, version = VERSIONS[type(request)]
        is_reported = False
        while True:
            try:
                response = await self._client.ask(request, response_type, version, self._timeout_s)
            except PeerLost as error:
                if self._detector.judge(probe_outcome(error), self._loop.time()) is Reachability.GONE:
                    raise
                if not is_reported:
                    log.warning("repeating a request to broker %d until it answers: %s", self.broker.id, error)
                is_reported = True
                await asyncio.sleep(self._detector.next_retry_s())
            else:
                self._detector.judge(ProbeOutcome.ANSWERED, self._loop.time())
                return response

    async def _until_back(self, error: PeerGone) -> None:
        """Drops the queued requests: when the broker is back, the controller sends it everything again."""
        self._drop_queued()
        log.warning("broker %d counts as gone: %s", self.broker.id, error)
        self._events.gone(self.broker)
        await asyncio.sleep(PROBE_S)
        while not await self._answers():  # noqa: ASYNC110  nothing announces its return
            await asyncio.sleep(PROBE_S)
        self._detector.judge(ProbeOutcome.ANSWERED, self._loop.time())
        self._drop_queued()
        self.is_given_up = False
        log.warning("broker %d is reachable again", self.broker.id)
        self._events.back(self.broker)

    async def _answers(self) -> bool:
        with suppress(PeerLost):
            await self._client.ask(Probe(), ApiVersionsResponse, 0, FAILED_PROBE_TIMEOUT_S)
            return True
        return False

    def _drop_queued(self) -> None:
        while not self._queue.empty():
            self._queue.get_nowait()
            self._done()

    def _done(self) -> None:
        self._unanswered -= 1
        self._queue.task_done()
