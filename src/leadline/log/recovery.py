"""Opening the log of a partition. After a clean stop only its end is read; after a crash, everything not flushed.

The steps, in order. Leftovers of interrupted work are resolved: .deleted and .cleaned files go, .swap files take their
place. Segments are opened, and one whose indexes are missing or wrong is recovered. After a crash every segment from
the recovery point on is recovered. Epochs are truncated to what the log holds. The producer state is rebuilt from the
newest snapshot and the log after it.

The recovery of a segment reads it whole, checks every CRC, rebuilds its indexes and truncates it at the first byte that
is not part of a valid batch. Later segments are removed, too: an offset after a gap was never acknowledged as flushed.
The end of a segment may also be lost as if it had never been written. A gap shows that, unless compaction may have left
the gap. What is removed is counted and kept beside the log (`removed_data`).

Segments below the recovery point were flushed: they are not read. If there is a gap all the same, a segment was removed
by hand. The log reports it and keeps all others, as Kafka does.

    recovering twice equals recovering once
    no record below the recovery point is removed
"""

import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from leadline.config.topic import LogConfig
from leadline.errors import CorruptFile, WireError
from leadline.log import names
from leadline.log.checkpoints import EpochEntry, encode_epochs, read_epochs, read_partition_metadata
from leadline.log.epochs import LeaderEpochs
from leadline.log.files import remove_files, replace_file, unusable_file, write_file
from leadline.log.local_log import LoadedLog
from leadline.log.log import Log
from leadline.log.log_context import LogContext
from leadline.log.producer_snapshots import ProducerSnapshots, rebuild_producer_state
from leadline.log.producer_state import ProducerState
from leadline.log.removed_data import RemovedData
from leadline.log.segment import Segment, SegmentPath, new_segment
from leadline.log.segment_scan import Progress, scan_segment
from leadline.log.segments import Segments
from leadline.model import Offset, TopicPartition
from leadline.records.batch import HEADER_BYTES
from leadline.runtime.ports import Files

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Opening:
    """What the loader knows of a log before it opens it."""

    tp: TopicPartition
    directory: str
    config: LogConfig
    clean: bool  # the last stop flushed everything
    recovery_point: Offset = 0
    log_start: Offset = 0
    producer_expiration_ms: int = 86_400_000
    contiguous: bool = False  # never compacted: segments follow each other without a gap
    knows_recovery_point: bool = True  # False: its checkpoint was lost, so flushed segments may have a gap


def open_log(opening: Opening, context: LogContext, progress: Progress = lambda _: None) -> Log:
    """Blocking; call it from a thread. OSError: the disk failed. CorruptFile: this log cannot be opened."""
    try:
        return _Loader(opening, context, progress).load()
    except WireError as error:  # the error that a client would get for such records
        raise CorruptFile(opening.directory, 0, f"a batch in it cannot be read: {error}") from error
    except OSError as error:
        if (unusable := unusable_file(error, opening.directory)) is None:
            raise
        raise unusable from error


