"""From a frame to its reply: look the request up in THE TABLE, serve it, and put the response into a frame.

A frame that is not a request, or a request that fails without a response, closes its connection with a message;
nothing else happens. Once quotas are in force, each request has a meter, whether a fast path serves it or its handler.
All requests are counted and timed (`api/request_metrics.py`).
"""

import gc
import logging
from asyncio import Future
from bisect import bisect_right
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from leadline.api import TABLE, Answer, Entry, Reply, Serve
from leadline.api.context import Context, LongResponse, Services
from leadline.api.request_meter import ClientMeter, RequestMeter, TimedAnswer
from leadline.api.request_metrics import OF_FOLLOWER, RequestKind, RequestMetrics, WaitTimes
from leadline.broker.connection import LARGE_BYTES, Connection
from leadline.broker.connection_state import CloseConnection
from leadline.broker.reply_queue import PendingReply, unchanged
from leadline.errors import WireError
from leadline.runtime.chained_coroutine import ChainedCoroutine
from leadline.runtime.latency_histogram import BOUNDS_S, LatencyHistogram
from leadline.runtime.turns import Turns
from leadline.security.throttling import QuotaClient
from leadline.wire.apis import API_VERSIONS, APIS, unsupported_api_versions
from leadline.wire.classes import Message
from leadline.wire.frames import (
    FRONT,
    RequestHead,
    client_id_of,
    response_frame,
    response_frame_in_steps,
    rest_of_head,
    short_header,
)
from leadline.wire.primitives import MalformedRequest
from leadline.wire.throttle_time import with_throttle_time

log = logging.getLogger(__name__)

SLOW_SECONDS = 0.05

_REPLIES = (bytes, list)
Served = Reply | PendingReply | Awaitable[Reply | None] | None


class Requests:
    def __init__(self, services: Services, monotonic_s: Callable[[], float]) -> None:
        self.services, self._quotas, self._monotonic_s = services, services.quotas, monotonic_s
        self.metrics = services.request_metrics = RequestMetrics()
        self.slowest_turn = 0.0  # the longest time that one request has held the loop, in seconds

    def serve(self, connection: Connection, frame: memoryview) -> Served:
        started = self._monotonic_s()
        try:
            if len(frame) < FRONT.size:
                raise short_header(frame)
            key, version, correlation_id = FRONT.unpack_from(frame)
            entry = TABLE.get(key)
            if entry is None:
                return _unsupported(key, version, correlation_id)
            fast, reply = entry.fast, None
            if fast is not None:
                reply = fast(frame, version, correlation_id, connection.client, self.services)
            served: Served = reply
            if reply is None:
                head = rest_of_head(frame, key, version, correlation_id)
                served = self._handle(entry, head, connection, frame, started)
            elif self._quotas.is_any_set and not entry.from_followers:
                meter = self._meter(key, client_id_of(frame), connection, frame, started)
                served = _metered(reply, meter, entry, version)
            elif isinstance(reply, Future):
                served = PendingReply(reply, unchanged, not entry.pipelined)
        except MalformedRequest as error:
            raise CloseConnection(f"malformed request: {error}") from None
        except WireError as error:
            raise _failed(error) from None
        seconds, kind = self._monotonic_s() - started, key << 8 | version
        if entry.from_followers and connection.client.is_follower:
            kind |= OF_FOLLOWER
        if type(served) is bytes or served is None or isinstance(served, _REPLIES):
            _record(self.metrics.times[kind], seconds)
        else:
            served = self._timed(served, kind, started, seconds)
        if seconds > SLOW_SECONDS or seconds > self.slowest_turn:
            self._note(seconds, entry.name, version, connection)
        return served

    def _timed(
        self, served: PendingReply | Awaitable[Reply | None], kind: RequestKind, began_s: float, local_s: float
    ) -> Served:
        """It waits: its time is known when its reply is there."""
        times = self.metrics.times[kind]
        waits = times.begin_waits() if times.waits is None else times.waits
        _record(waits.local, local_s)
        if not isinstance(served, PendingReply):
            return ChainedCoroutine(self._timed_later(served, waits, began_s, local_s), served)
        frame = served.frame

        def framed(answer: Any) -> Reply | None:
            reply = answer if frame is unchanged else frame(answer)
            self._waited(waits, began_s, local_s)
            return reply

        return PendingReply(served.answer, framed, served.blocks)

    async def _timed_later(
        self, served: Awaitable[Reply | None], waits: WaitTimes, began_s: float, local_s: float
    ) -> Reply | None:
        reply = await served
        self._waited(waits, began_s, local_s)
        return reply

    def _waited(self, waits: WaitTimes, began_s: float, local_s: float) -> None:
        total_s = self._monotonic_s() - began_s
        _record(waits.total, total_s)
        _record(waits.remote, total_s - local_s)

    def _handle(
        self, entry: Entry, head: RequestHead, connection: Connection, frame: memoryview, started_s: float
    ) -> Served:
        meter = None
        if self._quotas.is_any_set:
            meter = self._meter(head.api_key, head.client_id, connection, frame, started_s)
        if not head.is_supported:
            reply = _unsupported(head.api_key, head.version, head.correlation_id)
            if meter is not None:
                meter.finish(None)
            return reply
        ctx = Context(self.services, head.version, head.client_id, connection.client, entry.authorization, meter)
        answer = serve_without_collections(entry.serve, frame, head.body_at, ctx)
        if answer is None or isinstance(answer, Message):
            return self._framed(head, meter, answer)
        if meter is not None:
            meter.pause()
        if isinstance(answer, Future):
            return PendingReply(answer, partial(self._framed, head, meter), _blocks(entry, meter))
        return ChainedCoroutine(self._framed_later(head, meter, answer), answer)

    def _framed(self, head: RequestHead, meter: RequestMeter | None, message: Message | None) -> Reply | None:
        if meter is not None:
            meter.finish(message)
        if message is None:
            return None
        self.metrics.count_errors(head.api_key, message)
        return response_frame(message, head.version, head.correlation_id)

    async def _framed_later(
        self, head: RequestHead, meter: RequestMeter | None, answer: Awaitable[Message | LongResponse | None]
    ) -> Reply | None:
        try:
            message = await (answer if meter is None else TimedAnswer(answer, meter))
        except WireError as error:
            raise _failed(error) from None
        if isinstance(message, LongResponse):
            return await self._framed_in_turns(head, meter, message.message)
        return self._framed(head, meter, message)

    async def _framed_in_turns(self, head: RequestHead, meter: RequestMeter | None, message: Message) -> Reply:
        if meter is not None:
            meter.finish(message)
        self.metrics.count_errors(head.api_key, message)
        return await Turns().run(response_frame_in_steps(message, head.version, head.correlation_id))

    def _meter(
        self, key: int, client_id: str | None, connection: Connection, frame: memoryview, started_s: float
    ) -> RequestMeter:
        client, clock = QuotaClient(connection.client.principal.name, client_id), self.services.clock
        meter = connection.client_meter
        if meter is None or meter.client != client:
            meter = connection.client_meter = ClientMeter(self._quotas, clock, client)
        return RequestMeter(meter, key, len(frame), started_s, partial(self._mute, connection, key))

    def _mute(self, connection: Connection, key: int, throttle_ms: int) -> None:
        self.metrics.throttled(key, throttle_ms)
        connection.mute(throttle_ms)

    def _note(self, seconds: float, name: str, version: int, connection: Connection) -> None:
        self.slowest_turn = max(self.slowest_turn, seconds)
        if seconds > SLOW_SECONDS:
            log.warning("%s v%d from %s took %.0f ms of the loop", name, version, connection, seconds * 1000)


