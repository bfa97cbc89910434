"""A partition on a follower: what to fetch from its leader, and what to do with the response.

A follower's log becomes its leader's, byte for byte. It may hold records that the leader never had. Each fetch names
the epoch of the follower's last record, and if the logs diverge the leader answers where that epoch ends. The follower
truncates to there, perhaps epoch by epoch, until both agree. A log without epochs, of an older format, is truncated to
the high watermark instead: that may lose records, and is why there are epochs.

    a fetch starts where the follower's log ends
    an answer counts only if it answers the fetch that this state would send again
    records below the high watermark are never truncated without a warning
    effects are carried out in order; then comes `settled`, or `failed`

Pure: decides over offsets and epochs, and returns what must be done.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from leadline.errors import CorruptMessage, FencedLeaderEpoch, InvalidRecord, OffsetOutOfRange, ResourceExhausted
from leadline.log.epochs import EpochEnd, LeaderEpochs
from leadline.model import NO_EPOCH, NONE, LeaderEpoch, Offset, TopicPartition
from leadline.wire.fetch_position import NO_TOPIC_ID, FetchPosition

UNDEFINED: Offset = -1  # the leader does not know the epoch
LATEST_TIMESTAMP = -1  # ListOffsets: where the log ends
EARLIEST_TIMESTAMP = -2  # and where it starts
BACKOFF_MS = 1000  # the default of replica.fetch.backoff.ms
FIRST_REST_MS = 20  # then twice as long each time: a leader may hear of its election a moment after its followers


class FetchState(Enum):
    FETCHING = "it fetches from its log's end on"
    ENDS_ELSEWHERE = "the leader does not have its position: ListOffsets asks where the leader's log ends"
    STARTS_ELSEWHERE = "the leader's log ends after ours: ListOffsets asks where it starts"
    FAILED = "nothing is fetched until the controller's next decision"


MAY_FOLLOW: dict[FetchState, frozenset[FetchState]] = {
    FetchState.FETCHING: frozenset({FetchState.ENDS_ELSEWHERE, FetchState.FAILED}),
    FetchState.ENDS_ELSEWHERE: frozenset({FetchState.FETCHING, FetchState.STARTS_ELSEWHERE, FetchState.FAILED}),
    FetchState.STARTS_ELSEWHERE: frozenset({FetchState.FETCHING, FetchState.FAILED}),
    FetchState.FAILED: frozenset(),
}


class OwnLog(Protocol):
    """What a follower must know of its log."""

    @property
    def log_start(self) -> Offset: ...
    @property
    def log_end(self) -> Offset: ...
    @property
    def high_watermark(self) -> Offset: ...
    @property
    def epochs(self) -> LeaderEpochs: ...


class AskOffset(NamedTuple):
    """ListOffsets: where does the log end, or start?"""

    current_leader_epoch: LeaderEpoch
    timestamp: int


class FetchAnswer(NamedTuple):
    """A leader's response to a fetch, without the records."""

    error_code: int = NONE
    high_watermark: Offset = UNDEFINED
    log_start: Offset = UNDEFINED
    diverging: EpochEnd | None = None  # the logs have parted: where the epoch ends that both may have
    has_records: bool = False


class FollowerEffects(NamedTuple):
    """What must happen, top to bottom."""

    warning: str | None = None  # committed records are removed: log it
    start_at: Offset | None = None  # drop everything; the next record gets this offset
    truncate_to: Offset | None = None
    append: bool = False  # the records of the response, unchanged
    high_watermark: Offset | None = None  # the leader's; ours as far as our log reaches
    log_start: Offset | None = None  # the leader's: delete records below it


NOTHING = FollowerEffects()


