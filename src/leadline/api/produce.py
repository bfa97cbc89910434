"""Produce: batches of records into partitions."""

import asyncio
from collections.abc import Awaitable, Container, Mapping
from functools import partial
from typing import NamedTuple, TypeVar

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
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
    UnknownServerError,
    UnknownTopicOrPartition,
    UnsupportedCompressionType,
    WireError,
)
from leadline.log.log import AppendResult
from leadline.log.producer_state import TRUSTED, AppendOrigin
from leadline.log.validation import LargeContent
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
from leadline.records.message_set import no_entry
from leadline.records.python_walker import Summary
from leadline.replication.hosted_partition import HostedPartition
from leadline.replication.replicas import Replicas
from leadline.replication.topic_metrics import TopicMetrics
from leadline.wire.messages import ProduceRequest, ProduceResponse
from leadline.wire.primitives import BUFFERS

RECORD_BATCHES_FROM = 3  # before it, message sets of formats 0 and 1 come as well
ZSTD_FROM = 7
ACKS = (0, 1, ACKS_ALL)
LEADERS_FROM = 10
LARGE_BYTES = 16 * 1024  # requests of this size or more wait for a disk that does not keep up
ADMIN_CLIENT = "__admin_client"  # a client with this id may write to internal topics, as in Kafka

# With these errors Kafka does not return where the log starts.
_WITHOUT_LOG_START = (
    UnknownTopicOrPartition, NotLeaderOrFollower, StorageError, InvalidRequiredAcks, InvalidTopic,
    UnsupportedCompressionType, RecordTooLarge, RecordListTooLarge, CorruptMessage,
)  # fmt: skip

_ALL_TRUSTED: Mapping[TopicPartition, Verdict] = {}

A = TypeVar("A")
Answer = ProduceResponse | Awaitable[ProduceResponse | None] | None
_Partition = ProduceResponse.PartitionProduceResponse
_Topic = ProduceResponse.TopicProduceResponse


def produce(request: ProduceRequest, ctx: Context) -> Answer:
    """Produce, v0-11.  v3 record batches · v5 log start · v7 zstd · v8 record errors · v9 flexible · v10 leaders.

    acks=0 is never answered: on error the connection is closed instead. Before v3 a thread converts the records.
    """
    if (refusal := _refusal(request, ctx)) is not None:
        return _refuse_all(request, refusal)
    permitted = _writable(request, ctx)
    if request.transactional_id is None:
        return _append(request, _ALL_TRUSTED, permitted, ctx)
    try:
        verdicts = verify_records(request, permitted, ctx)
    except WireError as error:
        return _refuse_all(request, error)
    if isinstance(verdicts, Awaitable):
        return _append_later(_with_own_records(request), verdicts, permitted, ctx)
    return _append(request, verdicts, permitted, ctx)


def _writable(request: ProduceRequest, ctx: Context) -> Container[str]:
    permitted = ctx.permitted("topics", (topic.name for topic in request.topic_data))
    for topic in request.topic_data:
        if topic.name in permitted:
            ctx.note_write(topic.name)
    return permitted


async def _append_later(
    request: ProduceRequest,
    verdicts: Awaitable[Mapping[TopicPartition, Verdict]],
    permitted: Container[str],
    ctx: Context,
) -> ProduceResponse | None:
    answer = _append(request, await verdicts, permitted, ctx)
    return await answer if isinstance(answer, Awaitable) else answer


