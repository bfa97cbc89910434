"""Fetches of followers in their sessions, served without the codec: `wire/follower_fetch.py` has their form.

What is unusual, be it in the request or in one of the partitions, is left to `fetch`: before anything was done if a
position is, and with the session as it then is if only what is to be answered is.
"""

import asyncio
from typing import NamedTuple

from leadline.api.context import Context, Services
from leadline.api.fetch import Fetch, Watch
from leadline.api.fetch_sessions import Session, Told
from leadline.log.log import Isolation
from leadline.model import BrokerId
from leadline.replication.partition import ANY_EPOCH
from leadline.replication.replicas import HostedPartition, Replicas
from leadline.runtime.immediate_future import ImmediateFuture
from leadline.wire import follower_fetch
from leadline.wire.fetch_position import MAX_EPOCH, FetchPosition
from leadline.wire.follower_fetch import MOST_TOPICS, VERSION, FollowerFetchRequest
from leadline.wire.frames import response_frame
from leadline.wire.messages import FetchRequest
from leadline.wire.primitives import Piece, piece_length

MOST_LINGERING_MS = 1000  # timers up to here are left alone when their fetch is answered: the next one has use for them


class Origin(NamedTuple):
    """Where it came from."""

    host: str
    listener: str


def copy_in_lane(
    frame: memoryview, services: Services, origin: Origin
) -> list[Piece] | ImmediateFuture[list[Piece]] | None:
    """The reply, if the request is as most are. If not, nothing has happened to it."""
    request = follower_fetch.parse_request(frame)
    if request is None:
        return None
    session = services.sessions.by_id.get(request.session_id)
    if session is None or not session.by_id or session.replica != request.replica:
        return None
    if session.epoch != request.session_epoch or session.epoch == MAX_EPOCH:
        return None
    lanes, watches, has_all = session.lanes, [], request.is_patient
    for position in request.positions:
        watch = lanes.get((position.topic_id, position.partition))
        if not isinstance(watch, Watch) or not _is_usual(position, watch.hosted, request.replica, request.broker_epoch):
            return None
        watches.append(watch)
        has_all = has_all and position.fetch_offset == watch.hosted.log.log_end
    copying = _copying(session, services)
    copying.begin(request, origin)
    for position, watch in zip(request.positions, watches, strict=True):
        copying.is_at(position, watch)
    if len(session.fresh) > len(watches):
        copying.is_still_there(watches)
    elif has_all:  # what is fresh is what was named: there is nothing to look for
        return copying.wait()
    return copying.answer() or copying.wait()


def _is_usual(position: FetchPosition, hosted: HostedPartition, replica: BrokerId, broker_epoch: int) -> bool:
    leader, log = hosted.leads, hosted.log
    if (
        leader is None
        or log.offline
        or position.current_leader_epoch != hosted.epoch
        or replica not in leader.followers
    ):
        return False
    if ANY_EPOCH != broker_epoch < leader.brokers.get(replica, ANY_EPOCH):
        return False
    if not log.log_start <= position.fetch_offset <= log.log_end:
        return False
    epochs = log.epochs.entries
    return bool(epochs) and epochs[-1].epoch == position.last_fetched_epoch


def _copying(session: Session, services: Services) -> "_Copying":
    found = session.copying
    if not isinstance(found, _Copying) or found.is_waiting:  # still, as on a connection that broke
        found = session.copying = _Copying(session, services)
    return found


