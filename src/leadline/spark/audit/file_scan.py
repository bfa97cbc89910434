"""Reading files for an audit: the headers of all batches, with all their bytes or without, and what lies beside them.

Without checksums only headers are read, a page around each: as fast as the disk finds them. Where bytes are no batch,
the next one is searched for, so that one damage does not hide another.
"""

import os
import time
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from crc32c import crc32c

from leadline.errors import CorruptFile, CorruptMessage, WireError
from leadline.log import checkpoints, names, txn_index
from leadline.log.files import read_file
from leadline.log.producer_snapshots import decode_snapshot
from leadline.log.producer_state import ProducerState
from leadline.log.txn_index import AbortedTxn
from leadline.model import Offset
from leadline.records.batch import (
    ATTRIBUTES_AT,
    CONTROL,
    HEADER,
    HEADER_BYTES,
    LENGTH_END,
    MAGIC,
    MAGIC_AT,
    MIN_LENGTH,
    TRANSACTIONAL,
    Header,
    check_frame,
    crc_of,
    header_at,
)
from leadline.records.control import read_end_marker
from leadline.records.record import records_of
from leadline.spark.audit import checks, indexes
from leadline.spark.audit.checks import BatchColumns, FileContent, Finding, FindingKind
from leadline.spark.audit.comparison import ReplicaRecords
from leadline.spark.files import segments
from leadline.spark.files.segments import FILES, FOREVER_MS, LogFiles, SegmentFile, opened

PAGE_BYTES, WINDOW_BYTES = 4096, 4 << 20  # read at once, for headers alone and for all
IN_TRANSACTION = CONTROL | TRANSACTIONAL
RETRIES, RETRY_S = 3, 0.1  # while a running broker writes at the end
LARGEST_BYTES = 128 << 20  # of a batch that is searched for
UNUSED_ATTRIBUTES = ~0x7F


class FileWindow:
    """A piece of a file in memory, moved along."""

    def __init__(self, fd: int, size: int) -> None:
        self._fd, self._buffer = fd, bytearray(size)
        self.start = self.end = 0
        self.view = memoryview(self._buffer)

    def reach(self, start: int, end: int) -> bool:
        """Have these bytes at hand. False if the file ends before."""
        if self.start <= start and end <= self.end:
            return True
        if end - start > len(self._buffer):
            self._buffer = bytearray(end - start)
            self.view = memoryview(self._buffer)
        self.start = start
        self.end = start + os.preadv(self._fd, [self.view], start)
        return end <= self.end

    def bytes(self, start: int, end: int) -> memoryview:
        return self.view[start - self.start : end - self.start]

    def crc(self, start: int, end: int) -> int:
        """Of bytes up to the end of a batch, of whatever length it says that it is; -1 if the file ends before."""
        crc = 0
        for begin in range(start, end, WINDOW_BYTES):
            behind = min(begin + WINDOW_BYTES, end)
            if not self.reach(begin, behind):
                return -1
            crc = crc32c(self.bytes(begin, behind), crc)
        return crc


@dataclass(slots=True)
class FileScan:
    """What a scan of a file found."""

    rows: "array[int]" = field(default_factory=lambda: array("q"))
    wrong: list[tuple[FindingKind, int, str]] = field(default_factory=list)
    unreadable: list[tuple[int, int]] = field(default_factory=list)
    in_transaction: list[tuple[Header, bytes | None]] = field(default_factory=list)  # with the bytes of a marker


def scan(path: str, *, checksums: bool, is_last: bool) -> FileScan:
    """All of a file. `is_last`: of the log; it may be growing."""
    result = FileScan()
    with opened(path) as fd:
        at = 0
        for attempt in range(RETRIES + 1):
            size = os.fstat(fd).st_size
            window = FileWindow(fd, WINDOW_BYTES if checksums else PAGE_BYTES)
            at = _scan(window, at, size, checksums, result)
            while at < size and (behind := _next_batch(fd, at + 1, size)) is not None:
                result.wrong.append(
                    (FindingKind.FRAME, at, f"{behind - at} bytes are no batch; the next begins at {behind}")
                )
                result.unreadable.append((at, behind))
                at = _scan(window, behind, size, checksums, result)
            if at == size or not is_last or attempt == RETRIES:
                break
            time.sleep(RETRY_S)  # for what is being written
            if os.fstat(fd).st_size == size:
                break
        if at < size:
            _tail(fd, at, size, is_last, result)
    return result


