"""The partitions that are copied from one leader: asked for together, again and again, by one task.

One loop does all the work of a broker, so one fetcher for each leader is as fast as several: num.replica.fetchers
changes nothing. A partition that fails rests or is left alone, as `follower` decides; the others go on.

    a log is changed only under `changing`, or in one go while nobody holds it: whoever takes a partition away waits
    until it is as it should be
    a fetch that waits at the leader is broken off for a partition that comes: its leader may be a new one
    the leader is told of no record that flush.messages wants on disk and that is not there
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple, Protocol

from leadline.cluster.broker_client import Ask, LeaderClient, PeerLost
from leadline.errors import LogDirFailed, StorageError, UnexpectedAppendOffset, WireError
from leadline.log.epochs import EpochEnd
from leadline.log.log import Log
from leadline.log.log_dirs import LogDirs
from leadline.log.write_pressure import PressureLevel
from leadline.model import NONE, BrokerId, Buffer, TopicPartition
from leadline.replication.context import ReplicationContext
from leadline.replication.fetch_requests import (
    Me,
    fetch_request,
    frame_by_hand,
    is_usual,
    offsets_request,
)
from leadline.replication.fetch_session import FetchSession, FetchSessionRequest
from leadline.replication.follower import NOTHING, Answer, AskOffset, Effects, Following, Requests, State, next_requests
from leadline.replication.history import History, Truncation
from leadline.replication.throttle import is_named
from leadline.wire import follower_fetch
from leadline.wire.fetch_position import FetchPosition
from leadline.wire.follower_fetch import FetchedPartition
from leadline.wire.frames import parse_response
from leadline.wire.messages import FetchResponse, ListOffsetsResponse
from leadline.wire.primitives import BUFFERS, MalformedRequest

log = logging.getLogger(__name__)

TURN_BYTES = 256 * 1024
HELD_BACK_MS = 100  # between two looks at a throttle, or at a flush that takes long
FLUSH_WAIT_S = 0.5  # for flushes that have not ended, before the other partitions go on without theirs
ALL_DUE_MS = 5000
BREAK_OFF_S = 0.02  # time for others to come, too
FETCH_BY_ID, FETCH_BY_NAME, LIST_OFFSETS = 16, 12, 8  # versions

_Part = FetchResponse.PartitionData


class Held(Protocol):
    """A partition on this broker, as far as a copy needs it."""

    log: Log
    history: History

    def wake(self) -> None:
        """There may be more to show."""


class Followed(NamedTuple):
    following: Following
    held: Held


class Fetcher:
    """`connect` makes a peer, again after each that was lost: the leader may be elsewhere by then."""

    def __init__(
        self,
        leader: BrokerId,
        context: ReplicationContext,
        me: Callable[[], Me],
        connect: Callable[[BrokerId], LeaderClient],
        dirs: LogDirs,
    ) -> None:
        self.leader, self._me, self._connect, self._dirs = leader, me, connect, dirs
        self._clock, self._pressure, self._config = context.clock, context.pressure, context.config
        self._throttle = context.throttles.follower
        self.followed: dict[TopicPartition, Followed] = {}
        self._due: dict[TopicPartition, None] = {}  # what to ask of them may have changed since
        self._resting: dict[TopicPartition, int] = {}  # until when, in ms
        self._held_back: set[TopicPartition] = set()  # by the throttle, or by a flush
        self._unflushed: set[Log] = set()  # that were appended to, and await a flush
        self._flush_ended = asyncio.Event()
        self._all_due_ms = 0  # when they last were
        self.changing = asyncio.Lock()
        self._session = FetchSession()
        self._was_refused = False  # the last answer was of no use
        self._why = ""  # there was no answer, as it was last said in the log
        self._appended_bytes = 0  # since it was the others' turn
        self._peer: LeaderClient | None = None
        self._woken = asyncio.Event()
        self._waiting: FetchSessionRequest | None = None  # for the leader's answer
        self._breaking_off: asyncio.TimerHandle | None = None
        self._was_broken_off = False  # what is under way, by ourselves
        self._stopped = False
        self._task = asyncio.create_task(self._run(), name=f"fetching from broker {leader}")

    async def follow(self, tp: TopicPartition, followed: Followed, effects: Effects) -> None:
        async with self.changing:
            await self._carry_out(tp, followed, effects)
            self.followed[tp] = followed
            self._due[tp] = None
        self._woken.set()
        if self._waiting is not None and self._breaking_off is None:
            loop = asyncio.get_running_loop()
            self._breaking_off = loop.call_later(BREAK_OFF_S, self._break_off, self._waiting)

    def _break_off(self, waiting: FetchSessionRequest) -> None:
        self._breaking_off = None
        if self._waiting is waiting:
            self._was_broken_off = True
            self._close()

    def break_off(self) -> None:
        """The leader is silent."""
        self._close()

    async def forget(self, tp: TopicPartition) -> None:
        async with self.changing:
            self.followed.pop(tp, None)
            self._due[tp] = None

    async def stop(self) -> None:
        if self._breaking_off is not None:
            self._breaking_off.cancel()
        async with self.changing:
            self._stopped = True
            self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._close()

    def flush_ended(self) -> None:
        """Of one of the logs; or its directory failed."""
        self._flush_ended.set()

    def _close(self) -> None:
        if self._peer is not None:
            self._peer.close()
            self._peer = None

    # Asking

    async def _run(self) -> None:
        while not self._stopped:
            self._woken.clear()
            if self._unflushed:
                await self._wait_for_flushes()
            now_ms = self._clock.now_ms()
            due = self._take_due(now_ms)
            asked = next_requests(
                {tp: self.followed[tp].following for tp, is_asked in due.items() if is_asked},
                {tp: self.followed[tp].held.log for tp, is_asked in due.items() if is_asked},
                now_ms,
                self._config.replica_fetch_max_bytes,
            )
            request = self._session.next_request({tp: asked.fetch.get(tp) for tp in due})
            if request is None and not asked.offsets:
                await self._rest(now_ms)
                continue
            self._was_broken_off = False
            try:
                await self._ask(asked, request)
            except PeerLost as error:
                if self._was_broken_off:
                    self._session.failed()
                    self._due.update(dict.fromkeys(asked.offsets))
                else:
                    self._lost(asked, str(error))
                    self._close()
            await self._pressure.room()

    async def _wait_for_flushes(self) -> None:
        """As Kafka's fetchers do; but not for long, for the sake of the partitions that need none."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_WAIT_S):
                while any(unflushed.awaits_flush for unflushed in self._unflushed):
                    self._flush_ended.clear()
                    await self._flush_ended.wait()
        self._unflushed.clear()

    def _take_due(self, now_ms: int) -> dict[TopicPartition, bool]:
        """Whose request may have changed; and whether they are to be asked for, or not for now."""
        rested = [tp for tp, until_ms in self._resting.items() if until_ms <= now_ms]
        due = dict.fromkeys((*self._held_back, *rested, *self._due))
        if now_ms - self._all_due_ms > ALL_DUE_MS:  # where a log starts may have changed without our doing
            due.update(dict.fromkeys(self.followed))
            self._all_due_ms = now_ms
        self._due.clear()
        return {tp: self._is_to_be_asked(tp, now_ms) for tp in due}

    def _is_to_be_asked(self, tp: TopicPartition, now_ms: int) -> bool:
        self._resting.pop(tp, None)
        self._held_back.discard(tp)
        if (found := self.followed.get(tp)) is None:
            return False
        if found.held.log.offline:  # what it holds may not be on its disk
            found.following.failed("its log directory failed")
            return False
        if found.following.rests_until_ms > now_ms:
            self._resting[tp] = found.following.rests_until_ms
            return False
        if found.held.log.awaits_flush or self._is_held_back(tp, found, now_ms):
            self._held_back.add(tp)
            return False
        return True

    def _is_held_back(self, tp: TopicPartition, followed: Followed, now_ms: int) -> bool:
        """Those that have all that is safe never are: they would not be in sync for long."""
        throttled = followed.held.log.config.follower_replication_throttled_replicas
        if not throttled or followed.following.is_in_sync:
            return False
        return is_named(throttled, tp.partition, self._me().id) and self._throttle.is_exceeded(now_ms)

    async def _rest(self, now_ms: int) -> None:
        """Until a partition has rested, or another comes."""
        held_back = [now_ms + HELD_BACK_MS] if self._held_back else []
        due = min((*self._resting.values(), *held_back), default=None)
        with suppress(TimeoutError):
            async with asyncio.timeout(None if due is None else (due - now_ms) / 1000):
                await self._woken.wait()

    def _lost(self, asked: Requests, why: str) -> None:
        if why != self._why:
            log.info("broker %d is not answering: %s", self.leader, why)
            self._why = why
        self._session.failed()
        now_ms = self._clock.now_ms()
        for tp in (*self._session.positions, *asked.offsets):
            self._due[tp] = None
            if (found := self.followed.get(tp)) is not None:
                found.following.unanswered(why, now_ms)

    async def _ask(self, asked: Requests, request: FetchSessionRequest | None) -> None:
        if self._peer is None:
            self._peer = self._connect(self.leader)
        timeout_s = self._config.replica_socket_timeout_ms / 1000
        if asked.offsets:
            await self._ask_offsets(self._peer, asked.offsets, timeout_s)
        if request is not None:
            await self._fetch(self._peer, asked, request, timeout_s)

    async def _ask_offsets(self, peer: LeaderClient, asks: dict[TopicPartition, AskOffset], timeout_s: float) -> None:
        request = offsets_request(asks, self._me())
        answer = await peer.ask(request, ListOffsetsResponse, LIST_OFFSETS, timeout_s)
        async with self.changing:
            self._due.update(dict.fromkeys(asks))
            for told in answer.topics:
                for part in told.partitions:
                    tp = TopicPartition(told.name, part.partition_index)
                    found = self.followed.get(tp)
                    if found is not None and tp in asks:
                        following, now_ms = found.following, self._clock.now_ms()
                        effects = following.received_offset(
                            asks[tp], part.error_code, part.offset, found.held.log, now_ms
                        )
                        await self._carry_out(tp, found, effects)

    async def _fetch(self, peer: LeaderClient, asked: Requests, request: FetchSessionRequest, timeout_s: float) -> None:
        self._waiting = request
        try:
            answer = await self._answer_to(peer, request, timeout_s)
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
                self._lost(asked, f"it answered with error {answer.error_code}")
            self._was_refused = True
            return
        self._was_refused, self._why = False, ""
        async with self.changing:
            for tp, part in parts:
                if tp is not None and (position := session.positions.get(tp)) is not None:
                    self._due[tp] = None
                    await self._received(tp, position, part)

    async def _answer_to(self, peer: LeaderClient, request: FetchSessionRequest, timeout_s: float) -> FetchResponse:
        if not is_usual(request):
            version = FETCH_BY_ID if request.by_id else FETCH_BY_NAME
            built = fetch_request(request, self._me(), self._config, self._max_wait_ms())
            return await peer.ask(built, FetchResponse, version, timeout_s)
        frame = await peer.converse("Fetch", self._by_hand(request), self._heard, timeout_s)
        try:
            return parse_response(FetchResponse, frame, FETCH_BY_ID)[1]
        except MalformedRequest as error:
            raise PeerLost(f"it answered with what is no answer: {error}") from None

    def _max_wait_ms(self) -> int:
        """Not beyond the time when a partition has rested, or is no longer held back."""
        if not self._resting and not self._held_back:
            return max(self._config.replica_fetch_wait_max_ms, 1)
        rests_ms = [end_ms - self._clock.now_ms() for end_ms in self._resting.values()]
        rests_ms += [HELD_BACK_MS] if self._held_back else []
        return max(min([self._config.replica_fetch_wait_max_ms, *rests_ms]), 1)

    # A conversation: usual answers to usual requests

    def _by_hand(self, request: FetchSessionRequest) -> Ask:
        return partial(frame_by_hand, request, self._me(), self._config, self._max_wait_ms())

    def _heard(self, frame: memoryview) -> Ask | None:
        """What to ask next, if an answer is as most are: it is dealt with as it comes.

        None: it is left to `_fetch`, as if nothing had happened; what has happened nevertheless does not happen twice.
        """
        now_ms = self._clock.now_ms()
        answer = None if len(frame) > TURN_BYTES or self._is_awaited(now_ms) else follower_fetch.parse_response(frame)
        if answer is None or answer.session_id != self._session.id:
            return None
        changes: dict[TopicPartition, FetchPosition | None] = {}
        for told in answer.partitions:
            tp = self._session.partition("", told.topic_id, told.partition)
            if tp is None or (changed := self._copy(tp, told, now_ms)) is None:
                return None
            changes[tp] = changed
        self._session.received(NONE, answer.session_id, changes)
        request = self._session.next_request(changes)
        assert request is not None, "nothing was forgotten"
        return self._by_hand(request)

    def _is_awaited(self, now_ms: int) -> bool:
        """Whether `_run` has something else to do first."""
        if self._due or self._resting or self._held_back or self._stopped or self.changing.locked():
            return True
        return self._pressure.level is PressureLevel.HIGH or now_ms - self._all_due_ms > ALL_DUE_MS

    def _copy(self, tp: TopicPartition, told: FetchedPartition, now_ms: int) -> FetchPosition | None:
        """What is to be fetched next, once it is done. None: something is unusual."""
        if (found := self.followed.get(tp)) is None:
            return None
        following, held = found
        if held.log.offline or held.log.config.follower_replication_throttled_replicas:
            return None
        records = told.records
        assert records is None or isinstance(records, memoryview)
        answer = Answer(NONE, told.high_watermark, told.log_start, None, records is not None)
        effects = following.received(self._session.positions[tp], answer, held.log, now_ms)
        if effects is NOTHING:
            return None
        try:
            _change(held, effects, records or b"")
        except (WireError, LogDirFailed):
            return None
        following.settled(held.log)
        if records is not None:
            self._pressure.appended(held.log, len(records))
            if held.log.awaits_flush:
                return None  # `_run` waits for it
        position = following.next_request(held.log, now_ms, self._config.replica_fetch_max_bytes)
        return position if isinstance(position, FetchPosition) else None

    # Answers

    async def _received(self, tp: TopicPartition, asked: FetchPosition, part: _Part) -> None:
        found = self.followed.get(tp)
        if found is None:
            return
        records = part.records if isinstance(part.records, BUFFERS) else b""
        diverging = part.diverging_epoch
        end = EpochEnd(diverging.epoch, diverging.end_offset) if diverging.end_offset >= 0 else None
        answer = Answer(part.error_code, part.high_watermark, part.log_start_offset, end, len(records) > 0)
        effects = found.following.received(asked, answer, found.held.log, self._clock.now_ms())
        await self._carry_out(tp, found, effects, records)
        if found.held.log.awaits_flush:
            self._unflushed.add(found.held.log)
        if effects.append:
            self._pressure.appended(found.held.log, len(records))
            if is_named(found.held.log.config.follower_replication_throttled_replicas, tp.partition, self._me().id):
                self._throttle.record(len(records), self._clock.now_ms())
            self._appended_bytes += len(records)
            if self._appended_bytes >= TURN_BYTES:
                self._appended_bytes = 0
                await asyncio.sleep(0)  # the others' turn

    async def _carry_out(self, tp: TopicPartition, followed: Followed, effects: Effects, records: Buffer = b"") -> None:
        following, held = followed
        if effects is not NOTHING:
            try:
                await self._do(tp, followed, effects, records)
            except (WireError, LogDirFailed) as error:
                following.append_failed(error, self._clock.now_ms())
                log.warning("%s is not copied from broker %d: %s", tp, self.leader, error)
            else:
                following.settled(held.log)
        if following.state is State.FAILED:
            log.warning("%s is no longer copied from broker %d: %s", tp, self.leader, following.why)

    async def _do(self, tp: TopicPartition, followed: Followed, effects: Effects, records: Buffer) -> None:
        following, held = followed
        if held.log.offline:
            raise StorageError(f"{tp} is offline here: its log directory failed")
        if effects.warning is not None:
            log.warning("%s, copied from broker %d: %s", tp, self.leader, effects.warning)
        if effects.start_at is not None or effects.truncate_to is not None:
            await self._truncate(tp, followed, effects)
        try:
            _change(held, effects, records)
        except UnexpectedAppendOffset as overlap:
            again = following.overlapped(overlap.first_offset, overlap.last_offset, held.log)
            await self._do(tp, followed, again, records)
            _change(held, effects._replace(append=False), b"")

    async def _truncate(self, tp: TopicPartition, followed: Followed, effects: Effects) -> None:
        following, held = followed
        log_end = held.log.log_end
        if effects.start_at is not None:
            await self._dirs.truncation.truncate_fully_and_start_at(tp, effects.start_at)
        if effects.truncate_to is not None:
            await self._dirs.truncation.truncate_to(tp, effects.truncate_to)
        epoch, now_ms = following.leader_epoch, self._clock.now_ms()
        held.history.truncated(Truncation(now_ms, epoch, self.leader, log_end, held.log.log_end, effects.warning))


def _change(held: Held, effects: Effects, records: Buffer) -> None:
    """All but to truncate. UnexpectedAppendOffset before anything has happened."""
    if effects.append:
        held.log.append_as_follower(records)
    if effects.high_watermark is not None and held.log.set_high_watermark(effects.high_watermark):
        held.wake()
    if effects.log_start is not None:
        held.log.delete_records(effects.log_start)