class _Copying:
    """The fetches of a session, one after the other; each is looked at as often as something changes."""

    __slots__ = (
        "_deadline_s", "_is_woken", "_loop", "_now_ms", "_origin", "_request", "_services", "_session", "_timer",
        "_unusual", "_waited_for",
    )  # fmt: skip

    _request: FollowerFetchRequest
    _origin: Origin
    _now_ms: int
    _deadline_s: float

    def __init__(self, session: Session, services: Services) -> None:
        self._session, self._services = session, services
        self._loop = asyncio.get_running_loop()
        self._unusual: Fetch | None = None
        self._waited_for: ImmediateFuture[list[Piece]] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_woken = False

    def begin(self, request: FollowerFetchRequest, origin: Origin) -> None:
        self._request, self._origin, self._unusual = request, origin, None
        self._now_ms = self._services.clock.now_ms()
        self._session.epoch += 1
        self._session.seen(self._now_ms)

    def is_at(self, position: FetchPosition, watch: Watch) -> None:
        """What the follower says of a partition."""
        request, session, wanted = self._request, self._session, watch.wanted
        session.positions[wanted] = position
        session.fresh[wanted] = None
        self._services.replicas.copied(
            watch.hosted,
            request.replica,
            position.fetch_offset,
            position.log_start_offset,
            request.broker_epoch,
            session.heard,
            self._now_ms,
        )

    def is_still_there(self, named: list[Watch]) -> None:
        """Where it is not in sync, the follower says so with each fetch, named or not: it may join by now.

        `fetch` judges a position that is not the usual one: that of an idle partition, whose leader was elected again
        since its last record.
        """
        request, session = self._request, self._session
        for wanted in list(session.fresh):
            watch, position = session.watches.get(wanted), session.positions[wanted]
            leader = watch.hosted.leads if isinstance(watch, Watch) and watch not in named else None
            if isinstance(watch, Watch) and leader is not None and request.replica not in leader.isr:
                if _is_usual(position, watch.hosted, request.replica, request.broker_epoch):
                    self.is_at(position, watch)
                elif self._unusual is None:
                    self._unusual = self._as_any_other()

    def answer(self, *, last: bool = False) -> list[Piece] | None:
        """None if it is worth waiting for a better one."""
        if self._unusual is None:
            found = _look(self._session, self._request, self._services.replicas)
            if found is not None:
                least = min(self._request.min_bytes, self._request.max_bytes)
                if found.size < least and not last and self._request.max_wait_ms > 0:
                    return None
                told = _news(found, self._session, self._request.replica)
                return follower_fetch.encode_response(self._request.correlation_id, self._session.id, told)
            self._unusual = self._as_any_other()
        answer = self._unusual.try_once(last=last)
        return None if answer is None else response_frame(answer, VERSION, self._request.correlation_id)

    def _as_any_other(self) -> Fetch:
        asked = self._request
        request = FetchRequest(
            max_wait_ms=asked.max_wait_ms,
            min_bytes=asked.min_bytes,
            max_bytes=asked.max_bytes,
            session_id=asked.session_id,
            session_epoch=asked.session_epoch,
            replica_state=FetchRequest.ReplicaState(replica_id=asked.replica, replica_epoch=asked.broker_epoch),
        )
        return Fetch(request, Context(self._services, VERSION, None, *self._origin), self._session)

    # Waiting

    @property
    def is_waiting(self) -> bool:
        return self._waited_for is not None

    def wait(self) -> ImmediateFuture[list[Piece]]:
        self._waited_for = answer = ImmediateFuture[list[Piece]](loop=self._loop)
        answer.on_cancel = self._leave
        self._session.waiting = self
        self._deadline_s = self._loop.time() + self._request.max_wait_ms / 1000
        if self._timer is None or self._timer.when() > self._deadline_s:
            self._call_at_deadline()
        if self._services.replicas.stopping:
            self.wake()
        return answer

    def _call_at_deadline(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._deadline_s, self._expire)

    def _expire(self) -> None:
        """Of a fetch that was answered since, or of this one."""
        self._timer = None
        if self._waited_for is None:
            return
        if self._loop.time() < self._deadline_s:
            self._call_at_deadline()
        else:
            self._look_again(last=True)

    def _leave(self) -> None:
        self._waited_for = None
        if self._session.waiting is self:
            self._session.waiting = None
        if self._timer is not None and self._request.max_wait_ms > MOST_LINGERING_MS:
            self._timer.cancel()
            self._timer = None

    def wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._services.replicas.completions.evaluate(self._look_again)

    def _look_again(self, last: bool = False) -> None:
        self._is_woken = False
        if (waited_for := self._waited_for) is not None:
            answer = self.answer(last=last or self._services.replicas.stopping)
            if answer is not None:
                self._leave()
                waited_for.set_result(answer)
                waited_for.notify()


class _Found(NamedTuple):
    parts: list[tuple[Watch, follower_fetch.FetchedPartition]]
    size: int


def _look(session: Session, request: FollowerFetchRequest, replicas: Replicas) -> _Found | None:
    """At what is fresh. None: something is unusual."""
    found, size, left, positions = [], 0, request.max_bytes, session.positions
    for wanted in session.candidates():
        watch = session.watches.get(wanted)
        if not isinstance(watch, Watch):
            return None
        watch.seen()
        hosted, position = watch.hosted, positions[wanted]
        log, offset = hosted.log, position.fetch_offset
        if hosted.leads is None or log.offline or hosted.epoch != position.current_leader_epoch:
            return None
        if not log.log_start <= offset <= log.log_end or log.config.leader_replication_throttled_replicas:
            return None
        records: Piece | None = None
        if offset < log.log_end:
            most = min(left, position.max_bytes)
            records = replicas.completions.recent.since(log, offset, most)
            if records is None:
                records = log.read(offset, most, Isolation.LOG_END, min_one=not size).slice
            if records is not None:
                length = piece_length(records)
                size += length
                left = max(left - length, 0)
        marks = log.high_watermark, log.last_stable_offset, log.log_start
        found.append((watch, follower_fetch.FetchedPartition(watch.topic_id, wanted.partition, *marks, records)))
    if len(found) > MOST_TOPICS and len({watch.topic_id for watch, _ in found}) > MOST_TOPICS:
        return None
    return _Found(found, size)


def _news(found: _Found, session: Session, replica: BrokerId) -> list[follower_fetch.FetchedPartition]:
    """What there is to tell. Who is settled need not be looked at again until something happens."""
    told = []
    for watch, part in found.parts:
        wanted, leader = watch.wanted, watch.hosted.leader
        has_news = session.has_news(wanted, Told(part.high_watermark, part.last_stable_offset, part.log_start))
        if has_news or part.records is not None:
            told.append(part)
        if part.records is not None:
            session.serve_last(wanted)
        if session.positions[wanted].fetch_offset >= leader.log_end and replica in leader.isr:
            session.fresh.pop(wanted, None)
    return told