def _scan(window: FileWindow, at: int, size: int, checksums: bool, result: FileScan) -> int:
    """Take in batches up to where none begins; hands back where that is."""
    unpack, take, reach = HEADER.unpack_from, result.rows.extend, window.reach
    while at < size:
        if at + HEADER_BYTES > window.end and not reach(at, at + HEADER_BYTES):
            return at
        fields = unpack(window.view, at - window.start)
        base, length, epoch, magic, crc, attributes, delta, _, newest, _, _, _, _ = fields
        behind = at + LENGTH_END + length
        if magic != MAGIC or length < MIN_LENGTH or behind > size:
            return at
        if checksums and window.crc(at + ATTRIBUTES_AT, behind) != crc:
            result.wrong.append(
                (FindingKind.CRC, at, f"the batch of offset {base}: its bytes do not give its CRC {crc}")
            )
        if attributes & IN_TRANSACTION:
            is_marker = attributes & CONTROL and length < PAGE_BYTES and reach(at, behind)
            marker = bytes(window.bytes(at, behind)) if is_marker else None
            result.in_transaction.append((Header._make(fields), marker))
        take((at, base, min(base + delta, checks.NOWHERE), behind - at, epoch, crc, newest))
        at = behind
    return at


def _next_batch(fd: int, start: int, size: int) -> int | None:
    """Where the first batch with a right checksum starts, at or after a position."""
    while start + HEADER_BYTES <= size:
        data = os.pread(fd, WINDOW_BYTES, start)
        at = data.find(MAGIC, MAGIC_AT)
        while at >= 0:
            begin = at - MAGIC_AT
            if begin + HEADER_BYTES <= len(data) and _is_batch(fd, header_at(data, begin), start + begin, size):
                return start + begin
            at = data.find(MAGIC, at + 1)
        if len(data) <= HEADER_BYTES:
            break
        start += len(data) - HEADER_BYTES
    return None


def _is_batch(fd: int, header: Header, position: int, size: int) -> bool:
    if (
        not MIN_LENGTH <= header.length <= min(size - position - LENGTH_END, LARGEST_BYTES)
        or min(header.base_offset, header.last_offset_delta, header.record_count) < 0
        or header.attributes & UNUSED_ATTRIBUTES
    ):
        return False
    data = os.pread(fd, header.size, position)
    return len(data) == header.size and crc_of(data, 0, header.size) == header.crc


def _tail(fd: int, at: int, size: int, is_last: bool, result: FileScan) -> None:
    """The bytes after the last batch. Zeros at a log's end are reserved space."""
    head = os.pread(fd, HEADER_BYTES, at)
    result.unreadable.append((at, size))
    if not any(head) and _is_zero(fd, at):
        if is_last:
            result.unreadable.pop()
        else:
            result.wrong.append((FindingKind.FRAME, at, f"{size - at} bytes of zero up to the end"))
        return
    try:
        if len(head) == HEADER_BYTES:
            check_frame(header_at(head).length, header_at(head).magic)
        result.wrong.append((FindingKind.TORN, at, f"the last batch is cut off: {size - at} bytes of it are left"))
    except WireError as error:
        result.wrong.append(
            (FindingKind.FRAME, at, f"{error}; nor is any of the {size - at} bytes up to the end part of one")
        )


def _is_zero(fd: int, at: int) -> bool:
    while data := os.pread(fd, WINDOW_BYTES, at):
        if any(data):
            return False
        at += len(data)
    return True


# One file and what lies beside it


def examine(
    log: LogFiles, segment: SegmentFile, above: SegmentFile | None, *, checksums: bool
) -> tuple[FileContent, list[Finding]]:
    """What a segment holds, and what is wrong with it and with its indexes."""
    content = scan(segment.path, checksums=checksums, is_last=above is None)
    next_base = None if above is None else above.base_offset
    raw = FileContent(
        log.tp, segment.path, segment.base_offset, next_base, BatchColumns.of(content.rows), tuple(content.unreadable)
    )
    findings = [raw.finding(kind, position, text) for kind, position, text in content.wrong]
    read, unsettled = checks.settle(raw)
    findings += unsettled
    findings += checks.order(read, log.cleaned_until or 0)
    findings += _indexes(log, segment, read, content)
    return read, findings


def _indexes(log: LogFiles, segment: SegmentFile, read: FileContent, content: FileScan) -> Iterator[Finding]:
    for kind, entry, check in (
        (names.INDEX, OFFSET_ENTRY, _offset_index),
        (names.TIME_INDEX, TIME_ENTRY, _time_index),
    ):
        path = segment.beside(kind)
        try:
            data = read_file(FILES, path)
        except FileNotFoundError:
            if len(read.batches):
                yield read.finding(FindingKind.FILE, 0, "it is not there", path=path)
            continue
        whole = len(data) // entry.itemsize * entry.itemsize
        if whole < len(data):
            text = f"an entry is cut off: {len(data) - whole} of {entry.itemsize} bytes"
            yield read.finding(FindingKind.FILE, whole, text, path=path)
        yield from check(read, path, np.frombuffer(data[:whole], entry))
    yield from _txn_index(log, segment, read, content)


OFFSET_ENTRY = np.dtype([("offset", ">i4"), ("position", ">i4")])
TIME_ENTRY = np.dtype([("time", ">i8"), ("offset", ">i4")])


def _entries(stored: "npt.NDArray[np.void]") -> "npt.NDArray[np.int64]":
    """As columns, without the zeros up to the end, which are room that a running broker reserved."""
    names_of = stored.dtype.names or ()
    columns = np.stack([stored[name].astype(np.int64) for name in names_of], axis=1)
    used = np.flatnonzero(columns.any(axis=1))
    return columns[: int(used[-1]) + 1 if len(used) else 0]


