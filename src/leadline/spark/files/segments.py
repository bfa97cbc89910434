"""Logs on disk, read without a broker. The broker may be Leadline or Apache Kafka, and it may be running.

A log directory holds a folder for each partition and checkpoints for all of them (log/names.py, log/checkpoints.py).
This module writes nothing, not even a lock. A running broker creates and deletes files: a segment that it has renamed
for deletion is still read, and an incomplete batch at the end of the last segment is ignored.
    reads end at the high watermark if a checkpoint holds it, unless the caller requests more
"""

import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import pyarrow as pa

from leadline.errors import CorruptFile, WireError
from leadline.log import checkpoints, names, txn_index
from leadline.log.files import read_file
from leadline.log.index import OffsetIndex
from leadline.log.producer_snapshots import decode_snapshot
from leadline.log.producer_state import ProducerState
from leadline.log.txn_index import AbortedTxn
from leadline.model import Offset, TopicId, TopicPartition
from leadline.records.batch import HEADER_BYTES, Header, check_frame, header_at, walk
from leadline.records.control import read_end_marker
from leadline.runtime.ports import Files, OsFiles
from leadline.spark.batches.decode import RecordFilter, WrongBatch, pieces
from leadline.spark.errors import JobFailed

T = TypeVar("T")
FILES = OsFiles()
PIECE_BYTES = 4 << 20  # read at once
FOREVER_MS = 1 << 62
EVERYTHING: Offset = (1 << 63) - 1


class NoLogs(JobFailed):
    """A path holds no log."""


@dataclass(frozen=True, slots=True)
class SegmentFile:
    path: str  # of the .log
    base_offset: Offset
    size: int  # when it was listed; the last segment of a log may have grown since

    def beside(self, kind: str) -> str:
        """The path of one of its indexes."""
        return os.path.join(os.path.dirname(self.path), names.file_name(self.base_offset, kind))


@dataclass(frozen=True, slots=True)
class LogFiles:
    """One replica of a partition, by its files."""

    tp: TopicPartition
    log_dir: str
    directory: str
    topic_id: TopicId | None
    segments: tuple[SegmentFile, ...]  # by base offset; there may be none
    log_start: Offset
    high_watermark: Offset | None  # None: no checkpoint holds it
    cleaned_until: Offset | None  # None: it was never compacted

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)


# Logs in directories


def logs_in(
    paths: Iterable[str], topics: Sequence[str] = (), damaged: Callable[[CorruptFile], None] | None = None
) -> list[LogFiles]:
    """The logs of log directories, or of the folders of single partitions. NoLogs if a path is neither.

    A checkpoint that cannot be read counts as absent and is reported to `damaged`. Without `damaged`, CorruptFile.
    """
    result: list[LogFiles] = []
    for path in map(os.path.abspath, paths):
        if not os.path.isdir(path):
            raise NoLogs(f"{path}: no such directory")
        tp = _partition(path)
        folders = (
            [path] if tp is not None and _is_log(path) else sorted(os.path.join(path, n) for n in os.listdir(path))
        )
        log_dir = os.path.dirname(path) if folders == [path] else path
        logs = list(_logs_of(log_dir, folders, damaged or _raise))
        if not logs and not os.path.exists(os.path.join(path, names.META_PROPERTIES_FILE)):
            raise NoLogs(f"{path}: neither a log directory nor the folder of a partition")
        result += [log for log in logs if not topics or log.tp.topic in topics]
    return result


def _partition(folder: str) -> TopicPartition | None:
    """The partition of a folder. None: it has none, or the partition is deleted, stray or being moved."""
    try:
        tp, mark = names.parse_dir_name(os.path.basename(folder))
    except ValueError:
        return None
    return tp if mark is None else None


def _is_log(folder: str) -> bool:
    return any(name.endswith(names.LOG) for name in os.listdir(folder))


def _logs_of(log_dir: str, folders: Iterable[str], damaged: Callable[[CorruptFile], None]) -> Iterator[LogFiles]:
    def read(what: Callable[[Files, str], T], *path: str, instead: T) -> T:
        try:
            return what(FILES, os.path.join(*path))
        except CorruptFile as error:
            damaged(error)
            return instead

    high_watermarks, log_starts, cleaned = (
        read(checkpoints.read_offsets, log_dir, name, instead=dict[TopicPartition, Offset]())
        for name in (names.HIGH_WATERMARKS_FILE, names.LOG_STARTS_FILE, names.CLEANED_OFFSETS_FILE)
    )
    for folder in folders:
        tp = _partition(folder)
        if tp is None or not os.path.isdir(folder):
            continue
        try:
            segments = segments_in(folder)
        except FileNotFoundError:
            continue  # deleted since
        topic_id = read(checkpoints.read_partition_metadata, folder, names.PARTITION_METADATA_FILE, instead=None)
        first = segments[0].base_offset if segments else 0
        log_start = max(log_starts.get(tp, 0), first)
        yield LogFiles(tp, log_dir, folder, topic_id, segments, log_start, high_watermarks.get(tp), cleaned.get(tp))


