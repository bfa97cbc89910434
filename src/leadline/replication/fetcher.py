"""A fetcher: one task that fetches all partitions that this broker follows from one leader.

One loop does all the work of a broker, so one fetcher for each leader is as fast as several: num.replica.fetchers
changes nothing. A partition that fails pauses or is given up, as `follower` decides; the others continue.

A response arrives in one of two places. Both report it to the state with `received`, and apply the effects
(`effects_on_logs`):

    _on_response   in the socket's callback, for a response as most are: it sends the next request at once
    _fetch         in the task, for any response: it may wait, truncate, and report errors

`_on_response` hands a response over to `_fetch` as a whole when one of its partitions needs the task. `_fetch` then
skips the partitions that were applied before: their position has moved, so for them the response is an old one.

    a log is changed only under `changing`, or without a wait while the lock is free: a caller that takes a partition
    away waits until its log is consistent
    a fetch that waits at the leader is cancelled for a new partition: its leader may have just been elected
    a fetch reports no record that flush.messages wants on disk and that is not there
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import inf

from leadline.cluster.broker_client import EncodeRequest, LeaderClient, PeerLost
from leadline.errors import LogDirFailed, TopicAuthorizationFailed, UnexpectedAppendOffset, WireError
from leadline.log.epochs import EpochEnd
from leadline.log.log import Log
from leadline.log.log_dirs import LogDirs
from leadline.log.write_pressure import PressureLevel
from leadline.model import NONE, BrokerId, Buffer, TopicPartition
from leadline.replication.context import ReplicationContext
from leadline.replication.effects_on_logs import EffectsOnLogs, FollowedPartition
from leadline.replication.fetch_requests import (
    FetchingBroker,
    fast_frame,
    fetch_request,
    fits_fast_path,
    offsets_request,
)
from leadline.replication.fetch_session import FetchSession, FetchSessionRequest
from leadline.replication.follower import (
    NOTHING,
    AskOffset,
    FetchAnswer,
    FetchState,
    FollowerEffects,
    FollowerRequests,
    next_requests,
)
from leadline.replication.throttle import is_named
from leadline.runtime.ended_tasks import all_ended
from leadline.runtime.ports import monotonic_ms
from leadline.wire import follower_fetch
from leadline.wire.fetch_position import FetchPosition
from leadline.wire.follower_fetch import FetchedPartition
from leadline.wire.frames import parse_response
from leadline.wire.messages import FetchResponse, ListOffsetsResponse
from leadline.wire.primitives import BUFFERS, MalformedRequest

log = logging.getLogger(__name__)

YIELD_BYTES = 256 * 1024  # after these, other tasks run
HELD_BACK_MS = 100  # between two checks of a throttle, or of a flush that takes long
FLUSH_WAIT_S = 0.5  # for flushes; after that the other partitions continue
ALL_DUE_MS = 5000
CANCEL_S = 0.02  # delay before a waiting fetch is cancelled: more partitions may come
FETCH_BY_ID, FETCH_BY_NAME, LIST_OFFSETS = 16, 12, 8  # versions

_Part = FetchResponse.PartitionData


class Fetcher:
    """`connect` makes a client of the leader, and a new one after each loss: the leader may be elsewhere by then."""

    def __init__(
        self,
        leader: BrokerId,
        context: ReplicationContext,
        me: Callable[[], FetchingBroker],
        connect: Callable[[BrokerId], LeaderClient],
        dirs: LogDirs,
    ) -> None:
        self.leader, self._me, self._connect = leader, me, connect
        self._clock, self._pressure, self._settings = context.clock, context.pressure, context.settings
        self._throttle = context.throttles.follower
        self._effects = EffectsOnLogs(leader, context, dirs.truncation)
        self.followed: dict[TopicPartition, FollowedPartition] = {}
        self._due: dict[TopicPartition, None] = {}  # their position may have changed since the last request
        self._resting: dict[TopicPartition, int] = {}  # until when, in ms
        self._held_back: set[TopicPartition] = set()  # by the throttle, or by a flush
        self._unflushed: set[Log] = set()  # logs with appends that await a flush
        self._flush_ended = asyncio.Event()
        self._all_due_ms = -inf  # when all partitions were last due
        self.changing = asyncio.Lock()
        self._session = FetchSession()
        self._was_refused = False  # the last response was an error
        self._why = ""  # the reason that was logged last
        self._appended_bytes = 0  # since other tasks last ran
        self._client: LeaderClient | None = None
        self._wake_up = asyncio.Event()
        self._waiting: FetchSessionRequest | None = None  # the one that the leader has not answered
        self._cancelling: asyncio.TimerHandle | None = None
        self._was_cancelled = False  # the fetch under way, by this broker itself
        self._is_refused = False  # by the leader's authorizer
        self._stopped = False
        self._task = asyncio.create_task(self._run(), name=f"fetching from broker {leader}")

    async def follow(self, tp: TopicPartition, followed: FollowedPartition, effects: FollowerEffects) -> None:
        async with self.changing:
            await self._carry_out(tp, followed, effects)
            self.followed[tp] = followed
            self._due[tp] = None
        self._wake_up.set()
        if self._waiting is not None and self._cancelling is None:
            loop = asyncio.get_running_loop()
            self._cancelling = loop.call_later(CANCEL_S, self._cancel, self._waiting)

    def _cancel(self, waiting: FetchSessionRequest) -> None:
        self._cancelling = None
        if self._waiting is waiting:
            self._was_cancelled = True
            self._close()

    def break_off(self) -> None:
        """The leader is silent."""
        self._close()

    async def forget(self, tp: TopicPartition) -> None:
        async with self.changing:
            self.followed.pop(tp, None)
            self._due[tp] = None

    async def stop(self) -> None:
        if self._cancelling is not None:
            self._cancelling.cancel()
        async with self.changing:
            self._stopped = True
            self._task.cancel()
        await all_ended(self._task)
        self._close()

    def flush_ended(self) -> None:
        """A flush of one of the logs has ended, or its directory failed."""
        self._flush_ended.set()

    def _close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _now_ms(self) -> int:
        return monotonic_ms(self._clock)

    # Requests

    async def _run(self) -> None:
        while not self._stopped:
            self._wake_up.clear()
            if self._unflushed:
                await self._wait_for_flushes()
            now_ms = self._now_ms()
            due = self._take_due(now_ms)
            requests = next_requests(
                {tp: self.followed[tp].state for tp, is_fetched in due.items() if is_fetched},
                {tp: self.followed[tp].replica.log for tp, is_fetched in due.items() if is_fetched},
                now_ms,
                self._settings.broker.replica_fetch_max_bytes,
            )
            request = self._session.next_request({tp: requests.fetch.get(tp) for tp in due})
            if request is None and not requests.offsets:
                await self._rest(now_ms)
                continue
            self._was_cancelled = False
            try:
                await self._ask(requests, request)
            except PeerLost as error:
                if self._was_cancelled:
                    self._session.failed()
                    self._due.update(dict.fromkeys(requests.offsets))
                else:
                    self._lost(requests, str(error))
                    self._close()
            except Exception as error:
                log.exception("a bug in fetching from broker %d: restarting all its partitions", self.leader)
                self._lost(requests, str(error))
                self._close()
            await self._pressure.room()

    async def _wait_for_flushes(self) -> None:
        """As Kafka's fetchers do; but not for long, as the other partitions wait, too."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_WAIT_S):
                while any(unflushed.awaits_flush for unflushed in self._unflushed):
                    self._flush_ended.clear()
                    await self._flush_ended.wait()
        self._unflushed.clear()

    def _take_due(self, now_ms: int) -> dict[TopicPartition, bool]:
        """The partitions whose position may have changed, and whether to fetch them now."""
        rested = [tp for tp, until_ms in self._resting.items() if until_ms <= now_ms]
        due = dict.fromkeys((*self._held_back, *rested, *self._due))
        if now_ms - self._all_due_ms > ALL_DUE_MS:  # log starts change by retention, without a fetch
            due.update(dict.fromkeys(self.followed))
            self._all_due_ms = now_ms
        self._due.clear()
        return {tp: self._is_to_be_fetched(tp, now_ms) for tp in due}

    def _is_to_be_fetched(self, tp: TopicPartition, now_ms: int) -> bool:
        self._resting.pop(tp, None)
        self._held_back.discard(tp)
        if (followed := self.followed.get(tp)) is None:
            return False
        if followed.replica.log.offline:  # its records may not be on disk
            followed.state.failed(followed.replica.log.why_offline)
            return False
        if followed.state.rests_until_ms > now_ms:
            self._resting[tp] = followed.state.rests_until_ms
            return False
        if followed.replica.log.awaits_flush or self._is_held_back(tp, followed, now_ms):
            self._held_back.add(tp)
            return False
        return True

    def _is_held_back(self, tp: TopicPartition, followed: FollowedPartition, now_ms: int) -> bool:
        """Whether the throttle holds a partition back. One that has all committed records never is: it is in sync."""
        throttled = followed.replica.log.config.follower_replication_throttled_replicas
        if not throttled or followed.state.is_in_sync:
            return False
        return is_named(throttled, tp.partition, self._me().id) and self._throttle.is_exceeded(now_ms)

    async def _rest(self, now_ms: int) -> None:
        """Wait until a partition has rested, or another one comes."""
        held_back = [now_ms + HELD_BACK_MS] if self._held_back else []
        due = min((*self._resting.values(), *held_back), default=None)
        with suppress(TimeoutError):
            async with asyncio.timeout(None if due is None else (due - now_ms) / 1000):
                await self._wake_up.wait()

    def _lost(self, requests: FollowerRequests, why: str) -> None:
        if why != self._why:
            log.info("broker %d is not answering: %s", self.leader, why)
            self._why = why
        self._session.failed()
        now_ms = self._now_ms()
        for tp in (*self._session.positions, *requests.offsets):
            self._due[tp] = None
            if (followed := self.followed.get(tp)) is not None:
                followed.state.unanswered(why, now_ms)

    async def _ask(self, requests: FollowerRequests, request: FetchSessionRequest | None) -> None:
        if self._client is None:
            self._client = self._connect(self.leader)
        timeout_s = self._settings.broker.replica_socket_timeout_ms / 1000
        if requests.offsets:
            await self._ask_offsets(self._client, requests.offsets, timeout_s)
        if request is not None:
            await self._fetch(self._client, requests, request, timeout_s)

    async def _ask_offsets(
        self, client: LeaderClient, questions: dict[TopicPartition, AskOffset], timeout_s: float
    ) -> None:
        request = offsets_request(questions, self._me())
        answer = await client.ask(request, ListOffsetsResponse, LIST_OFFSETS, timeout_s)
        async with self.changing:
            self._due.update(dict.fromkeys(questions))
            for topic in answer.topics:
                for part in topic.partitions:
                    tp = TopicPartition(topic.name, part.partition_index)
                    followed = self.followed.get(tp)
                    if followed is not None and tp in questions:
                        state, now_ms = followed.state, self._now_ms()
                        effects = state.received_offset(
                            questions[tp], part.error_code, part.offset, followed.replica.log, now_ms
                        )
                        await self._carry_out(tp, followed, effects)

    async def _fetch(
        self, client: LeaderClient, requests: FollowerRequests, request: FetchSessionRequest, timeout_s: float
    ) -> None:
        self._waiting = request
        try:
            answer = await self._response_to(client, request, timeout_s)
        finally:
            self._waiting = None
        session = self._session
        parts = [
            (session.partition(topic.topic, topic.topic_id.bytes, part.partition_index), part)
            for topic in answer.responses
            for part in topic.partitions
        ]
        answered = [tp for tp, _ in parts]
        if not session.received(answer.error_code, answer.session_id, answered, answer.throttle_time_ms):
            if self._was_refused:  # a full fetch, too
                self._lost(requests, f"it answered with error {answer.error_code}")
            self._was_refused = True
            return
        self._was_refused, self._why = False, ""
        self._report_refusal([part.error_code for _, part in parts])
        async with self.changing:
            for tp, part in parts:
                if tp is not None and (position := session.positions.get(tp)) is not None:
                    self._due[tp] = None
                    await self._received(tp, position, part)

    def _report_refusal(self, error_codes: list[int]) -> None:
        """Log once that the leader's authorizer does not accept this broker as a broker."""
        if not error_codes:
            return
        is_refused = TopicAuthorizationFailed.code in error_codes
        if is_refused and not self._is_refused:
            log.warning(
                "broker %d refuses fetches: the user of this broker needs ClusterAction on the cluster", self.leader
            )
        self._is_refused = is_refused

    async def _response_to(self, client: LeaderClient, request: FetchSessionRequest, timeout_s: float) -> FetchResponse:
        if not fits_fast_path(request):
            version = FETCH_BY_ID if request.by_id else FETCH_BY_NAME
            built = fetch_request(request, self._me(), self._settings.broker, self._max_wait_ms())
            return await client.ask(built, FetchResponse, version, timeout_s)
        frame = await client.converse("Fetch", self._next_frame(request), self._on_response, timeout_s)
        try:
            return parse_response(FetchResponse, frame, FETCH_BY_ID)[1]
        except MalformedRequest as error:
            raise PeerLost(f"it sent a malformed response: {error}") from None

    def _max_wait_ms(self) -> int:
        """How long the leader may wait: until a partition has rested, or may be no longer held back."""
        if not self._resting and not self._held_back:
            return max(self._settings.broker.replica_fetch_wait_max_ms, 1)
        rests_ms = [end_ms - self._now_ms() for end_ms in self._resting.values()]
        rests_ms += [HELD_BACK_MS] if self._held_back else []
        return max(min([self._settings.broker.replica_fetch_wait_max_ms, *rests_ms]), 1)

    # Responses in the socket's callback

    def _next_frame(self, request: FetchSessionRequest) -> EncodeRequest:
        return partial(fast_frame, request, self._me(), self._settings.broker, self._max_wait_ms())

    def _on_response(self, frame: memoryview) -> EncodeRequest | None:
        """Apply a response, and return the next request. None: the task goes over the whole response."""
        now_ms = self._now_ms()
        if len(frame) > YIELD_BYTES or self._needs_task(now_ms):
            return None
        response = follower_fetch.parse_response(frame)
        if response is None or response.session_id != self._session.id:
            return None
        changes: dict[TopicPartition, FetchPosition | None] = {}
        for partition in response.partitions:
            tp = self._session.partition("", partition.topic_id, partition.partition)
            position = None if tp is None else self._next_position(tp, partition, now_ms)
            if tp is None or position is None:
                return None
            changes[tp] = position
        self._session.received(NONE, response.session_id, changes)
        request = self._session.next_request(changes)
        assert request is not None, "nothing was forgotten"
        return self._next_frame(request)

    def _needs_task(self, now_ms: int) -> bool:
        """Whether the task has something else to do first."""
        if self._due or self._resting or self._held_back or self._stopped or self.changing.locked():
            return True
        return self._pressure.level is PressureLevel.HIGH or now_ms - self._all_due_ms > ALL_DUE_MS

    def _next_position(self, tp: TopicPartition, partition: FetchedPartition, now_ms: int) -> FetchPosition | None:
        """Apply the response for one partition, and return its next position. None: it needs the task."""
        if (followed := self.followed.get(tp)) is None:
            return None
        state, replica = followed
        if replica.log.offline or replica.log.config.follower_replication_throttled_replicas:
            return None
        records = partition.records
        assert records is None or isinstance(records, memoryview)
        answer = FetchAnswer(NONE, partition.high_watermark, partition.log_start, None, records is not None)
        effects = state.received(self._session.positions[tp], answer, replica.log, now_ms)
        if effects is NOTHING:
            return None
        try:
            self._effects.apply(followed, effects, records or b"")
        except (WireError, LogDirFailed, UnexpectedAppendOffset):
            return None
        if records is not None and replica.log.awaits_flush:
            return None
        position = state.next_request(replica.log, now_ms, self._settings.broker.replica_fetch_max_bytes)
        return position if isinstance(position, FetchPosition) else None

    # Responses in the task

    async def _received(self, tp: TopicPartition, position: FetchPosition, part: _Part) -> None:
        followed = self.followed.get(tp)
        if followed is None:
            return
        hosted_log = followed.replica.log
        records = part.records if isinstance(part.records, BUFFERS) else b""
        diverging = part.diverging_epoch
        end = EpochEnd(diverging.epoch, diverging.end_offset) if diverging.end_offset >= 0 else None
        answer = FetchAnswer(part.error_code, part.high_watermark, part.log_start_offset, end, len(records) > 0)
        effects = followed.state.received(position, answer, hosted_log, self._now_ms())
        await self._carry_out(tp, followed, effects, records)
        if hosted_log.awaits_flush:
            self._unflushed.add(hosted_log)
        if effects.append:
            if is_named(hosted_log.config.follower_replication_throttled_replicas, tp.partition, self._me().id):
                self._throttle.record(len(records), self._now_ms())
            self._appended_bytes += len(records)
            if self._appended_bytes >= YIELD_BYTES:
                self._appended_bytes = 0
                await asyncio.sleep(0)

    async def _carry_out(
        self, tp: TopicPartition, followed: FollowedPartition, effects: FollowerEffects, records: Buffer = b""
    ) -> None:
        """All effects, with a log line if one fails."""
        state = followed.state
        if effects is not NOTHING:
            try:
                await self._effects.truncate_and_apply(tp, followed, effects, records)
            except (WireError, LogDirFailed) as error:
                state.append_failed(error, self._now_ms())
                log.warning("%s is not fetched from broker %d: %s", tp, self.leader, error)
        if state.state is FetchState.FAILED:
            log.warning("%s is no longer fetched from broker %d: %s", tp, self.leader, state.why)
