"""The fast path of Fetch: fetches of followers in their sessions. `wire/follower_fetch.py` encodes and decodes them.

Anything unusual falls back to `fetch`. An unusual position falls back before any state changes; an unusual response
falls back with the session already updated.
"""

import asyncio
from typing import NamedTuple

from leadline.api.authorization import AUTHORIZATION
from leadline.api.context import ClientConnection, Context, Services
from leadline.api.fetch import Fetch, fetch_in_session
from leadline.api.fetch_sessions import PartitionWatcher, SentWatermarks, Session
from leadline.api.request_metrics import FETCH
from leadline.errors import WireError
from leadline.log.log import Isolation
from leadline.model import BrokerId
from leadline.replication.hosted_partition import HostedPartition
from leadline.replication.partition import ANY_EPOCH
from leadline.replication.replicas import Replicas
from leadline.runtime.immediate_future import ImmediateFuture
from leadline.wire import follower_fetch
from leadline.wire.fetch_position import MAX_EPOCH, FetchPosition
from leadline.wire.follower_fetch import MOST_TOPICS, VERSION, FollowerFetchRequest
from leadline.wire.frames import response_frame
from leadline.wire.messages import FetchRequest
from leadline.wire.primitives import Piece, piece_length

NO_NAME = ""  # of a topic in a session that goes by ids
MOST_LINGERING_MS = 1000  # shorter timers are kept when their fetch is answered: the next one uses them


def fetch_by_follower(
    frame: memoryview, version: int, correlation_id: int, client: ClientConnection, services: Services
) -> list[Piece] | ImmediateFuture[list[Piece]] | None:
    acls = services.acls
    if version != VERSION or (acls is not None and not client.grants.is_broker(acls.authorizer.version)):
        return None
    request = follower_fetch.parse_request(frame)
    if request is None:
        return None
    session = services.sessions.by_id.get(request.session_id)
    if session is None or not session.by_id or session.replica != request.replica:
        return None
    if session.epoch != request.session_epoch or session.epoch == MAX_EPOCH:
        return None
    watchers, named, has_all = session.watchers, [], request.is_patient
    for position in request.positions:
        watcher = watchers.get((NO_NAME, position.topic_id, position.partition))
        if watcher is None or not _is_usual(position, watcher.hosted, request.replica, request.broker_epoch):
            return None
        named.append(watcher)
        has_all = has_all and position.fetch_offset == watcher.hosted.log.log_end
    fetch = client.follower_fetch
    if fetch is None or fetch.session is not session or fetch.is_waiting:
        fetch = client.follower_fetch = FollowerFetch(session, client, services)
        client.is_follower = True
    fetch.begin(request)
    for position, watcher in zip(request.positions, named, strict=True):
        fetch.position_reported(position, watcher)
    if len(session.fresh) > len(named):
        fetch.refresh_unnamed(named)
    elif has_all:  # only the named partitions are fresh, and none has records
        return fetch.wait()
    return fetch.response() or fetch.wait()


def _is_usual(position: FetchPosition, hosted: HostedPartition, replica: BrokerId, broker_epoch: int) -> bool:
    leader, log = hosted.leader_state, hosted.log
    if (
        leader is None
        or log.offline
        or position.current_leader_epoch != hosted.epoch
        or replica not in leader.followers
    ):
        return False
    if broker_epoch != ANY_EPOCH and broker_epoch < leader.brokers.get(replica, ANY_EPOCH):
        return False
    if not log.log_start <= position.fetch_offset <= log.log_end:
        return False
    epochs = log.epochs.entries
    return bool(epochs) and epochs[-1].epoch == position.last_fetched_epoch


