"""ListOffsets and OffsetForLeaderEpoch: where in a partition a time, its ends or an epoch lie."""

from collections import Counter

from leadline.api.context import Context
from leadline.errors import InvalidRequest, LeaderNotAvailable, OffsetNotAvailable, WireError
from leadline.log.log import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, Isolation, Log, TimestampAndOffset
from leadline.model import NONE, TopicPartition
from leadline.replication.hosted_partition import HostedPartition
from leadline.wire.messages import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

CONSUMER = -1  # the replica id of who is no replica
DEBUGGING = -2  # of who may also ask a follower
READ_COMMITTED = 1
EPOCHS_FROM = 4
NOT_AVAILABLE_FROM = 5

_Partition = ListOffsetsResponse.ListOffsetsPartitionResponse
_EpochEnd = OffsetForLeaderEpochResponse.EpochEndOffset


def list_offsets(request: ListOffsetsRequest, ctx: Context) -> ListOffsetsResponse:
    """ListOffsets, v0-8.  v1 one offset · v2 isolation · v4 epochs · v7 -3: max timestamp · v8 -4: local log start.

    A consumer sees no further than the high watermark, or the last stable offset; a replica sees all.
    """
    often = Counter((topic.name, asked.partition_index) for topic in request.topics for asked in topic.partitions)
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponse.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _segment_starts(topic.name, asked, request, ctx)
                    if ctx.version == 0
                    else _look_up(topic.name, asked, request, ctx, often[topic.name, asked.partition_index] > 1)
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _look_up(
    name: str,
    asked: ListOffsetsRequest.ListOffsetsPartition,
    request: ListOffsetsRequest,
    ctx: Context,
    repeated: bool,
) -> _Partition:
    tp = TopicPartition(name, asked.partition_index)
    try:
        if repeated:
            raise InvalidRequest(f"the request names {tp} more than once")
        replicas = ctx.services.replicas
        look_up = replicas.holding if request.replica_id == DEBUGGING else replicas.leading
        hosted = look_up(tp, asked.current_leader_epoch)
        isolation = Isolation.LOG_END
        if request.replica_id == CONSUMER:
            isolation = Isolation.COMMITTED if request.isolation_level == READ_COMMITTED else Isolation.HIGH_WATERMARK
        limit = hosted.log.limit(isolation)
        if asked.timestamp == LATEST_TIMESTAMP:
            _check_known(hosted, isolation, ctx.version)
            found: TimestampAndOffset | None = TimestampAndOffset(-1, limit, hosted.epoch)
        else:
            found = hosted.log.offset_for_time(asked.timestamp)
            if found is not None and found.timestamp >= 0 and found.offset >= limit:
                found = None
            if found is None:
                _check_known(hosted, isolation, ctx.version)
    except WireError as error:
        return _Partition(partition_index=asked.partition_index, error_code=error.code, timestamp=-1, offset=-1)
    if found is None:
        return _Partition(partition_index=asked.partition_index, error_code=NONE)
    return _Partition(
        partition_index=asked.partition_index,
        error_code=NONE,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=-1 if found.leader_epoch is None or ctx.version < EPOCHS_FROM else found.leader_epoch,
    )


def _check_known(hosted: HostedPartition, isolation: Isolation, version: int) -> None:
    """A new leader may show less than the one before it did, until it has heard from its followers."""
    leader = hosted.leader_state
    if isolation is Isolation.LOG_END or leader is None or leader.epoch_start <= hosted.log.high_watermark:
        return
    told = f"epoch {leader.epoch} of {hosted.log.tp} starts at {leader.epoch_start}: safe is {leader.high_watermark}"
    raise OffsetNotAvailable(told) if version >= NOT_AVAILABLE_FROM else LeaderNotAvailable(told)


def _segment_starts(
    name: str, asked: ListOffsetsRequest.ListOffsetsPartition, request: ListOffsetsRequest, ctx: Context
) -> _Partition:
    """Version 0 knows no records by time: it tells where segments begin that were last written to by then."""
    try:
        log = ctx.services.replicas.leading(TopicPartition(name, asked.partition_index)).log
        starts = [max(segment.base_offset, log.log_start) for segment in log.segments]
        if log.segments.active.size:
            starts.append(log.log_end)
        until = _count_until(asked.timestamp, log, len(starts), ctx.services.clock.now_ms())
    except WireError as error:
        return _Partition(partition_index=asked.partition_index, error_code=error.code)
    found = starts[:until][::-1][: max(asked.max_num_offsets, 0)]
    if request.replica_id == CONSUMER:
        found = sorted({min(offset, log.high_watermark) for offset in found}, reverse=True)
    return _Partition(partition_index=asked.partition_index, error_code=NONE, old_style_offsets=found)


def _count_until(timestamp: int, log: Log, count: int, now_ms: int) -> int:
    """How many of them were written to at a time or before it: a file knows when that was, the end is now."""
    if timestamp == LATEST_TIMESTAMP or timestamp >= now_ms:
        return count
    if timestamp == EARLIEST_TIMESTAMP:
        return 1
    return max((n for n, at in enumerate(log.segment_times(), start=1) if at <= timestamp), default=0)


def offset_for_leader_epoch(request: OffsetForLeaderEpochRequest, ctx: Context) -> OffsetForLeaderEpochResponse:
    """OffsetForLeaderEpoch, v0-4.  v2 the client's own epoch · v3 replica id · v4 flexible."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[_epoch_end(topic.topic, asked, ctx) for asked in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _epoch_end(topic: str, asked: OffsetForLeaderEpochRequest.OffsetForLeaderPartition, ctx: Context) -> _EpochEnd:
    try:
        hosted = ctx.services.replicas.leading(TopicPartition(topic, asked.partition), asked.current_leader_epoch)
    except WireError as error:
        return _EpochEnd(error_code=error.code, partition=asked.partition)
    end = hosted.log.end_of_epoch(asked.leader_epoch)
    if end is None:
        return _EpochEnd(error_code=NONE, partition=asked.partition)
    return _EpochEnd(error_code=NONE, partition=asked.partition, leader_epoch=end.epoch, end_offset=end.end_offset)