def listed_again(log: LogFiles) -> LogFiles:
    """The log as it is now; unchanged if the log is gone."""
    return next(_logs_of(log.log_dir, [log.directory], lambda _: None), log)


def _raise(error: CorruptFile) -> None:
    raise error


def segments_in(folder: str) -> tuple[SegmentFile, ...]:
    files = []
    for entry in os.scandir(folder):
        parsed = names.parse_file_name(entry.name)
        if parsed is not None and parsed[1:] == (names.LOG, "") and parsed[0] < EVERYTHING:
            try:
                files.append(SegmentFile(entry.path, parsed[0], entry.stat().st_size))
            except FileNotFoundError:
                continue
    return tuple(sorted(files, key=lambda segment: segment.base_offset))


# Bytes of a file


@contextmanager
def opened(path: str) -> Iterator[int]:
    """A descriptor to read from. The file may be renamed for deletion."""
    flags = os.O_RDONLY | os.O_CLOEXEC
    try:
        fd = os.open(path, flags)
    except FileNotFoundError:
        try:
            fd = os.open(path + names.DELETED, flags)
        except FileNotFoundError:
            raise FileNotFoundError(2, "it was removed before it could be read", path) from None
    try:
        yield fd
    finally:
        os.close(fd)


def batches_in(path: str, position: int = 0, *, is_last: bool = True) -> Iterator[tuple[int, memoryview]]:
    """Whole batches from a position on, PIECE_BYTES at a time, each piece with its position.

    In the last segment of a log, an incomplete batch or reserved space at the end is ignored. CorruptFile in any other
    segment, and for any other bytes that are not a batch.
    """
    with opened(path) as fd:
        while data := os.pread(fd, PIECE_BYTES, position):
            whole = _whole(path, position, data)
            if whole == 0 and PIECE_BYTES <= len(data) < header_at(data).size <= os.fstat(fd).st_size - position:
                data = os.pread(fd, header_at(data).size, position)
                whole = _whole(path, position, data)
            if whole == 0:
                if not is_last and any(data):
                    raise CorruptFile(path, position, f"a batch is incomplete: it has {len(data)} bytes")
                return
            yield position, memoryview(data)[:whole]
            position += whole


def _whole(path: str, position: int, data: bytes) -> int:
    """How many of the bytes are whole batches. Zeros at the end are reserved space."""
    end = 0
    try:
        for at, header in walk(data):
            end = at + header.size
    except WireError as error:
        if any(data[end : end + HEADER_BYTES]):
            raise CorruptFile(path, position + end, str(error)) from None
    return end


