"""The log of one partition, as leaders, followers and consumers see it: segments, epochs and producer state in step.

    log start <= last stable offset <= high watermark <= log end
    replicas agree byte for byte below the high watermark

`LocalLog` holds the segments and their flushing, `segment_removal` how segments go.
"""

import logging
import os
from collections.abc import Sequence
from enum import Enum
from functools import partial
from typing import NamedTuple

from leadline.config.topic import LogConfig
from leadline.errors import (
    CorruptFile,
    InconsistentTopicId,
    OffsetOutOfRange,
    RecordListTooLarge,
    ResourceExhausted,
    UnexpectedAppendOffset,
)
from leadline.log import names, validation
from leadline.log.checkpoints import EpochEntry, encode_partition_metadata
from leadline.log.epochs import EpochEnd
from leadline.log.files import replace_file
from leadline.log.local_log import LoadedLog, LocalLog
from leadline.log.log_context import LogContext
from leadline.log.producer_entry import ProducerEntry
from leadline.log.producer_snapshots import rebuild_producer_state
from leadline.log.producer_state import TRUSTED, AppendOrigin, Verification
from leadline.log.reasons import LogStartIncrementReason, SegmentDeletionReason
from leadline.log.retention import DeletableSegments, deletable_segments
from leadline.log.segment import FileSlice, Segment
from leadline.log.segment_removal import remove_segments, replace_segments
from leadline.log.txn_index import AbortedTxn
from leadline.log.validation import AppendInfo
from leadline.model import NO_TIMESTAMP, Buffer, LeaderEpoch, Offset, TopicId
from leadline.records.batch import LENGTH_END, LOG_APPEND_TIME, OFFSET_LENGTH_EPOCH, Header, header_at, walk
from leadline.records.python_walker import Summary
from leadline.runtime.ports import shortage
from leadline.runtime.recent_appends import RecentAppends

log = logging.getLogger(__name__)

EARLIEST_TIMESTAMP = -2
LATEST_TIMESTAMP = -1
MAX_TIMESTAMP = -3
EARLIEST_LOCAL_TIMESTAMP = -4


class Isolation(Enum):
    """How far a reader may see."""

    LOG_END = "log end"  # followers
    HIGH_WATERMARK = "high watermark"
    COMMITTED = "last stable offset"


class AppendResult(NamedTuple):
    first_offset: Offset
    last_offset: Offset
    log_append_time_ms: int  # -1: the records carry their producer's time
    duplicate: bool = False  # nothing was written: these are the offsets of the first time


class ReadResult(NamedTuple):
    """Batches, from the one that holds the offset on. The last one may be cut off, as in Kafka."""

    slice: FileSlice | None
    aborted: tuple[AbortedTxn, ...] = ()
    first_incomplete: bool = False  # not even the first batch fits, and the reader did not ask for one at least


class ListedOffset(NamedTuple):
    timestamp: int
    offset: Offset
    leader_epoch: LeaderEpoch | None