@dataclass(slots=True)
class FollowerState:
    """One epoch of one leader, followed."""

    leader_epoch: LeaderEpoch
    offset: Offset  # the next to fetch
    state: FetchState
    last_fetched_epoch: LeaderEpoch = NO_EPOCH
    topic_id: bytes = NO_TOPIC_ID
    partition: int = 0
    backoff_ms: int = BACKOFF_MS  # replica.fetch.backoff.ms
    leader_high_watermark: Offset = UNDEFINED  # as of its last answer
    rests_until_ms: int = 0  # after an error, by the monotonic clock
    rest_ms: int = 0  # how long it last did, since the leader's last good answer; replica.fetch.backoff.ms at most
    why: str = ""  # it rests, or failed

    @property
    def is_in_sync(self) -> bool:
        """As far as it knows: it has all that is safe."""
        return UNDEFINED < self.leader_high_watermark <= self.offset

    def continues(self, leader_epoch: LeaderEpoch) -> bool:
        """Whether it continues unchanged, now that the controller has named this epoch."""
        return self.leader_epoch == leader_epoch and self.state is not FetchState.FAILED

    # Asking

    def next_request(self, log: OwnLog, now_ms: int, max_bytes: int) -> FetchPosition | AskOffset | None:
        if now_ms < self.rests_until_ms:
            return None
        match self.state:
            case FetchState.FETCHING:
                epoch = self.last_fetched_epoch
                return FetchPosition(
                    self.topic_id, self.partition, self.leader_epoch, self.offset, epoch, log.log_start, max_bytes
                )
            case FetchState.ENDS_ELSEWHERE:
                return AskOffset(self.leader_epoch, LATEST_TIMESTAMP)
            case FetchState.STARTS_ELSEWHERE:
                return AskOffset(self.leader_epoch, EARLIEST_TIMESTAMP)
            case FetchState.FAILED:
                return None

    # Answers

    def received(self, position: FetchPosition, answer: FetchAnswer, log: OwnLog, now_ms: int) -> FollowerEffects:
        """The leader's answer to a fetch."""
        if not self._still_asks(position, now_ms):
            return NOTHING  # the partition changed in the meantime
        if answer.error_code == OffsetOutOfRange.code:
            self._enter(FetchState.ENDS_ELSEWHERE)
            return NOTHING
        if self._is_refused(answer.error_code, now_ms):
            return NOTHING
        if answer.diverging is not None:  # its watermarks count once the logs agree again
            return _truncation(_agreed(answer.diverging, log), log)
        if self.offset != log.log_end:
            self.failed(f"fetched from {self.offset} on, but the log ends at {log.log_end}")
            return NOTHING
        self.leader_high_watermark = answer.high_watermark
        start = answer.log_start if answer.log_start > log.log_start else None
        return FollowerEffects(append=answer.has_records, high_watermark=answer.high_watermark, log_start=start)

    def _still_asks(self, position: FetchPosition, now_ms: int) -> bool:
        """From the same place on; where its log starts counts for the leader alone."""
        if self.state is not FetchState.FETCHING or now_ms < self.rests_until_ms:
            return False
        current = (self.topic_id, self.partition, self.leader_epoch, self.offset, self.last_fetched_epoch)
        return position[:5] == current

    def received_offset(
        self, question: AskOffset, error_code: int, offset: Offset, log: OwnLog, now_ms: int
    ) -> FollowerEffects:
        """The leader's answer to ListOffsets: asked where its log ends, and then perhaps where it starts."""
        if self.next_request(log, now_ms, 0) != question:
            return NOTHING
        if self._is_refused(error_code or (NONE if offset >= 0 else OffsetOutOfRange.code), now_ms):
            if self.state is not FetchState.FAILED:
                self._enter(FetchState.FETCHING)
            return NOTHING
        if question.timestamp == LATEST_TIMESTAMP and offset >= log.log_end:
            self._enter(FetchState.STARTS_ELSEWHERE)
            return NOTHING
        self._enter(FetchState.FETCHING)
        if question.timestamp == LATEST_TIMESTAMP:
            return _truncation(offset, log)
        if offset > log.log_end:
            return FollowerEffects(
                f"all records go: they end at {log.log_end}, the leader's start at {offset}", start_at=offset
            )
        self._rest("the leader has our position, but refused it", now_ms)
        return NOTHING

    def overlapped(self, first: Offset, last: Offset, log: OwnLog) -> FollowerEffects:
        """The records of an answer start below our log's end. Well, if it is the first batch, cut by a deletion.

        Other effects of the response still have to be carried out, after this one.
        """
        if log.log_start == log.log_end and first < log.log_end <= last:
            return FollowerEffects(start_at=first, append=True)
        self.failed(f"records {first} to {last} came, but the log ends at {log.log_end}")
        return NOTHING

    def settled(self, log: OwnLog) -> None:
        """The effects were carried out."""
        if self.state is not FetchState.FAILED:
            self.offset, self.last_fetched_epoch, self.rest_ms = log.log_end, _latest(log), 0

    def failed(self, why: str) -> None:
        """An effect could not be carried out, or never should."""
        self._enter(FetchState.FAILED)
        self.why = why

    def append_failed(self, error: Exception, now_ms: int) -> None:
        """Retry corrupt records and shortages only. Any other error stays."""
        if isinstance(error, CorruptMessage | InvalidRecord | ResourceExhausted):
            self._rest(str(error), now_ms)
        else:
            self.failed(str(error))

    def unanswered(self, why: str, now_ms: int) -> None:
        """No answer came."""
        if self.state in (FetchState.ENDS_ELSEWHERE, FetchState.STARTS_ELSEWHERE):
            self._enter(FetchState.FETCHING)
        if self.state is not FetchState.FAILED:
            self._rest(why, now_ms)

    def _is_refused(self, error_code: int, now_ms: int) -> bool:
        if error_code == FencedLeaderEpoch.code:
            self.failed(f"leader epoch {self.leader_epoch} is over")
        elif error_code != NONE:
            self._rest(f"the leader answered with error {error_code}", now_ms)
        return error_code != NONE

    def _rest(self, why: str, now_ms: int) -> None:
        if now_ms >= self.rests_until_ms:
            self.rest_ms = min(max(2 * self.rest_ms, FIRST_REST_MS), self.backoff_ms)
            self.rests_until_ms, self.why = now_ms + self.rest_ms, why

    def _enter(self, state: FetchState) -> None:
        assert state is self.state or state in MAY_FOLLOW[self.state], f"{self.state} to {state}"
        self.state = state


