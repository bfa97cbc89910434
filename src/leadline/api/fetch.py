"""Fetch: records out of partitions, as slices of their files. A fetch waits for a while if there are few."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from leadline.api.context import Context
from leadline.api.fetch_access import FetchAccess
from leadline.api.fetch_context import FetchContext, fetch_context
from leadline.api.fetch_conversion import down_converted
from leadline.api.fetch_params import READ_COMMITTED, READ_UNCOMMITTED, SESSIONS_FROM, TOPIC_IDS_FROM, FetchParams
from leadline.api.fetch_response import FetchedPair, by_topic, length_of, redirects, refused
from leadline.api.fetch_sessions import Session, TopicIdPartition
from leadline.api.metadata import endpoints
from leadline.api.partition_reader import LEADERS_FROM, RECORD_BATCHES_FROM, PartitionReader
from leadline.errors import (
    TopicAuthorizationFailed,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
    WireError,
)
from leadline.model import NONE
from leadline.replication.watchers import Watcher
from leadline.runtime.ordered_set import OrderedSet
from leadline.runtime.ports import monotonic_ms
from leadline.security.throttling import FetchLimits
from leadline.wire.codec import encode, length
from leadline.wire.frames import SIZE
from leadline.wire.messages import FetchRequest, FetchResponse

# Partitions that are not read at all. They do not complete a fetch early.
_NOT_READ = {UnknownTopicId.code, UnknownTopicOrPartition.code, TopicAuthorizationFailed.code}


def fetch(request: FetchRequest, ctx: Context) -> FetchResponse | Awaitable[FetchResponse]:
    """Fetch, v0-16.  v4 batches · v5 log start · v7 sessions · v9 epochs · v11 rack · v12 flexible · v13 topic ids.

    The response is sent when there are min_bytes, when a partition fails, or after max_wait_ms. Missing partitions are
    reported, but do not complete the fetch early unless nothing else was requested. A follower reads up to the log's
    end and reports its position with each fetch. A consumer may read from followers; the leader names one in its rack.
    A consumer above its quota gets an empty response. Before v4 a thread converts the records: see `fetch_conversion`.
    """
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        return _failed(request, UnknownServerError.code, ctx.version)
    services = ctx.services
    params = FetchParams(request, ctx.version, services.config)
    ctx.client.is_follower = params.is_follower
    acls, now_ms, access, is_broker = services.acls, services.clock.now_ms(), None, params.is_follower
    if acls is not None and is_broker:
        access = FetchAccess(ctx, acls.authorizer)
        is_broker = access.is_broker()
    _limit(params, is_broker, ctx)
    try:
        context = fetch_context(request, params, is_broker, services.sessions, now_ms)
    except WireError as error:
        response = FetchResponse(error_code=error.code, session_id=0)
        return _emptied(response, params, ctx) or response
    if acls is not None and context.session is not None:
        context.session.authorize(ctx.client.grants, acls.authorizer.version, now_ms)
    job = Fetch(params, context, ctx, access)
    answer = job.try_once() or job.wait()
    return answer if ctx.version >= RECORD_BATCHES_FROM else down_converted(answer, context.positions, ctx)


def _limit(params: FetchParams, is_broker: bool, ctx: Context) -> None:
    """A consumer gets no more at once than its quota allows. Brokers are exempt from quotas."""
    if ctx.meter is not None:
        if is_broker:
            ctx.meter.exempt()
        elif not params.is_follower:
            limits = ctx.meter.fetch_limits(FetchLimits(params.max_bytes, params.min_bytes))
            params.max_bytes, params.min_bytes = limits


def _emptied(response: FetchResponse, params: FetchParams, ctx: Context) -> FetchResponse | None:
    """What a consumer above its quota gets instead of a response; None: it is not above it."""
    if ctx.meter is None or params.is_follower:
        return None
    throttle_ms = ctx.meter.fetch_throttle_ms(SIZE.size + length(encode(response, params.version)))
    return FetchResponse(throttle_time_ms=throttle_ms) if throttle_ms else None


def fetch_in_session(request: FetchRequest, ctx: Context, session: Session) -> "Fetch":
    """A fetch whose session has been resumed already."""
    params = FetchParams(request, ctx.version, ctx.services.config)
    return Fetch(params, FetchContext(session.positions, session, False), ctx)


def _failed(request: FetchRequest, code: int, version: int) -> FetchResponse:
    """The whole request. While topics have names in it, each partition gets the code as well."""
    topics = request.topics if version < TOPIC_IDS_FROM else []
    responses = [
        FetchResponse.FetchableTopicResponse(
            topic=topic.topic, partitions=[refused(part.partition, code) for part in topic.partitions]
        )
        for topic in topics
    ]
    for response in responses:
        for part in response.partitions:
            part.records = None
    if version < SESSIONS_FROM:
        return FetchResponse(responses=responses)
    return FetchResponse(error_code=code, session_id=request.session_id, responses=responses)


class Fetch:
    """One fetch. It is evaluated again whenever one of its partitions changes."""

    _waited_for: "asyncio.Future[FetchResponse]"  # there once it has to wait

    def __init__(
        self, params: FetchParams, context: FetchContext, ctx: Context, access: FetchAccess | None = None
    ) -> None:
        self._params, self._context, self._ctx = params, context, ctx
        services = ctx.services
        self._replicas, self._clock = services.replicas, services.clock
        self._reader = PartitionReader(params, context.session, ctx, access)
        self.fresh: dict[TopicIdPartition, None] = {}  # marked by its watchers, if it has no session
        self.waiting: Callable[[], None] | None = None  # set while it waits without a session

    def try_once(self, *, last: bool = False) -> FetchResponse | None:
        """The response; None: the fetch should wait for more. `last`: it may not wait longer."""
        params, reader = self._params, self._reader
        present: list[FetchedPair] = []
        missing: list[FetchedPair] = []
        size, left, is_urgent = 0, params.max_bytes, params.max_wait_ms <= 0
        reader.unsettled.clear()
        for key, position in self._context.candidates():
            part = reader.read(key, position, left, min_one=size == 0 and not params.cuts_batches)
            if part.error_code in _NOT_READ:
                missing.append((key, part))
                is_urgent = is_urgent or params.is_follower  # it fetches again soon
                continue
            length = length_of(part)
            size += length
            left = max(left - length, 0)
            is_urgent = is_urgent or part.error_code != NONE or redirects(part)
            present.append((key, part))
        reader.is_first = False
        only_missing = len(missing) == len(self._context.positions)
        is_enough = size >= min(params.min_bytes, params.max_bytes) or is_urgent or only_missing
        if not (is_enough or last):
            return None
        if missing:
            missing.sort(key=lambda pair: pair[1].error_code != UnknownTopicId.code)  # in Kafka's order: ids first
            present += missing
        return self._response(present)

    def _response(self, partitions: list[FetchedPair]) -> FetchResponse:
        context, params = self._context, self._params
        reported = context.reported(partitions)
        response = FetchResponse(session_id=context.session_id, responses=by_topic(reported))
        if (emptied := _emptied(response, params, self._ctx)) is not None:
            return self._unsent(emptied)
        context.respond(partitions, self._reader.unsettled)
        self._count(partitions)
        if params.version >= LEADERS_FROM:
            response.node_endpoints = self._leaders(partitions)
        return response

    def _unsent(self, emptied: FetchResponse) -> FetchResponse:
        """Nothing is sent, so the session stays as it was: one that was just opened does not exist."""
        context = self._context
        if context.session is not None and context.is_full:
            self._ctx.services.sessions.close(context.session_id)
        elif context.session is not None:
            emptied.session_id = context.session_id
        return emptied

    def _count(self, partitions: list[FetchedPair]) -> None:
        """Count the bytes that leave, for metrics and throttles. A throttle limits replicas in sync as well."""
        read, is_follower, replicated = self._reader.hosted, self._params.is_follower, 0
        for key, part in partitions:
            hosted, size = read.get(key), length_of(part)
            if hosted is None:
                continue
            metrics = hosted.topic_metrics
            metrics.fetch_requests += 1
            if not is_follower:
                metrics.bytes_out += size
            elif size:
                replicated += size
                if hosted.is_throttled():
                    self._replicas.throttles.leader.record(size, monotonic_ms(self._clock))
        if replicated:
            self._replicas.context.topic_metrics.replication_bytes_out += replicated

    def _leaders(self, partitions: list[FetchedPair]) -> list[FetchResponse.NodeEndpoint]:
        """The endpoints of the leaders that the response names."""
        named = {part.current_leader.leader_id for _, part in partitions} - {-1}
        return [
            FetchResponse.NodeEndpoint(node_id=broker, host=at.host, port=at.port, rack=rack)
            for broker, at, rack in (endpoints(self._ctx) if named else ())
            if broker in named
        ]

    # Waiting

    def wait(self) -> "asyncio.Future[FetchResponse]":
        """Evaluate the fetch whenever a partition changes, until there is enough or the time is over."""
        loop = asyncio.get_running_loop()
        self._waited_for = answer = loop.create_future()
        session, watched = self._context.session, list[tuple[OrderedSet[Watcher], Watcher]]()
        if session is None:
            self.waiting = self._evaluate
            watched = self._watch()
        else:
            session.waiting = self._evaluate
        timer = loop.call_later(self._params.max_wait_ms / 1000, self._evaluate, True)

        def leave(_: object) -> None:
            timer.cancel()
            if session is not None and session.waiting == self._evaluate:
                session.waiting = None
            for watchers, watcher in watched:
                watchers.discard(watcher)

        answer.add_done_callback(leave)  # or cancelled
        if self._replicas.is_stopping:
            self._evaluate(last=True)
        return answer

    def _evaluate(self, last: bool = False) -> None:
        if not self._waited_for.done():
            response = self.try_once(last=last or self._replicas.is_stopping)
            if response is not None:
                self._waited_for.set_result(response)

    def _watch(self) -> list[tuple[OrderedSet[Watcher], Watcher]]:
        watched = []
        for key in self._context.positions:
            with suppress(UnknownTopicId):  # deleted a moment ago, or unknown
                hosted = self._replicas.hosted.get(self._reader.tp_of(key))
                if hosted is not None:
                    watchers = self._reader.watchers_of(hosted)
                    watcher = Watcher(self, key)
                    watchers.add(watcher)
                    watched.append((watchers, watcher))
        return watched
