"""Whether the other brokers are still there, as this one sees it.

Each broker keeps a connection to each other. When one breaks, its broker may have ended: until it answers again, or the
controller has decided who leads instead, clients are not sent there. For a while only: the controller may know better.
A client whose leader was killed asks within a millisecond, perhaps before we hear of it, and librdkafka does nothing
for a second after what it is told then, be it the old leader or none. So leaders are looked at before they are named,
and while one is doubted the answer waits for the next: that takes less than the client would.

When a new connection is refused, nobody listens there: its process has ended. A controller that is killed holds its
office until its session times out, and nobody decides anything meanwhile; so its office is given up in its name. A
connection that only breaks is no proof of that; nor is one that is refused before any stood: Kafka's own brokers may be
in office before they listen.

A broker may also be silent: its connections stand, and nothing comes through. So each broker is looked at every now and
then. A look that fails is followed by another one over a new connection. `quorum` says when silence counts. A silent
controller's office is given up by a broker that hears most of the others.

Clients are told for a little longer where a broker was that has departed. And they are told of the others at all once
the controller has told this one: librdkafka would forget all brokers that a new one does not know yet.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

from leadline.cluster import silence
from leadline.cluster.broker_client import BrokerClient, PeerGone, PeerLost
from leadline.cluster.metadata_cache import Endpoint, MetadataCache
from leadline.model import BrokerId
from leadline.wire.messages import ApiVersionsRequest, ApiVersionsResponse

log = logging.getLogger(__name__)

LOOKS_IN_SILENCE = 4  # a silence is this many times as long as the pause between two looks
PATIENCE_IN_SILENCE = 3  # and this many times as long as a look may take
SILENT_PATIENCE_S = 1.0  # once it is silent: an answer is noticed soon
FIRST_RETRY_S, RETRY_S = 0.01, 0.2  # a process that is ending may accept a connection before it refuses the next
LOOK_S = 0.1  # who is slower than that is busy, and alive
SETTLE_S = 1.0  # what else the client asks on the same connection waits, too
DOUBT_S = 3.0  # and then we believe the controller
FAREWELL_S = 5.0
INFORMED_S = 5.0  # there may be no controller

Connect = Callable[
    [Endpoint, Callable[[], None]], BrokerClient
]  # the second is told when a connection that stood breaks
Vacate = Callable[[BrokerId], Awaitable[None]]


class PeerMonitor:
    """`vacate`: gives up the controller's office in its name. `silence_s`: from when on a silence counts."""

    def __init__(
        self,
        metadata: MetadataCache,
        where: Callable[[BrokerId], Endpoint],
        connect: Connect,
        vacate: Vacate,
        silence_s: float,
    ) -> None:
        self._metadata, self._where, self._connect, self._vacate = metadata, where, connect, vacate
        self.silence_s = silence_s
        self._unsure_s = asyncio.get_running_loop().time()  # when this broker last did not hear most of the others
        self.on_silence: list[Callable[[BrokerId], None]] = []  # called when a broker falls silent, or is heard again
        self._watches: dict[BrokerId, _Watch] = {}
        self._farewells: dict[BrokerId, asyncio.TimerHandle] = {}
        self._informed = asyncio.Event()
        self._news = asyncio.Event()  # of who leads, or of who is doubted; a new one after each
        metadata.on_change.append(self._changed)

    @property
    def silent(self) -> set[BrokerId]:
        """Brokers that have not answered for `silence_s`."""
        return {id for id, watch in self._watches.items() if watch.is_silent}

    @property
    def unheard(self) -> set[BrokerId]:
        """Brokers that did not answer the last look: they may be about to be silent."""
        return {id for id, watch in self._watches.items() if watch.is_unheard}

    @property
    def hears_most(self) -> bool:
        """For as long as a silence lasts: one that was cut off does not hear all others again at the same moment."""
        return asyncio.get_running_loop().time() - self._unsure_s >= self.silence_s

    def judged(self) -> None:
        """A broker was heard, or not."""
        if not silence.hears_most(len(self._watches) + 1, len(self.unheard)):
            self._unsure_s = asyncio.get_running_loop().time()

    @property
    def is_isolated(self) -> bool:
        return silence.is_isolated(len(self._watches) + 1, len(self.silent))

    @property
    def is_informed(self) -> bool:
        return self._informed.is_set()

    async def informed(self) -> None:
        """Return once the controller has told who is there; or after a while, and then at once."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._informed.wait(), INFORMED_S)
        self._informed.set()

    async def settled(self, leaders: Callable[[], set[BrokerId]]) -> None:
        """Return once those who lead have answered, or others lead instead; or after a while, with doubts."""
        await self._look(leaders())
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_S):
                while not leaders().isdisjoint(self._metadata.doubted):
                    await self._news.wait()

    async def _look(self, brokers: Iterable[BrokerId]) -> None:
        """Return once each has answered, or is doubted; or after a moment."""
        seen = [self._watches[id].look() for id in brokers if id in self._watches]
        if seen:
            await asyncio.wait(seen, timeout=LOOK_S)

    def tell(self) -> None:
        """Whoever waits for news."""
        self._news.set()
        self._news = asyncio.Event()

    def _changed(self) -> None:
        """Who came, and who went?"""
        self._informed.set()
        wanted = self._wanted()
        for id in [id for id, watch in self._watches.items() if wanted.get(id) != watch.at]:
            self._watches.pop(id).end()
        for id in wanted.keys() - self._watches.keys():
            self._watches[id] = _Watch(id, wanted[id], self._metadata, self._connect, self)
        departed = self._metadata.departed.keys()
        for id in self._farewells.keys() - departed:
            self._farewells.pop(id).cancel()
        for id in departed - self._farewells.keys():
            self._farewells[id] = asyncio.get_running_loop().call_later(FAREWELL_S, self._forget, id)
        self.tell()

    async def vacate(self, broker: BrokerId) -> None:
        """ZooKeeper may be out of reach: then the watch over that broker goes on."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.silence_s):
                await self._vacate(broker)

    def _wanted(self) -> dict[BrokerId, Endpoint]:
        found = {}
        for id in self._metadata.brokers.keys() - {self._metadata.me.id}:
            try:
                found[id] = self._where(id)
            except PeerLost:
                continue  # it has no such listener
        return found

    def _forget(self, broker: BrokerId) -> None:
        del self._farewells[broker], self._metadata.departed[broker]

    async def stop(self) -> None:
        self._metadata.on_change.remove(self._changed)
        for timer in self._farewells.values():
            timer.cancel()
        tasks = [watch.task for watch in self._watches.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Watch:
    """Over one other broker."""

    def __init__(
        self, broker: BrokerId, at: Endpoint, metadata: MetadataCache, connect: Connect, peer_monitor: PeerMonitor
    ) -> None:
        self.broker, self.at, self._metadata, self._monitor = broker, at, metadata, peer_monitor
        self._loop = asyncio.get_running_loop()
        self._wanted = asyncio.Event()  # another look
        self._waiting: list[asyncio.Future[None]] = []  # for the end of the next one
        self._heard_s = self._loop.time()  # when it last answered, or refused; at first, when the watch began
        self.is_unheard = self.is_silent = False
        self._peer = connect(at, self._doubt)
        self.task = self._loop.create_task(self._run(), name=f"monitor of broker {broker}")

    def look(self) -> "asyncio.Future[None]":
        self._wanted.set()
        seen: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(seen)
        return seen

    def _doubt(self) -> None:
        self._metadata.doubted.add(self.broker)
        self._loop.call_later(DOUBT_S, self._trust)
        self._wanted.set()

    def _trust(self) -> None:
        if self.broker in self._metadata.doubted:
            self._metadata.doubted.discard(self.broker)
            self._monitor.tell()

    async def _run(self) -> None:
        stood, rest_s = False, FIRST_RETRY_S
        try:
            while True:
                self._wanted.clear()
                lost = await self._look()
                stood = stood or lost is None
                self._judge(lost)
                is_over = (stood and isinstance(lost, PeerGone)) or (self.is_silent and self._monitor.hears_most)
                if is_over and self.broker == self._metadata.controller:
                    await self._monitor.vacate(self.broker)
                if lost is None:
                    rest_s = FIRST_RETRY_S
                else:
                    self._loop.call_later(rest_s, self._wanted.set)
                    rest_s = min(2 * rest_s, RETRY_S)
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._monitor.silence_s / LOOKS_IN_SILENCE):
                        await self._wanted.wait()
        finally:
            self._peer.close()
            self._trust()

    def end(self) -> None:
        """The broker is not one of the cluster any longer, or elsewhere."""
        self.task.cancel()
        self.is_unheard = False
        self._silence(is_silent=False)

    def _judge(self, lost: PeerLost | None) -> None:
        """Who refuses a connection is not silent: its process has ended, which is dealt with as such."""
        self.is_unheard = lost is not None and not isinstance(lost, PeerGone)
        self._monitor.judged()
        if not self.is_unheard:
            self._heard_s = self._loop.time()
        is_silent = self.is_unheard and self._loop.time() - self._heard_s >= self._monitor.silence_s
        if is_silent != self.is_silent:
            what = f"has not answered for {self._monitor.silence_s:g} s" if is_silent else "is heard again"
            log.warning("broker %d %s", self.broker, what)
        self._silence(is_silent=is_silent)

    def _silence(self, *, is_silent: bool) -> None:
        if is_silent != self.is_silent:
            self.is_silent = is_silent
            for changed in list(self._monitor.on_silence):
                changed(self.broker)

    async def _look(self) -> PeerLost | None:
        waiting, self._waiting = self._waiting, []
        patience_s = SILENT_PATIENCE_S if self.is_silent else self._monitor.silence_s / PATIENCE_IN_SILENCE
        try:
            await self._peer.ask(ApiVersionsRequest(), ApiVersionsResponse, 0, patience_s)
            self._trust()
        except PeerLost as error:
            return error
        else:
            return None
        finally:
            for seen in waiting:
                if not seen.done():
                    seen.set_result(None)