def follow(
    log: OwnLog,
    leader_epoch: LeaderEpoch,
    *,
    topic_id: bytes = NO_TOPIC_ID,
    partition: int = 0,
    backoff_ms: int = BACKOFF_MS,
) -> tuple[FollowerState, FollowerEffects]:
    """The controller named a leader. Returns the state to begin with, and what must be done first.

    There is no OffsetForLeaderEpoch before the first fetch. The leader reports in its answers where the logs diverge,
    as Kafka's leaders do from inter.broker.protocol.version 2.7 on.
    """
    epoch = _latest(log)
    offset, effects = log.log_end, NOTHING
    if epoch == NO_EPOCH:
        offset = log.high_watermark
        effects = FollowerEffects(truncate_to=offset)
    following = FollowerState(
        leader_epoch, offset, FetchState.FETCHING, epoch, topic_id=topic_id, partition=partition, backoff_ms=backoff_ms
    )
    return following, effects


class FollowerRequests(NamedTuple):
    """The partitions to fetch from one leader. The caller moves those that made progress to the end, for fairness."""

    fetch: dict[TopicPartition, FetchPosition]
    offsets: dict[TopicPartition, AskOffset]


def next_requests(
    followed: Mapping[TopicPartition, FollowerState], logs: Mapping[TopicPartition, OwnLog], now_ms: int, max_bytes: int
) -> FollowerRequests:
    """What to ask one leader about the partitions that are followed from it."""
    requests = FollowerRequests({}, {})
    for tp, following in followed.items():
        match following.next_request(logs[tp], now_ms, max_bytes):
            case FetchPosition() as position:
                requests.fetch[tp] = position
            case AskOffset() as ask_offset:
                requests.offsets[tp] = ask_offset
    return requests


def _latest(log: OwnLog) -> LeaderEpoch:
    latest = log.epochs.latest
    return NO_EPOCH if latest is None else latest.epoch


def _agreed(end: EpochEnd, log: OwnLog) -> Offset:
    """The offset up to which both logs may agree, given the leader's end of an epoch."""
    if end.end_offset < 0:  # the leader does not know it either
        return log.log_end
    own = log.epochs.end_of(end.epoch, log.log_end)
    if own is None:  # we never kept epochs as old as that
        return min(end.end_offset, log.log_end)
    if own.epoch != end.epoch:  # we have an older one only: the leader's next response has its end
        return min(own.end_offset, log.log_end)
    return min(own.end_offset, end.end_offset, log.log_end)


def _truncation(offset: Offset, log: OwnLog) -> FollowerEffects:
    if offset >= log.high_watermark:
        return FollowerEffects(truncate_to=offset)
    return FollowerEffects(
        f"records from {offset} on go, below the high watermark {log.high_watermark}", truncate_to=offset
    )