def _with_own_records(request: ProduceRequest) -> ProduceRequest:
    """The buffer of the frame is used again while the request waits."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            data.records = bytearray(_records(data))
    return request


class _Unsafe(NamedTuple):
    """Records that were appended, but are not yet where the acknowledgement needs them."""

    hosted: HostedPartition
    offset: Offset  # the one after them
    response: _Partition


class _Large(NamedTuple):
    """Records that a thread has to check before they are appended."""

    topic: str
    data: ProduceRequest.PartitionProduceData
    responses: list[_Partition]  # of the topic
    n: int  # the place of its response


class _Appends:
    """The appends of one request, partition by partition."""

    def __init__(
        self,
        request: ProduceRequest,
        verdicts: Mapping[TopicPartition, Verdict],
        permitted: Container[str],
        ctx: Context,
    ) -> None:
        self.acks, self._verdicts, self._permitted, self._ctx = request.acks, verdicts, permitted, ctx
        self._replicas = ctx.services.replicas
        self._needs_check = self.acks not in ACKS or ctx.version < ZSTD_FROM
        self._may_be_old = ctx.version < RECORD_BATCHES_FROM
        self.failure: WireError | None = None  # the last one
        self.unsafe: list[_Unsafe] = []
        self.large: list[_Large] = []
        self.topics: list[_Topic] = []
        for topic in request.topic_data:
            responses: list[_Partition] = []
            for data in topic.partition_data:
                responses.append(self._append(topic.name, data, responses))
            if responses:
                self.topics.append(_Topic(name=topic.name, partition_responses=responses))

    async def append_large(self) -> None:
        """Check in threads what the loop could not, and append it."""
        for topic, data, responses, n in self.large:
            services, tp, batch = self._ctx.services, TopicPartition(topic, data.index), data.records
            assert isinstance(batch, bytearray)
            try:
                config, now_ms = self._replicas.holding(tp).log.config, services.clock.now_ms()
                if self._may_be_old:
                    checked = await services.content_checks.convert(batch, config, tp, now_ms)
                else:
                    checked = await services.content_checks.check(batch, config, tp, now_ms)
            except WireError as error:
                self.failure = error
                responses[n] = refused(data.index, error, log_start_with(tp, batch, error, self._replicas))
                continue
            if checked is None:
                responses[n] = _Partition(index=data.index, error_code=NONE, base_offset=-1)
                continue
            data.records = checked.data
            responses[n] = self._append(topic, data, responses, checked.content)
            if self._may_be_old and responses[n].error_code == NONE:
                converted = header_at(checked.data).last_offset_delta + 1
                self._replicas.context.topic_metrics.of(topic).produce_conversions += converted

    def _append(
        self,
        topic: str,
        data: ProduceRequest.PartitionProduceData,
        responses: list[_Partition],
        content: Summary | None = None,
    ) -> _Partition:
        if topic not in self._permitted:
            self.failure = _unauthorized()
            return refused(data.index, self.failure)
        tp, records = TopicPartition(topic, data.index), _records(data)
        verdict = TRUSTED if self._verdicts is _ALL_TRUSTED else self._verdicts.get(tp)
        if isinstance(verdict, WireError):
            self.failure = verdict
            return refused(data.index, verdict)
        try:
            if self._needs_check or topic in INTERNAL:
                _check(tp, records, self.acks, self._ctx)
            hosted = self._replicas.holding(tp)
            if self._may_be_old and content is None:
                raise LargeContent
            appended = hosted.append_as_leader(records, AppendOrigin.CLIENT, verdict, self.acks, content)
        except LargeContent:
            data.records = bytearray(records)  # the buffer of the frame is reused in the meantime
            self.large.append(_Large(topic, data, responses, len(responses)))
            return _Partition(index=data.index)  # until it is appended
        except WireError as error:
            self.failure = error
            if (refusing := self._replicas.hosted.get(tp)) is not None:
                count_refusal(refusing.topic_metrics, error, len(records))
            return refused(data.index, error, log_start_with(tp, records, error, self._replicas))
        response = accepted(data.index, appended, hosted.log.log_start)
        if safe_end(hosted, self.acks) <= appended.last_offset:
            self.unsafe.append(_Unsafe(hosted, appended.last_offset + 1, response))
        return response


def safe_end(hosted: HostedPartition, acks: int) -> Offset:
    """The records below it may be acknowledged."""
    return hosted.log.high_watermark if acks == ACKS_ALL else hosted.log.durable_end


def _append(
    request: ProduceRequest, verdicts: Mapping[TopicPartition, Verdict], permitted: Container[str], ctx: Context
) -> Answer:
    appends = _Appends(request, verdicts, permitted, ctx)
    return _answer_when_checked(appends, request, ctx) if appends.large else _answer(appends, request, ctx)


async def _answer_when_checked(appends: _Appends, request: ProduceRequest, ctx: Context) -> ProduceResponse | None:
    await appends.append_large()
    answer = _answer(appends, request, ctx)
    return await answer if isinstance(answer, Awaitable) else answer


def _answer(appends: _Appends, request: ProduceRequest, ctx: Context) -> Answer:
    if request.acks == 0:
        return _unanswered(appends, request, ctx)
    response = ProduceResponse(responses=appends.topics)
    if appends.failure is not None and ctx.version >= LEADERS_FROM:
        _name_leaders(response, ctx)
    if appends.unsafe:
        return _when_all_safe(response, appends.unsafe, request)
    return _after_the_disk_if_large(response, request, ctx)


def _unanswered(appends: _Appends, request: ProduceRequest, ctx: Context) -> Answer:
    if appends.failure is not None:
        raise appends.failure
    if appends.unsafe:
        return _when_all_flushed(appends.unsafe)
    return _after_the_disk_if_large(None, request, ctx)


def _after_the_disk_if_large(response: ProduceResponse | None, request: ProduceRequest, ctx: Context) -> Answer:
    pressure = ctx.services.replicas.pressure
    if pressure.level is PressureLevel.HIGH and _is_large(request):
        return after_the_disk(response, pressure)
    return response


def _when_all_safe(
    response: ProduceResponse, unsafe: list[_Unsafe], request: ProduceRequest
) -> "asyncio.Future[ProduceResponse]":
    """Complete when the records are safe or the time is over. The response has the offsets in both cases."""
    future: asyncio.Future[ProduceResponse] = asyncio.get_running_loop().create_future()
    left = len(unsafe)

    def on_safe(part: _Partition, error: WireError | None) -> None:
        nonlocal left
        part.error_code = NONE if error is None else error.code
        left -= 1
        if not left and not future.done():
            future.set_result(response)

    def on_unflushed(part: _Partition, error: WireError | None) -> None:
        part.base_offset = part.log_append_time_ms = part.log_start_offset = -1
        part.error_message = str(error)
        on_safe(part, error)

    for hosted, offset, part in unsafe:
        hosted.once_safe(offset, request.acks, request.timeout_ms, partial(on_safe, part), partial(on_unflushed, part))
    return future


async def _when_all_flushed(unsafe: list[_Unsafe]) -> None:
    """acks=0: there is no response, but the next request waits, as in Kafka. A failure closes the connection."""
    futures = []
    for hosted, offset, _ in unsafe:
        future: asyncio.Future[WireError | None] = asyncio.get_running_loop().create_future()
        hosted.once_flushed(offset, partial(_set_result, future))
        futures.append(future)
    for future in futures:
        if (error := await future) is not None:
            raise error


def _set_result(future: "asyncio.Future[WireError | None]", error: WireError | None) -> None:
    if not future.done():
        future.set_result(error)


def _name_leaders(response: ProduceResponse, ctx: Context) -> None:
    """Add the leaders of the partitions that this broker does not lead, and their endpoints."""
    named = set()
    for topic in response.responses:
        cached = ctx.services.metadata.topics.get(topic.name)
        for part in topic.partition_responses:
            if part.error_code == NotLeaderOrFollower.code and cached is not None and part.index in cached.partitions:
                leader = cached.partitions[part.index]
                part.current_leader = ProduceResponse.LeaderIdAndEpoch(
                    leader_id=leader.leader, leader_epoch=leader.leader_epoch
                )
                named.add(leader.leader)
    response.node_endpoints = [
        ProduceResponse.NodeEndpoint(node_id=broker, host=at.host, port=at.port, rack=rack)
        for broker, at, rack in (endpoints(ctx) if named else ())
        if broker in named
    ]


def _is_large(request: ProduceRequest) -> bool:
    return sum(len(_records(data)) for topic in request.topic_data for data in topic.partition_data) >= LARGE_BYTES


async def after_the_disk(reply: A, pressure: WritePressure) -> A:
    """A producer that writes faster than the disk is slowed down by it, and no other one."""
    await pressure.room()
    return reply


def _records(data: ProduceRequest.PartitionProduceData) -> Buffer:
    return data.records if isinstance(data.records, BUFFERS) else b""


def _refusal(request: ProduceRequest, ctx: Context) -> WireError | None:
    """Why the request is refused as a whole; None if it is not."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            if (refusal := no_entry(records := _records(data))) is not None:
                return refusal
            if _is_transactional(records):
                return _transactional_refusal(request, ctx)
    return None