class _Loader:
    def __init__(self, opening: Opening, context: LogContext, progress: Progress) -> None:
        self.opening, self.context, self.progress = opening, context, progress
        self.files, self.directory, self.config = context.files, opening.directory, opening.config
        self.now_ms = context.clock.now_ms()
        self.segments = Segments()
        self.has_recovered = False  # a segment; so there may be other files than there were
        self.epochs = LeaderEpochs()
        self.log_start = opening.log_start
        self.removal = RemovedData(self.files, self.directory, self.now_ms)

    def load(self) -> Log:
        opening, files = self.opening, self.files
        listing = files.listdir(self.directory)
        topic_id = read_partition_metadata(files, self._path(names.PARTITION_METADATA_FILE))  # before anything changes
        listing = resolve_leftovers(files, self.directory, listing)
        self.snapshots = ProducerSnapshots(files, self.directory, listing)
        stored = self._read_epochs()
        self._open_segments(listing, recovering_from=1 << 63 if opening.clean else opening.recovery_point)
        if not opening.clean:
            self._recover_unflushed()
        log_end = self._log_end()
        self.segments.active.create_indexes()
        self._rebuild_epochs(thoroughly=stored is None)
        log_start = max(self.log_start, self.segments.first.base_offset)
        self.epochs.truncate_from_start(log_start)
        self.epochs.truncate_from_end(log_end)
        entries = self.epochs.entries
        # An election without a record since leaves an epoch at the log's end, in every idle partition.
        is_shorter = stored is not None and len(entries) < len(stored) and entries == stored[: len(entries)]
        epochs_unwritten = opening.clean and is_shorter
        if entries != stored and not epochs_unwritten:
            replace_file(files, self._path(names.EPOCHS_FILE), encode_epochs(entries))
        if self.has_recovered:
            self.snapshots = ProducerSnapshots(files, self.directory)
        self.snapshots.remove_strays(self.segments.bases)
        producers = self._new_producer_state()
        if opening.clean and log_start == log_end and self.snapshots.latest is None:
            self._snapshot_empty_state(producers, log_end)
        else:
            rebuild_producer_state(producers, self.snapshots, self.segments, log_start, log_end, self.now_ms)
        self._report_lost_end(log_end)
        for segment in self.segments:
            segment.release()
        recovery_point = log_end if opening.clean else max(min(opening.recovery_point, log_end), log_start)
        loaded = LoadedLog(
            tp=opening.tp,
            directory=self.directory,
            config=self.config,
            segments=self.segments,
            epochs=self.epochs,
            producer_state=producers,
            snapshots=self.snapshots,
            log_start=log_start,
            log_end=log_end,
            recovery_point=recovery_point,
            topic_id=topic_id,
            epochs_unwritten=epochs_unwritten,
        )
        return Log(loaded, self.context)

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def _new_producer_state(self) -> ProducerState:
        return ProducerState(self.opening.tp, self.opening.producer_expiration_ms)

    def _snapshot_empty_state(self, producers: ProducerState, log_end: Offset) -> None:
        """The log and the state are empty: take the snapshots that a later truncation may look for, as Kafka does."""
        for offset in (*self.segments.bases[-2:], log_end):
            producers.end_offset = offset
            self.snapshots.take(producers, sync=True)

    def _read_epochs(self) -> list[EpochEntry] | None:
        """The entries of the file. None if it is damaged: the batches have their epochs, too."""
        path = self._path(names.EPOCHS_FILE)
        try:
            stored = read_epochs(self.files, path)
        except CorruptFile as error:
            log.warning("%s; rebuilding the epochs from the log", error)
            return None
        if not stored and not self.files.exists(path):
            write_file(self.files, path, b"", sync=False)
        self.epochs = LeaderEpochs(stored)
        return stored

    def _open_segments(self, listing: Iterable[str], recovering_from: Offset) -> None:
        segment_files = {parsed for name in listing if (parsed := names.parse_file_name(name))}
        bases = sorted(base for base, kind, suffix in segment_files if (kind, suffix) == (names.LOG, ""))
        for base, kind, suffix in segment_files:
            if base not in bases and kind in names.SEGMENT_SUFFIXES and not suffix:
                log.warning("%s: an index without its log file is removed", self._path(names.file_name(base, kind)))
                remove_files(self.files, [self._path(names.file_name(base, kind))])
        for base, end in zip(bases, [*bases, 1 << 63][1:], strict=True):
            segment = Segment(self.files, SegmentPath(self.directory, base), self.config, now_ms=self.now_ms)
            if (base, names.TXN_INDEX, "") not in segment_files:
                segment.txn_index.none_exists()
            if end <= recovering_from:  # later ones are read whole anyway
                indexed = segment.size == 0 or {(base, names.INDEX, ""), (base, names.TIME_INDEX, "")} <= segment_files
                if damage := _index_damage(segment) if indexed else "an index is missing":
                    log.warning("%s: %s; rebuilding its indexes", segment.path(names.LOG), damage)
                    self._recover(segment, flushed=True)
                    for file in segment.files_to_flush():  # no later flush covers this segment
                        file.sync()
                if base != bases[-1]:
                    self._report_gap(segment, end)
            if base != bases[-1]:  # the end of the last one is read next
                segment.release()
            self.segments.add(segment)

    def _rebuild_epochs(self, thoroughly: bool) -> None:
        """Add the epochs below the first stored one: its file was damaged, or a crash undid a deletion."""
        stored = self.epochs.entries
        until = stored[0].start_offset if stored else 1 << 63
        self.epochs = LeaderEpochs()
        for segment in self.segments.between(-1, until):
            for _, header in segment.headers():
                if header.base_offset >= until or (header.leader_epoch < 0 and not thoroughly):
                    break
                if header.leader_epoch >= 0:
                    self.epochs.assign(header.leader_epoch, header.base_offset)
        for entry in stored:
            self.epochs.assign(*entry)

    def _recover_unflushed(self) -> None:
        unflushed = self.segments.between(self.opening.recovery_point, 1 << 63)
        for n, segment in enumerate(unflushed):
            log.debug(
                "recovering %s, %d bytes (%d of %d)", segment.path(names.LOG), segment.size, n + 1, len(unflushed)
            )
            cut, rest = self._recover(segment), unflushed[n + 1 :]
            if cut or self._is_detached(segment, rest):
                self._drop(rest)
                why = f"{segment.path(names.LOG)} has no valid batch at byte {segment.size}"
                if not cut:
                    why = f"{segment.path(names.LOG)} does not reach up to the next segment, {rest[0].base_offset}"
                self._report_removal(why, segment.end()[0])
                break
            if rest:
                self._report_gap(segment, rest[0].base_offset)

    def _report_removal(self, why: str, log_end: Offset) -> None:
        removal = self.removal
        removal.forget_older()
        log.warning("%s was cut off at offset %d: %s. Removed: %s", self.opening.tp, log_end, why, removal)

    def _report_gap(self, segment: Segment, next_base: Offset) -> None:
        """Flushed records between a segment and the next were removed by hand."""
        if self.opening.contiguous and (end := segment.end()[0]) < next_base:
            log.error(
                "%s: the records from offset %d to %d are missing, but later segments exist: a segment was removed "
                "or damaged. Readers skip the gap; restore %s if there is a copy of it",
                self.opening.tp, end, next_base - 1, self._path(names.file_name(end, names.LOG)),
            )  # fmt: skip

    def _report_lost_end(self, log_end: Offset) -> None:
        if self.opening.recovery_point > log_end:
            log.error(
                "%s ends at offset %d, though it was flushed up to %d: its last segments were removed or damaged",
                self.opening.tp, log_end, self.opening.recovery_point,
            )  # fmt: skip

    def _is_detached(self, segment: Segment, rest: Sequence[Segment]) -> bool:
        """Whether the next segment does not follow: an unexplained gap, or overlapping offsets."""
        if not rest:
            return False
        end, next_base = segment.end()[0], rest[0].base_offset
        lacks = self.opening.contiguous and self.opening.knows_recovery_point
        return end > next_base or (lacks and end < next_base)

    def _recover(self, segment: Segment, *, flushed: bool = False) -> int:
        """Recover one segment, from the producer state at its start. Returns the number of bytes removed."""
        self.has_recovered = True
        producers = self._new_producer_state()
        snapshots = ProducerSnapshots(self.files, self.directory)
        rebuild_producer_state(producers, snapshots, self.segments, self.log_start, segment.base_offset, self.now_ms)
        removed = self.removal.tail
        cut = recover_segment(self.files, segment, producers, self.epochs, self.progress, removed, flushed=flushed)
        snapshots.take(producers, sync=True)
        return cut

    def _drop(self, segments: list[Segment]) -> None:
        for segment in segments:
            if segment.base_offset in self.segments:
                self.segments.remove(segment.base_offset)
            self.removal.whole(segment)
            remove_files(self.files, [self.snapshots.path(segment.base_offset)])
        self.snapshots = ProducerSnapshots(self.files, self.directory)

    def _log_end(self) -> Offset:
        """The end of the last segment; of a new one, if there is none."""
        if not self.segments:
            self.segments.add(
                new_segment(
                    self.files,
                    SegmentPath(self.directory, self.log_start),
                    self.config,
                    self.now_ms,
                    self.context.chance,
                )
            )
            return self.log_start
        active = self.segments.active
        end, position = active.end()
        if position != active.size:
            self._recover(active)
            end, position = active.end()
            self._report_removal(f"{active.path(names.LOG)} has no valid batch at byte {position}", end)
        if end < self.log_start:
            log.error(
                "%s ends at offset %d, below its log start offset %d in %s: that one is ignored, all records stay",
                self.opening.tp, end, self.log_start, names.LOG_STARTS_FILE,
            )  # fmt: skip
            self.log_start = 0
        return end