def offset_index(segment: SegmentFile) -> tuple[Sequence[int], Sequence[int]]:
    """Relative offsets and positions. Zeros after the last entry are space that a running broker reserved."""
    try:
        data = read_file(FILES, segment.beside(names.INDEX))
    except FileNotFoundError:
        return (), ()
    data = data[: len(data) // OffsetIndex.ENTRY.size * OffsetIndex.ENTRY.size]
    offsets, positions = OffsetIndex.decode(data)
    count = next((n for n, position in enumerate(positions) if position == 0 and n > 0), len(positions))
    return offsets[:count], positions[:count]


def position_of(segment: SegmentFile, offset: Offset) -> int:
    """The position to search for an offset from; 0 if the index cannot be used."""
    offsets, positions = offset_index(segment)
    n = bisect_right(offsets, offset - segment.base_offset)
    if n == 0:
        return 0
    position = positions[n - 1]
    with opened(segment.path) as fd:
        head = os.pread(fd, HEADER_BYTES, position)
    return position if _may_begin(head, offset) else 0


def _may_begin(head: bytes, offset: Offset) -> bool:
    if len(head) < HEADER_BYTES:
        return False
    header = header_at(head)
    try:
        check_frame(header.length, header.magic)
    except WireError:
        return False
    return header.base_offset <= offset


# Ranges of a log


def batches_of(log: LogFiles, first: Offset, until: Offset) -> Iterator[tuple[str, int, memoryview]]:
    """All batches with offsets in [first, until), and perhaps some before and after, as file, position and bytes."""
    for segment, above in segments_of(log, first, until):
        position = position_of(segment, first) if first > segment.base_offset else 0
        for at, data in batches_in(segment.path, position, is_last=above is None):
            if header_at(data).base_offset >= until:
                return
            yield segment.path, at, data


def segments_of(log: LogFiles, first: Offset, until: Offset) -> Iterator[tuple[SegmentFile, SegmentFile | None]]:
    """The segments with offsets in [first, until), each with the next one."""
    for segment, above in pairwise([*log.segments, None]):
        assert segment is not None
        if segment.base_offset < until and (above is None or above.base_offset > first):
            yield segment, above


def rows(
    log: LogFiles, first: Offset, until: Offset, *, headers: bool = False, aborted: tuple[AbortedTxn, ...] | None = None
) -> Iterator[pa.RecordBatch]:
    """The records of a range, as `decode` gives them. CorruptFile where the log is damaged."""
    filter_ = RecordFilter(max(first, log.log_start), until, headers, aborted)
    for path, position, data in batches_of(log, filter_.first, until):
        try:
            yield from pieces(data, filter_)
        except WrongBatch as error:
            raise CorruptFile(
                path, position + error.position, f"the batch of offset {error.offset}: {error.reason}"
            ) from error


def headers_of(log: LogFiles, first: Offset, until: Offset) -> Iterator[tuple[Header, memoryview]]:
    """The header and the bytes of each batch of a range."""
    for _, _, data in batches_of(log, first, until):
        for at, header in walk(data):
            if header.last_offset >= first and header.base_offset < until:
                yield header, data[at : at + header.size]


def log_end(log: LogFiles) -> Offset:
    """The offset after the last whole batch."""
    if not log.segments:
        return log.log_start
    last = log.segments[-1]
    end = last.base_offset
    for start in (position_of(last, EVERYTHING), 0):  # the index may point to a last batch that is incomplete
        for _, data in batches_in(last.path, start):
            for _, header in walk(data):
                end = header.last_offset + 1
        if end > last.base_offset:
            break
    return max(end, log.log_start)


def readable_until(log: LogFiles, *, committed: bool, to_log_end: bool = False) -> Offset:
    """The high watermark, or the last stable offset; the log end if no checkpoint holds a lower high watermark."""
    end = log_end(log)
    until = end if log.high_watermark is None or to_log_end else min(log.high_watermark, end)
    return last_stable_offset(log, until) if committed else until


def last_stable_offset(log: LogFiles, until: Offset) -> Offset:
    """The first offset of the oldest transaction that is open at an offset, from snapshots and the log after them."""
    producers = ProducerState(log.tp, FOREVER_MS)
    producers.end_offset = log.log_start
    for at in reversed([offset for offset in snapshots_in(log.directory) if offset <= until]):
        path = os.path.join(log.directory, names.file_name(at, names.SNAPSHOT))
        try:
            producers.load(decode_snapshot(path, read_file(FILES, path)), at, 0)
            break
        except (CorruptFile, FileNotFoundError):
            continue  # an older snapshot and more of the log give the same result
    for header, batch in headers_of(log, producers.end_offset, until):
        if header.has_producer_id:
            marker = read_end_marker(batch, 0, header) if header.is_control else None
            producers.replay(header, marker)
    producers.high_watermark_moved(until)
    unstable = producers.first_unstable_offset()
    return until if unstable is None else min(unstable, until)


def snapshots_in(folder: str) -> list[Offset]:
    """The offsets of the producer snapshots."""
    try:
        parsed = map(names.parse_file_name, os.listdir(folder))
    except FileNotFoundError:
        return []
    return sorted(offset for offset, kind, suffix in filter(None, parsed) if (kind, suffix) == (names.SNAPSHOT, ""))


def aborted_in(log: LogFiles, first: Offset, until: Offset) -> tuple[AbortedTxn, ...]:
    """The aborted transactions with records in a range."""
    aborted: list[AbortedTxn] = []
    for segment, _ in segments_of(log, first, EVERYTHING):
        path = segment.beside(names.TXN_INDEX)
        try:
            entries = txn_index.decode(path, read_file(FILES, path))
        except FileNotFoundError:
            continue
        some, is_complete = txn_index.between(entries, first, until)
        aborted += some
        if is_complete:
            break
    return tuple(aborted)
