"""Produce: batches of records into partitions."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TypeVar

from leadline.api.context import Context
from leadline.api.metadata import endpoints
from leadline.api.verification import Verdict, verify_records
from leadline.controller.topics import INTERNAL
from leadline.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidRequiredAcks,
    InvalidTopic,
    NotLeaderOrFollower,
    RecordListTooLarge,
    RecordsRefused,
    RecordTooLarge,
    StorageError,
    TransactionalIdAuthorizationFailed,
    UnknownTopicOrPartition,
    UnsupportedCompressionType,
    UnsupportedVersion,
    WireError,
)
from leadline.log.log import AppendResult
from leadline.log.producer_state import TRUSTED, AppendOrigin
from leadline.log.write_pressure import PressureLevel, WritePressure
from leadline.model import ACKS_ALL, NONE, Buffer, Offset, TopicPartition
from leadline.records.batch import (
    CODEC_MASK,
    FLAGS_AT,
    HEADER_BYTES,
    MAGIC,
    MAGIC_AT,
    TRANSACTIONAL,
    header_at,
    walk,
)
from leadline.records.compression import Codec
from leadline.replication.hosted_partition import HostedPartition
from leadline.replication.replicas import Replicas
from leadline.wire.messages import ProduceRequest, ProduceResponse
from leadline.wire.primitives import BUFFERS

OLDEST_VERSION = 3  # before it, records had another format
ZSTD_FROM = 7
ACKS = (0, 1, ACKS_ALL)
LEADERS_FROM = 10
LARGE_BYTES = 16 * 1024  # requests from here on wait for a disk that does not keep up
ADMIN_CLIENT = "__admin_client"  # who calls itself so may write to internal topics, as in Kafka

# Refused before the log was asked, or for its sake: Kafka does not tell with these where the log starts.
_WITHOUT_LOG_START = (
    UnknownTopicOrPartition, NotLeaderOrFollower, StorageError, InvalidRequiredAcks, InvalidTopic,
    UnsupportedCompressionType, RecordTooLarge, RecordListTooLarge, CorruptMessage,
)  # fmt: skip

_ALL_TRUSTED: Mapping[TopicPartition, Verdict] = {}

A = TypeVar("A")
Outcome = Callable[[int, WireError | None], None]  # NONE, or the code of what is wrong; and why it is refused, if it is
Answer = ProduceResponse | Awaitable[ProduceResponse | None] | None
_Partition = ProduceResponse.PartitionProduceResponse
_Topic = ProduceResponse.TopicProduceResponse


def produce(request: ProduceRequest, ctx: Context) -> Answer:
    """Produce, v3-11.  v5 log start offset · v7 zstd · v8 record errors · v9 flexible · v10 current leader.

    acks=0 is never answered: on error the connection is closed instead.
    """
    if (refusal := _refusal(request, ctx)) is not None:
        return _refuse_all(request, refusal)
    if request.transactional_id is None:
        return _append(request, _ALL_TRUSTED, ctx)
    try:
        verdicts = verify_records(request, ctx)
    except WireError as error:
        return _refuse_all(request, error)
    if isinstance(verdicts, Awaitable):
        return _append_later(_with_own_records(request), verdicts, ctx)
    return _append(request, verdicts, ctx)


async def _append_later(
    request: ProduceRequest, verdicts: Awaitable[Mapping[TopicPartition, Verdict]], ctx: Context
) -> ProduceResponse | None:
    answer = _append(request, await verdicts, ctx)
    return await answer if isinstance(answer, Awaitable) else answer


def _with_own_records(request: ProduceRequest) -> ProduceRequest:
    """The frame that they lie in is used again while we wait."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            data.records = bytearray(_records(data))
    return request