def _index_damage(segment: Segment) -> str | None:
    """Why the indexes of a segment are unusable; None if they are not."""
    most = segment.size // HEADER_BYTES + 1  # batches, and so entries of an index
    with contextlib.suppress(CorruptFile):
        segment.txn_index.check(most)
        for index in (segment.offset_index, segment.time_index):
            if index.is_torn():
                return f"{index.path} does not hold whole entries"
            if index.count > most:
                return f"{index.path} has more entries than the segment has room for batches"
        offsets = segment.offset_index
        if offsets.count:
            relative, position = offsets.entry(offsets.count - 1)
            if offsets.count > 1 and relative <= offsets.entry(0)[0]:
                return f"the entries of {offsets.path} go back"
            if relative < 0 or not 0 <= position < segment.size:
                return f"the last entry of {offsets.path} points to byte {position} of {segment.size}"
        times = segment.time_index
        if times.count and (times.entry(times.count - 1)[0] < times.entry(0)[0] or times.entry(times.count - 1)[1] < 0):
            return f"the entries of {times.path} go back"
        return None
    return f"{segment.txn_index.path} is damaged"


def resolve_leftovers(files: Files, directory: str, listing: list[str] | None = None) -> list[str]:
    """Finish or undo what a crash interrupted: deletion, compaction, the swap of compacted segments.

    `listing`: the names in the directory, if the caller has them. Returns those afterwards, and perhaps temporary files
    that are gone.
    """
    parsed = {name: names.parse_file_name(name) for name in listing or files.listdir(directory)}
    by_suffix: dict[str, list[tuple[Offset, str]]] = {names.DELETED: [], names.CLEANED: [], names.SWAP: []}
    for name, parts in parsed.items():
        if parts is not None and parts[2]:
            by_suffix[parts[2]].append((parts[0], name))
        elif name.endswith(".tmp"):
            remove_files(files, [os.path.join(directory, name)])
    first_cleaned = min((base for base, _ in by_suffix[names.CLEANED]), default=1 << 63)
    swaps = [(base, name) for base, name in by_suffix[names.SWAP] if base < first_cleaned]
    half_swapped = [name for base, name in by_suffix[names.SWAP] if base >= first_cleaned]
    leftovers = [name for _, name in by_suffix[names.DELETED] + by_suffix[names.CLEANED]] + half_swapped
    remove_files(files, [os.path.join(directory, name) for name in leftovers])
    ranges = [_swap_range(files, directory, base) for base, name in swaps if name.endswith(names.LOG + names.SWAP)]
    for name, parts in parsed.items():
        if parts is not None and not parts[2] and any(start <= parts[0] < end for start, end in ranges):
            log.info("%s was compacted and is removed", os.path.join(directory, name))
            remove_files(files, [os.path.join(directory, name)])
    if ranges:
        files.sync_dir(directory)  # recovery needs the suffix until then
    for _, name in sorted(swaps, key=lambda swap: not swap[1].endswith(names.LOG + names.SWAP)):
        path = os.path.join(directory, name)
        log.info("using %s, which compaction had finished", path)
        files.rename(path, path.removesuffix(names.SWAP))
    if not leftovers and not swaps:
        return list(parsed)
    files.sync_dir(directory)
    return files.listdir(directory)


