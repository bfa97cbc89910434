"""The log of one partition: segments, epochs and producers, kept in step.

    log start <= last stable offset <= high watermark <= log end
    flushed to <= recovery point <= log end: what lies below the first is on disk; the second, as Kafka's, also follows
    the log's start, below which nothing is read
    durable end <= log end: below it, all is on disk that flush.messages wants there. What lies behind it must not be
    acknowledged, shown to consumers, or be told to a leader
    replicas agree byte for byte below the high watermark

One thread owns it. What would block it (fsync, removal) is handed to `Background` as values and comes back as a value.
"""

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import NamedTuple, NoReturn

from leadline import hash_order
from leadline.config.topic import LogConfig
from leadline.errors import (
    InconsistentTopicId,
    LogDirFailed,
    OffsetOutOfRange,
    RecordListTooLarge,
    ResourceExhausted,
    StorageError,
    UnexpectedAppendOffset,
)
from leadline.hash_order import long_hash
from leadline.log import names, validation
from leadline.log.checkpoints import EpochEntry, encode_epochs, encode_partition_metadata
from leadline.log.disk_thread import RETRY_MS
from leadline.log.epochs import EpochEnd, LeaderEpochs
from leadline.log.files import OpenFile, remove_files, replace_file, sync_file
from leadline.log.incoming import AppendInfo, replicated_batches
from leadline.log.index import TimestampOffset
from leadline.log.producer_snapshots import ProducerSnapshots
from leadline.log.producer_state import (
    TRUSTED,
    AppendOrigin,
    CompletedTxn,
    ProducerAppend,
    ProducerEntry,
    ProducerState,
    Verification,
)
from leadline.log.replay import rebuild_producers
from leadline.log.retention import DeletableSegments, deletable_segments
from leadline.log.segment import FileSlice, Segment, new_segment
from leadline.log.segments import Segments
from leadline.log.txn_index import AbortedTxn
from leadline.model import NO_TIMESTAMP, Buffer, LeaderEpoch, Offset, TopicId, TopicPartition
from leadline.records.batch import (
    LENGTH_END,
    LOG_APPEND_TIME,
    Header,
    assign,
    header_at,
    stamp_append_time,
)
from leadline.records.control import read_end_marker
from leadline.runtime.ports import Background, Clock, Files, Job, shortage
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
    """Batches from the one that holds the offset on. The last one may be cut off, as in Kafka."""

    slice: FileSlice | None
    aborted: tuple[AbortedTxn, ...] = ()
    first_incomplete: bool = False  # not even the first batch fits, and the reader did not ask for one at least


class TimestampAndOffset(NamedTuple):
    timestamp: int
    offset: Offset
    leader_epoch: LeaderEpoch | None


@dataclass(frozen=True, slots=True)
class LogContext:
    """What a log is handed to reach the world."""

    clock: Clock
    files: Files
    background: Background
    failed: Callable[[LogDirFailed], None]  # take the directory offline
    segment_flushed: Callable[[], None] = lambda: None  # a segment that was rolled is on disk: worth a checkpoint


@dataclass(frozen=True, slots=True)
class Flush:
    """What one flush syncs, top to bottom, and how far the log is on disk afterwards."""

    up_to: Offset
    epochs: tuple[str, bytes] | None  # path and content, if it could not be written when it changed
    snapshot: str | None
    opened: tuple[OpenFile, ...]
    directory: str | None  # set if files are new in it

    def run(self, files: Files) -> Offset:
        if self.epochs is not None:
            _replace_if_dir_exists(files, *self.epochs)
        if self.snapshot is not None:
            sync_file(files, self.snapshot)
        for file in self.opened:
            file.sync()
        if self.directory is not None:
            with suppress(FileNotFoundError):  # it was renamed, as whoever deletes a partition does
                files.sync_dir(self.directory)
        return self.up_to


