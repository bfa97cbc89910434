"""Reads the partitions of one fetch, one by one: whether this client may read each, and its records.

A follower's position is reported to the partition with the first read.
"""

from leadline.api.context import Context
from leadline.api.fetch_access import FetchAccess
from leadline.api.fetch_params import FetchParams
from leadline.api.fetch_response import failed, without_records
from leadline.api.fetch_sessions import Session, TopicIdPartition
from leadline.api.replica_selector import closer_replica
from leadline.errors import (
    FencedLeaderEpoch,
    InconsistentTopicId,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    StorageError,
    UnknownServerError,
    UnknownTopicId,
    UnsupportedCompressionType,
    UnsupportedVersion,
    WireError,
)
from leadline.log.log import Isolation, Log, ReadResult
from leadline.model import NO_EPOCH, TopicPartition
from leadline.replication.hosted_partition import HostedPartition
from leadline.replication.watchers import Watcher
from leadline.runtime.ordered_set import OrderedSet
from leadline.security.authorizer import Authorizer
from leadline.wire.fetch_position import FetchPosition
from leadline.wire.messages import FetchResponse
from leadline.wire.primitives import id_of

RECORD_BATCHES_FROM = 4
STORAGE_ERRORS_FROM = 6  # earlier clients look for another leader instead
ZSTD_FROM = 10
LEADERS_FROM = 16

_Partition = FetchResponse.PartitionData