class Log(LocalLog):
    def __init__(self, loaded: LoadedLog, context: LogContext) -> None:
        super().__init__(loaded, context)
        self.producer_state, self.topic_id = loaded.producer_state, loaded.topic_id
        self.log_start = self.high_watermark = loaded.log_start
        self._first_unstable: Offset | None = None
        self._stored_unchanged = validation.is_stored_unchanged(self.config)
        self._note_unstable()

    def __repr__(self) -> str:
        return f"Log({self.tp} in {self.parent}, [{self.log_start}, {self.log_end}))"

    @property
    def last_stable_offset(self) -> Offset:
        first = self._first_unstable
        return first if first is not None and first < self.high_watermark else self.high_watermark

    def _note_unstable(self) -> None:
        first = self.producer_state.first_unstable_offset()
        self._first_unstable = None if first is None else max(first, self.log_start)

    # Appending

    def begin_epoch(self, epoch: LeaderEpoch) -> None:
        """A new leader's first step: later appends have its epoch."""
        if self.epochs.assign(epoch, self.log_end):
            self.write_epochs()

    def append_as_leader(
        self,
        data: Buffer,
        leader_epoch: LeaderEpoch,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        verified: Verification | None = TRUSTED,
        recent: RecentAppends | None = None,
        content: Summary | None = None,
    ) -> AppendResult:
        """One batch from a producer: it is checked and gets its offset and this leader's epoch, in place if possible.

        `verified`: without one that is still valid, the batch must not open a transaction. `recent`: also keeps it.
        `content`: of records that were checked already. LargeContent: they have to be, as the loop cannot.
        """
        config = self.config
        self.last_append_ms = now_ms = self.context.clock.now_ms()
        header = validation.one_batch(data, config, origin, self.tp)
        if content is None and origin is AppendOrigin.CLIENT:
            content = validation.content_of(data, header, config, self.tp, now_ms)
        size = LENGTH_END + header.length
        batch = bytearray(data[:size]) if isinstance(data, bytes) else data if len(data) == size else data[:size]
        append_time_ms = NO_TIMESTAMP
        if not self._stored_unchanged or (
            content is not None and (content[0] != header.max_timestamp or header.attributes & LOG_APPEND_TIME)
        ):
            batch, header = validation.as_configured(batch, header, content, config, self.tp, now_ms)
            append_time_ms = now_ms if config.log_append_time else NO_TIMESTAMP
        first = self.log_end
        OFFSET_LENGTH_EPOCH.pack_into(batch, 0, first, header.length, leader_epoch)
        producer = None if header.producer_id < 0 else self.producer_state.next_in_sequence(header)
        try:
            if producer is not None or header.producer_id < 0:
                self._append_next(batch, header, producer, leader_epoch, now_ms)
                result = AppendResult(first, self.log_end - 1, append_time_ms)
            else:
                info = validation.leader_append(batch, header_at(batch), leader_epoch)
                result = self._append(info, origin, now_ms, append_time_ms, verified)
        except ResourceExhausted:
            self.producer_state.refused(header)
            raise
        if recent is not None and not result.duplicate:
            recent.add(self, first, self.log_end, batch)
        return result

    def append_as_follower(self, data: Buffer, *, any_size: bool = True) -> AppendResult | None:
        """Batches as the leader has them, offsets and epochs kept. None if there is no whole batch.

        Together they may be larger than a segment, and so may be a single one from before segment.bytes was lowered.
        Without `any_size` they are refused then, as by Kafka, whose follower stops there.
        """
        info = validation.replicated_batches(data, self.tp)
        if info is None:
            return None
        if info.first_offset < self.log_end:
            raise UnexpectedAppendOffset(
                f"records from offset {info.first_offset} on came for {self.tp}, which ends at {self.log_end}",
                info.first_offset,
                info.last_offset,
            )
        if any_size and len(info.data) > self.config.segment_bytes:
            return self._append_one_by_one(info.data)
        return self._append(info, AppendOrigin.REPLICATION, self.now_ms, NO_TIMESTAMP)

    def _append_one_by_one(self, data: Buffer) -> AppendResult:
        """Whole batches. If a resource runs out after the first one, the others are fetched again."""
        view, result = memoryview(data), None
        for position, header in walk(data):
            info = validation.replicated_batches(view[position : position + header.size], self.tp)
            assert info is not None, "it is a whole batch"
            try:
                appended = self._append(info, AppendOrigin.REPLICATION, self.now_ms, NO_TIMESTAMP, any_size=True)
            except ResourceExhausted:
                if result is None:
                    raise
                break
            first = appended.first_offset if result is None else result.first_offset
            result = appended._replace(first_offset=first)
        assert result is not None, "there is a batch"
        return result

    def _append_next(
        self, batch: Buffer, header: Header, producer: ProducerEntry | None, epoch: LeaderEpoch, now_ms: int
    ) -> None:
        """A batch without a producer id, or the next one of `producer`: nothing has to be validated."""
        if self.offline:
            self.refuse()
        first, delta, timestamp = self.log_end, header.last_offset_delta, header.max_timestamp
        last = first + delta
        try:
            epochs = self.epochs.entries
            if not epochs or epochs[-1].epoch != epoch or epochs[-1].start_offset > first:
                self._note_epoch(epoch, first)
            self._room_for(len(batch), first, last, timestamp, now_ms).append(batch, last, timestamp, last)
        except (OSError, CorruptFile) as error:
            self.fail("appending", error)
        if producer is not None:
            producer.add_batch(header.base_sequence, last, delta, timestamp)
        self.producer_state.end_offset = last + 1
        self._move_end(last + 1)

    def _append(
        self,
        info: AppendInfo,
        origin: AppendOrigin,
        now_ms: int,
        append_time_ms: int,
        verified: Verification | None = TRUSTED,
        *,
        any_size: bool = False,
    ) -> AppendResult:
        if self.offline:
            self.refuse()
        last, state = info.last_offset, self.producer_state
        producer = changes = None
        epochs = self._note_epochs(info.epochs)  # first, as Kafka does: that of a batch that is too large stays
        try:
            newest_ms = info.newest.timestamp
            segment = self._room_for(len(info.data), info.first_offset, last, newest_ms, now_ms, any_size=any_size)
            if info.stateful:
                header = info.stateful[0][1]
                producer = state.next_in_sequence(header) if len(info.stateful) == 1 else None
                if producer is None:
                    if origin is AppendOrigin.CLIENT and (repeated := state.duplicate_of(header)) is not None:
                        return AppendResult(repeated.first_offset, repeated.last_offset, repeated.timestamp, True)
                    if origin is AppendOrigin.CLIENT:
                        state.check_refusal(header)
                    changes = state.validate(info.data, info.stateful, origin, verified)
            segment.append(info.data, last, *info.newest)
            self.log_end = last + 1  # later failures do not matter: the records are stored
            if producer is not None:
                producer.add_batch(
                    header.base_sequence, header.last_offset, header.last_offset_delta, header.max_timestamp
                )
            elif changes is not None:
                for aborted in state.apply(changes):
                    segment.txn_index.append(aborted)
                    self.entries_changed = True  # the first one creates the file
                self._note_unstable()
        except ResourceExhausted:  # there is no room for a new segment
            self._restore_epochs(epochs)
            raise
        except (OSError, CorruptFile) as error:
            if shortage(error) is not None and self.log_end <= info.first_offset:
                self._restore_epochs(epochs)
            self.fail("appending", error)
        state.end_offset = last + 1
        self._move_end(last + 1)
        return AppendResult(info.first_offset, last, append_time_ms)

    def _move_end(self, end: Offset) -> None:
        """Records that need no flush are durable now, unless earlier ones wait for a flush."""
        self.log_end = end
        if self.segments.active.has_unwritten_entries:
            self.context.unindexed.add(self)
        if end - self.recovery_point < self.config.flush_messages and self._flush_due_to <= self.flushed_to:
            self.durable_end = end
        else:
            self.require_flush()

    def write_index_entries(self) -> None:
        """Writes the index entries that wait in memory, for other readers of the files."""
        if self.offline:
            return
        try:
            self.segments.active.write_index_entries()
        except (OSError, CorruptFile) as error:
            self.fail("writing an index", error)

    def _note_epoch(self, epoch: LeaderEpoch, start: Offset) -> None:
        if epoch >= 0 and self.epochs.assign(epoch, start):
            self.write_epochs()

    def _note_epochs(self, epochs: Sequence[tuple[LeaderEpoch, Offset]]) -> list[EpochEntry] | None:
        """Notes the epochs of records that are about to be appended. Returns the old entries if they change."""
        latest = self.epochs.latest
        if latest is not None and len(epochs) == 1:
            epoch, start = epochs[0]
            if epoch == latest.epoch and start >= latest.start_offset:
                return None
        before = self.epochs.entries.copy()
        for epoch, start in epochs:
            self._note_epoch(epoch, start)
        return before

    def _restore_epochs(self, before: list[EpochEntry] | None) -> None:
        """The records were refused: the next ones may begin elsewhere."""
        if before is not None and before != self.epochs.entries:
            self.epochs.entries[:] = before
            self.write_epochs()

    def _room_for(
        self,
        size: int,
        first: Offset,
        last: Offset,
        timestamp: int,
        now_ms: int,
        *,
        any_size: bool = False,
    ) -> Segment:
        """The segment that takes this many bytes. With `any_size` it may have to be larger than segment.bytes."""
        segment, config = self.segments.active, self.config
        if not segment.should_roll(size, last, timestamp, config, now_ms):
            return segment
        if size > config.segment_bytes and not any_size:
            raise RecordListTooLarge(f"{size} bytes for {self.tp} exceed segment.bytes={config.segment_bytes}")
        return self.roll(first)

    def roll(self, at_least: Offset = 0) -> Segment:
        """Start a new segment. The old one is completed, and flushed in the background."""
        base = max(at_least, self.log_end)
        old = self.segments.active
        with self.guard("rolling a segment"):
            if base in self.segments:
                if old.base_offset != base or old.size:
                    raise AssertionError(f"{self}: a segment at {base} exists already: {old}")
                replace_segments(self, [old], base, SegmentDeletionReason.ROLL)
            else:
                old.seal()
                self.segments.add(self.new_segment(base))
            self.producer_state.end_offset = base
            snapshot = self.snapshots.take(self.producer_state, sync=False)
            start = min(self.flushed_to, old.base_offset)  # its indexes just changed
            self.flush_to(base, base, snapshot, start, self.context.segment_flushed)
        log.debug("%s: rolled a new segment at offset %d", self.tp, base)
        return self.segments.active

    # Reading

    def read(
        self,
        offset: Offset,
        max_bytes: int,
        isolation: Isolation = Isolation.HIGH_WATERMARK,
        *,
        min_one: bool = True,
    ) -> ReadResult:
        """Reads from the batch that holds an offset, as far as the reader may see, at most max_bytes.

        With min_one the first batch comes whole, however large it is: otherwise a reader would be stuck before it.
        """
        if not self.log_start <= offset <= self.log_end:
            raise OffsetOutOfRange(
                f"offset {offset} of {self.tp} is out of range: it holds {self.log_start} to {self.log_end}"
            )
        limit = self.limit(isolation)
        if offset >= limit:
            return _NOTHING
        try:
            located = self.segments.locate(offset)
            if located is None:
                return _NOTHING
            segment, first = located
            requested = max(max_bytes, first.size) if min_one else max_bytes
            length = min(self.segments.end_position(segment, limit, self.log_end) - first.position, requested)
            if length <= 0:
                return _NOTHING
            aborted: tuple[AbortedTxn, ...] = ()
            if isolation is Isolation.COMMITTED:
                end = segment.offset_index.first_at_or_after(first.position + length)
                end = self.segments.end_of(segment, self.log_end) if end is None else end
                aborted = self.segments.aborted_between(offset, end, segment)
            records = segment.slice(first.position, length)
        except (OSError, CorruptFile) as error:
            self.fail("reading", error)
        return ReadResult(records, aborted, requested < first.size)

    def limit(self, isolation: Isolation) -> Offset:
        if isolation is Isolation.HIGH_WATERMARK:
            return self.high_watermark
        return self.log_end if isolation is Isolation.LOG_END else self.last_stable_offset

    def aborted_between(self, start: Offset, end: Offset) -> tuple[AbortedTxn, ...]:
        return self.segments.aborted_between(start, end)

    def offset_for_time(self, timestamp: int) -> ListedOffset | None:
        """The first record that is not older than a time; or one of the special offsets."""
        if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
            earliest = self.epochs.earliest
            covers = earliest is not None and earliest.start_offset <= self.log_start
            return ListedOffset(NO_TIMESTAMP, self.log_start, earliest.epoch if covers and earliest else None)
        if timestamp == LATEST_TIMESTAMP:
            latest = self.epochs.latest
            return ListedOffset(NO_TIMESTAMP, self.log_end, latest.epoch if latest else None)
        with self.guard("looking up a time"):
            if timestamp == MAX_TIMESTAMP:
                record = self.segments.offset_of_newest()
            else:
                record = self.segments.offset_for_time(timestamp, self.log_start)
        if record is None:
            return None
        (time, offset), epoch = record
        return ListedOffset(time, offset, epoch if epoch >= 0 else None)

    def end_of_epoch(self, epoch: LeaderEpoch) -> EpochEnd | None:
        return self.epochs.end_of(epoch, self.log_end)

    # High watermark and log start

    def advance_high_watermark(self, offset: Offset) -> bool:
        """The leader's high watermark only goes up."""
        assert offset <= self.log_end, f"high watermark {offset} beyond the end of {self}"
        return offset > self.high_watermark and self._move_high_watermark(offset)

    def set_high_watermark(self, offset: Offset) -> bool:
        """A follower takes its leader's, within what the log holds. True if it changed."""
        offset = min(max(offset, self.log_start), self.log_end)
        return offset != self.high_watermark and self._move_high_watermark(offset)

    def _move_high_watermark(self, offset: Offset) -> bool:
        self.high_watermark = offset
        if self.producer_state.high_watermark_moved(offset):
            self._note_unstable()
        return True

    def delete_records(
        self, before: Offset, reason: LogStartIncrementReason = LogStartIncrementReason.CLIENT_RECORD_DELETION
    ) -> bool:
        """Move the log start offset up. The next check for retention deletes the segments below it."""
        if before > self.high_watermark:
            raise OffsetOutOfRange(
                f"records of {self.tp} can be deleted up to the high watermark {self.high_watermark}, not {before}"
            )
        if before <= self.log_start:
            return False
        self._move_log_start(before, reason)
        return True

    def _move_log_start(self, offset: Offset, reason: LogStartIncrementReason) -> None:
        log.debug("%s: incremented the log start offset to %d due to %s", self.tp, offset, reason.value)
        self.log_start = offset
        self.high_watermark = max(self.high_watermark, offset)
        self.recovery_point = max(self.recovery_point, offset)
        if self.epochs.truncate_from_start(offset):
            self.write_epochs()
        self.producer_state.log_start_moved(offset)
        self.snapshots.log_start_moved(offset)
        self._note_unstable()

    def delete_old_segments(self) -> DeletableSegments:
        """Delete segments below the log start offset, and those beyond the retention by size or time."""
        with self.guard("deleting old segments"):
            deletable = deletable_segments(
                list(self.segments), self.config, self.log_start, self.log_end, self.high_watermark, self.now_ms
            )
            if deletable.segments:
                self._delete(deletable)
        return deletable

    def _delete(self, deletable: DeletableSegments) -> None:
        if len(deletable.segments) == len(self.segments):
            self.roll()
        following = self.segments.above(deletable.segments[-1].base_offset)
        assert following is not None
        if following.base_offset > self.log_start:
            self._move_log_start(following.base_offset, LogStartIncrementReason.SEGMENT_DELETION)
        remove_segments(self, deletable.segments, deletable.reason, deletable.limit)

    # Truncation

    def truncate_to(self, offset: Offset) -> bool:
        """Drop all records from an offset on. True if there were any."""
        assert offset >= 0
        if offset >= self.log_end:
            if self.epochs.truncate_from_end(self.log_end):
                self.write_epochs()
            return False
        if offset < self.segments.first.base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        log.info("%s: truncating from %d to %d", self.tp, self.log_end, offset)
        with self.guard("truncating"):
            active = self.segments.floor(offset)
            assert active is not None
            active.open()  # while nothing has changed
            later = [segment for segment in self.segments if segment.base_offset > offset]
            remove_segments(self, later, SegmentDeletionReason.TRUNCATION)
            active.truncate_to(offset, self.now_ms)
            self.end_at(offset)
            if self.epochs.truncate_from_end(offset):
                self.write_epochs()
            self.log_start = min(self.log_start, offset)
            rebuild_producer_state(
                self.producer_state, self.snapshots, self.segments, self.log_start, self.log_end, self.now_ms
            )
            self._note_unstable()
        self._move_high_watermark(min(self.high_watermark, offset))
        return True

    def truncate_fully_and_start_at(self, offset: Offset, log_start: Offset | None = None) -> None:
        """Drop all records. The next one gets this offset."""
        log.info("%s: truncating fully, from [%d, %d), to start at %d", self.tp, self.log_start, self.log_end, offset)
        with self.guard("truncating fully"):
            replace_segments(self, list(self.segments), offset, SegmentDeletionReason.TRUNCATION)
            self.end_at(offset)
            self.epochs.clear()
            self.write_epochs()
            self.log_start = offset if log_start is None else log_start
            self.snapshots.remove_all()
            self.snapshots.taken_at = self.log_start
            self.producer_state.clear(offset)
            self.snapshots.take(self.producer_state, sync=True)
        self.high_watermark = offset
        self._note_unstable()

    # Topic id, settings, the end

    def assign_topic_id(self, topic_id: TopicId) -> None:
        if self.topic_id is not None:
            if self.topic_id != topic_id:
                raise InconsistentTopicId(f"{self.tp} has topic id {self.topic_id}, not {topic_id}")
            return
        self.topic_id = topic_id
        self.run_in_background(f"writing {names.PARTITION_METADATA_FILE} of", partial(self.write_topic_id, topic_id))

    def write_topic_id(self, topic_id: TopicId) -> None:
        """Blocking."""
        path = os.path.join(self.directory, names.PARTITION_METADATA_FILE)
        replace_file(self._files, path, encode_partition_metadata(topic_id))

    def update_config(self, config: LogConfig) -> None:
        self.config = config
        self._stored_unchanged = validation.is_stored_unchanged(config)

    def expire_producers(self) -> int:
        return self.producer_state.expire(self.now_ms)

    def close(self) -> None:
        """A clean stop: complete the indexes, take a snapshot at the end and flush everything. Blocking."""
        for segment in self.segments:
            segment.close()
        self.snapshots.take(self.producer_state, sync=True)
        plan = self.plan_flush(self.log_end, self.log_end + 1, None, self.flushed_to)
        if (missing := plan.run(self._files, self.context.clock).missing) is not None:
            raise missing
        self._epochs_unwritten = False
        for segment in self.segments:
            segment.release()
        self.flushed_to = self.recovery_point = self.durable_end = self.log_end


_NOTHING = ReadResult(None)