def _swap_range(files: Files, directory: str, base: Offset) -> tuple[Offset, Offset]:
    """The offsets that a swapped-in segment stands for."""
    segment = Segment(files, SegmentPath(directory, base, names.SWAP), LogConfig(), now_ms=0)
    end = base + 1
    for batch in segment.batches():
        end = batch.last_offset + 1
    return base, end


def recover_segment(
    files: Files,
    segment: Segment,
    producers: ProducerState,
    epochs: LeaderEpochs,
    progress: Progress = lambda _: None,
    removed: Callable[[Segment, int], None] = lambda segment, position: None,
    *,
    flushed: bool = False,
) -> int:
    """Check every batch of a segment, truncate it after the valid ones, rebuild its indexes. Returns the bytes removed.

    `removed` is called before the truncation. A `flushed` segment is not truncated: only its indexes are rebuilt.
    """
    scan = scan_segment(files, segment, producers, epochs, progress, flushed=flushed)
    cut = 0 if flushed else segment.size - scan.valid_bytes
    if cut:
        removed(segment, scan.valid_bytes)
        segment.file.truncate(scan.valid_bytes)
        segment.size = scan.valid_bytes
    segment.offset_index.load(scan.offset_entries)
    segment.time_index.load(scan.time_entries)
    segment.txn_index.load(scan.aborted)
    segment.newest = scan.newest
    return cut
