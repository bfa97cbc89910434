"""The fast path of Produce: a request that starts like an earlier one is appended without decoding it.

`produce_templates.py` says what a template is, and makes them. A request that finds none is decoded, and becomes one.
"""

import asyncio
from collections.abc import Awaitable
from struct import Struct
from struct import error as StructError

from leadline.api.context import ClientConnection, Context, Services
from leadline.api.fast.produce_templates import ProduceTemplate, ProduceTemplates
from leadline.api.produce import (
    LARGE_BYTES,
    Answer,
    accepted,
    after_the_disk,
    count_refusal,
    log_start_with,
    produce,
    refused,
)
from leadline.errors import NotLeaderOrFollower, WireError
from leadline.log.log import AppendResult
from leadline.log.validation import INLINE_PACKED_BYTES, LargeContent
from leadline.log.write_pressure import PressureLevel
from leadline.model import ACKS_ALL, Buffer
from leadline.records.batch import CODEC_MASK, FLAGS_AT, HEADER_BYTES, TRANSACTIONAL
from leadline.replication.hosted_partition import HostedPartition
from leadline.runtime.immediate_future import ImmediateFuture
from leadline.wire.codec import decode_from
from leadline.wire.frames import FRONT, response_frame
from leadline.wire.messages import ProduceRequest, ProduceResponse
from leadline.wire.primitives import Piece

PRODUCE = 0  # its api key
FLEXIBLE = 9  # from this version on

Reply = bytes | list[Piece]

_SHORT, _INT = Struct(">h"), Struct(">i")
_NOWHERE = (0, 0)


def serve_produce(frame: Buffer, body_at: int, ctx: Context) -> Answer:
    """Requests that start like this one take the fast path from now on, if they come from a client that may."""
    request, _ = decode_from(ProduceRequest, frame, ctx.version, body_at)
    answer = produce(request, ctx)
    if request.topic_data and _may_write(request.topic_data[0].name, ctx.client, ctx.services):
        ctx.services.produce_templates.learn(frame, body_at, request, ctx.version)
    return answer


def _may_write(topic: str, client: ClientConnection, services: Services) -> bool:
    """Whether a request of this connection has been allowed to, and no ACL has changed since."""
    acls = services.acls
    return acls is None or client.grants.may_write(topic, acls.authorizer.version)


def produce_by_template(
    frame: memoryview, version: int, correlation_id: int, client: ClientConnection, services: Services
) -> Reply | Awaitable[Reply] | None:
    match = match_template(services.produce_templates, frame, version)
    if match is None:
        return None
    template, records = match
    tp, acks, replicas, acls = template.tp, template.acks, services.replicas, services.acls
    if acls is not None and not client.grants.may_write(tp.topic, acls.authorizer.version):
        return None  # the handler decides, and reports the error
    hosted = replicas.hosted.get(tp)
    if hosted is None or hosted.log.offline:
        return None  # the handler reports the error
    try:
        appended = hosted.append_as_leader(records, acks=acks)
    except NotLeaderOrFollower:
        return None  # the handler names the current leader
    except LargeContent:
        return None  # the handler waits for a thread
    except WireError as error:
        count_refusal(hosted.topic_metrics, error, len(records))
        part = refused(tp.partition, error, log_start_with(tp, records, error, replicas))
        return _reply(services, template, part, version, correlation_id)
    log = hosted.log
    reply = template.response.pack(
        template.size, correlation_id, template.front,
        appended.first_offset, appended.log_append_time_ms, log.log_start, template.back,
    )  # fmt: skip
    if (log.high_watermark if acks == ACKS_ALL else log.durable_end) <= appended.last_offset:
        return _reply_when_safe(services, template, hosted, reply, appended, version, correlation_id)
    if replicas.pressure.level is PressureLevel.HIGH and len(records) >= LARGE_BYTES:
        return after_the_disk(reply, replicas.pressure)
    return reply


def match_template(
    templates: ProduceTemplates, frame: memoryview, version: int
) -> tuple[ProduceTemplate, memoryview] | None:
    """The template of a request, and its records."""
    try:
        end = _end_of_prefix(frame, version)
        template = templates.by_version[version].get(bytes(frame[FRONT.size : end]))
        if template is None:
            return None
        start, stop = _records_at(frame, end, version)
        flags, size = frame[start + FLAGS_AT], stop - start
        if size <= HEADER_BYTES or flags & TRANSACTIONAL or _is_large(flags & CODEC_MASK, size):
            return None
    except (StructError, IndexError, KeyError):
        return None
    return template, frame[start:stop]


def _is_large(codec: int, size: int) -> bool:
    """Whether a thread has to check it. The handler waits for that."""
    return codec != 0 and size > INLINE_PACKED_BYTES.get(codec, size)


def _end_of_prefix(frame: Buffer, version: int) -> int:
    """The position of the records' size, if the request has a template; otherwise any number."""
    length: int = _SHORT.unpack_from(frame, FRONT.size)[0]
    body_at = FRONT.size + 2 + (length if length > 0 else 0)
    if version >= FLEXIBLE:
        return body_at + 10 + frame[body_at + 9] - 1 + 5
    length = _SHORT.unpack_from(frame, body_at + 12)[0]
    return body_at + 14 + length + 8


def _records_at(frame: Buffer, at: int, version: int) -> tuple[int, int]:
    """Start and end of the records whose size is here; _NOWHERE if the request does not end with them."""
    if version < FLEXIBLE:
        stop = at + 4 + _INT.unpack_from(frame, at)[0]
        return (at + 4, stop) if stop == len(frame) else _NOWHERE
    byte, size, shift = frame[at], 0, 0  # as `read_varint` does, without a step into another file for each produce
    while byte > 0x7F and shift < 28:
        size |= (byte & 0x7F) << shift
        shift += 7
        at += 1
        byte = frame[at]
    start = at + 1
    stop = start + (size | byte << shift) - 1
    return (start, stop) if stop + 3 == len(frame) and not frame[-1] | frame[-2] | frame[-3] else _NOWHERE


def _reply_when_safe(
    services: Services,
    template: ProduceTemplate,
    hosted: HostedPartition,
    reply: bytes,
    appended: AppendResult,
    version: int,
    correlation_id: int,
) -> ImmediateFuture[Reply]:
    """Errors are replied as the handler does."""
    index, log_start = template.tp.partition, hosted.log.log_start
    future = ImmediateFuture[Reply](loop=asyncio.get_running_loop())

    def on_safe(error: WireError | None) -> ImmediateFuture[Reply] | None:
        if future.done():
            return None  # the connection is closed
        if error is None:
            future.set_result(reply)
        else:
            part = accepted(index, appended, log_start)
            part.error_code = error.code
            future.set_result(_reply(services, template, part, version, correlation_id))
        return future

    def on_unflushed(error: WireError | None) -> ImmediateFuture[Reply] | None:
        if future.done() or error is None:
            return None
        future.set_result(_reply(services, template, refused(index, error), version, correlation_id))
        return future

    hosted.once_safe(appended.last_offset + 1, template.acks, template.timeout_ms, on_safe, on_unflushed)
    return future


def _reply(
    services: Services,
    template: ProduceTemplate,
    part: ProduceResponse.PartitionProduceResponse,
    version: int,
    correlation_id: int,
) -> list[Piece]:
    """A reply with an error."""
    services.request_metrics.errors[PRODUCE, part.error_code] += 1
    topic = ProduceResponse.TopicProduceResponse(name=template.tp.topic, partition_responses=[part])
    return response_frame(ProduceResponse(responses=[topic]), version, correlation_id)
