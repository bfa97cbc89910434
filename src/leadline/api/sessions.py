"""Fetch sessions: what a client that fetches again and again has already said, so that it need not say it each time.

A client opens a session with epoch 0 and names all its partitions; with each further epoch it names what changed, and
is answered with what changed. Epoch -1 is the last word of a session, or a fetch without one.

    a session's epochs come one after the other: 1, 2, ... and start over at 1 behind 2^31 - 1
    its topics are known by name, or all of them by id

Pure: no clock, no sockets; the caller says what time it is.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from leadline.errors import FetchSessionIdNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch
from leadline.model import Offset, TopicId

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = (1 << 31) - 1
MIN_EVICTION_MS = 120_000  # a session that was used since then is not given up for a new one
MOST_POSITIONS = 250_000  # in all sessions together, about 100 MB; who wants more goes on without a session


class Wanted(NamedTuple):
    """A partition in a fetch, by the name or the id that the client uses."""

    topic: str
    topic_id: TopicId
    partition: int


class Position(NamedTuple):
    """Where and how a client reads a partition."""

    fetch_offset: Offset
    max_bytes: int
    current_leader_epoch: int
    last_fetched_epoch: int
    log_start: Offset


class Told(NamedTuple):
    """What the client was last told of a partition."""

    high_watermark: Offset
    last_stable_offset: Offset
    log_start: Offset


@dataclass(slots=True)
class Session:
    id: int
    by_id: bool
    epoch: int = 1  # the one that is due
    positions: dict[Wanted, Position] = field(default_factory=dict)  # in the order of being served
    told: dict[Wanted, Told] = field(default_factory=dict)
    last_used_ms: int = 0

    def update(self, changed: Iterable[tuple[Wanted, Position]], forgotten: Iterable[Wanted]) -> None:
        for wanted, position in changed:
            self.positions[wanted] = position
        for wanted in forgotten:
            self.positions.pop(wanted, None)
            self.told.pop(wanted, None)

    def has_news(self, wanted: Wanted, now: Told) -> bool:
        """Whether something changed since the client was last told; it counts as told now."""
        if self.told.get(wanted) == now:
            return False
        self.told[wanted] = now
        return True

    def serve_last(self, wanted: Wanted) -> None:
        """A partition that gave data goes to the end, so that one with much data does not starve the others."""
        self.positions[wanted] = self.positions.pop(wanted)


class Sessions:
    """All sessions of a broker, at most max.incremental.fetch.session.cache.slots."""

    def __init__(self, slots: int, draw: Callable[[int, int], int]) -> None:
        self.slots, self._draw = slots, draw  # a random number between two, both included
        self.by_id: dict[int, Session] = {}

    def open(self, positions: Mapping[Wanted, Position], by_id: bool, now_ms: int) -> Session | None:
        """None if there is no place: the client then goes on without."""
        if self._positions() + len(positions) > MOST_POSITIONS:
            return None
        if len(self.by_id) >= self.slots and not self._evict(now_ms):
            return None
        session = Session(self._new_id(), by_id, last_used_ms=now_ms)
        session.positions.update(positions)
        self.by_id[session.id] = session
        return session

    def _positions(self) -> int:
        return sum(len(session.positions) for session in self.by_id.values())

    def _new_id(self) -> int:
        while (found := self._draw(1, EPOCH_MAX)) in self.by_id:
            pass
        return found

    def _evict(self, now_ms: int) -> bool:
        if not self.slots:
            return False
        oldest = min(self.by_id.values(), key=lambda session: session.last_used_ms)
        if now_ms - oldest.last_used_ms < MIN_EVICTION_MS:
            return False
        del self.by_id[oldest.id]
        return True

    def resume(
        self,
        session_id: int,
        epoch: int,
        changed: Mapping[Wanted, Position],
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
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        session.last_used_ms = now_ms
        return session

    def close(self, session_id: int) -> None:
        self.by_id.pop(session_id, None)