class FollowerFetch:
    """The fetches of a follower on a connection, one after the other. A waiting one is evaluated at each change."""

    __slots__ = (
        "_acl_version", "_client", "_deadline_s", "_evaluation", "_fallback", "_loop", "_now_ms", "_request",
        "_services", "_timer", "_waited_for", "session",
    )  # fmt: skip

    _request: FollowerFetchRequest
    _now_ms: int
    _acl_version: int  # at which the fetch was allowed
    _deadline_s: float

    def __init__(self, session: Session, client: ClientConnection, services: Services) -> None:
        self.session, self._client, self._services = session, client, services
        self._loop = asyncio.get_running_loop()
        self._fallback: Fetch | None = None
        self._waited_for: ImmediateFuture[list[Piece]] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._evaluation = self._evaluate  # one object, by which `DeferredCompletions` knows it again

    def begin(self, request: FollowerFetchRequest) -> None:
        self._request, self._fallback, self._acl_version = request, None, self._services.acl_version
        self._now_ms = self._services.clock.now_ms()
        self.session.epoch += 1
        self.session.touch(self._now_ms, is_contact=True)

    def position_reported(self, position: FetchPosition, watcher: PartitionWatcher) -> None:
        request, session, key = self._request, self.session, watcher.partition
        session.positions[key] = position
        session.fresh[key] = None
        watcher.hosted.follower_fetched(
            request.replica, position, request.broker_epoch, session.last_contact, self._now_ms
        )

    def refresh_unnamed(self, named: list[PartitionWatcher]) -> None:
        """A fetch confirms the position in every partition, named or not. A follower out of sync may join by it.

        An idle partition whose leader was elected again since its last record has an unusual position. `fetch` judges
        it.
        """
        request, session = self._request, self.session
        for key in list(session.fresh):
            watcher, position = session.watchers.get(key), session.positions[key]
            leader = watcher.hosted.leader_state if watcher is not None and watcher not in named else None
            if watcher is not None and leader is not None and request.replica not in leader.isr:
                if _is_usual(position, watcher.hosted, request.replica, request.broker_epoch):
                    self.position_reported(position, watcher)
                elif self._fallback is None:
                    self._fallback = self._slow_fetch()

    def response(self, *, last: bool = False) -> list[Piece] | None:
        """None: the fetch should wait for more. `last`: it may not wait longer."""
        if self._fallback is None and self._acl_version != self._services.acl_version:
            self._fallback = self._slow_fetch()  # which decides again
        if self._fallback is None:
            fetched = _read(self.session, self._request, self._services.replicas)
            if fetched is not None:
                least = min(self._request.min_bytes, self._request.max_bytes)
                if fetched.size < least and not last and self._request.max_wait_ms > 0:
                    return None
                news = _news(fetched, self.session, self._request.replica)
                self._services.replicas.context.topic_metrics.replication_bytes_out += fetched.size
                return follower_fetch.encode_response(self._request.correlation_id, self.session.id, news)
            self._fallback = self._slow_fetch()
        response = self._fallback.try_once(last=last)
        if response is None:
            return None
        self._services.request_metrics.count_errors(FETCH, response)
        return response_frame(response, VERSION, self._request.correlation_id)

    def _slow_fetch(self) -> Fetch:
        request = self._request
        message = FetchRequest(
            max_wait_ms=request.max_wait_ms,
            min_bytes=request.min_bytes,
            max_bytes=request.max_bytes,
            session_id=request.session_id,
            session_epoch=request.session_epoch,
            replica_state=FetchRequest.ReplicaState(replica_id=request.replica, replica_epoch=request.broker_epoch),
        )
        return fetch_in_session(
            message,
            Context(self._services, VERSION, None, self._client, AUTHORIZATION[FetchRequest.API_KEY or 0]),
            self.session,
        )

    # Waiting

    @property
    def is_waiting(self) -> bool:
        return self._waited_for is not None

    def wait(self) -> ImmediateFuture[list[Piece]]:
        self._waited_for = future = ImmediateFuture[list[Piece]](loop=self._loop)
        future.on_cancel = self._leave
        self.session.waiting = self._evaluation
        self._deadline_s = self._loop.time() + self._request.max_wait_ms / 1000
        if self._timer is None or self._timer.when() > self._deadline_s:
            self._call_at_deadline()
        if self._services.replicas.is_stopping:
            self._services.replicas.completions.evaluate((self._evaluation,))
        return future

    def _call_at_deadline(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._deadline_s, self._expire)

    def _expire(self) -> None:
        """The timer may be one of an earlier fetch."""
        self._timer = None
        if self._waited_for is None:
            return
        if self._loop.time() < self._deadline_s:
            self._call_at_deadline()
        else:
            self._evaluate(last=True)

    def _leave(self) -> None:
        self._waited_for = None
        if self.session.waiting is self._evaluation:
            self.session.waiting = None
        if self._timer is not None and self._request.max_wait_ms > MOST_LINGERING_MS:
            self._timer.cancel()
            self._timer = None

    def _evaluate(self, last: bool = False) -> None:
        if (waited_for := self._waited_for) is not None:
            response = self.response(last=last or self._services.replicas.is_stopping)
            if response is not None:
                self._leave()
                waited_for.set_result(response)
                waited_for.notify()


class _Fetched(NamedTuple):
    partitions: list[tuple[PartitionWatcher, follower_fetch.FetchedPartition]]
    size: int


def _read(session: Session, request: FollowerFetchRequest, replicas: Replicas) -> _Fetched | None:
    """The fresh partitions of the session. None: something is unusual."""
    partitions, size, left, positions = [], 0, request.max_bytes, session.positions
    for key in session.candidates():
        watcher = session.watchers.get(key)
        if watcher is None:
            return None
        watcher.note_read()
        hosted, position = watcher.hosted, positions[key]
        hosted.topic_metrics.fetch_requests += 1
        log, offset = hosted.log, position.fetch_offset
        if hosted.leader_state is None or log.offline or hosted.epoch != position.current_leader_epoch:
            return None
        if not log.log_start <= offset <= log.log_end or log.config.leader_replication_throttled_replicas:
            return None
        records: Piece | None = None
        if offset < log.log_end:
            most = min(left, position.max_bytes)
            records = replicas.completions.recent.since(log, offset, most)
            if records is None:
                try:
                    records = log.read(offset, most, Isolation.LOG_END, min_one=not size).slice
                except WireError:
                    return None  # `fetch` reports it for this partition, and serves the others
            if records is not None:
                length = piece_length(records)
                size += length
                left = max(left - length, 0)
        marks = log.high_watermark, log.last_stable_offset, log.log_start
        partitions.append((watcher, follower_fetch.FetchedPartition(watcher.topic_id, key.partition, *marks, records)))
    if len(partitions) > MOST_TOPICS and len({watcher.topic_id for watcher, _ in partitions}) > MOST_TOPICS:
        return None
    return _Fetched(partitions, size)


def _news(fetched: _Fetched, session: Session, replica: BrokerId) -> list[follower_fetch.FetchedPartition]:
    """The partitions that changed for the follower. One that has caught up is not read again until it changes."""
    news = []
    for watcher, part in fetched.partitions:
        key, leader = watcher.partition, watcher.hosted.leader
        has_news = session.has_news(key, SentWatermarks(part.high_watermark, part.last_stable_offset, part.log_start))
        if has_news or part.records is not None:
            news.append(part)
        if part.records is not None:
            session.serve_last(key)
        if session.positions[key].fetch_offset >= leader.log_end and replica in leader.isr:
            session.fresh.pop(key, None)
    return news
