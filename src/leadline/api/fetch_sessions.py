"""Fetch sessions: what a client that fetches again and again has already said, so that it need not say it each time.

A client opens a session with epoch 0 and names all its partitions; with each further epoch it names what changed, and
is answered with what changed. Epoch -1 is the last word of a session, or a fetch without one.

Of a session with thousands of partitions only those are looked at that are `fresh`: named by the client, or changed
here as the watches say. What no watch tells of is found by a look at all of them, every now and then.

    a session's epochs come one after the other: 1, 2, ... and start over at 1 behind 2^31 - 1
    its topics are known by name, or all of them by id

Pure: no clock, no sockets; the caller says what time it is.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from leadline.errors import FetchSessionIdNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch
from leadline.model import Offset
from leadline.replication.partition import Heard
from leadline.wire.fetch_position import FIRST_EPOCH, MAX_EPOCH, FetchPosition

MIN_EVICTION_MS = 120_000  # a session that was used since then is not given up for a new one
LOOK_AT_ALL_MS = 5000  # between two looks at all partitions of a session
MOST_POSITIONS = 250_000  # in all sessions together, about 100 MB; who wants more goes on without a session


class Wanted(NamedTuple):
    """A partition in a fetch, by the name or the id that the client uses."""

    topic: str
    topic_id: bytes  # those of the id: a hash of a UUID takes far longer
    partition: int


class Told(NamedTuple):
    """What the client was last told of a partition."""

    high_watermark: Offset
    last_stable_offset: Offset
    log_start: Offset


class Watch(Protocol):
    """Marks a partition of a session as fresh whenever something happens to it."""

    def end(self) -> None: ...


@dataclass(slots=True, eq=False)
class Session:
    id: int
    by_id: bool
    epoch: int = FIRST_EPOCH  # the one that is due
    positions: dict[Wanted, FetchPosition] = field(default_factory=dict)
    told: dict[Wanted, Told] = field(default_factory=dict)
    last_used_ms: int = 0
    fresh: dict[Wanted, None] = field(default_factory=dict)  # in no order: see `turns`
    turns: dict[Wanted, int] = field(default_factory=dict)  # the order in which all are served: the smallest first
    _last_turn: int = 0
    watches: dict[Wanted, Watch] = field(default_factory=dict)
    lanes: dict[tuple[bytes, int], Watch] = field(default_factory=dict)  # the same, by topic id and partition
    replica: int = -1  # whose it is, if it is a follower's
    waiting: Callable[[], None] | None = None  # evaluates the fetch that waits
    heard: Heard = field(default_factory=Heard)  # of the follower whose session it is
    all_looked_at_ms: int = 0

    def update(self, changed: Iterable[tuple[Wanted, FetchPosition]], forgotten: Iterable[Wanted]) -> None:
        for wanted, position in changed:
            if wanted not in self.positions:
                self.serve_last(wanted)
            self.positions[wanted] = position
            self.fresh[wanted] = None
        for wanted in forgotten:
            self.positions.pop(wanted, None)
            self.turns.pop(wanted, None)
            self.told.pop(wanted, None)
            self.fresh.pop(wanted, None)
            if (watch := self.watches.pop(wanted, None)) is not None:
                watch.end()

    def seen(self, now_ms: int) -> None:
        """A fetch came."""
        self.last_used_ms = self.heard.last_ms = now_ms
        if now_ms - self.all_looked_at_ms > LOOK_AT_ALL_MS:
            self.look_at_all(now_ms)

    def look_at_all(self, now_ms: int) -> None:
        self.all_looked_at_ms = now_ms
        self.fresh.update(dict.fromkeys(self.positions))

    def close(self) -> None:
        for watch in self.watches.values():
            watch.end()
        self.watches.clear()

    def has_news(self, wanted: Wanted, now: Told) -> bool:
        """Whether something changed since the client was last told; it counts as told now."""
        if self.told.get(wanted) == now:
            return False
        self.told[wanted] = now
        return True

    def serve_last(self, wanted: Wanted) -> None:
        """A partition that gave data goes to the end, so that one with much data does not starve the others."""
        self._last_turn += 1
        self.turns[wanted] = self._last_turn

    def candidates(self) -> list[Wanted]:
        """Those that may have something to tell, in their order."""
        return sorted(self.fresh, key=self.turns.__getitem__) if len(self.fresh) > 1 else list(self.fresh)


class Sessions:
    """All sessions of a broker, at most max.incremental.fetch.session.cache.slots."""

    def __init__(self, slots: int, draw: Callable[[int, int], int]) -> None:
        self.slots, self._draw = slots, draw  # a random number between two, both included
        self.by_id: dict[int, Session] = {}

    def open(self, positions: Mapping[Wanted, FetchPosition], by_id: bool, now_ms: int) -> Session | None:
        """None if there is no place: the client then goes on without."""
        if self._positions() + len(positions) > MOST_POSITIONS:
            return None
        if len(self.by_id) >= self.slots and not self._evict(now_ms):
            return None
        session = Session(self._new_id(), by_id, last_used_ms=now_ms)
        session.update(positions.items(), ())
        session.look_at_all(now_ms)
        self.by_id[session.id] = session
        return session

    def _positions(self) -> int:
        return sum(len(session.positions) for session in self.by_id.values())

    def _new_id(self) -> int:
        while (found := self._draw(1, MAX_EPOCH)) in self.by_id:
            pass
        return found

    def _evict(self, now_ms: int) -> bool:
        if not self.slots:
            return False
        oldest = min(self.by_id.values(), key=lambda session: session.last_used_ms)
        if now_ms - oldest.last_used_ms < MIN_EVICTION_MS:
            return False
        self.close(oldest.id)
        return True

    def resume(
        self,
        session_id: int,
        epoch: int,
        changed: Mapping[Wanted, FetchPosition],
        forgotten: Iterable[Wanted],
        by_id: bool,
        now_ms: int,
    ) -> Session | None:
        """The session, with what changed. None if nothing is left in it: that was its end."""
        session = self.by_id.get(session_id)
        if session is None:
            raise FetchSessionIdNotFound(f"there is no fetch session {session_id}")
        if epoch != session.epoch:
            raise InvalidFetchSessionEpoch(f"fetch session {session_id} expects epoch {session.epoch}, not {epoch}")
        if by_id is not session.by_id:
            raise FetchSessionTopicIdError(f"fetch session {session_id} goes by {'names' if by_id else 'ids'}")
        if changed and self._positions() + len(changed) > MOST_POSITIONS:
            self.close(session_id)
            raise FetchSessionIdNotFound(f"fetch session {session_id} was closed: it grew too large")
        session.update(changed.items(), forgotten)
        if not session.positions:
            self.close(session_id)
            return None
        session.epoch = FIRST_EPOCH if epoch == MAX_EPOCH else epoch + 1
        session.last_used_ms = now_ms
        return session

    def close(self, session_id: int) -> None:
        if (session := self.by_id.pop(session_id, None)) is not None:
            session.close()
