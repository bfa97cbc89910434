"""Whether the other brokers still run, as this broker sees it.

Each broker keeps a connection to each other broker and probes it at intervals. `failure_detector` judges the outcomes.

    suspected   The connection broke, so the broker may have ended. Clients are not sent there until it answers again,
                the controller names another leader, or SUSPICION_S have passed: the controller may know better.
    gone        A killed controller stays registered until its session expires. A broker whose connection to it is
                refused therefore deletes /controller on its behalf.
    silent      The connection stands, but nothing comes through. A broker that hears most of the others deletes
                /controller on behalf of a silent controller, too.

A client whose leader was killed asks another broker within a millisecond who leads, perhaps before that broker knows.
librdkafka then does nothing for a second, whether the response names the old leader or none. If it names the old
controller, librdkafka waits for that one. So leaders and controllers are probed before a response names them, and a
response waits for the successor of one that is suspected: that takes less time.

The address of a broker that has departed is kept for a while, for clients. Clients get no metadata before the first
UpdateMetadata: librdkafka would forget all brokers that a new broker does not know yet.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

from leadline.cluster import failure_detector
from leadline.cluster.broker_client import BrokerClient, PeerLost, probe_outcome
from leadline.cluster.failure_detector import FailureDetector, MajorityDetector, ProbeOutcome, Reachability
from leadline.cluster.metadata_cache import Endpoint, MetadataCache
from leadline.model import BrokerId
from leadline.runtime.ended_tasks import all_ended
from leadline.runtime.periodic import kept_running
from leadline.wire.messages import ApiVersionsRequest, ApiVersionsResponse

log = logging.getLogger(__name__)

LEADER_PROBE_S = 0.1  # a leader that takes longer is busy, and alive
SETTLE_S = 1.0  # other requests on the same connection wait as well
SUSPICION_S = 3.0
DEPARTED_TTL_S = 5.0
INFORMED_S = 5.0  # there may be no controller

Connect = Callable[[Endpoint, Callable[[], None]], BrokerClient]  # the callback runs when an open connection breaks
ResignOnBehalf = Callable[[BrokerId], Awaitable[None]]  # deletes /controller if it names this broker


class PeerMonitor:
    """The watch over all other brokers. `silence_s`: how long a broker must be unheard to count as silent."""

    def __init__(
        self,
        metadata: MetadataCache,
        where: Callable[[BrokerId], Endpoint],
        connect: Connect,
        resign_on_behalf: ResignOnBehalf,
        silence_s: float,
    ) -> None:
        self._metadata, self._where, self._connect = metadata, where, connect
        self._resign_on_behalf, self.silence_s = resign_on_behalf, silence_s
        self._loop = asyncio.get_running_loop()
        self._majority = MajorityDetector(self._loop.time(), silence_s)
        self.on_silence: list[Callable[[BrokerId], None]] = []  # called when a broker falls silent or is heard again
        self._watches: dict[BrokerId, _PeerWatch] = {}
        self._departures: dict[BrokerId, asyncio.TimerHandle] = {}
        self._informed = asyncio.Event()
        self._changed = asyncio.Event()  # of leaders or of suspicions; replaced after each change
        metadata.on_change.append(self._metadata_changed)

    @property
    def silent(self) -> set[BrokerId]:
        """Brokers that have not answered for `silence_s`."""
        return {id for id, watch in self._watches.items() if watch.is_silent}

    @property
    def unheard(self) -> set[BrokerId]:
        """Brokers that did not answer the last probe: they may be about to fall silent."""
        return {id for id, watch in self._watches.items() if watch.is_unheard}

    @property
    def hears_most(self) -> bool:
        """This broker has heard most of the others for `silence_s`."""
        return self._majority.hears_most(self._loop.time())

    def probed(self) -> None:
        """A probe of one of the brokers has ended."""
        self._majority.judge(len(self._watches) + 1, len(self.unheard), self._loop.time())

    @property
    def is_isolated(self) -> bool:
        return failure_detector.is_isolated(len(self._watches) + 1, len(self.silent))

    @property
    def is_informed(self) -> bool:
        return self._informed.is_set()

    async def informed(self) -> None:
        """Returns after the first UpdateMetadata, or once INFORMED_S have passed; from then on at once."""
        with suppress(TimeoutError):
            async with asyncio.timeout(INFORMED_S):
                await self._informed.wait()
        self._informed.set()

    async def settled(self, leaders: Callable[[], set[BrokerId]]) -> None:
        """Returns once these brokers have answered or others are in their place, or once SETTLE_S have passed."""
        await self._probe(leaders())
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_S):
                while not leaders().isdisjoint(self._metadata.suspected):
                    await self._changed.wait()

    async def _probe(self, brokers: Iterable[BrokerId]) -> None:
        """Returns once each broker has answered or is suspected, or once LEADER_PROBE_S have passed."""
        probes = [self._watches[id].probe() for id in brokers if id in self._watches]
        if probes:
            await asyncio.wait(probes, timeout=LEADER_PROBE_S)

    def notify(self) -> None:
        """Wakes those that wait for another leader or the end of a suspicion."""
        self._changed.set()
        self._changed = asyncio.Event()

    def _metadata_changed(self) -> None:
        self._informed.set()
        self._watch(self._endpoints())
        departed = self._metadata.departed.keys()
        for id in self._departures.keys() - departed:
            self._departures.pop(id).cancel()
        for id in departed - self._departures.keys():
            self._departures[id] = self._loop.call_later(DEPARTED_TTL_S, self._forget, id)
        self.notify()

    def _watch(self, endpoints: dict[BrokerId, Endpoint]) -> None:
        for id in [id for id, watch in self._watches.items() if endpoints.get(id) != watch.endpoint]:
            self._watches.pop(id).end()
        for id in endpoints.keys() - self._watches.keys():
            self._watches[id] = _PeerWatch(id, endpoints[id], self._metadata, self._connect, self)

    def _endpoints(self) -> dict[BrokerId, Endpoint]:
        endpoints = {}
        for id in self._metadata.brokers.keys() - {self._metadata.me.id}:
            with suppress(PeerLost):  # it lacks the listener of the brokers
                endpoints[id] = self._where(id)
        return endpoints

    def _forget(self, broker: BrokerId) -> None:
        del self._departures[broker], self._metadata.departed[broker]

    async def resign_on_behalf(self, broker: BrokerId) -> None:
        """ZooKeeper may be out of reach: then the watch over that broker continues, and this is tried again."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.silence_s):
                await self._resign_on_behalf(broker)

    async def stop(self) -> None:
        self._metadata.on_change.remove(self._metadata_changed)
        for timer in self._departures.values():
            timer.cancel()
        tasks = [watch.task for watch in self._watches.values()]
        for task in tasks:
            task.cancel()
        await all_ended(*tasks)