def serve_without_collections(serve: Serve, frame: memoryview, body_at: int, ctx: Context) -> Answer:
    """Decoding a large request creates no garbage, and a collection would take longer than the decoding."""
    if len(frame) < LARGE_BYTES or not gc.isenabled():
        return serve(frame, body_at, ctx)
    gc.disable()
    try:
        return serve(frame, body_at, ctx)
    finally:
        gc.enable()


def _unsupported(key: int, version: int, correlation_id: int) -> Reply:
    """A client opens with the newest ApiVersions that it has. The response says which versions there are."""
    if key == API_VERSIONS:
        return response_frame(unsupported_api_versions(), 0, correlation_id)
    name = APIS[key].name if key in APIS else f"api key {key}"
    raise CloseConnection(f"{name} v{version} is not supported")


def _record(times: LatencyHistogram, seconds: float) -> None:
    """The same as `LatencyHistogram.record`, without a call into another file for each request."""
    times.counts[bisect_right(BOUNDS_S, seconds)] += 1
    times.total_s += seconds


def _metered(served: Reply | Awaitable[Reply], meter: RequestMeter, entry: Entry, version: int) -> Served:
    """Meters a request that a fast path has served."""
    if isinstance(served, _REPLIES):
        return _throttled(meter, entry.key, version, served)
    meter.pause()
    if isinstance(served, Future):
        return PendingReply(served, partial(_throttled, meter, entry.key, version), _blocks(entry, meter))
    return _throttled_later(meter, entry.key, version, served)


def _throttled(meter: RequestMeter, key: int, version: int, reply: Reply) -> Reply:
    throttle_ms = meter.finish_encoded()
    return with_throttle_time(reply, key, version, throttle_ms) if throttle_ms else reply


async def _throttled_later(meter: RequestMeter, key: int, version: int, reply: Awaitable[Reply]) -> Reply:
    return _throttled(meter, key, version, await TimedAnswer(reply, meter))


def _blocks(entry: Entry, meter: RequestMeter | None) -> bool:
    """Whether the next request waits for the response to this one, which may mute the connection."""
    return not entry.pipelined or (meter is not None and meter.is_limited)


def _failed(error: WireError) -> CloseConnection:
    """There is no response that could carry the error."""
    return CloseConnection(f"a request without a response failed: {error}")
