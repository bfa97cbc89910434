"""From a frame to its reply: look the request up in THE TABLE, serve it, and put the response into a frame.

A frame that is no request, or that fails without a response, closes its connection with a message; nothing else
happens.
"""

import gc
import logging
from asyncio import Future
from collections.abc import Awaitable, Callable
from functools import partial

from leadline.api import TABLE, Answer, Entry, Reply, Serve
from leadline.api.context import Context, Services
from leadline.broker.connection import LARGE_BYTES, Connection
from leadline.broker.connection_state import CloseConnection
from leadline.broker.reply_queue import PendingReply, unchanged
from leadline.errors import WireError
from leadline.runtime.ports import SystemTime
from leadline.wire.apis import API_VERSIONS, APIS, unsupported_api_versions
from leadline.wire.classes import Message
from leadline.wire.frames import FRONT, RequestHead, response_frame, rest_of_head, short_header
from leadline.wire.primitives import MalformedRequest

log = logging.getLogger(__name__)

SLOW_SECONDS = 0.05

Served = Reply | PendingReply | Awaitable[Reply | None] | None


class Requests:
    def __init__(self, services: Services, monotonic_s: Callable[[], float] = SystemTime.monotonic_s) -> None:
        self.services, self._monotonic_s = services, monotonic_s
        self.served = 0
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
            fast = entry.fast
            served: Served = None
            if fast is not None:
                served = fast(frame, version, correlation_id, connection.client, self.services)
            if served is None:
                served = self._handle(entry, rest_of_head(frame, key, version, correlation_id), connection, frame)
            elif isinstance(served, Future):
                served = PendingReply(served, unchanged, not entry.pipelined)
        except MalformedRequest as error:
            raise CloseConnection(f"malformed request: {error}") from None
        except WireError as error:
            raise _failed(error) from None
        self.served += 1
        seconds = self._monotonic_s() - started
        if seconds > SLOW_SECONDS or seconds > self.slowest_turn:
            self._note(seconds, entry.name, version, connection)
        return served

    def _handle(self, entry: Entry, head: RequestHead, connection: Connection, frame: memoryview) -> Served:
        if not head.is_supported:
            return _unsupported(head.api_key, head.version, head.correlation_id)
        ctx = Context(self.services, head.version, head.client_id, connection.client, entry.authorization)
        answer = serve_without_collections(entry.serve, frame, head.body_at, ctx)
        if answer is None:
            return None
        if isinstance(answer, Message):
            return response_frame(answer, head.version, head.correlation_id)
        if isinstance(answer, Future):
            return PendingReply(answer, partial(_framed, head), not entry.pipelined)
        return _framed_later(head, answer)

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


def _framed(head: RequestHead, message: Message | None) -> Reply | None:
    return None if message is None else response_frame(message, head.version, head.correlation_id)


async def _framed_later(head: RequestHead, answer: Awaitable[Message | None]) -> Reply | None:
    try:
        return _framed(head, await answer)
    except WireError as error:
        raise _failed(error) from None


def _failed(error: WireError) -> CloseConnection:
    """There is no response that could carry the error."""
    return CloseConnection(f"a request without a response failed: {error}")
