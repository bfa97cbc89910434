"""From a frame to its reply: find the request in THE TABLE, serve it, and put the answer into a frame.

What cannot be understood closes its connection with a line that says why; nothing else happens.
"""

import asyncio
import gc
import logging
from collections.abc import Awaitable
from functools import partial
from time import perf_counter

from leadline.api import TABLE, Answer, Serve
from leadline.api.context import Context, Services
from leadline.api.fast.follower_fetch import Origin, copy_in_lane
from leadline.api.fast.offset_commit import commit_in_lane, commit_outside
from leadline.api.produce import produce_in_lane
from leadline.broker.connection import LARGE_BYTES, Connection
from leadline.broker.connection_state import CloseConnection
from leadline.broker.reply_queue import Later, Reply, as_it_is
from leadline.errors import WireError
from leadline.wire.apis import API_VERSIONS, unsupported_api_versions
from leadline.wire.classes import Message
from leadline.wire.frames import Head, request_head, response_frame
from leadline.wire.messages import OffsetCommitRequest
from leadline.wire.primitives import MalformedRequest

log = logging.getLogger(__name__)

SLOW_SECONDS = 0.05
PRODUCE = 0  # as an api key


class Requests:
    def __init__(self, services: Services) -> None:
        self.services = services
        self._lanes, self._replicas = services.lanes, services.replicas
        self.served = 0
        self.slowest_turn = 0.0  # seconds that one request kept the loop from all others

    def serve(self, connection: Connection, frame: memoryview) -> Reply | Later | Awaitable[Reply | None] | None:
        started = perf_counter()
        blocks = False
        in_lane = None if connection.state is None else commit_in_lane(frame, connection.state, self.services)
        if in_lane is None:
            in_lane = produce_in_lane(frame, self._lanes, self._replicas)
        if in_lane is None:
            in_lane = copy_in_lane(frame, self.services, Origin(connection.host, connection.listener))
            blocks = True
        if in_lane is not None:
            self.served += 1
            seconds = perf_counter() - started
            if seconds > SLOW_SECONDS or seconds > self.slowest_turn:
                self._note(seconds, request_head(frame), connection)
            return Later(in_lane, as_it_is, blocks=blocks) if isinstance(in_lane, asyncio.Future) else in_lane
        try:
            head = request_head(frame)
            entry = TABLE.get(head.api_key)
            if not head.is_supported or entry is None:
                return self._unsupported(head)
            ctx = Context(self.services, head.version, head.client_id, connection.host, connection.listener)
            answer: Answer
            if head.api_key == OffsetCommitRequest.API_KEY:
                answer, connection.state = commit_outside(frame, head, connection.state, ctx)
            else:
                answer = serve_without_collections(entry.serve, frame, head.body_at, ctx)
        except MalformedRequest as error:
            raise CloseConnection(f"it sent what is no request: {error}") from None
        except WireError as error:
            raise CloseConnection(f"a request without an answer failed: {error}") from None
        self.served += 1
        self._note(perf_counter() - started, head, connection)
        if answer is None:
            return None
        if isinstance(answer, Message):
            return response_frame(answer, head.version, head.correlation_id)
        if isinstance(answer, asyncio.Future):
            return Later(answer, partial(_framed, head), blocks=head.api_key != PRODUCE)
        return self._later(answer, head)

    async def _later(self, waited_for: Awaitable[Message | None], head: Head) -> Reply | None:
        try:
            return _framed(head, await waited_for)
        except WireError as error:
            raise CloseConnection(f"a request without an answer failed: {error}") from None

    def _unsupported(self, head: Head) -> Reply:
        if head.api_key == API_VERSIONS:
            return response_frame(unsupported_api_versions(), 0, head.correlation_id)
        name = head.api.name if head.api is not None else f"api key {head.api_key}"
        raise CloseConnection(f"it asked for {name} v{head.version}, which is not supported here")

    def _note(self, seconds: float, head: Head, connection: Connection) -> None:
        if seconds > self.slowest_turn:
            self.slowest_turn = seconds
        if seconds > SLOW_SECONDS:
            name = head.api.name if head.api is not None else head.api_key
            log.warning("%s v%d from %s took %.0f ms of the loop", name, head.version, connection, seconds * 1000)


def serve_without_collections(serve: Serve, frame: memoryview, body_at: int, ctx: Context) -> Answer:
    """What a large request is made of is no garbage: to look for some takes longer than to decode it."""
    if len(frame) < LARGE_BYTES or not gc.isenabled():
        return serve(frame, body_at, ctx)
    gc.disable()
    try:
        return serve(frame, body_at, ctx)
    finally:
        gc.enable()


def _framed(head: Head, answer: Message | None) -> Reply | None:
    return None if answer is None else response_frame(answer, head.version, head.correlation_id)