class PartitionReader:
    __slots__ = (
        "_access",
        "_authorizer",
        "_clock",
        "_ctx",
        "_metadata",
        "_params",
        "_replicas",
        "_session",
        "hosted",
        "is_first",
        "unsettled",
    )

    def __init__(self, params: FetchParams, session: Session | None, ctx: Context, access: FetchAccess | None) -> None:
        services = ctx.services
        self._params, self._session, self._ctx = params, session, ctx
        self._replicas, self._metadata, self._clock = services.replicas, services.metadata, services.clock
        self._authorizer = None if services.acls is None else services.acls.authorizer
        self._access = access  # None until something has to be decided
        self.hosted: dict[TopicIdPartition, HostedPartition] = {}  # by key, once read
        self.is_first = True  # the position of a follower counts once, not at each evaluation
        self.unsettled: set[TopicIdPartition] = set()  # there are more records, or the follower may join the ISR soon

    def tp_of(self, key: TopicIdPartition) -> TopicPartition:
        if not self._params.by_id:
            return TopicPartition(key.topic, key.partition)
        topic_id = id_of(key.topic_id)
        topic = self._metadata.by_id.get(topic_id)
        if topic is None:
            raise UnknownTopicId(f"there is no topic with id {topic_id}")
        return TopicPartition(topic.name, key.partition)

    def watchers_of(self, hosted: HostedPartition) -> OrderedSet[Watcher]:
        return hosted.watchers(of_log_end=self._params.isolation is Isolation.LOG_END)

    def read(self, key: TopicIdPartition, position: FetchPosition, left: int, *, min_one: bool) -> _Partition:
        """Reads at most `left` bytes of a partition. `min_one`: the first batch comes whole, however large it is."""
        try:
            hosted = self.hosted[key] = self._readable(key, position)
            if self._session is not None:
                self._session.watch(key, hosted, self.watchers_of(hosted))
            return self._read_from(hosted, key, position, min(left, position.max_bytes), min_one)
        except WireError as error:
            return self._failed(key, error)

    def _readable(self, key: TopicIdPartition, position: FetchPosition) -> HostedPartition:
        """The partition, if it may be read here by this client in this version."""
        params, replicas, authorizer, grants = self._params, self._replicas, self._authorizer, self._ctx.client.grants
        if authorizer is not None and params.is_follower:
            self._decisions(authorizer).check_broker()
        tp = self.tp_of(key)
        is_decided = authorizer is None or params.is_follower or grants.may_read(tp.topic, authorizer.version)
        if authorizer is not None and not is_decided:
            self._decisions(authorizer).check_topic(tp.topic)
        look_up = replicas.leading if params.only_leader else replicas.holding
        hosted = look_up(tp, max(position.current_leader_epoch, NO_EPOCH))
        log = hosted.log
        if params.is_follower:
            hosted.leader.follower(params.replica, position.current_leader_epoch)  # raises if it is not a follower
        elif hosted.is_fenced:
            raise NotLeaderOrFollower(f"{log.tp} may be led by another broker: this one is cut off")
        if params.by_id and log.topic_id not in (None, id_of(key.topic_id)):
            raise InconsistentTopicId(f"partition {log.tp} has topic id {log.topic_id}")
        if params.version < ZSTD_FROM and log.config.compression_type == "zstd":
            raise UnsupportedCompressionType(
                f"{log.tp} has zstd records: fetching them needs Fetch v{ZSTD_FROM} or newer"
            )
        is_converted = params.version < RECORD_BATCHES_FROM
        if is_converted and not params.is_follower and not log.config.message_downconversion_enable:
            raise UnsupportedVersion(f"{log.tp} has message.downconversion.enable=false")
        return hosted

    def _decisions(self, authorizer: Authorizer) -> FetchAccess:
        if self._access is None:
            self._access = FetchAccess(self._ctx, authorizer)
        return self._access

    def _read_from(
        self, hosted: HostedPartition, key: TopicIdPartition, position: FetchPosition, limit: int, min_one: bool
    ) -> _Partition:
        params, log = self._params, hosted.log
        part = without_records(key.partition, log)
        if position.fetch_offset < log.log_end:
            self.unsettled.add(key)
        if params.rack and hosted.leader_state is not None:
            racks = self._metadata.racks
            part.preferred_read_replica = closer_replica(hosted.leader_state, racks, params.rack, position.fetch_offset)
            if part.preferred_read_replica >= 0:
                return part
        if position.last_fetched_epoch >= 0 and (diverging := _divergence(log, position)) is not None:
            part.diverging_epoch = diverging
            return part
        if limit < 0 and position.fetch_offset < log.log_end:
            raise UnknownServerError(f"{limit} bytes of {log.tp} cannot be read")
        read = log.read(position.fetch_offset, limit, params.isolation, min_one=min_one)
        is_held_back = params.is_follower and self._is_held_back(hosted, key, position)
        if not is_held_back and (params.cuts_batches or not read.first_incomplete):
            _put(read, part, params.isolation)
        return part

    def _is_held_back(self, hosted: HostedPartition, key: TopicIdPartition, position: FetchPosition) -> bool:
        """Report the position of the follower. Returns whether a throttle holds its records back."""
        params, session = self._params, self._session
        if self.is_first:
            last_contact = None if session is None else session.last_contact
            now_ms = self._clock.now_ms()
            hosted.follower_fetched(params.replica, position, params.replica_epoch, last_contact, now_ms)
        if params.replica in hosted.leader.isr:
            return False
        self.unsettled.add(key)
        return hosted.is_held_back(params.replica)

    def _failed(self, key: TopicIdPartition, error: WireError) -> _Partition:
        part = failed(key.partition, error)
        if isinstance(error, UnknownServerError) and (hosted := self.hosted.get(key)) is not None:
            hosted.topic_metrics.failed_fetch_requests += 1
        if self._params.version < STORAGE_ERRORS_FROM and isinstance(error, StorageError):
            part.error_code = NotLeaderOrFollower.code
        if self._params.version >= LEADERS_FROM and isinstance(error, FencedLeaderEpoch | NotLeaderOrFollower):
            topic = self._metadata.topics.get(self.tp_of(key).topic)
            if topic is not None and key.partition in topic.partitions:
                leader = topic.partitions[key.partition]
                part.current_leader = FetchResponse.LeaderIdAndEpoch(
                    leader_id=leader.leader, leader_epoch=leader.leader_epoch
                )
        return part


def _divergence(log: Log, position: FetchPosition) -> FetchResponse.EpochEndOffset | None:
    """Where the log of the client diverges from this one; None if it does not."""
    end = log.end_of_epoch(position.last_fetched_epoch)
    if end is None or position.fetch_offset < log.log_start:
        raise OffsetOutOfRange(
            f"offset {position.fetch_offset} of {log.tp}, last fetched in epoch {position.last_fetched_epoch}: it "
            f"starts at {log.log_start}, in epochs {log.epochs.entries}"
        )
    if end.epoch >= position.last_fetched_epoch and end.end_offset >= position.fetch_offset:
        return None
    return FetchResponse.EpochEndOffset(epoch=end.epoch, end_offset=end.end_offset)


def _put(read: ReadResult, part: _Partition, isolation: Isolation) -> None:
    if read.slice is not None:
        part.records = read.slice
    if isolation is Isolation.COMMITTED:
        part.aborted_transactions = [
            FetchResponse.AbortedTransaction(producer_id=txn.producer_id, first_offset=txn.first_offset)
            for txn in read.aborted
        ]
