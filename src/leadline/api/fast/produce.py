"""The fast path of Produce: a request that starts like an earlier one is appended without decoding it.

See `produce_templates.py` for what a template is. A request that finds no template is decoded, and becomes one.
"""

import asyncio
from collections.abc import Awaitable

from leadline.api.context import ClientConnection, Context, Services
from leadline.api.fast.produce_templates import ProduceTemplate
from leadline.api.produce import (
    LARGE_BYTES,
    Answer,
    accepted,
    after_the_disk,
    log_start_with,
    produce,
    refused,
    when_safe,
)
from leadline.errors import NotLeaderOrFollower, WireError
from leadline.log.log import AppendResult
from leadline.log.write_pressure import PressureLevel
from leadline.model import ACKS_ALL, NONE, Buffer
from leadline.replication.hosted_partition import HostedPartition
from leadline.runtime.immediate_future import ImmediateFuture
from leadline.wire.codec import decode_from
from leadline.wire.frames import response_frame
from leadline.wire.messages import ProduceRequest, ProduceResponse
from leadline.wire.primitives import Piece

Reply = bytes | list[Piece]


def serve_produce(frame: Buffer, body_at: int, ctx: Context) -> Answer:
    """Requests that start like this one take the fast path from now on."""
    request, _ = decode_from(ProduceRequest, frame, ctx.version, body_at)
    ctx.services.produce_templates.learn(frame, body_at, request, ctx.version)
    return produce(request, ctx)


def produce_by_template(
    frame: memoryview, version: int, correlation_id: int, client: ClientConnection, services: Services
) -> Reply | Awaitable[Reply] | None:
    match = services.produce_templates.match(frame, version)
    if match is None:
        return None
    template, records = match
    tp, acks, replicas = template.tp, template.acks, services.replicas
    try:
        hosted = replicas.holding(tp)
        appended = hosted.append_as_leader(records, acks=acks)
    except NotLeaderOrFollower:
        return None  # the handler names the current leader
    except WireError as error:
        part = refused(tp.partition, error, log_start_with(tp, records, error, replicas))
        return _reply(template, part, version, correlation_id)
    log = hosted.log
    reply = template.reply(correlation_id, appended.first_offset, appended.log_append_time_ms, log.log_start)
    if (log.high_watermark if acks == ACKS_ALL else log.durable_end) <= appended.last_offset:
        return _reply_when_safe(template, hosted, reply, appended, version, correlation_id)
    if replicas.pressure.level is PressureLevel.HIGH and len(records) >= LARGE_BYTES:
        return after_the_disk(reply, replicas.pressure)
    return reply


def _reply_when_safe(
    template: ProduceTemplate,
    hosted: HostedPartition,
    reply: bytes,
    appended: AppendResult,
    version: int,
    correlation_id: int,
) -> ImmediateFuture[Reply]:
    """Errors are replied as the handler does."""
    tp, completions, log_start = template.tp, hosted.completions, hosted.log.log_start
    future = ImmediateFuture[Reply](loop=asyncio.get_running_loop())

    def complete(code: int, refusal: WireError | None) -> None:
        if future.done():
            return
        if code == NONE:
            completions.complete(future, reply)
            return
        if refusal is not None:
            part = refused(tp.partition, refusal)
        else:
            part = accepted(tp.partition, appended, log_start)
        part.error_code = code
        completions.complete(future, _reply(template, part, version, correlation_id))

    when_safe(hosted, appended.last_offset + 1, template.acks, template.timeout_ms, complete)
    return future


def _reply(
    template: ProduceTemplate, part: ProduceResponse.PartitionProduceResponse, version: int, correlation_id: int
) -> list[Piece]:
    topic = ProduceResponse.TopicProduceResponse(name=template.tp.topic, partition_responses=[part])
    return response_frame(ProduceResponse(responses=[topic]), version, correlation_id)