def _append(request: ProduceRequest, verdicts: Mapping[TopicPartition, Verdict], ctx: Context) -> Answer:
    acks, replicas = request.acks, ctx.services.replicas
    topics = []
    failed: WireError | None = None
    unsafe: list[tuple[TopicPartition, Offset, _Partition]] = []  # written, but not everywhere, or not flushed
    for topic in request.topic_data:
        partitions = []
        for data in topic.partition_data:
            tp = TopicPartition(topic.name, data.index)
            records = _records(data)
            verdict = TRUSTED if verdicts is _ALL_TRUSTED else verdicts.get(tp)
            if isinstance(verdict, WireError):
                failed = verdict
                partitions.append(refused(data.index, verdict))
                continue
            try:
                if acks not in ACKS or ctx.version < ZSTD_FROM or topic.name in INTERNAL:
                    _check(tp, records, acks, ctx)
                hosted = replicas.holding(tp)
                appended = hosted.append_as_leader(records, AppendOrigin.CLIENT, verdict, acks)
                log = hosted.log
                partitions.append(accepted(data.index, appended, log.log_start))
                if (log.high_watermark if acks == ACKS_ALL else log.durable_end) <= appended.last_offset:
                    unsafe.append((tp, appended.last_offset + 1, partitions[-1]))
            except WireError as error:
                failed = error
                partitions.append(refused(data.index, error, log_start_with(tp, records, error, replicas)))
        if partitions:
            topics.append(_Topic(name=topic.name, partition_responses=partitions))
    if acks == 0 and failed is not None:
        raise failed
    answer = None if acks == 0 else ProduceResponse(responses=topics)
    if failed is not None and ctx.version >= LEADERS_FROM and answer is not None:
        _tell_leaders(answer, ctx)
    if unsafe and answer is not None:
        return _once_safe(answer, unsafe, acks, request.timeout_ms, replicas)
    if unsafe:
        return _once_flushed([(tp, offset) for tp, offset, _ in unsafe], replicas)
    if replicas.pressure.level is PressureLevel.HIGH and _is_large(request):
        return after_the_disk(answer, replicas.pressure)
    return answer


def _once_safe(
    answer: ProduceResponse,
    unsafe: list[tuple[TopicPartition, Offset, _Partition]],
    acks: int,
    timeout_ms: int,
    replicas: Replicas,
) -> "asyncio.Future[ProduceResponse]":
    """When all who are to have it do, or the time is over; the offsets are told in any case."""
    future: asyncio.Future[ProduceResponse] = asyncio.get_running_loop().create_future()
    left = len(unsafe)

    def told(part: _Partition, code: int, refusal: WireError | None) -> None:
        nonlocal left
        part.error_code = code
        if refusal is not None:
            part.base_offset = part.log_append_time_ms = part.log_start_offset = -1
            part.error_message = str(refusal)
        left -= 1
        if not left and not future.done():
            future.set_result(answer)

    for tp, offset, part in unsafe:
        when_safe(replicas.hosted[tp], offset, acks, timeout_ms, partial(told, part))
    return future


async def _once_flushed(unsafe: list[tuple[TopicPartition, Offset]], replicas: Replicas) -> None:
    """acks=0: nobody is answered, but the next request waits, as in Kafka; a failure closes the connection."""
    futures = []
    for tp, offset in unsafe:
        future: asyncio.Future[WireError | None] = asyncio.get_running_loop().create_future()
        replicas.hosted[tp].once_flushed(offset, partial(_set_result, future))
        futures.append(future)
    for future in futures:
        if (error := await future) is not None:
            raise error


def _set_result(future: "asyncio.Future[WireError | None]", error: WireError | None) -> None:
    if not future.done():
        future.set_result(error)


def when_safe(hosted: HostedPartition, offset: Offset, acks: int, timeout_ms: int, told: Outcome) -> None:
    """The time that the others may take begins behind our own flush."""
    if hosted.log.durable_end >= offset:
        _when_committed(hosted, offset, timeout_ms, told)
        return

    def flushed(error: WireError | None) -> None:
        if error is not None:
            told(error.code, error)
        elif acks == ACKS_ALL:
            _when_committed(hosted, offset, timeout_ms, told)
        else:
            told(NONE, None)

    hosted.once_flushed(offset, flushed)


def _when_committed(hosted: HostedPartition, offset: Offset, timeout_ms: int, told: Outcome) -> None:
    leader = hosted.leader

    def judge(error: WireError | None) -> None:
        try:
            if error is not None:
                raise error
            leader.check_still_in_sync()
        except WireError as found:
            told(found.code, None)
        else:
            told(NONE, None)

    if leader.is_safe(offset):
        judge(None)
    else:
        hosted.once_committed(offset, max(timeout_ms, 0) / 1000, judge)


