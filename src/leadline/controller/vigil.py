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

Clients are told for a little longer where a broker was that has departed. And they are told of the others at all once
the controller has told this one: librdkafka would forget all brokers that a new one does not know yet.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

from leadline.controller.metadata import Endpoint, Metadata
from leadline.model import BrokerId
from leadline.replication.channel import Peer, PeerGone, PeerLost
from leadline.wire.messages import ApiVersionsRequest, ApiVersionsResponse

PATIENCE_S = 10.0
FIRST_RETRY_S, RETRY_S = 0.01, 0.2  # a process that is ending may accept a connection before it refuses the next
LOOK_S = 0.1  # who is slower than that is busy, and alive
SETTLE_S = 1.0  # what else the client asks on the same connection waits, too
DOUBT_S = 3.0  # and then we believe the controller
FAREWELL_S = 5.0
INFORMED_S = 5.0  # there may be no controller

Connect = Callable[[Endpoint, Callable[[], None]], Peer]  # the second is told when a connection that stood breaks
Vacate = Callable[[BrokerId], Awaitable[None]]


class Vigil:
    """`vacate`: gives up the controller's office in its name."""

    def __init__(
        self, metadata: Metadata, where: Callable[[BrokerId], Endpoint], connect: Connect, vacate: Vacate
    ) -> None:
        self._metadata, self._where, self._connect, self._vacate = metadata, where, connect, vacate
        self._watches: dict[BrokerId, _Watch] = {}
        self._farewells: dict[BrokerId, asyncio.TimerHandle] = {}
        self._informed = asyncio.Event()
        self._news = asyncio.Event()  # of who leads, or of who is doubted; a new one after each
        metadata.on_change.append(self._changed)

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

    def _tell(self) -> None:
        """Whoever waits for news."""
        self._news.set()
        self._news = asyncio.Event()

    def _changed(self) -> None:
        """Who came, and who went?"""
        self._informed.set()
        wanted = self._wanted()
        for id in [id for id, watch in self._watches.items() if wanted.get(id) != watch.at]:
            self._watches.pop(id).task.cancel()
        for id in wanted.keys() - self._watches.keys():
            self._watches[id] = _Watch(id, wanted[id], self._metadata, self._connect, self._vacate, self._tell)
        departed = self._metadata.departed.keys()
        for id in self._farewells.keys() - departed:
            self._farewells.pop(id).cancel()
        for id in departed - self._farewells.keys():
            self._farewells[id] = asyncio.get_running_loop().call_later(FAREWELL_S, self._forget, id)
        self._tell()

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
        self,
        broker: BrokerId,
        at: Endpoint,
        metadata: Metadata,
        connect: Connect,
        vacate: Vacate,
        tell: Callable[[], None],
    ) -> None:
        self.broker, self.at, self._metadata, self._vacate, self._tell = broker, at, metadata, vacate, tell
        self._loop = asyncio.get_running_loop()
        self._wanted = asyncio.Event()  # another look
        self._waiting: list[asyncio.Future[None]] = []  # for the end of the next one
        self._peer = connect(at, self._doubt)
        self.task = self._loop.create_task(self._run(), name=f"vigil over broker {broker}")

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
            self._tell()

    async def _run(self) -> None:
        stood, rest_s = False, FIRST_RETRY_S
        try:
            while True:
                self._wanted.clear()
                lost = await self._look()
                stood = stood or lost is None
                if stood and isinstance(lost, PeerGone) and self.broker == self._metadata.controller:
                    await self._vacate(self.broker)
                if lost is None:
                    rest_s = FIRST_RETRY_S
                else:
                    self._loop.call_later(rest_s, self._wanted.set)
                    rest_s = min(2 * rest_s, RETRY_S)
                await self._wanted.wait()
        finally:
            self._peer.close()
            self._trust()

    async def _look(self) -> PeerLost | None:
        waiting, self._waiting = self._waiting, []
        try:
            await self._peer.ask(ApiVersionsRequest(), ApiVersionsResponse, 0, PATIENCE_S)
            self._trust()
        except PeerLost as error:
            return error
        else:
            return None
        finally:
            for seen in waiting:
                if not seen.done():
                    seen.set_result(None)