class Log:
    def __init__(
        self,
        tp: TopicPartition,
        directory: str,
        config: LogConfig,
        world: LogContext,
        *,
        segments: Segments,
        epochs: LeaderEpochs,
        producers: ProducerState,
        snapshots: ProducerSnapshots,
        log_start: Offset,
        log_end: Offset,
        recovery_point: Offset,
        topic_id: TopicId | None = None,
    ) -> None:
        self.tp, self.directory, self.config, self.topic_id = tp, directory, config, topic_id
        self._world, self._files = world, world.files
        self.segments, self.epochs, self.producer_state, self.snapshots = segments, epochs, producers, snapshots
        self.log_start, self.log_end, self.recovery_point = log_start, log_end, recovery_point
        self.flushed_to = recovery_point
        self.durable_end = log_end
        self._flush_due_to: Offset = 0  # flush.messages asks for a flush up to here
        self._flush_requested = False  # and it has not begun yet
        self.on_durable: Callable[[], None] = _nothing  # is called when a flush has moved the durable end
        self.high_watermark = log_start
        self.last_flush_ms = world.clock.now_ms()
        self.offline = False
        self._first_unstable: Offset | None = None
        self._limit_at: tuple[Offset, Offset, int] = (-1, -1, 0)  # limit, segment base, position: see _end_position
        self._plain_from = _plain_from(config)
        self._truncations = 0  # so that a flush that one overtook is known
        self._epochs_unwritten = False  # in the file, since they changed
        self._entries_changed = True  # files came or went since the directory was synced; at first, who knows
        self._note_unstable()

    def __repr__(self) -> str:
        return f"Log({self.tp} in {self.parent}, [{self.log_start}, {self.log_end}))"

    @property
    def parent(self) -> str:
        """The log directory it lies in."""
        return os.path.dirname(self.directory)

    @property
    def size(self) -> int:
        return self.segments.size

    @property
    def last_stable_offset(self) -> Offset:
        first = self._first_unstable
        return first if first is not None and first < self.high_watermark else self.high_watermark

    # Appending

    def begin_epoch(self, epoch: LeaderEpoch) -> None:
        """As a new leader does: what is appended from now on is of its epoch."""
        if self.epochs.assign(epoch, self.log_end):
            self._write_epochs()

    def append_as_leader(
        self,
        data: Buffer,
        leader_epoch: LeaderEpoch,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        verified: Verification | None = TRUSTED,
        recent: RecentAppends | None = None,
    ) -> AppendResult:
        """One batch from a producer: checked, given its offset and this leader's epoch, in place if it can be.

        `verified`: none or one that is over, and it must not open a transaction. `recent`: where to keep it, too.
        """
        now_ms = self._world.clock.now_ms()
        header = validation.one_batch(data, self.config, origin, self.tp)
        size = LENGTH_END + header.length
        batch = bytearray(data[:size]) if isinstance(data, bytes) else data if len(data) == size else data[:size]
        append_time = NO_TIMESTAMP
        if origin not in self._plain_from or header.attributes & LOG_APPEND_TIME:
            batch, header = self._as_settings_want(batch, header, origin, now_ms)
            append_time = now_ms if self.config.log_append_time else NO_TIMESTAMP
        first = self.log_end
        assign(batch, 0, first, leader_epoch)
        last = first + header.last_offset_delta
        due = None if header.producer_id < 0 else self.producer_state.next_in_sequence(header)
        if due is not None or header.producer_id < 0:
            appended = self._append_plain(batch, header, due, leader_epoch, now_ms, append_time)
        else:
            newest, stateful = TimestampOffset(header.max_timestamp, last), [(0, header_at(batch))]
            incoming = AppendInfo(batch, first, last, newest, ((leader_epoch, first),), stateful)
            appended = self._append(incoming, origin, now_ms, append_time, verified)
        if recent is not None and not appended.duplicate:
            recent.add(self, first, last + 1, batch)
        return appended

    def _as_settings_want(
        self, batch: bytearray | memoryview, header: Header, origin: AppendOrigin, now_ms: int
    ) -> tuple[bytearray | memoryview, Header]:
        """What few topics ask for: a look at the records, another codec, the broker's time."""
        config, tp = self.config, self.tp
        if origin is AppendOrigin.CLIENT:
            header = validation.with_own_time(batch, header, config, tp)
        if origin is not AppendOrigin.COORDINATOR and validation.looks_inside(config):  # whose records all have keys
            validation.check_records(batch, header, config, tp, now_ms)
        batch = validation.with_codec(batch, header, config, tp)
        if config.log_append_time:
            stamp_append_time(batch, 0, len(batch), now_ms)
        return batch, header_at(batch)

    def append_as_follower(self, data: Buffer) -> AppendResult | None:
        """Batches as the leader has them, offsets and epochs kept. None if there is not one whole batch."""
        incoming = replicated_batches(data, self.tp)
        if incoming is None:
            return None
        if incoming.first_offset < self.log_end:
            raise UnexpectedAppendOffset(
                f"records from offset {incoming.first_offset} on came for {self.tp}, which ends at {self.log_end}",
                incoming.first_offset,
                incoming.last_offset,
            )
        return self._append(incoming, AppendOrigin.REPLICATION, self._world.clock.now_ms(), NO_TIMESTAMP)

    def _append_plain(
        self,
        batch: bytearray | memoryview,
        header: Header,
        due: ProducerEntry | None,
        epoch: LeaderEpoch,
        now_ms: int,
        append_time_ms: int,
    ) -> AppendResult:
        """A batch of no producer in particular, or of one from whom it is `due`: nothing is to be found out first."""
        if self.offline:
            self._refuse()
        first, timestamp = self.log_end, header.max_timestamp
        last = first + header.last_offset_delta
        try:
            self._note_epoch(epoch, first)
            self._room_for(len(batch), first, last, timestamp, now_ms).append(batch, last, timestamp, last)
        except OSError as error:
            self._fail("appending", error)
        if due is not None:
            due.add_batch(header.base_sequence, last, header.last_offset_delta, timestamp)
        self.log_end = self.producer_state.end_offset = last + 1
        self._flush_as_due()
        return AppendResult(first, last, append_time_ms)

    def _note_epoch(self, epoch: LeaderEpoch, start: Offset) -> None:
        if epoch >= 0 and self.epochs.assign(epoch, start):
            self._write_epochs()

    def _room_for(self, size: int, first: Offset, last: Offset, timestamp: int, now_ms: int) -> Segment:
        """The segment that takes so many bytes."""
        segment, config = self.segments.active, self.config
        if not segment.should_roll(size, last, timestamp, config, now_ms):
            return segment
        if size > config.segment_bytes:
            raise RecordListTooLarge(f"{size} bytes for {self.tp} exceed segment.bytes={config.segment_bytes}")
        return self.roll(first)

    def _flush_as_due(self) -> None:
        """After an append. Records that need no flush are durable now, unless others before them wait for one."""
        if self.log_end - self.recovery_point < self.config.flush_messages and self._flush_due_to <= self.flushed_to:
            self.durable_end = self.log_end
        elif self.log_end - max(self.recovery_point, self._flush_due_to) >= self.config.flush_messages:
            self._flush_due_to = self.log_end  # Kafka's append waits for it, and it counts anew from here
            self._request_flush()

    def _append(
        self,
        incoming: AppendInfo,
        origin: AppendOrigin,
        now_ms: int,
        append_time_ms: int,
        verified: Verification | None = TRUSTED,
    ) -> AppendResult:
        if self.offline:
            self._refuse()
        last, timestamp = incoming.last_offset, incoming.newest.timestamp
        try:
            for epoch, start in incoming.epochs:
                self._note_epoch(epoch, start)
            segment = self._room_for(len(incoming.data), incoming.first_offset, last, timestamp, now_ms)
            updates: tuple[list[ProducerAppend], list[CompletedTxn]] | None = None
            due: ProducerEntry | None = None
            if incoming.stateful:
                header = incoming.stateful[0][1]
                due = self.producer_state.next_in_sequence(header) if len(incoming.stateful) == 1 else None
                if due is None:
                    if origin is AppendOrigin.CLIENT and (repeated := self._duplicate(header)) is not None:
                        return repeated
                    updates = self._validate_producers(incoming, origin, verified)
            segment.append(incoming.data, last, *incoming.newest)
            self.log_end = last + 1
            if due is not None:
                due.add_batch(header.base_sequence, header.last_offset, header.last_offset_delta, header.max_timestamp)
            elif updates is not None:
                self._update_producers(segment, *updates)
            self.producer_state.end_offset = self.log_end
        except OSError as error:
            self._fail("appending", error)
        self._flush_as_due()
        return AppendResult(incoming.first_offset, incoming.last_offset, append_time_ms)

    def _duplicate(self, header: Header) -> AppendResult | None:
        known = self.producer_state.by_id.get(header.producer_id)
        batch = known.duplicate_of(header) if known is not None else None
        return None if batch is None else AppendResult(batch.first_offset, batch.last_offset, batch.timestamp, True)

    def _validate_producers(
        self, incoming: AppendInfo, origin: AppendOrigin, verified: Verification | None
    ) -> tuple[list[ProducerAppend], list[CompletedTxn]]:
        pendings: dict[int, ProducerAppend] = {}
        completed: list[CompletedTxn] = []
        for position, header in incoming.stateful:
            producer_id = header.producer_id
            self.producer_state.check_verified(header, verified)
            pending = pendings.get(producer_id)
            if pending is None:
                pending = pendings[producer_id] = self.producer_state.prepare(producer_id, origin)
            if not header.is_control:
                pending.append(header)
            elif (marker := read_end_marker(incoming.data, position, header)) is not None:
                done = pending.end_txn(marker, header.producer_epoch, header.base_offset)
                if done is not None:
                    completed.append(done)
        return [pendings[producer_id] for producer_id in hash_order.mutable(pendings, long_hash)], completed

    def _update_producers(
        self, segment: Segment, pendings: Iterable[ProducerAppend], completed: Iterable[CompletedTxn]
    ) -> None:
        for pending in pendings:
            self.producer_state.update(pending)
        for done in completed:
            if done.aborted:
                segment.txn_index.append(self.producer_state.aborted_entry(done))
                self._entries_changed = True  # the first one makes the file
            self.producer_state.complete(done)
        self._note_unstable()

    def _note_unstable(self) -> None:
        first = self.producer_state.first_unstable_offset()
        self._first_unstable = None if first is None else max(first, self.log_start)

    def roll(self, at_least: Offset = 0) -> Segment:
        """Start a new segment. The old one is completed, and flushed in the background."""
        base = max(at_least, self.log_end)
        old = self.segments.active
        with self._disk("rolling a segment"):
            if base in self.segments:
                if old.base_offset != base or old.size:
                    raise AssertionError(f"{self}: a segment at {base} exists already: {old}")
                self._replace([old], base, "it was still empty when the next one was due")
            else:
                old.seal()
                self.segments.add(self._new_segment(base))
            self.producer_state.end_offset = base
            snapshot = self.snapshots.take(self.producer_state, sync=False)
            start = min(self.flushed_to, old.base_offset)  # its indexes just changed
            self._flush_to(base, base, snapshot, start, self._world.segment_flushed)
        log.debug("%s: rolled a new segment at offset %d", self.tp, base)
        return self.segments.active

    def _new_segment(self, base: Offset) -> Segment:
        """If it cannot be made, nothing is left of it: the one before goes on, and no file may say otherwise."""
        paths = [os.path.join(self.directory, names.file_name(base, kind)) for kind in _ROLLED]
        remove_files(self._files, paths)
        self._entries_changed = True
        try:
            return new_segment(self._files, self.directory, base, self.config, self._world.clock.now_ms())
        except OSError:
            remove_files(self._files, paths)
            raise

    def _replace(self, gone: Sequence[Segment], base: Offset, why: str) -> None:
        """An empty segment takes the place of others. If it cannot be made, they stay."""
        self._rename_away(gone, why)
        try:
            self.segments.add(self._new_segment(base))
        except OSError:
            for segment in gone:
                segment.rename("")
                self.segments.add(segment)
            raise
        self._remove_later(gone, [])

    # Reading

    def read(
        self,
        offset: Offset,
        max_bytes: int,
        isolation: Isolation = Isolation.HIGH_WATERMARK,
        *,
        min_one: bool = True,
    ) -> ReadResult:
        """From the batch that holds an offset on, as far as the reader may see and at most max_bytes.

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
            segment = self.segments.floor(offset)
            while segment is not None:
                place = segment.find(offset)
                if place is not None:
                    break
                segment = self.segments.above(segment.base_offset)  # compaction left nothing here
            else:
                return _NOTHING
            wanted = max(max_bytes, place.size) if min_one else max_bytes
            length = min(self._end_position(segment, limit) - place.position, wanted)
            if length <= 0:
                return _NOTHING
            aborted: tuple[AbortedTxn, ...] = ()
            if isolation is Isolation.COMMITTED:
                end = segment.offset_index.first_at_or_behind(place.position + length)
                aborted = self._aborted(segment, offset, self._end_of(segment) if end is None else end)
            file = segment.file
        except OSError as error:
            self._fail("reading", error)
        return ReadResult(FileSlice(file, place.position, length), aborted, wanted < place.size)

    def limit(self, isolation: Isolation) -> Offset:
        if isolation is Isolation.HIGH_WATERMARK:
            return self.high_watermark
        return self.log_end if isolation is Isolation.LOG_END else self.last_stable_offset

    def _end_of(self, segment: Segment) -> Offset:
        above = self.segments.above(segment.base_offset)
        return self.log_end if above is None else above.base_offset

    def _end_position(self, segment: Segment, limit: Offset) -> int:
        """Where in a segment a limit lies."""
        if limit >= self._end_of(segment):
            return segment.size
        known, base, position = self._limit_at
        if known != limit or base != segment.base_offset:
            place = segment.find(limit)
            position = segment.size if place is None else place.position
            self._limit_at = (limit, segment.base_offset, position)
        return position

    def aborted_between(self, start: Offset, end: Offset) -> tuple[AbortedTxn, ...]:
        segment = self.segments.floor(start)
        return self._aborted(segment, start, end) if segment is not None else ()

    def _aborted(self, segment: Segment | None, start: Offset, end: Offset) -> tuple[AbortedTxn, ...]:
        found: list[AbortedTxn] = []
        while segment is not None:
            more, complete = segment.txn_index.between(start, end)
            found += more
            if complete:
                break
            segment = self.segments.above(segment.base_offset)
        return tuple(found)

    def offset_for_time(self, timestamp: int) -> TimestampAndOffset | None:
        """The first record that is not older than a time; or one of the special offsets."""
        if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
            earliest = self.epochs.earliest
            known = earliest is not None and earliest.start_offset <= self.log_start
            return TimestampAndOffset(NO_TIMESTAMP, self.log_start, earliest.epoch if known and earliest else None)
        if timestamp == LATEST_TIMESTAMP:
            latest = self.epochs.latest
            return TimestampAndOffset(NO_TIMESTAMP, self.log_end, latest.epoch if latest else None)
        with self._disk("looking up a time"):
            if timestamp == MAX_TIMESTAMP:
                found = max(self.segments, key=lambda segment: segment.newest.timestamp).offset_of_newest()
            else:
                late = (segment for segment in self.segments if segment.largest_timestamp >= timestamp)
                segment = next(late, None)
                found = segment.offset_for_time(timestamp, self.log_start) if segment else None
        if found is None:
            return None
        (time, offset), epoch = found
        return TimestampAndOffset(time, offset, epoch if epoch >= 0 else None)

    def segment_times(self) -> list[int]:
        """When each segment was last written to."""
        with self._disk("looking up a time"):
            return [segment.last_modified_ms for segment in self.segments]

    def end_of_epoch(self, epoch: LeaderEpoch) -> EpochEnd | None:
        return self.epochs.end_of(epoch, self.log_end)

    # High watermark and log start

    def advance_high_watermark(self, offset: Offset) -> bool:
        """As the leader does: it only ever goes up."""
        assert offset <= self.log_end, f"high watermark {offset} beyond the end of {self}"
        return offset > self.high_watermark and self._move_high_watermark(offset)

    def set_high_watermark(self, offset: Offset) -> bool:
        """As a follower does after its leader: within what the log holds. True if it changed."""
        offset = min(max(offset, self.log_start), self.log_end)
        return offset != self.high_watermark and self._move_high_watermark(offset)

    def _move_high_watermark(self, offset: Offset) -> bool:
        self.high_watermark = offset
        if self.producer_state.high_watermark_moved(offset):
            self._note_unstable()
        return True

    def delete_records(self, before: Offset) -> bool:
        """Move the log's start up. Segments that lie below it go with the next look for old ones."""
        if before > self.high_watermark:
            raise OffsetOutOfRange(
                f"records of {self.tp} can be deleted up to the high watermark {self.high_watermark}, not {before}"
            )
        if before <= self.log_start:
            return False
        self._move_log_start(before)
        return True

    def _move_log_start(self, offset: Offset) -> None:
        self.log_start = offset
        self.high_watermark = max(self.high_watermark, offset)
        self.recovery_point = max(self.recovery_point, offset)
        if self.epochs.truncate_from_start(offset):
            self._write_epochs()
        self.producer_state.log_start_moved(offset)
        self.snapshots.log_start_moved(offset)
        self._note_unstable()

    # Truncation

    def lower_recovery_point(self, offset: Offset) -> bool:
        """Before a truncation, so that it can be made durable first: a crash must not trust what is written anew."""
        lowered = offset < self.recovery_point
        self._lower_flushed(offset)
        return lowered

    def _lower_flushed(self, offset: Offset) -> None:
        self.flushed_to = min(self.flushed_to, offset)
        self.recovery_point = min(self.recovery_point, offset)
        self._truncations += 1

    def truncate_to(self, offset: Offset) -> bool:
        """Drop all records from an offset on. True if there were any."""
        assert offset >= 0
        if offset >= self.log_end:
            if self.epochs.truncate_from_end(self.log_end):
                self._write_epochs()
            return False
        if offset < self.segments.first.base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        log.info("%s: truncating from %d to %d", self.tp, self.log_end, offset)
        with self._disk("truncating"):
            kept = self.segments.floor(offset)
            assert kept is not None
            kept.open()  # while nothing has changed
            self._remove_segments([s for s in self.segments if s.base_offset > offset], "truncated")
            self.segments.active.truncate_to(offset, self._world.clock.now_ms())
            self._ends_at(offset)
            if self.epochs.truncate_from_end(offset):
                self._write_epochs()
            self.log_start = min(self.log_start, offset)
            self._rebuild_producers()
        self._move_high_watermark(min(self.high_watermark, offset))
        return True

    def truncate_fully_and_start_at(self, offset: Offset, log_start: Offset | None = None) -> None:
        """Drop everything; the next record gets this offset."""
        log.info("%s: truncating fully, from [%d, %d), to start at %d", self.tp, self.log_start, self.log_end, offset)
        with self._disk("truncating fully"):
            self._replace(list(self.segments), offset, "truncated")
            self._ends_at(offset)
            self.epochs.clear()
            self._write_epochs()
            self.log_start = offset if log_start is None else log_start
            self.snapshots.remove_all()
            self.snapshots.taken_at = self.log_start
            self.producer_state.clear(offset)
            self.snapshots.take(self.producer_state, sync=True)
        self.high_watermark = offset
        self._note_unstable()

    def _ends_at(self, offset: Offset) -> None:
        self.log_end = offset
        self._lower_flushed(offset)
        self._flush_due_to = min(self._flush_due_to, offset)
        self.durable_end = min(self.durable_end, offset) if self._flush_due_to > self.flushed_to else offset
        self._limit_at = (-1, -1, 0)

    def _rebuild_producers(self) -> None:
        rebuild_producers(
            self.segments, self.producer_state, self.snapshots, self.log_start, self.log_end, self._world.clock.now_ms()
        )
        self._note_unstable()

    # Flushing

    def flush(self, *, active: bool = False) -> None:
        """Bring the log to disk, in the background. With `active`: also a segment that starts at its very end."""
        self._flush_to(self.log_end, self.log_end + active, None, self.flushed_to)

    def _flush_to(
        self,
        up_to: Offset,
        segments_below: Offset,
        snapshot: str | None,
        start: Offset,
        then: Callable[[], None] = lambda: None,
    ) -> None:
        if segments_below <= start:
            return
        try:
            flush = self._plan_flush(up_to, segments_below, snapshot, start)
        except OSError as error:
            if (lacking := shortage(error)) is None:
                self._fail("flushing", error)
            log.warning("flushing %s failed and is tried again: %s", self.tp, lacking)
            self._world.background.later(
                RETRY_MS, partial(self._flush_to, up_to, segments_below, snapshot, start, then)
            )
            return
        done = partial(self._flushed, self._truncations, then=then)
        self._world.background.run(f"flushing {self.tp}", partial(flush.run, self._files), done)

    def _plan_flush(self, up_to: Offset, segments_below: Offset, snapshot: str | None, start: Offset) -> Flush:
        dirty = self.segments.between(start, segments_below)
        try:
            opened = tuple(file for segment in dirty for file in segment.files_to_flush())
        except OSError:
            for segment in dirty:
                segment.not_flushed()
            raise
        directory = self.directory if self._entries_changed else None
        self._entries_changed = False
        epochs = self._encoded_epochs() if self._epochs_unwritten else None
        return Flush(up_to, epochs, snapshot, opened, directory)

    def _flushed(self, truncations: int, up_to: Offset, then: Callable[[], None] = lambda: None) -> None:
        """If a truncation overtook it, other records may stand at its offsets by now: it does not count."""
        if self.offline or truncations != self._truncations:
            return
        if self.flushed_to < up_to:
            self.flushed_to, self.recovery_point = up_to, max(self.recovery_point, up_to)
            self.last_flush_ms = self._world.clock.now_ms()
            self._move_durable_end()
        then()

    def _move_durable_end(self) -> None:
        before = self.durable_end
        self.durable_end = self.log_end if self._flush_due_to <= self.flushed_to else max(before, self.flushed_to)
        if self.durable_end > before:
            self.on_durable()

    @property
    def awaits_flush(self) -> bool:
        """Whether records lie behind the durable end, and will not for ever."""
        return self.durable_end < self.log_end and not self.offline

    def _request_flush(self) -> None:
        """Those who wait for the disk share one flush: it covers all that is appended by the time it begins."""
        if not self._flush_requested:
            self._flush_requested = True
            self._world.background.run_in_group(f"flushing {self.tp}", self._plan_due_flush)

    def _plan_due_flush(self) -> Job | None:
        self._flush_requested = False
        if self.offline or self._flush_due_to <= self.flushed_to:
            return None
        try:
            flush = self._plan_flush(self.log_end, self.log_end, None, self.flushed_to)
        except OSError as error:
            if (lacking := shortage(error)) is not None:
                log.warning("flushing %s failed and is tried again: %s", self.tp, lacking)
                self._world.background.later(RETRY_MS, self._request_flush)
                return None
            with suppress(StorageError):  # those who wait are told by the failure of the directory
                self._fail("flushing", error)
            return None
        return Job(partial(flush.run, self._files), partial(self._due_flush_ended, self._truncations))

    def _due_flush_ended(self, truncations: int, up_to: Offset) -> None:
        self._flushed(truncations, up_to)
        if truncations != self._truncations and self._flush_due_to > self.flushed_to:
            self._request_flush()

    def _write_epochs(self) -> None:
        """At once, whenever they change; in order, as Background keeps it, and so before any later flush."""
        self._epochs_unwritten = True
        job = partial(_replace_if_dir_exists, self._files, *self._encoded_epochs())
        written = partial(self._epochs_written, list(self.epochs.entries))
        doing = f"writing {names.EPOCHS_FILE} of {self.tp}"
        self._world.background.run(doing, job, written, short=self._write_epochs)

    def _encoded_epochs(self) -> tuple[str, bytes]:
        return os.path.join(self.directory, names.EPOCHS_FILE), encode_epochs(self.epochs.entries)

    def _epochs_written(self, entries: list[EpochEntry], _: None) -> None:
        if self.epochs.entries == entries:
            self._epochs_unwritten = False

    def assign_topic_id(self, topic_id: TopicId) -> None:
        if self.topic_id is not None:
            if self.topic_id != topic_id:
                raise InconsistentTopicId(f"{self.tp} has topic id {self.topic_id}, not {topic_id}")
            return
        self.topic_id = topic_id
        job = partial(self.write_topic_id, topic_id)
        self._world.background.run(f"writing {names.PARTITION_METADATA_FILE} of {self.tp}", job, _ignore)

    def write_topic_id(self, topic_id: TopicId) -> None:
        """Blocks."""
        path = os.path.join(self.directory, names.PARTITION_METADATA_FILE)
        _replace_if_dir_exists(self._files, path, encode_partition_metadata(topic_id))

    # Getting rid of segments

    def delete_old_segments(self) -> DeletableSegments:
        """What retention wants gone, by the log's start, by size and by time."""
        with self._disk("deleting old segments"):
            doomed = deletable_segments(
                list(self.segments), self.config, self.log_start, self.log_end, self.high_watermark,
                self._world.clock.now_ms(),
            )  # fmt: skip
            if doomed.segments:
                self._delete(doomed)
        return doomed

    def _delete(self, doomed: DeletableSegments) -> None:
        if len(doomed.segments) == len(self.segments):
            self.roll()
        behind = self.segments.above(doomed.segments[-1].base_offset)
        assert behind is not None
        if behind.base_offset > self.log_start:
            self._move_log_start(behind.base_offset)
        self._remove_segments(doomed.segments, doomed.reason)

    def _remove_segments(self, gone: Sequence[Segment], why: str) -> None:
        """Rename away, remove later: a reader may still be at it, and a person may have meant something else."""
        if gone:
            self._rename_away(gone, why)
            self._remove_later(gone, self._mark_snapshots(gone))

    def _rename_away(self, gone: Sequence[Segment], why: str) -> None:
        log.info("%s: deleting %d segments from offset %d on: %s", self.tp, len(gone), gone[0].base_offset, why)
        for segment in gone:
            self.segments.remove(segment.base_offset)
            segment.rename(names.DELETED)
        self._limit_at, self._entries_changed = (-1, -1, 0), True

    def _mark_snapshots(self, gone: Iterable[Segment]) -> list[str]:
        marked = (self.snapshots.mark_deleted(segment.base_offset) for segment in gone)
        return [path for path in marked if path is not None]

    def _remove_later(self, gone: Sequence[Segment], snapshots: Sequence[str]) -> None:
        def remove() -> None:
            """Where they lie now: the directory may have been renamed meanwhile."""
            paths = [path for segment in gone for path in segment.all_paths()]
            paths += [os.path.join(self.directory, os.path.basename(path)) for path in snapshots]
            job = partial(remove_files, self._files, paths)
            self._world.background.run(f"removing segments of {self.tp}", job, _ignore)

        for segment in gone:
            segment.release()
        self._world.background.later(self.config.file_delete_delay_ms, remove)

    def cleaned_segment(self, base: Offset) -> Segment:
        """What compaction has made."""
        with self._disk("opening a compacted segment of"):
            now_ms = self._world.clock.now_ms()
            return Segment(self._files, self.directory, base, self.config, now_ms=now_ms, suffix=names.CLEANED)

    def ready_to_swap(self, new: Segment) -> None:
        """A compacted segment is complete: with this rename, once it is durable, a crash keeps it and not the old.

        `.cleaned` is void after a crash, `.swap` is good. To be followed by a sync of the directory and `swap_in`.
        """
        with self._disk("swapping in a compacted segment"):
            new.rename(names.SWAP)

    def swap_in(self, new: Segment, old: Sequence[Segment]) -> None:
        """Put a compacted segment in the place of those it was made of. To be followed by a sync and `swapped_in`."""
        with self._disk("swapping in a compacted segment"):
            self._rename_away(old, "they were compacted")
            self.segments.add(new)
        self._remove_later(old, self._mark_snapshots(old[1:]))

    def swapped_in(self, new: Segment) -> None:
        """The old ones are gone for good: only now may the new one lose the suffix by which a crash knows it."""
        with self._disk("swapping in a compacted segment"):
            if new.suffix == names.SWAP:  # not deleted meanwhile
                new.rename("")

    # Settings, producers, the end

    def update_config(self, config: LogConfig) -> None:
        self.config = config
        self._plain_from = _plain_from(config)

    def expire_producers(self) -> int:
        return self.producer_state.expire(self._world.clock.now_ms())

    def moved(self, directory: str) -> None:
        """Its directory was renamed."""
        self.directory = self.snapshots.directory = directory
        for segment in self.segments:
            segment.moved(directory)

    def close(self) -> None:
        """At a clean stop: indexes complete, a snapshot at the end, all of it on disk. Blocks: not for the loop."""
        for segment in self.segments:
            segment.close()
        self.snapshots.take(self.producer_state, sync=True)
        self._plan_flush(self.log_end, self.log_end + 1, None, self.flushed_to).run(self._files)
        self.flushed_to = self.recovery_point = self.durable_end = self.log_end

    @contextmanager
    def _disk(self, doing: str) -> Iterator[None]:
        if self.offline:
            self._refuse()
        try:
            yield
        except OSError as error:
            self._fail(doing, error)

    def _fail(self, doing: str, error: OSError) -> NoReturn:
        """The directory goes offline by what is the disk's fault; any other error is of this one attempt."""
        if (lacking := shortage(error)) is not None:
            raise ResourceExhausted(f"{doing} {self.tp} failed: {lacking}") from error
        if isinstance(error, FileNotFoundError) and not self._files.exists(self.directory):
            raise StorageError(f"{self.tp} was just moved or deleted: try again") from error
        failure = LogDirFailed(self.parent, f"{doing} {self.tp}", error)
        self.offline = True
        self._world.failed(failure)
        raise StorageError(str(failure)) from error

    def _refuse(self) -> NoReturn:
        raise StorageError(f"{self.tp} is offline: its log directory {self.parent} failed")


_NOTHING = ReadResult(None)
_ROLLED = names.SEGMENT_SUFFIXES


def _replace_if_dir_exists(files: Files, path: str, data: bytes) -> None:
    try:
        replace_file(files, path, data)
    except FileNotFoundError:
        log.info("%s was not written: its partition is being deleted", path)


def _plain_from(config: LogConfig) -> tuple[AppendOrigin, ...]:
    """Whose batches are stored just as they come."""
    return tuple(
        origin for origin in (AppendOrigin.CLIENT, AppendOrigin.COORDINATOR) if validation.is_plain(config, origin)
    )


def _nothing() -> None:
    """Where nobody listens."""


def _ignore(_: object) -> None:
    """For jobs whose end is nobody's concern."""
