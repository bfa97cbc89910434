"""Fetch sessions: the broker remembers the positions of a client, so that the client names only what changed.

A client opens a session with epoch 0 and names all its partitions. With each further epoch it names the partitions
whose position changed, and the response has the partitions that changed here. Epoch -1 ends a session, or is a fetch
without one.

Of a session with thousands of partitions only the `fresh` ones are read: those that the client named, and those that a
watcher marked. Changes that no watcher sees are found by reading all partitions every five seconds.

    the epochs of a session are 1, 2, ... and start over at 1 after 2^31 - 1
    all topics of a session go by name, or all by id
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from leadline.api.fast.grants import Grants
from leadline.errors import FetchSessionIdNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch
from leadline.model import Offset
from leadline.replication.hosted_partition import HostedPartition
from leadline.replication.partition import LastContact
from leadline.replication.watchers import SessionWatcher, Watcher
from leadline.runtime.ordered_set import OrderedSet
from leadline.wire.fetch_position import FIRST_EPOCH, MAX_EPOCH, FetchPosition

MIN_EVICTION_MS = 120_000  # a session that was used since then is not evicted for a new one
READ_ALL_MS = 5000  # between two fetches that read all partitions of a session
MOST_POSITIONS = 250_000  # in all sessions together, about 100 MB; a client that needs more gets no session


class TopicIdPartition(NamedTuple):
    """A partition in a fetch, by the name or the id that the client uses."""

    topic: str
    topic_id: bytes  # hashing a UUID takes far longer
    partition: int


class SentWatermarks(NamedTuple):
    """The watermarks of a partition in the last response."""

    high_watermark: Offset
    last_stable_offset: Offset
    log_start: Offset


class PartitionWatcher(SessionWatcher):
    """Watches a partition for as long as it is in a session."""

    __slots__ = ("hosted", "partition", "session", "topic_id")

    def __init__(
        self, session: "Session", key: TopicIdPartition, hosted: HostedPartition, watchers: OrderedSet[Watcher]
    ) -> None:
        super().__init__(session, key, watchers)
        self.session, self.partition, self.topic_id, self.hosted = session, key, key.topic_id, hosted

    def end(self) -> None:
        super().end()
        leader = self.hosted.leader_state
        follower = None if leader is None else leader.followers.get(self.session.replica)
        if follower is not None and follower.last_contact is self.session.last_contact:
            follower.last_contact = None


@dataclass(slots=True, eq=False)
class Session:
    id: int
    by_id: bool
    epoch: int = FIRST_EPOCH  # of the next fetch
    positions: dict[TopicIdPartition, FetchPosition] = field(default_factory=dict)
    sent: dict[TopicIdPartition, SentWatermarks] = field(default_factory=dict)
    last_used_ms: int = 0
    fresh: dict[TopicIdPartition, None] = field(default_factory=dict)  # in no order: see `rotation`
    rotation: dict[TopicIdPartition, int] = field(
        default_factory=dict
    )  # the partition with the smallest number is read first
    _last_place: int = 0
    watchers: dict[tuple[str, bytes, int], PartitionWatcher] = field(default_factory=dict)
    replica: int = -1  # the follower whose session it is
    waiting: Callable[[], None] | None = None  # evaluates the fetch that waits
    last_contact: LastContact = field(default_factory=LastContact)  # when it fetched last
    all_read_ms: int = 0
    authorized_client: Grants | None = (
        None  # what the connection has been allowed that fetched last, with an authorizer
    )
    acl_version: int = -1  # at that time

    def update(
        self, changed: Iterable[tuple[TopicIdPartition, FetchPosition]], forgotten: Iterable[TopicIdPartition]
    ) -> None:
        for key, position in changed:
            if key not in self.positions:
                self.serve_last(key)
            self.positions[key] = position
            self.fresh[key] = None
        for key in forgotten:
            self.positions.pop(key, None)
            self.rotation.pop(key, None)
            self.sent.pop(key, None)
            self.fresh.pop(key, None)
            if (watcher := self.watchers.pop(key, None)) is not None:
                watcher.end()

    def authorize(self, client: Grants, version: int, now_ms: int) -> None:
        """All partitions are read again if another client fetches, or the ACLs have changed."""
        if self.authorized_client is not client or self.acl_version != version:
            self.authorized_client, self.acl_version = client, version
            self.read_all(now_ms)

    def touch(self, now_ms: int, *, is_contact: bool) -> None:
        """A fetch arrived. `is_contact`: it came from the follower."""
        self.last_used_ms = now_ms
        if is_contact:
            self.last_contact.last_ms = now_ms
        if now_ms - self.all_read_ms > READ_ALL_MS:
            self.read_all(now_ms)

    def read_all(self, now_ms: int) -> None:
        self.all_read_ms = now_ms
        self.fresh.update(dict.fromkeys(self.positions))

    def close(self) -> None:
        for watcher in self.watchers.values():
            watcher.end()
        self.watchers.clear()

    def watch(self, key: TopicIdPartition, hosted: HostedPartition, watchers: OrderedSet[Watcher]) -> None:
        """A fetch reads the partition, which is watched from now on."""
        watcher = self.watchers.get(key)
        if watcher is not None and watcher.hosted is hosted:
            watcher.note_read()
            return
        if watcher is not None:
            watcher.end()
        self.watchers[key] = PartitionWatcher(self, key, hosted, watchers)

    def has_news(self, key: TopicIdPartition, now: SentWatermarks) -> bool:
        """Whether the watermarks changed since the last response. They count as sent from now on."""
        if self.sent.get(key) == now:
            return False
        self.sent[key] = now
        return True

    def serve_last(self, key: TopicIdPartition) -> None:
        """A partition that gave data goes to the end, so that one with much data does not starve the others."""
        self._last_place += 1
        self.rotation[key] = self._last_place

    def candidates(self) -> list[TopicIdPartition]:
        """The partitions that may have changed, in the order of the rotation."""
        return sorted(self.fresh, key=self.rotation.__getitem__) if len(self.fresh) > 1 else list(self.fresh)


class Sessions:
    """All sessions of a broker, at most max.incremental.fetch.session.cache.slots."""

    def __init__(self, slots: int, draw: Callable[[int, int], int]) -> None:
        self.slots, self._draw = slots, draw  # a random number between two, both included
        self.by_id: dict[int, Session] = {}
        self.evictions = 0  # of sessions that were used long ago, for new ones

    def open(self, positions: Mapping[TopicIdPartition, FetchPosition], by_id: bool, now_ms: int) -> Session | None:
        """None if there is no room: the client then fetches without a session."""
        if self.position_count() + len(positions) > MOST_POSITIONS:
            return None
        if len(self.by_id) >= self.slots and not self._evict(now_ms):
            return None
        session = Session(self._new_id(), by_id, last_used_ms=now_ms)
        session.update(positions.items(), ())
        session.read_all(now_ms)
        self.by_id[session.id] = session
        return session

    def position_count(self) -> int:
        """The number of positions in all sessions together."""
        return sum(len(session.positions) for session in self.by_id.values())

    def _new_id(self) -> int:
        while (session_id := self._draw(1, MAX_EPOCH)) in self.by_id:
            pass
        return session_id

    def _evict(self, now_ms: int) -> bool:
        if not self.slots:
            return False
        oldest = min(self.by_id.values(), key=lambda session: session.last_used_ms)
        if now_ms - oldest.last_used_ms < MIN_EVICTION_MS:
            return False
        self.close(oldest.id)
        self.evictions += 1
        return True

    def resume(
        self,
        session_id: int,
        epoch: int,
        changed: Mapping[TopicIdPartition, FetchPosition],
        forgotten: Iterable[TopicIdPartition],
        by_id: bool,
        now_ms: int,
    ) -> Session | None:
        """The updated session. None if no partition is left in it: it is closed then."""
        session = self.by_id.get(session_id)
        if session is None:
            raise FetchSessionIdNotFound(f"there is no fetch session {session_id}")
        if epoch != session.epoch:
            raise InvalidFetchSessionEpoch(f"fetch session {session_id} expects epoch {session.epoch}, not {epoch}")
        if by_id is not session.by_id:
            raise FetchSessionTopicIdError(f"fetch session {session_id} uses {'names' if by_id else 'ids'}")
        if changed and self.position_count() + len(changed) > MOST_POSITIONS:
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
