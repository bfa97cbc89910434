"""Fetch: records out of partitions, as slices of their files. A fetch waits for a while if there are few."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache

from leadline.api.context import Context
from leadline.api.fetch_sessions import PartitionWatcher, SentWatermarks, Session, TopicIdPartition
from leadline.api.metadata import endpoints
from leadline.config.replication import RACK_AWARE
from leadline.errors import (
    FencedLeaderEpoch,
    InconsistentTopicId,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedCompressionType,
    UnsupportedVersion,
    WireError,
)
from leadline.log.log import Isolation, Log
from leadline.model import NO_EPOCH, NONE, BrokerId, Offset, TopicId, TopicPartition
from leadline.replication.hosted_partition import HostedPartition
from leadline.replication.watchers import Watcher
from leadline.wire.fetch_position import FINAL_EPOCH, FULL_EPOCH, FetchPosition
from leadline.wire.messages import FetchRequest, FetchResponse
from leadline.wire.primitives import piece_length

OLDEST_VERSION = 4  # before it, records had another format
ZSTD_FROM = 10
RACKS_FROM = 11  # and with them reading from followers
TOPIC_IDS_FROM = 13
STATES_FROM = 15  # of replicas that fetch
LEADERS_FROM = 16
READ_COMMITTED = 1
NO_REPLICA: BrokerId = -1
CONSUMER = -1  # as a replica id; a follower has its broker's, from 0 on

_MISSING = {UnknownTopicId.code, UnknownTopicOrPartition.code}
_Partition = FetchResponse.PartitionData


def fetch(request: FetchRequest, ctx: Context) -> FetchResponse | Awaitable[FetchResponse]:
    """Fetch, v4-16.  v4 isolation · v5 log start · v7 sessions · v9 epochs · v11 rack · v12 flexible · v13 topic ids.

    The response is sent when there are min_bytes, when a partition fails, or after max_wait_ms. Missing partitions are
    reported, but do not complete the fetch early unless nothing else was requested. A follower reads up to the log's
    end and reports its position with each fetch. A consumer may read from followers; the leader names one in its rack.
    """
    if ctx.version < OLDEST_VERSION:
        return _too_old(request)
    try:
        job = Fetch(request, ctx)
    except WireError as error:
        return FetchResponse(error_code=error.code, session_id=0)
    answer = job.try_once()
    if answer is not None:
        return answer
    return job.wait()


def _too_old(request: FetchRequest) -> FetchResponse:
    return FetchResponse(
        responses=[
            FetchResponse.FetchableTopicResponse(
                topic=topic.topic,
                partitions=[_refused(part.partition, UnsupportedVersion.code) for part in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _refused(partition: int, code: int) -> _Partition:
    return _Partition(partition_index=partition, error_code=code, high_watermark=-1, records=b"")


class Fetch:
    """One fetch. It is evaluated again whenever one of its partitions changes."""

    _waited_for: "asyncio.Future[FetchResponse]"  # there once it has to wait

    def __init__(self, request: FetchRequest, ctx: Context, session: Session | None = None) -> None:
        """`session`: one that has been resumed already."""
        self.request, self.ctx = request, ctx
        self.by_id = ctx.version >= TOPIC_IDS_FROM
        self.replica: BrokerId = request.replica_id
        if ctx.version >= STATES_FROM:
            self.replica = request.replica_state.replica_id
        self.is_follower = self.replica >= 0
        self.is_first = True  # the position of a follower counts once, not at each evaluation
        self.only_leader = self.is_follower or (self.replica == CONSUMER and ctx.version < RACKS_FROM)
        self.max_bytes = request.max_bytes
        if not self.is_follower:
            self.max_bytes = min(self.max_bytes, ctx.services.config.fetch_max_bytes)
        self.isolation = Isolation.COMMITTED if request.isolation_level == READ_COMMITTED else Isolation.HIGH_WATERMARK
        if self.replica != CONSUMER:
            self.isolation = Isolation.LOG_END
        self.fresh: dict[TopicIdPartition, None] = {}  # marked by its watchers, if it has no session
        self.waiting: Callable[[], None] | None = None  # set while it waits without a session
        self._unsettled: set[TopicIdPartition] = set()  # there are more records, or the follower may join the ISR soon
        self.session = session
        self.is_full = session is None  # every partition is answered, not only those with news
        self.positions: Mapping[TopicIdPartition, FetchPosition] = (
            self._positions() if session is None else session.positions
        )

    def _positions(self) -> Mapping[TopicIdPartition, FetchPosition]:
        request, sessions, now_ms = self.request, self.ctx.services.sessions, self.ctx.services.clock.now_ms()
        named = dict(self._named())
        if request.session_epoch in (FULL_EPOCH, FINAL_EPOCH):
            if request.session_id:
                sessions.close(request.session_id)
            if request.session_epoch == FULL_EPOCH:
                self.session = sessions.open(named, self.by_id, now_ms)
                self._note(now_ms)
            return named
        self.session = sessions.resume(
            request.session_id, request.session_epoch, named, self._forgotten(), self.by_id, now_ms
        )
        if self.session is None:
            return named
        self.is_full = False
        self._note(now_ms)
        return self.session.positions

    def _note(self, now_ms: int) -> None:
        if self.session is not None:
            self.session.replica = self.replica
            self.session.seen(now_ms)

    def _candidates(self) -> Iterable[tuple[TopicIdPartition, FetchPosition]]:
        """The partitions that may have changed."""
        session, positions = self.session, self.positions
        if session is None or self.is_full:
            return positions.items()
        return [(key, positions[key]) for key in session.candidates()]

    def _named(self) -> Iterator[tuple[TopicIdPartition, FetchPosition]]:
        for topic in self.request.topics:
            topic_id = topic.topic_id.bytes
            for part in topic.partitions:
                yield (
                    TopicIdPartition(topic.topic, topic_id, part.partition),
                    FetchPosition(
                        topic_id,
                        part.partition,
                        part.current_leader_epoch,
                        part.fetch_offset,
                        part.last_fetched_epoch,
                        part.log_start_offset,
                        part.partition_max_bytes,
                    ),
                )

    def _forgotten(self) -> Iterator[TopicIdPartition]:
        for topic in self.request.forgotten_topics_data:
            for partition in topic.partitions:
                yield TopicIdPartition(topic.topic, topic.topic_id.bytes, partition)

    def _tp(self, key: TopicIdPartition) -> TopicPartition:
        if not self.by_id:
            return TopicPartition(key.topic, key.partition)
        topic_id = _topic_id(key.topic_id)
        topic = self.ctx.services.metadata.by_id.get(topic_id)
        if topic is None:
            raise UnknownTopicId(f"there is no topic with id {topic_id}")
        return TopicPartition(topic.name, key.partition)

    def try_once(self, *, last: bool = False) -> FetchResponse | None:
        """The response; None: the fetch should wait for more. `last`: it may not wait any longer."""
        found: list[tuple[TopicIdPartition, _Partition]] = []
        missing: list[tuple[TopicIdPartition, _Partition]] = []
        size, left, pressing = 0, self.max_bytes, self.request.max_wait_ms <= 0
        self._unsettled.clear()
        for key, position in self._candidates():
            part = self._read(key, position, left, min_one=size == 0)
            if part.error_code in _MISSING:
                missing.append((key, part))
                pressing = pressing or self.is_follower  # it fetches again soon
                continue
            length = _length(part)
            size += length
            left = max(left - length, 0)
            pressing = pressing or part.error_code != NONE or _redirects(part)
            found.append((key, part))
        self.is_first = False
        only_missing = len(missing) == len(self.positions)
        enough = size >= min(self.request.min_bytes, self.max_bytes) or pressing or only_missing
        missing.sort(key=lambda pair: pair[1].error_code != UnknownTopicId.code)  # in Kafka's order: ids first
        return self._answer(found + missing) if enough or last else None

    def _read(self, key: TopicIdPartition, position: FetchPosition, left: int, *, min_one: bool) -> _Partition:
        try:
            hosted = self._readable(key, position)
            if self.session is not None:
                self._watch_in(self.session, key, hosted)
            return self._read_from(hosted, key, position, min(left, position.max_bytes), min_one)
        except WireError as error:
            return self._failed(key, error)

    def _readable(self, key: TopicIdPartition, position: FetchPosition) -> HostedPartition:
        """The partition, if it may be read here by this client in this version."""
        replicas = self.ctx.services.replicas
        look_up = replicas.leading if self.only_leader else replicas.holding
        hosted = look_up(self._tp(key), max(position.current_leader_epoch, NO_EPOCH))
        log = hosted.log
        if self.is_follower:
            hosted.leader.follower(self.replica, position.current_leader_epoch)  # raises if it is none
        elif hosted.is_fenced:
            raise NotLeaderOrFollower(f"{log.tp} may be led by another broker: this one is cut off")
        if self.by_id and log.topic_id not in (None, _topic_id(key.topic_id)):
            raise InconsistentTopicId(f"partition {log.tp} has topic id {log.topic_id}")
        if self.ctx.version < ZSTD_FROM and log.config.compression_type == "zstd":
            raise UnsupportedCompressionType(f"{log.tp} has zstd records, which Fetch has from v{ZSTD_FROM} on")
        return hosted

    def _read_from(
        self, hosted: HostedPartition, key: TopicIdPartition, position: FetchPosition, limit: int, min_one: bool
    ) -> _Partition:
        log = hosted.log
        part = _without_records(key.partition, log)
        if position.fetch_offset < log.log_end:
            self._unsettled.add(key)
        part.preferred_read_replica = self._closer_replica(hosted, position.fetch_offset)
        if part.preferred_read_replica >= 0:
            return part
        if position.last_fetched_epoch >= 0 and self._diverges(part, log, position):
            return part
        read = log.read(position.fetch_offset, limit, self.isolation, min_one=min_one)
        if self.is_follower and self._is_held_back(hosted, key, position):
            return part
        if read.first_incomplete:
            return part
        if read.slice is not None:
            part.records = read.slice
        if self.isolation is Isolation.COMMITTED:
            part.aborted_transactions = [
                FetchResponse.AbortedTransaction(producer_id=txn.producer_id, first_offset=txn.first_offset)
                for txn in read.aborted
            ]
        return part

    def _is_held_back(self, hosted: HostedPartition, key: TopicIdPartition, position: FetchPosition) -> bool:
        """Report the position of the follower. Returns whether a throttle holds its records back."""
        if self.is_first:
            hosted.follower_fetched(
                self.replica,
                position,
                self.request.replica_state.replica_epoch,
                None if self.session is None else self.session.last_contact,
                self.ctx.services.clock.now_ms(),
            )
        if self.replica in hosted.leader.isr:
            return False
        self._unsettled.add(key)
        return hosted.is_held_back(self.replica)

    def _watch_in(self, session: Session, key: TopicIdPartition, hosted: HostedPartition) -> None:
        watcher = session.watchers.get(key)
        if watcher is not None and watcher.hosted is hosted:
            watcher.seen()
            return
        if watcher is not None:
            watcher.end()
        session.watchers[key] = PartitionWatcher(session, key, hosted, self._watchers(hosted))

    def _watchers(self, hosted: HostedPartition) -> set[Watcher]:
        return hosted.follower_watchers if self.isolation is Isolation.LOG_END else hosted.consumer_watchers

    def _closer_replica(self, hosted: HostedPartition, offset: Offset) -> BrokerId:
        """An in-sync replica in the rack of the consumer that has the offset; NO_REPLICA if the leader is as good."""
        rack, config = self.request.rack_id, self.ctx.services.config
        if config.replica_selector_class != RACK_AWARE or not rack or self.is_follower or hosted.leader_state is None:
            return NO_REPLICA
        racks, leader = self.ctx.services.metadata.racks, hosted.leader_state
        if racks.get(leader.me) == rack:
            return NO_REPLICA
        near = [
            (follower.log_end, follower.caught_up_ms, replica)
            for replica, follower in leader.followers.items()
            if racks.get(replica) == rack and replica in leader.isr and follower.log_start <= offset <= follower.log_end
        ]
        return max(near)[-1] if near else NO_REPLICA

    def _failed(self, key: TopicIdPartition, error: WireError) -> _Partition:
        part = _refused(key.partition, error.code)
        if not isinstance(error, UnknownTopicId | UnknownTopicOrPartition | UnsupportedCompressionType):
            part.aborted_transactions = None
        if isinstance(error, UnsupportedCompressionType):
            part.records = None
        if self.ctx.version >= LEADERS_FROM and isinstance(error, FencedLeaderEpoch | NotLeaderOrFollower):
            topic = self.ctx.services.metadata.topics.get(self._tp(key).topic)
            if topic is not None and key.partition in topic.partitions:
                leader = topic.partitions[key.partition]
                part.current_leader = FetchResponse.LeaderIdAndEpoch(
                    leader_id=leader.leader, leader_epoch=leader.leader_epoch
                )
        return part

    def _diverges(self, part: _Partition, log: Log, position: FetchPosition) -> bool:
        """Whether the logs diverge. The response then says where, and has no records."""
        end = log.end_of_epoch(position.last_fetched_epoch)
        if end is None or position.fetch_offset < log.log_start:
            raise OffsetOutOfRange(
                f"offset {position.fetch_offset} of {log.tp}, last fetched in epoch {position.last_fetched_epoch}: it "
                f"starts at {log.log_start}, in epochs {log.epochs.entries}"
            )
        if end.epoch >= position.last_fetched_epoch and end.end_offset >= position.fetch_offset:
            return False
        part.diverging_epoch = FetchResponse.EpochEndOffset(epoch=end.epoch, end_offset=end.end_offset)
        return True

    def _answer(self, found: list[tuple[TopicIdPartition, _Partition]]) -> FetchResponse:
        session = self.session
        topics: list[FetchResponse.FetchableTopicResponse] = []
        last: tuple[str, bytes] | None = None  # the topic of the last entry
        for key, part in found:
            if session is not None:
                sent = SentWatermarks(part.high_watermark, part.last_stable_offset, part.log_start_offset)
                news = session.has_news(key, sent) or _length(part) > 0 or _redirects(part)
                if part.error_code != NONE or _has_diverged(part):  # the watermarks of such a response do not count
                    session.sent.pop(key, None)
                    news = True
                elif key not in self._unsettled:
                    session.fresh.pop(key, None)
                if not self.is_full:
                    if not news:
                        continue
                    if _length(part):
                        session.serve_last(key)
            if self.is_follower and _length(part):
                self._count(key, _length(part))
            if key[:2] != last:
                last, topic_id = key[:2], _topic_id(key.topic_id)
                topics.append(FetchResponse.FetchableTopicResponse(topic=key.topic, topic_id=topic_id))
            topics[-1].partitions.append(part)
        return FetchResponse(
            session_id=session.id if session is not None else 0, responses=topics, node_endpoints=self._leaders(found)
        )

    def _count(self, key: TopicIdPartition, size: int) -> None:
        """Replicas in sync count as well: the limit is for all together."""
        replicas = self.ctx.services.replicas
        if replicas.hosted[self._tp(key)].is_throttled():
            replicas.throttles.leader.record(size, self.ctx.services.clock.now_ms())

    def _leaders(self, found: list[tuple[TopicIdPartition, _Partition]]) -> list[FetchResponse.NodeEndpoint]:
        """The endpoints of the leaders that the response names."""
        named = {part.current_leader.leader_id for _, part in found} - {-1}
        return [
            FetchResponse.NodeEndpoint(node_id=broker, host=at.host, port=at.port, rack=rack)
            for broker, at, rack in (endpoints(self.ctx) if named else ())
            if broker in named
        ]

    def wait(self) -> "asyncio.Future[FetchResponse]":
        """Evaluate the fetch whenever a partition changes, until there is enough or the time is over."""
        loop = asyncio.get_running_loop()
        self._waited_for = answer = loop.create_future()
        session, watched = self.session, list[tuple[set[Watcher], Watcher]]()
        if session is None:
            self.waiting = self._evaluate
            watched = self._watch()
        else:
            session.waiting = self._evaluate
        timer = loop.call_later(self.request.max_wait_ms / 1000, self._evaluate, True)

        def leave(_: object) -> None:
            timer.cancel()
            if session is not None and session.waiting == self._evaluate:
                session.waiting = None
            for watchers, watcher in watched:
                watchers.discard(watcher)

        answer.add_done_callback(leave)  # or cancelled
        if self.ctx.services.replicas.is_stopping:
            self._evaluate(last=True)
        return answer

    def _evaluate(self, last: bool = False) -> None:
        if not self._waited_for.done():
            answer = self.try_once(last=last or self.ctx.services.replicas.is_stopping)
            if answer is not None:
                self._waited_for.set_result(answer)

    def _watch(self) -> list[tuple[set[Watcher], Watcher]]:
        watched = []
        for key in self.positions:
            with suppress(UnknownTopicId):  # deleted a moment ago, or unknown
                hosted = self.ctx.services.replicas.hosted.get(self._tp(key))
                if hosted is not None:
                    watchers = self._watchers(hosted)
                    watcher = Watcher(self, key)
                    watchers.add(watcher)
                    watched.append((watchers, watcher))
        return watched


@lru_cache(4096)
def _topic_id(data: bytes) -> TopicId:
    return TopicId(bytes=data)


def _without_records(partition: int, log: Log) -> _Partition:
    return _Partition(
        partition_index=partition,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start,
        aborted_transactions=None,
        records=b"",
    )


def _redirects(part: _Partition) -> bool:
    """Whether the client has to truncate first, or to read elsewhere."""
    return _has_diverged(part) or part.preferred_read_replica >= 0


def _has_diverged(part: _Partition) -> bool:
    return part.diverging_epoch.end_offset >= 0


def _length(part: _Partition) -> int:
    return 0 if part.records is None else piece_length(part.records)