def _transactional_refusal(request: ProduceRequest, ctx: Context) -> WireError | None:
    if request.transactional_id is None:
        return TransactionalIdAuthorizationFailed("records of a transaction without a transactional id")
    return ctx.refused("transactional batches", request.transactional_id)


def _is_transactional(records: Buffer) -> bool:
    """Whether the first batch is; a partition with more than one is refused."""
    return len(records) > HEADER_BYTES and bool(records[FLAGS_AT] & TRANSACTIONAL) and records[MAGIC_AT] == MAGIC


def _unauthorized() -> TopicAuthorizationFailed:
    return TopicAuthorizationFailed("Topic authorization failed.")


def _refuse_all(request: ProduceRequest, error: WireError) -> ProduceResponse | None:
    if request.acks == 0:
        if request.topic_data:
            raise error
        return None
    return ProduceResponse(
        responses=[
            _Topic(
                name=topic.name,
                partition_responses=[refused(data.index, error) for data in topic.partition_data],
            )
            for topic in request.topic_data
            if topic.partition_data
        ]
    )


def _check(tp: TopicPartition, records: Buffer, acks: int, ctx: Context) -> None:
    """The rare checks, in Kafka's order."""
    ctx.services.replicas.leading(tp)
    is_zstd = len(records) > HEADER_BYTES and records[FLAGS_AT] & CODEC_MASK == Codec.ZSTD
    if RECORD_BATCHES_FROM <= ctx.version < ZSTD_FROM and is_zstd and records[MAGIC_AT] == MAGIC:
        raise UnsupportedCompressionType(f"zstd for {tp} in Produce v{ctx.version}: zstd needs v{ZSTD_FROM} or newer")
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


def count_refusal(metrics: TopicMetrics, error: WireError, size: int) -> None:
    """As Kafka does: everyday errors of clients do not count as failed requests."""
    if isinstance(error, RecordTooLarge | RecordListTooLarge):
        metrics.bytes_rejected += size
    elif isinstance(error, CorruptMessage):
        metrics.invalid_crc_records += 1
    elif not isinstance(error, UnknownTopicOrPartition | NotLeaderOrFollower | StorageError):
        metrics.failed_produce_requests += 1


def log_start_with(tp: TopicPartition, records: Buffer, error: WireError, replicas: Replicas) -> int:
    """Kafka returns the log start offset only when the log rejected a single batch."""
    if isinstance(error, _WITHOUT_LOG_START):
        return -1
    if isinstance(error, InvalidRecord | UnknownServerError) and not _is_one_batch(records):
        return -1
    return replicas.leading(tp).log.log_start


def _is_one_batch(records: Buffer) -> bool:
    if len(records) < HEADER_BYTES or records[MAGIC_AT] != MAGIC:
        return False
    size = header_at(records).size
    return size <= len(records) and next(walk(records, size), None) is None
