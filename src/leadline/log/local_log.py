"""The segments of one partition on disk: how far they are flushed, and what an error of their files means for them.

    flushed to <= recovery point <= log end: records below `flushed_to` are on disk. The recovery point, as in Kafka,
    also follows the log start offset, since nothing below that is read
    durable end <= log end: below it, everything is on disk that flush.messages requires there. Records from the durable
    end on must not be acknowledged, shown to consumers or reported to a leader

One thread owns it. Work that would block that thread, such as fsync, goes to `Background` as values. Its result comes
back as a value.
"""

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, NoReturn, TypeVar

from leadline.config.topic import LogConfig
from leadline.errors import CorruptFile, ResourceExhausted, StorageError
from leadline.log import names
from leadline.log.checkpoints import EpochEntry, encode_epochs
from leadline.log.disk_thread import RETRY_MS
from leadline.log.epoch_files import EpochFile
from leadline.log.epochs import LeaderEpochs
from leadline.log.files import remove_files, replace_file, sync_file, unless_unusable
from leadline.log.log_context import LogContext
from leadline.log.open_files import OpenFile
from leadline.log.producer_snapshots import ProducerSnapshots
from leadline.log.producer_state import ProducerState
from leadline.log.segment import Segment, SegmentPath, new_segment
from leadline.log.segments import Segments
from leadline.model import Offset, TopicId, TopicPartition
from leadline.runtime.ports import Files, Job, Time, shortage

log = logging.getLogger(__name__)

T = TypeVar("T")


def _ignore_result(_: object) -> None:
    """The callback of jobs whose result is not used."""