def _tell_leaders(answer: ProduceResponse, ctx: Context) -> None:
    """Who leads what was sent here in vain, and where it is."""
    named = set()
    for topic in answer.responses:
        known = ctx.services.metadata.topics.get(topic.name)
        for part in topic.partition_responses:
            if part.error_code == NotLeaderOrFollower.code and known is not None and part.index in known.partitions:
                leader = known.partitions[part.index]
                part.current_leader = ProduceResponse.LeaderIdAndEpoch(
                    leader_id=leader.leader, leader_epoch=leader.leader_epoch
                )
                named.add(leader.leader)
    answer.node_endpoints = [
        ProduceResponse.NodeEndpoint(node_id=broker, host=at.host, port=at.port, rack=rack)
        for broker, at, rack in (endpoints(ctx) if named else ())
        if broker in named
    ]


def _is_large(request: ProduceRequest) -> bool:
    return sum(len(_records(data)) for topic in request.topic_data for data in topic.partition_data) >= LARGE_BYTES


async def after_the_disk(answer: A, pressure: WritePressure) -> A:
    """Who writes faster than the disk is slowed down by it, and nobody else is."""
    await pressure.room()
    return answer


def _records(data: ProduceRequest.PartitionProduceData) -> Buffer:
    return data.records if isinstance(data.records, BUFFERS) else b""


def _refusal(request: ProduceRequest, ctx: Context) -> WireError | None:
    """Why the request as a whole is refused, if it is."""
    if ctx.version < OLDEST_VERSION:
        return UnsupportedVersion(f"Produce v{ctx.version} carries records in a unsupported format; v3-11 do not")
    if request.transactional_id is not None:
        return None
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = _records(data)
            if len(records) > HEADER_BYTES and records[FLAGS_AT] & TRANSACTIONAL and records[MAGIC_AT] == MAGIC:
                return TransactionalIdAuthorizationFailed("records of a transaction without a transactional id")
    return None


def _refuse_all(request: ProduceRequest, error: WireError) -> ProduceResponse:
    if request.acks == 0:
        raise error
    return ProduceResponse(
        responses=[
            _Topic(name=topic.name, partition_responses=[refused(data.index, error) for data in topic.partition_data])
            for topic in request.topic_data
            if topic.partition_data
        ]
    )


def _check(tp: TopicPartition, records: Buffer, acks: int, ctx: Context) -> None:
    """What is seldom to be checked, in Kafka's order."""
    ctx.services.replicas.leading(tp)
    is_zstd = len(records) > HEADER_BYTES and records[FLAGS_AT] & CODEC_MASK == Codec.ZSTD
    if ctx.version < ZSTD_FROM and is_zstd and records[MAGIC_AT] == MAGIC:
        raise UnsupportedCompressionType(f"zstd for {tp} in Produce v{ctx.version}: it is there from v{ZSTD_FROM} on")
    if acks not in ACKS:
        raise InvalidRequiredAcks(f"acks={acks} is not valid: 0, 1 or -1 (all)")
    if tp.topic in INTERNAL and ctx.client_id != ADMIN_CLIENT:
        raise InvalidTopic(f"Cannot append to internal topic {tp.topic}")


def accepted(index: int, appended: AppendResult, log_start: int) -> _Partition:
    return _Partition(
        index=index,
        error_code=NONE,
        base_offset=appended.first_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=log_start,
    )


def refused(index: int, error: WireError, log_start: int = -1) -> _Partition:
    records = error.records if isinstance(error, RecordsRefused) else ()
    return _Partition(
        index=index,
        error_code=error.code,
        base_offset=-1,
        log_start_offset=log_start,
        error_message=str(error),
        record_errors=[
            ProduceResponse.BatchIndexAndErrorMessage(batch_index=n, batch_index_error_message=message)
            for n, message in records
        ],
    )


def log_start_with(tp: TopicPartition, records: Buffer, error: WireError, replicas: Replicas) -> int:
    """Told where the log itself refused what was one batch."""
    if isinstance(error, _WITHOUT_LOG_START) or (isinstance(error, InvalidRecord) and not _is_one_batch(records)):
        return -1
    return replicas.leading(tp).log.log_start


def _is_one_batch(records: Buffer) -> bool:
    if len(records) < HEADER_BYTES or records[MAGIC_AT] != MAGIC:
        return False
    size = header_at(records).size
    return size <= len(records) and next(walk(records, size), None) is None