def _offset_index(read: FileContent, path: str, stored: "npt.NDArray[np.void]") -> Iterator[Finding]:
    return indexes.offset_index(read, path, _entries(stored))


def _time_index(read: FileContent, path: str, stored: "npt.NDArray[np.void]") -> Iterator[Finding]:
    def has_time(row: int, offset: Offset, timestamp: int) -> bool:
        position, size = int(read.batches.position[row]), int(read.batches.size[row])
        with opened(read.path) as fd:
            data = os.pread(fd, size, position)
        if len(data) < size:
            return True  # it was cut off meanwhile
        try:
            timestamps = [
                record.timestamp for record in records_of(data, 0, header_at(data)) if record.offset == offset
            ]
        except CorruptMessage:
            return True  # that is found elsewhere
        return timestamps == [timestamp]

    return indexes.time_index(read, path, _entries(stored), has_time)


def _txn_index(log: LogFiles, segment: SegmentFile, read: FileContent, content: FileScan) -> Iterator[Finding]:
    path = segment.beside(names.TXN_INDEX)
    try:
        data = read_file(FILES, path)
    except FileNotFoundError:
        data = b""
    try:
        entries = txn_index.decode(path, data)
    except CorruptFile as error:
        yield read.finding(FindingKind.TXN_INDEX, error.position, error.reason, path=path)
        return
    if len(data) % txn_index.ENTRY_BYTES:
        text = f"an entry is cut off: {len(data) % txn_index.ENTRY_BYTES} of {txn_index.ENTRY_BYTES} bytes"
        yield read.finding(FindingKind.FILE, len(entries) * txn_index.ENTRY_BYTES, text, path=path)
    if log.cleaned_until is None or segment.base_offset >= log.cleaned_until:  # compaction drops markers and entries
        aborted, is_known = _aborted(log, segment, content)
        yield from indexes.txn_index(read, path, entries, aborted, is_known)


def _aborted(log: LogFiles, segment: SegmentFile, content: FileScan) -> tuple[list[AbortedTxn], bool]:
    """The transactions that were aborted in a segment; and whether all that were open at its start are known."""
    producers, is_known = ProducerState(log.tp, FOREVER_MS), segment.base_offset == 0
    path = segment.beside(names.SNAPSHOT)
    try:
        producers.load(decode_snapshot(path, read_file(FILES, path)), segment.base_offset, 0)
        is_known = True
    except (CorruptFile, FileNotFoundError):
        pass  # a snapshot that is damaged is found elsewhere
    aborted: list[AbortedTxn] = []
    for header, batch in content.in_transaction:
        try:
            marker = None if batch is None else read_end_marker(batch, 0, header)
        except CorruptMessage:
            is_known = False
            continue
        if (gone := producers.replay(header, marker)) is not None:
            aborted.append(gone)
        producers.high_watermark_moved(header.last_offset + 1)
    return aborted, is_known


# One log


def snapshots(log: LogFiles) -> Iterator[Finding]:
    """Those of producers that cannot be read."""
    for offset in segments.snapshots_in(log.directory):
        path = os.path.join(log.directory, names.file_name(offset, names.SNAPSHOT))
        try:
            decode_snapshot(path, read_file(FILES, path))
        except CorruptFile as error:
            yield Finding(FindingKind.FILE, log.tp, path, error.position, error.reason, offset)
        except FileNotFoundError:
            continue


def epochs(log: LogFiles, reads: Sequence[FileContent]) -> Iterator[Finding]:
    """Held against the checkpoint as it is once the batches were read: it is written before them."""
    path = os.path.join(log.directory, names.EPOCHS_FILE)
    try:
        entries = checkpoints.read_epochs(FILES, path)
    except CorruptFile as error:
        yield Finding(FindingKind.FILE, log.tp, path, error.position, error.reason)
        return
    for read in reads:
        yield from checks.epochs(read, entries)


def records(log: LogFiles, until: Offset) -> ReplicaRecords:
    """All below an offset, each by a hash that only this process can compare. CorruptFile if some cannot be read."""
    offsets, keys, contents, may_go = array("q"), array("q"), array("q"), bytearray()
    aborted = segments.aborted_in(log, log.log_start, until)
    for batch in segments.rows(log, log.log_start, until, headers=True, aborted=aborted):
        offsets.extend(batch.column("offset").to_pylist())
        both = [batch.column(name).to_pylist() for name in ("key", "value")]
        times = batch.column("timestamp").view(pa.int64()).to_pylist()
        headers = map(repr, batch.column("headers").to_pylist())
        keys.extend(map(hash, both[0]))
        contents.extend(map(hash, zip(*both, times, headers, strict=True)))
        may_go.extend(key is None or value is None for key, value in zip(*both, strict=True))
    offset, key, content = (np.array(column, np.int64) for column in (offsets, keys, contents))
    return ReplicaRecords(offset, key, content, np.frombuffer(may_go, np.bool_))