def _do_nothing() -> None:
    """The listener of a log that has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedLog:
    """A log as the loader read it from its directory."""

    tp: TopicPartition
    directory: str
    config: LogConfig
    segments: Segments
    epochs: LeaderEpochs
    producer_state: ProducerState
    snapshots: ProducerSnapshots
    log_start: Offset
    log_end: Offset
    recovery_point: Offset
    topic_id: TopicId | None = None  # None: partition.metadata does not exist yet
    epochs_unwritten: bool = False  # their file has entries of epochs without records: the next flush writes it


@dataclass(frozen=True, slots=True)
class FlushPlan:
    """What one flush syncs, top to bottom, and how far the log is on disk afterwards."""

    up_to: Offset
    epochs: tuple[str, bytes] | None  # path and content, if the file could not be written when the epochs changed
    snapshot: str | None
    opened: tuple[OpenFile, ...]
    directory: str | None  # set if files were created or removed in it

    def run(self, files: Files, clock: Time) -> "CompletedFlush":
        began_s = clock.monotonic_s()
        missing: OSError | None = None
        if self.epochs is not None:
            try:
                replace_file(files, *self.epochs)
            except FileNotFoundError as error:
                missing = error
        if self.snapshot is not None:
            sync_file(files, self.snapshot)
        for file in self.opened:
            file.sync()
        if self.directory is not None:
            try:
                files.sync_dir(self.directory)
            except FileNotFoundError as error:
                missing = error
        return CompletedFlush(self.up_to, clock.monotonic_s() - began_s, missing)


class CompletedFlush(NamedTuple):
    up_to: Offset
    took_s: float
    missing: OSError | None  # the partition's directory was not there: it may have been renamed since the plan


class LocalLog:
    def __init__(self, loaded: LoadedLog, context: LogContext) -> None:
        self.tp, self.directory, self.config = loaded.tp, loaded.directory, loaded.config
        self.parent = _parent(loaded.directory)  # the log directory that holds the partition's directory
        self.context, self._files = context, context.files
        self.segments, self.epochs, self.snapshots = loaded.segments, loaded.epochs, loaded.snapshots
        self.log_end = self.durable_end = loaded.log_end
        self.recovery_point = self.flushed_to = loaded.recovery_point
        self.on_durable: Callable[[], None] = _do_nothing  # called when a flush has moved the durable end
        self.last_flush_ms = self.last_append_ms = context.clock.now_ms()
        self.offline = False
        self.why_offline = ""
        self.is_moving = False  # its directory is being renamed: paths may be those of a moment ago
        self.entries_changed = True  # files were created or removed since the directory was synced; unknown at first
        self._flush_due_to: Offset = 0  # flush.messages requires a flush up to here
        self._flush_requested = False  # that flush has not ended yet
        self._truncations = 0  # a flush that a truncation overtakes does not count
        self._epochs_unwritten = loaded.epochs_unwritten  # the epochs changed since their file was written

    @property
    def size(self) -> int:
        return self.segments.size

    @property
    def now_ms(self) -> int:
        return self.context.clock.now_ms()

    def run_in_background(self, doing: str, job: Callable[[], T], then: Callable[[T], None] = _ignore_result) -> None:
        """A job on the files of this log alone: one that cannot be used is the fault of no other."""
        self.context.background.run(f"{doing} {self.tp}", *self._own(doing, Job(job, then)))

    def _own(self, doing: str, job: Job) -> Job:
        return Job(partial(unless_unusable, job.run), partial(self._ended, doing, job.then))

    def _ended(self, doing: str, then: Callable[[T], None], outcome: T | OSError | CorruptFile) -> None:
        if isinstance(outcome, OSError | CorruptFile):
            self.failed(doing, outcome)
        else:
            then(outcome)

    # Failures

    @contextmanager
    def guard(self, doing: str) -> Iterator[None]:
        """Turns errors of work on the files into the failures that they mean."""
        if self.offline:
            self.refuse()
        try:
            yield
        except (OSError, CorruptFile) as error:
            self.fail(doing, error)

    def fail(self, doing: str, error: OSError | CorruptFile) -> NoReturn:
        """A shortage concerns this one attempt. Any other error takes this log or its directory offline."""
        if (lacking := shortage(error)) is not None:
            raise ResourceExhausted(f"{doing} {self.tp} failed: {lacking}") from error
        self.failed(doing, error)
        try:
            self.refuse()
        except StorageError as refusal:
            raise refusal from error

    def failed(self, doing: str, error: OSError | CorruptFile) -> None:
        """As `fail`, for what nobody waits for."""
        if not self.offline and not self._was_renamed(error):
            self.context.failed(self, doing, error)

    def _was_renamed(self, error: OSError | CorruptFile) -> bool:
        """Whether a file was not found because the directory has another name by now."""
        if not isinstance(error, FileNotFoundError):
            return False
        return self.is_moving or self.directory not in (path := str(error.filename), os.path.dirname(path))

    def warn_of(self, error: StorageError) -> None:
        """For a task that goes on with other logs. Why a log went offline is in a line of its own already."""
        if not self.offline:
            log.warning("%s", error)

    def go_offline(self, why: str) -> None:
        self.offline, self.why_offline = True, why

    def refuse(self) -> NoReturn:
        if not self.offline:
            raise StorageError(f"{self.tp} was just moved or deleted: try again")
        raise StorageError(self.why_offline)

    # Segments

    def new_segment(self, base: Offset) -> Segment:
        """If it cannot be created, no file of it is left, and the segment before it stays active."""
        path = SegmentPath(self.directory, base)
        remove_files(self._files, path.all_files())
        self.entries_changed = True
        try:
            return new_segment(self._files, path, self.config, self.now_ms, self.context.chance)
        except OSError:
            remove_files(self._files, path.all_files())
            raise

    def segment_times(self) -> list[int]:
        """When each segment was last written to."""
        with self.guard("looking up a time"):
            return [segment.last_modified_ms for segment in self.segments]

    def moved(self, directory: str) -> None:
        """The partition's directory was renamed."""
        self.directory = self.snapshots.directory = directory
        self.parent = _parent(directory)
        for segment in self.segments:
            segment.moved(directory)

    # Flushing

    def flush(self, *, active: bool = False) -> None:
        """Flush in the background. With `active`, also an active segment that starts at the log end."""
        self.flush_to(self.log_end, self.log_end + active, None, self.flushed_to)

    def flush_to(
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
            plan = self.plan_flush(up_to, segments_below, snapshot, start)
        except (OSError, CorruptFile) as error:
            if (lacking := shortage(error)) is None:
                self.fail("flushing", error)
            log.warning("flushing %s failed; retrying: %s", self.tp, lacking)
            retry = partial(self.flush_to, up_to, segments_below, snapshot, start, then)
            self.context.background.later(RETRY_MS, retry)
            return
        done = partial(self._flushed, self._truncations, then=then)
        self.run_in_background("flushing", partial(plan.run, self._files, self.context.clock), done)

    def plan_flush(self, up_to: Offset, segments_below: Offset, snapshot: str | None, start: Offset) -> FlushPlan:
        dirty = self.segments.between(start, segments_below)
        try:
            opened = tuple(file for segment in dirty for file in segment.files_to_flush())
        except (OSError, CorruptFile):
            for segment in dirty:
                segment.not_flushed()
            raise
        directory = self.directory if self.entries_changed else None
        self.entries_changed = False
        epochs = self._encoded_epochs() if self._epochs_unwritten else None
        return FlushPlan(up_to, epochs, snapshot, opened, directory)

    def _flushed(self, truncations: int, flush: CompletedFlush, then: Callable[[], None] = lambda: None) -> None:
        """A flush that a truncation overtook does not count: other records may have its offsets by now."""
        up_to = flush.up_to
        self.context.flush_times.record(flush.took_s)
        if flush.missing is not None:
            self.entries_changed = True
            self.failed("flushing", flush.missing)
        if self.offline or truncations != self._truncations:
            return
        if self.flushed_to < up_to:
            self.flushed_to, self.recovery_point = up_to, max(self.recovery_point, up_to)
            self.last_flush_ms = self.now_ms
            self._move_durable_end()
        then()

    def _move_durable_end(self) -> None:
        before = self.durable_end
        self.durable_end = self.log_end if self._flush_due_to <= self.flushed_to else max(before, self.flushed_to)
        if self.durable_end > before:
            self.on_durable()

    @property
    def awaits_flush(self) -> bool:
        """Whether a coming flush will move the durable end."""
        return self.durable_end < self.log_end and not self.offline

    def require_flush(self) -> None:
        """The last append becomes durable with a flush: one that is under way, or one that begins here."""
        if self.log_end - max(self.recovery_point, self._flush_due_to) >= self.config.flush_messages:
            self._flush_due_to = self.log_end  # Kafka's append waits for this flush, and counts from here again
            self._request_flush()

    def _request_flush(self) -> None:
        """Appends that wait for the disk share one flush. It covers everything that is appended before it begins.

        Appends during a flush wait for the next one.
        """
        if not self._flush_requested:
            self._flush_requested = True
            self.context.background.run_in_group(f"flushing {self.tp}", self._plan_due_flush)

    def _plan_due_flush(self) -> Job | None:
        if self.offline or self._flush_due_to <= self.flushed_to:
            self._flush_requested = False
            return None
        try:
            plan = self.plan_flush(self.log_end, self.log_end, None, self.flushed_to)
        except (OSError, CorruptFile) as error:
            self._flush_requested = False
            if (lacking := shortage(error)) is not None:
                log.warning("flushing %s failed; retrying: %s", self.tp, lacking)
                self.context.background.later(RETRY_MS, self._request_flush)
                return None
            self.failed("flushing", error)  # which answers the waiting appends
            return None
        run = partial(plan.run, self._files, self.context.clock)
        return self._own("flushing", Job(run, partial(self._due_flush_ended, self._truncations)))

    def _due_flush_ended(self, truncations: int, flush: CompletedFlush) -> None:
        self._flush_requested = False
        is_overtaken = truncations != self._truncations
        if self._flush_due_to > (self.flushed_to if is_overtaken else max(self.flushed_to, flush.up_to)):
            self._request_flush()  # first, so that the disk is busy while results are delivered
        self._flushed(truncations, flush)

    def lower_recovery_point(self, offset: Offset) -> bool:
        """To be made durable before a truncation: after a crash, nothing may trust the records that are rewritten."""
        lowered = offset < self.recovery_point
        self.flushed_to = min(self.flushed_to, offset)
        self.recovery_point = min(self.recovery_point, offset)
        self._truncations += 1
        return lowered

    def end_at(self, offset: Offset) -> None:
        """A truncation moved the log end."""
        self.log_end = offset
        self.lower_recovery_point(offset)
        self._flush_due_to = min(self._flush_due_to, offset)
        self.durable_end = min(self.durable_end, offset) if self._flush_due_to > self.flushed_to else offset
        self.segments.forget_positions()

    # The file of the epochs

    def write_epochs(self) -> None:
        """Called whenever they change. A later flush writes the file itself if it is not written by then."""
        self._epochs_unwritten = True
        self.context.epoch_files.write(self)

    def epoch_file(self) -> EpochFile | None:
        """The content to write; None if the file has it."""
        if not self._epochs_unwritten or self.offline:
            return None
        written = partial(self._epochs_written, list(self.epochs.entries))
        return EpochFile(*self._encoded_epochs(), partial(self._ended, f"writing {names.EPOCHS_FILE} of", written))

    def _encoded_epochs(self) -> tuple[str, bytes]:
        return os.path.join(self.directory, names.EPOCHS_FILE), encode_epochs(self.epochs.entries)

    def _epochs_written(self, entries: list[EpochEntry], _: None) -> None:
        if self.epochs.entries == entries:
            self._epochs_unwritten = False


def _parent(directory: str) -> str:
    """All logs of a log directory share the text."""
    return sys.intern(os.path.dirname(directory))
