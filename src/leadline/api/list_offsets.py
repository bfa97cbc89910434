"""ListOffsets and OffsetForLeaderEpoch: the offsets of a time, of an end, or of an epoch."""

from collections import Counter

from leadline.api.context import Context
from leadline.errors import (
    InvalidRequest,
    LeaderNotAvailable,
    OffsetNotAvailable,
    TopicAuthorizationFailed,
    UnknownServerError,
    WireError,
)
from leadline.log.log import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, Isolation, ListedOffset, Log
from leadline.model import NONE, TopicPartition
from leadline.replication.hosted_partition import HostedPartition
from leadline.replication.replicas import Replicas
from leadline.wire.messages import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

CONSUMER = -1  # the replica id of a client
DEBUGGING = -2  # the replica id that followers answer, too
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
EPOCHS_FROM = 4
NOT_AVAILABLE_FROM = 5

_Partition = ListOffsetsResponse.ListOffsetsPartitionResponse
_EpochEnd = OffsetForLeaderEpochResponse.EpochEndOffset


def list_offsets(request: ListOffsetsRequest, ctx: Context) -> ListOffsetsResponse:
    """ListOffsets, v0-8.  v1 one offset · v2 isolation · v4 epochs · v7 -3: max timestamp · v8 -4: local log start.

    A consumer sees no further than the high watermark, or the last stable offset; a replica sees all.
    """
    counts = Counter(
        (topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions
    )
    permitted = ctx.permitted("topics", (topic.name for topic in request.topics))
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponse.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _unauthorized(partition.partition_index, ctx.version)
                    if topic.name not in permitted
                    else _segment_starts(topic.name, partition, request, ctx)
                    if ctx.version == 0
                    else _find_offset(
                        topic.name, partition, request, ctx, counts[topic.name, partition.partition_index] > 1
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _unauthorized(partition: int, version: int) -> _Partition:
    code = TopicAuthorizationFailed.code
    if version == 0:
        return _Partition(partition_index=partition, error_code=code)
    return _Partition(partition_index=partition, error_code=code, timestamp=-1, offset=-1)


def _find_offset(
    name: str,
    requested: ListOffsetsRequest.ListOffsetsPartition,
    request: ListOffsetsRequest,
    ctx: Context,
    repeated: bool,
) -> _Partition:
    tp = TopicPartition(name, requested.partition_index)
    try:
        if repeated:
            raise InvalidRequest(f"the request names {tp} more than once")
        replicas = ctx.services.replicas
        look_up = replicas.holding if request.replica_id == DEBUGGING else replicas.leading
        hosted = look_up(tp, requested.current_leader_epoch)
        isolation = Isolation.LOG_END
        if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
            raise UnknownServerError(f"isolation level {request.isolation_level} is unknown")
        if request.replica_id == CONSUMER:
            isolation = Isolation.COMMITTED if request.isolation_level == READ_COMMITTED else Isolation.HIGH_WATERMARK
        position = _offset_for_time(hosted, requested.timestamp, isolation, ctx.version)
    except WireError as error:
        return _Partition(partition_index=requested.partition_index, error_code=error.code, timestamp=-1, offset=-1)
    if position is None:
        return _Partition(partition_index=requested.partition_index, error_code=NONE)
    return _Partition(
        partition_index=requested.partition_index,
        error_code=NONE,
        timestamp=position.timestamp,
        offset=position.offset,
        leader_epoch=-1 if position.leader_epoch is None or ctx.version < EPOCHS_FROM else position.leader_epoch,
    )


def _offset_for_time(
    hosted: HostedPartition, timestamp: int, isolation: Isolation, version: int
) -> ListedOffset | None:
    """None: no record that the client may see has this timestamp or a later one."""
    limit = hosted.log.limit(isolation)
    if timestamp == LATEST_TIMESTAMP:
        _check_available(hosted, isolation, version)
        return ListedOffset(-1, limit, hosted.epoch)
    position = hosted.log.offset_for_time(timestamp)
    if position is not None and (position.timestamp < 0 or position.offset < limit):
        return position
    _check_available(hosted, isolation, version)
    return None


def _check_available(hosted: HostedPartition, isolation: Isolation, version: int) -> None:
    """A new leader may have a lower high watermark than the one before, until its followers have fetched."""
    leader = hosted.leader_state
    if isolation is Isolation.LOG_END or leader is None or leader.epoch_start <= hosted.log.high_watermark:
        return
    message = (
        f"epoch {leader.epoch} of {hosted.log.tp} starts at {leader.epoch_start}: "
        f"the high watermark is {leader.high_watermark}"
    )
    raise OffsetNotAvailable(message) if version >= NOT_AVAILABLE_FROM else LeaderNotAvailable(message)


def _segment_starts(
    name: str, requested: ListOffsetsRequest.ListOffsetsPartition, request: ListOffsetsRequest, ctx: Context
) -> _Partition:
    """Version 0 returns the base offsets of the segments that were last written by a time."""
    try:
        log = ctx.services.replicas.leading(TopicPartition(name, requested.partition_index)).log
        if requested.max_num_offsets < 0:
            raise UnknownServerError(f"max_num_offsets={requested.max_num_offsets} must not be negative")
        starts = [max(segment.base_offset, log.log_start) for segment in log.segments]
        if log.segments.active.size:
            starts.append(log.log_end)
        count = _count_until(requested.timestamp, log, len(starts), ctx.services.clock.now_ms())
    except WireError as error:
        return _Partition(partition_index=requested.partition_index, error_code=error.code)
    offsets = starts[:count][::-1][: requested.max_num_offsets]
    if request.replica_id == CONSUMER:
        offsets = sorted({min(offset, log.high_watermark) for offset in offsets}, reverse=True)
    return _Partition(partition_index=requested.partition_index, error_code=NONE, old_style_offsets=offsets)


def _count_until(timestamp: int, log: Log, count: int, now_ms: int) -> int:
    """Counts the segments that were last written at a time or before. The log end counts as written now."""
    if timestamp == LATEST_TIMESTAMP or timestamp >= now_ms:
        return count
    if timestamp == EARLIEST_TIMESTAMP:
        return 1
    return max((n for n, written_ms in enumerate(log.segment_times(), start=1) if written_ms <= timestamp), default=0)


def offset_for_leader_epoch(request: OffsetForLeaderEpochRequest, ctx: Context) -> OffsetForLeaderEpochResponse:
    """OffsetForLeaderEpoch, v0-4.  v2 the client's own epoch · v3 replica id · v4 flexible."""
    replicas = ctx.services.replicas
    permitted = ctx.permitted("topics", (topic.topic for topic in request.topics))
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    _epoch_end(topic.topic, requested, replicas)
                    if topic.topic in permitted
                    else _EpochEnd(error_code=TopicAuthorizationFailed.code, partition=requested.partition)
                    for requested in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _epoch_end(
    topic: str, requested: OffsetForLeaderEpochRequest.OffsetForLeaderPartition, replicas: Replicas
) -> _EpochEnd:
    try:
        hosted = replicas.leading(TopicPartition(topic, requested.partition), requested.current_leader_epoch)
    except WireError as error:
        return _EpochEnd(error_code=error.code, partition=requested.partition)
    end = hosted.log.end_of_epoch(requested.leader_epoch)
    if end is None:
        return _EpochEnd(error_code=NONE, partition=requested.partition)
    return _EpochEnd(error_code=NONE, partition=requested.partition, leader_epoch=end.epoch, end_offset=end.end_offset)
