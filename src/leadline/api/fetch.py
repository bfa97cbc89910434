"""Fetch: records out of partitions, as slices of their files; waits a while if there are few."""

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import suppress

from leadline.api.context import NONE, Context
from leadline.api.metadata import endpoints
from leadline.api.sessions import FINAL_EPOCH, INITIAL_EPOCH, Position, Session, Told, Wanted
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
from leadline.model import NO_EPOCH, BrokerId, Offset, TopicPartition
from leadline.replication.replicas import Hosted, Waiter
from leadline.wire.messages import FetchRequest, FetchResponse

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

    Answered when min_bytes are there, something is wrong, or max_wait_ms are over. What does not exist is told,
    but not a reason to answer at once, unless it is all that was asked for. A follower sees all up to the log's end,
    and says with each fetch what it has; a consumer may also read from followers, and is told of one in its rack.
    """
    if ctx.version < OLDEST_VERSION:
        return _too_old(request)
    try:
        job = _Fetch(request, ctx)
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


class _Fetch:
    """One fetch, looked at as often as something changes."""

    def __init__(self, request: FetchRequest, ctx: Context) -> None:
        self.request, self.ctx = request, ctx
        self.by_id = ctx.version >= TOPIC_IDS_FROM
        self.replica: BrokerId = request.replica_id
        if ctx.version >= STATES_FROM:
            self.replica = request.replica_state.replica_id
        self.is_follower = self.replica >= 0
        self.is_first = True  # what a follower says it has counts once, not whenever we look again
        self.only_leader = self.is_follower or (self.replica == CONSUMER and ctx.version < RACKS_FROM)
        self.max_bytes = request.max_bytes
        if not self.is_follower:
            self.max_bytes = min(self.max_bytes, ctx.services.config.fetch_max_bytes)
        self.isolation = Isolation.COMMITTED if request.isolation_level == READ_COMMITTED else Isolation.HIGH_WATERMARK
        if self.replica != CONSUMER:
            self.isolation = Isolation.LOG_END
        self.session: Session | None = None
        self.is_full = True  # every partition is answered, not only those with news
        self.positions = self._positions()

    def _positions(self) -> dict[Wanted, Position]:
        request, sessions, now_ms = self.request, self.ctx.services.sessions, self.ctx.services.clock.now_ms()
        named = dict(self._named())
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if request.session_id:
                sessions.close(request.session_id)
            if request.session_epoch == INITIAL_EPOCH:
                self.session = sessions.open(named, self.by_id, now_ms)
            return named
        self.session = sessions.resume(
            request.session_id, request.session_epoch, named, self._forgotten(), self.by_id, now_ms
        )
        if self.session is None:
            return named
        self.is_full = False
        return dict(self.session.positions)

    def _named(self) -> Iterator[tuple[Wanted, Position]]:
        for topic in self.request.topics:
            for part in topic.partitions:
                yield (
                    Wanted(topic.topic, topic.topic_id, part.partition),
                    Position(
                        part.fetch_offset,
                        part.partition_max_bytes,
                        part.current_leader_epoch,
                        part.last_fetched_epoch,
                        part.log_start_offset,
                    ),
                )

    def _forgotten(self) -> Iterator[Wanted]:
        for topic in self.request.forgotten_topics_data:
            for partition in topic.partitions:
                yield Wanted(topic.topic, topic.topic_id, partition)

    def _tp(self, wanted: Wanted) -> TopicPartition:
        if not self.by_id:
            return TopicPartition(wanted.topic, wanted.partition)
        topic = self.ctx.services.metadata.by_id.get(wanted.topic_id)
        if topic is None:
            raise UnknownTopicId(f"there is no topic with id {wanted.topic_id}")
        return TopicPartition(topic.name, wanted.partition)

    def try_once(self, *, last: bool = False) -> FetchResponse | None:
        """The answer, or None if it is worth waiting for a better one."""
        found: list[tuple[Wanted, _Partition]] = []
        missing: list[tuple[Wanted, _Partition]] = []
        size, left, pressing = 0, self.max_bytes, self.request.max_wait_ms <= 0
        for wanted, position in self.positions.items():
            part = self._read(wanted, position, left, min_one=size == 0)
            if part.error_code in _MISSING:
                missing.append((wanted, part))
                continue
            length = _length(part)
            size += length
            left = max(left - length, 0)
            pressing = pressing or part.error_code != NONE or _is_told_more(part)
            found.append((wanted, part))
        self.is_first = False
        enough = size >= min(self.request.min_bytes, self.max_bytes) or pressing or not found
        missing.sort(key=lambda pair: pair[1].error_code != UnknownTopicId.code)  # in Kafka's order: ids first
        return self._answer(found + missing) if enough or last else None

    def _read(self, wanted: Wanted, position: Position, left: int, *, min_one: bool) -> _Partition:
        replicas = self.ctx.services.replicas
        try:
            look_up = replicas.leading if self.only_leader else replicas.holding
            hosted = look_up(self._tp(wanted), max(position.current_leader_epoch, NO_EPOCH))
            if self.is_follower:
                hosted.leader.follower(self.replica, position.current_leader_epoch)  # or it may not
            if self.by_id and hosted.log.topic_id not in (None, wanted.topic_id):
                raise InconsistentTopicId(f"partition {hosted.log.tp} has topic id {hosted.log.topic_id}")
            log = hosted.log
            if self.ctx.version < ZSTD_FROM and log.config.compression_type == "zstd":
                raise UnsupportedCompressionType(f"{log.tp} has zstd records, which Fetch has from v{ZSTD_FROM} on")
            part = _Partition(
                partition_index=wanted.partition,
                high_watermark=log.high_watermark,
                last_stable_offset=log.last_stable_offset,
                log_start_offset=log.log_start,
                aborted_transactions=None,
                records=b"",
            )
            part.preferred_read_replica = self._closer_replica(hosted, position.fetch_offset)
            if part.preferred_read_replica >= 0:
                return part
            if position.last_fetched_epoch >= 0 and self._diverges(part, log, position):
                return part
            limit = min(left, position.max_bytes)
            read = log.read(position.fetch_offset, limit, self.isolation, min_one=min_one)
            if self.is_follower and self.is_first:
                replicas.follower_fetched(
                    log.tp,
                    self.replica,
                    position.fetch_offset,
                    position.log_start,
                    self.request.replica_state.replica_epoch,
                )
        except WireError as error:
            return self._failed(wanted, error)
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

    def _closer_replica(self, hosted: Hosted, offset: Offset) -> BrokerId:
        """One in the consumer's rack that is in sync and has what it wants; -1 if the leader is as good."""
        rack, config = self.request.rack_id, self.ctx.services.config
        if config.replica_selector_class != RACK_AWARE or not rack or self.is_follower or hosted.leads is None:
            return NO_REPLICA
        racks, leader = self.ctx.services.metadata.racks, hosted.leads
        if racks.get(leader.me) == rack:
            return NO_REPLICA
        near = [
            (follower.log_end, follower.caught_up_ms, replica)
            for replica, follower in leader.followers.items()
            if racks.get(replica) == rack and replica in leader.isr and follower.log_start <= offset <= follower.log_end
        ]
        return max(near)[-1] if near else NO_REPLICA

    def _failed(self, wanted: Wanted, error: WireError) -> _Partition:
        part = _refused(wanted.partition, error.code)
        if not isinstance(error, UnknownTopicId | UnknownTopicOrPartition | UnsupportedCompressionType):
            part.aborted_transactions = None
        if isinstance(error, UnsupportedCompressionType):
            part.records = None
        if self.ctx.version >= LEADERS_FROM and isinstance(error, FencedLeaderEpoch | NotLeaderOrFollower):
            topic = self.ctx.services.metadata.topics.get(self._tp(wanted).topic)
            if topic is not None and wanted.partition in topic.partitions:
                leader = topic.partitions[wanted.partition]
                part.current_leader = FetchResponse.LeaderIdAndEpoch(
                    leader_id=leader.leader, leader_epoch=leader.leader_epoch
                )
        return part

    def _diverges(self, part: _Partition, log: Log, position: Position) -> bool:
        """Whether the client's log has left ours: then it is told where, and gets no records."""
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

    def _answer(self, found: list[tuple[Wanted, _Partition]]) -> FetchResponse:
        session = self.session
        topics: list[FetchResponse.FetchableTopicResponse] = []
        for wanted, part in found:
            if session is not None:
                told = Told(part.high_watermark, part.last_stable_offset, part.log_start_offset)
                news = session.has_news(wanted, told) or _length(part) > 0 or _is_told_more(part)
                if part.error_code != NONE:
                    session.told.pop(wanted, None)
                    news = True
                if not self.is_full:
                    if not news:
                        continue
                    if _length(part):
                        session.serve_last(wanted)
            if not topics or (topics[-1].topic, topics[-1].topic_id) != wanted[:2]:
                topics.append(FetchResponse.FetchableTopicResponse(topic=wanted.topic, topic_id=wanted.topic_id))
            topics[-1].partitions.append(part)
        return FetchResponse(
            session_id=session.id if session is not None else 0, responses=topics, node_endpoints=self._leaders(found)
        )

    def _leaders(self, found: list[tuple[Wanted, _Partition]]) -> list[FetchResponse.NodeEndpoint]:
        """Where the leaders are that the client should have asked."""
        named = {part.current_leader.leader_id for _, part in found} - {-1}
        return [
            FetchResponse.NodeEndpoint(node_id=broker, host=at.host, port=at.port, rack=rack)
            for broker, at, rack in (endpoints(self.ctx) if named else ())
            if broker in named
        ]

    async def wait(self) -> FetchResponse:
        """Look again whenever one of the partitions has more, until it is enough or the time is over."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.request.max_wait_ms / 1000
        waiter = Waiter()
        watched = self._watch(waiter)
        try:
            while True:
                waiter.woken.clear()
                answer = self.try_once()
                if answer is not None:
                    return answer
                left = deadline - loop.time()
                if left <= 0 or self.ctx.services.replicas.stopping:
                    break
                try:
                    async with asyncio.timeout(left):  # wait_for may lose a cancellation
                        await waiter.woken.wait()
                except TimeoutError:
                    break
            final = self.try_once(last=True)
            assert final is not None
            return final
        finally:
            for waiters in watched:
                waiters.discard(waiter)

    def _watch(self, waiter: Waiter) -> list[set[Waiter]]:
        watched = []
        for wanted in self.positions:
            with suppress(UnknownTopicId):  # deleted a moment ago, or never there
                hosted = self.ctx.services.replicas.hosted.get(self._tp(wanted))
                if hosted is not None:
                    waiters = hosted.copiers if self.isolation is Isolation.LOG_END else hosted.waiters
                    waiters.add(waiter)
                    watched.append(waiters)
        return watched


def _is_told_more(part: _Partition) -> bool:
    """Than records: where the logs have parted, or where to read."""
    return part.diverging_epoch.end_offset >= 0 or part.preferred_read_replica >= 0


def _length(part: _Partition) -> int:
    records = part.records
    if records is None:
        return 0
    return len(records) if isinstance(records, bytes | bytearray | memoryview) else records.length