class _PeerWatch:
    """The watch over one other broker."""

    def __init__(
        self, broker: BrokerId, endpoint: Endpoint, metadata: MetadataCache, connect: Connect, monitor: PeerMonitor
    ) -> None:
        self.broker, self.endpoint, self._metadata, self._monitor = broker, endpoint, metadata, monitor
        self._loop = asyncio.get_running_loop()
        self._detector = FailureDetector(self._loop.time(), monitor.silence_s)
        self._due = asyncio.Event()  # the next probe is
        self._waiting: list[asyncio.Future[None]] = []  # for the end of the next probe
        self.is_unheard = self.is_silent = False
        self._client = connect(endpoint, self._suspect)
        self.task = self._loop.create_task(self._run(), name=f"monitor of broker {broker}")

    def probe(self) -> "asyncio.Future[None]":
        """Probes the broker now. The future is done when the probe has ended."""
        self._due.set()
        ended: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(ended)
        return ended

    def _suspect(self) -> None:
        self._metadata.suspected.add(self.broker)
        self._loop.call_later(SUSPICION_S, self._trust)
        self._due.set()

    def _trust(self) -> None:
        if self.broker in self._metadata.suspected:
            self._metadata.suspected.discard(self.broker)
            self._monitor.notify()

    async def _run(self) -> None:
        try:
            await kept_running(self._probe_again_and_again)
        finally:
            self._client.close()
            self._trust()

    async def _probe_again_and_again(self) -> None:
        while True:
            self._due.clear()
            verdict = self._judge(await self._probe())
            has_failed = verdict is Reachability.GONE or (self.is_silent and self._monitor.hears_most)
            if has_failed and self.broker == self._metadata.controller:
                await self._monitor.resign_on_behalf(self.broker)
            if verdict is not Reachability.REACHABLE:
                self._loop.call_later(self._detector.next_retry_s(), self._due.set)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._detector.probe_interval_s):
                    await self._due.wait()

    def end(self) -> None:
        """The broker has left the cluster, or has moved to another address."""
        self.task.cancel()
        self.is_unheard = False
        self._set_silent(is_silent=False)

    def _judge(self, outcome: ProbeOutcome) -> Reachability:
        verdict = self._detector.judge(outcome, self._loop.time())
        self.is_unheard = verdict in (Reachability.UNHEARD, Reachability.SILENT)
        self._monitor.probed()
        is_silent = verdict is Reachability.SILENT
        if is_silent and not self.is_silent:
            log.warning("broker %d has not answered for %g s", self.broker, self._monitor.silence_s)
        elif self.is_silent and not is_silent:
            log.warning("broker %d is no longer silent", self.broker)
        self._set_silent(is_silent=is_silent)
        return verdict

    def _set_silent(self, *, is_silent: bool) -> None:
        if is_silent != self.is_silent:
            self.is_silent = is_silent
            for notify in list(self._monitor.on_silence):
                notify(self.broker)

    async def _probe(self) -> ProbeOutcome:
        waiting, self._waiting = self._waiting, []
        try:
            await self._client.ask(ApiVersionsRequest(), ApiVersionsResponse, 0, self._detector.probe_timeout_s)
        except PeerLost as error:
            return probe_outcome(error)
        else:
            self._trust()
            return ProbeOutcome.ANSWERED
        finally:
            for ended in waiting:
                if not ended.done():
                    ended.set_result(None)
