"""An audit reads the files of a log: segments, indexes, snapshots and the leader epoch checkpoint.

Without checksums the scan of a segment reads only batch headers, one page at each. Where bytes are not a batch, the
scan searches for the next one: one damaged place does not hide another.
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
RETRIES, RETRY_S = 3, 0.1  # while a running broker appends
LARGEST_BYTES = 128 << 20  # the search ignores batches that claim to be larger
UNUSED_ATTRIBUTES = ~0x7F


class FileWindow:
    """A part of a file in memory, which moves with the scan."""

    def __init__(self, fd: int, size: int) -> None:
        self._fd, self._buffer = fd, bytearray(size)
        self.start = self.end = 0
        self.view = memoryview(self._buffer)

    def reach(self, start: int, end: int) -> bool:
        """Loads these bytes, unless they are loaded. False if the file ends before `end`."""
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
        """The CRC of these bytes, of any length; -1 if the file ends before `end`."""
        crc = 0
        for chunk_start in range(start, end, WINDOW_BYTES):
            chunk_end = min(chunk_start + WINDOW_BYTES, end)
            if not self.reach(chunk_start, chunk_end):
                return -1
            crc = crc32c(self.bytes(chunk_start, chunk_end), crc)
        return crc


@dataclass(slots=True)
class FileScan:
    """The result of the scan of a segment."""

    rows: "array[int]" = field(default_factory=lambda: array("q"))
    wrong: list[tuple[FindingKind, int, str]] = field(default_factory=list)
    unreadable: list[tuple[int, int]] = field(default_factory=list)
    in_transaction: list[tuple[Header, bytes | None]] = field(default_factory=list)  # the bytes: of a marker


def scan(path: str, *, checksums: bool, is_last: bool) -> FileScan:
    """Scans a segment. `is_last`: it is the last one of its log, and may grow."""
    result = FileScan()
    with opened(path) as fd:
        at = 0
        for attempt in range(RETRIES + 1):
            size = os.fstat(fd).st_size
            window = FileWindow(fd, WINDOW_BYTES if checksums else PAGE_BYTES)
            at = _scan(window, at, size, checksums, result)
            while at < size and (next_at := _next_batch(fd, at + 1, size)) is not None:
                result.wrong.append(
                    (FindingKind.FRAME, at, f"{next_at - at} bytes are not a batch; the next starts at {next_at}")
                )
                result.unreadable.append((at, next_at))
                at = _scan(window, next_at, size, checksums, result)
            if at == size or not is_last or attempt == RETRIES:
                break
            time.sleep(RETRY_S)  # a running broker may be appending a batch
            if os.fstat(fd).st_size == size:
                break
        if at < size:
            _tail(fd, at, size, is_last, result)
    return result


def _scan(window: FileWindow, at: int, size: int, checksums: bool, result: FileScan) -> int:
    """Adds batches to the result. Returns the position after them, where no batch starts."""
    unpack, take, reach = HEADER.unpack_from, result.rows.extend, window.reach
    while at < size:
        if at + HEADER_BYTES > window.end and not reach(at, at + HEADER_BYTES):
            return at
        fields = unpack(window.view, at - window.start)
        base, length, epoch, magic, crc, attributes, delta, _, newest, _, _, _, _ = fields
        end = at + LENGTH_END + length
        if magic != MAGIC or length < MIN_LENGTH or end > size:
            return at
        if checksums and window.crc(at + ATTRIBUTES_AT, end) != crc:
            result.wrong.append(
                (FindingKind.CRC, at, f"the batch of offset {base}: its bytes do not match its CRC {crc}")
            )
        if attributes & IN_TRANSACTION:
            is_marker = attributes & CONTROL and length < PAGE_BYTES and reach(at, end)
            marker = bytes(window.bytes(at, end)) if is_marker else None
            result.in_transaction.append((Header._make(fields), marker))
        take((at, base, min(base + delta, checks.NOWHERE), end - at, epoch, crc, newest))
        at = end
    return at


def _next_batch(fd: int, start: int, size: int) -> int | None:
    """The position of the first batch with a correct checksum, at or after `start`."""
    while start + HEADER_BYTES <= size:
        data = os.pread(fd, WINDOW_BYTES, start)
        at = data.find(MAGIC, MAGIC_AT)
        while at >= 0:
            batch_at = at - MAGIC_AT
            has_header = batch_at + HEADER_BYTES <= len(data)
            if has_header and _is_batch(fd, header_at(data, batch_at), start + batch_at, size):
                return start + batch_at
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
            result.wrong.append((FindingKind.FRAME, at, f"{size - at} zero bytes up to the end"))
        return
    try:
        if len(head) == HEADER_BYTES:
            check_frame(header_at(head).length, header_at(head).magic)
        result.wrong.append((FindingKind.TORN, at, f"the last batch is incomplete: it has {size - at} bytes"))
    except WireError as error:
        result.wrong.append((FindingKind.FRAME, at, f"{error}; no batch starts in the {size - at} bytes up to the end"))


def _is_zero(fd: int, at: int) -> bool:
    while data := os.pread(fd, WINDOW_BYTES, at):
        if any(data):
            return False
        at += len(data)
    return True


# One segment and its indexes


def examine(
    log: LogFiles, segment: SegmentFile, above: SegmentFile | None, *, checksums: bool
) -> tuple[FileContent, list[Finding]]:
    """The content of a segment, and the findings about it and its indexes."""
    file_scan = scan(segment.path, checksums=checksums, is_last=above is None)
    next_base = None if above is None else above.base_offset
    batches, unreadable = BatchColumns.of(file_scan.rows), tuple(file_scan.unreadable)
    raw = FileContent(log.tp, segment.path, segment.base_offset, next_base, batches, unreadable)
    findings = [raw.finding(kind, position, text) for kind, position, text in file_scan.wrong]
    content, unsettled = checks.settle(raw)
    findings += unsettled
    findings += checks.order(content, log.cleaned_until or 0)
    findings += _indexes(log, segment, content, file_scan)
    return content, findings


def _indexes(log: LogFiles, segment: SegmentFile, content: FileContent, file_scan: FileScan) -> Iterator[Finding]:
    for kind, entry, check in (
        (names.INDEX, OFFSET_ENTRY, _offset_index),
        (names.TIME_INDEX, TIME_ENTRY, _time_index),
    ):
        path = segment.beside(kind)
        try:
            data = read_file(FILES, path)
        except FileNotFoundError:
            if len(content.batches):
                yield content.finding(FindingKind.FILE, 0, "it is missing", path=path)
            continue
        whole = len(data) // entry.itemsize * entry.itemsize
        if whole < len(data):
            text = f"an entry is cut off: {len(data) - whole} of {entry.itemsize} bytes"
            yield content.finding(FindingKind.FILE, whole, text, path=path)
        yield from check(content, path, np.frombuffer(data[:whole], entry))
    yield from _txn_index(log, segment, content, file_scan)


OFFSET_ENTRY = np.dtype([("offset", ">i4"), ("position", ">i4")])
TIME_ENTRY = np.dtype([("time", ">i8"), ("offset", ">i4")])


def _entries(stored: "npt.NDArray[np.void]") -> "npt.NDArray[np.int64]":
    """The entries as columns. Zeros at the end are omitted: a running broker reserved that space."""
    names_of = stored.dtype.names or ()
    columns = np.stack([stored[name].astype(np.int64) for name in names_of], axis=1)
    used = np.flatnonzero(columns.any(axis=1))
    return columns[: int(used[-1]) + 1 if len(used) else 0]


def _offset_index(content: FileContent, path: str, stored: "npt.NDArray[np.void]") -> Iterator[Finding]:
    return indexes.offset_index(content, path, _entries(stored))


def _time_index(content: FileContent, path: str, stored: "npt.NDArray[np.void]") -> Iterator[Finding]:
    def has_time(row: int, offset: Offset, timestamp: int) -> bool:
        position, size = int(content.batches.position[row]), int(content.batches.size[row])
        with opened(content.path) as fd:
            data = os.pread(fd, size, position)
        if len(data) < size:
            return True  # the file was truncated since
        try:
            timestamps = [
                record.timestamp for record in records_of(data, 0, header_at(data)) if record.offset == offset
            ]
        except CorruptMessage:
            return True  # another check reports the damage
        return timestamps == [timestamp]

    return indexes.time_index(content, path, _entries(stored), has_time)


def _txn_index(log: LogFiles, segment: SegmentFile, content: FileContent, file_scan: FileScan) -> Iterator[Finding]:
    path = segment.beside(names.TXN_INDEX)
    try:
        data = read_file(FILES, path)
    except FileNotFoundError:
        data = b""
    try:
        entries = txn_index.decode(path, data)
    except CorruptFile as error:
        yield content.finding(FindingKind.TXN_INDEX, error.position, error.reason, path=path)
        return
    if len(data) % txn_index.ENTRY_BYTES:
        text = f"an entry is cut off: {len(data) % txn_index.ENTRY_BYTES} of {txn_index.ENTRY_BYTES} bytes"
        yield content.finding(FindingKind.FILE, len(entries) * txn_index.ENTRY_BYTES, text, path=path)
    if log.cleaned_until is None or segment.base_offset >= log.cleaned_until:  # compaction drops markers and entries
        aborted, is_complete = _aborted(log, segment, file_scan)
        yield from indexes.txn_index(content, path, entries, aborted, is_complete)


def _aborted(log: LogFiles, segment: SegmentFile, file_scan: FileScan) -> tuple[list[AbortedTxn], bool]:
    """The transactions that a segment aborts, and whether all transactions that were open at its start are included."""
    producers, is_complete = ProducerState(log.tp, FOREVER_MS), segment.base_offset == 0
    path = segment.beside(names.SNAPSHOT)
    try:
        producers.load(decode_snapshot(path, read_file(FILES, path)), segment.base_offset, 0)
        is_complete = True
    except (CorruptFile, FileNotFoundError):
        pass  # `snapshots` reports a damaged snapshot
    aborted: list[AbortedTxn] = []
    for header, batch in file_scan.in_transaction:
        try:
            marker = None if batch is None else read_end_marker(batch, 0, header)
        except CorruptMessage:
            is_complete = False
            continue
        if (aborted_txn := producers.replay(header, marker)) is not None:
            aborted.append(aborted_txn)
        producers.high_watermark_moved(header.last_offset + 1)
    return aborted, is_complete


# One log


def snapshots(log: LogFiles) -> Iterator[Finding]:
    """The producer snapshots that cannot be read."""
    for offset in segments.snapshots_in(log.directory):
        path = os.path.join(log.directory, names.file_name(offset, names.SNAPSHOT))
        try:
            decode_snapshot(path, read_file(FILES, path))
        except CorruptFile as error:
            yield Finding(FindingKind.FILE, log.tp, path, error.position, error.reason, offset)
        except FileNotFoundError:
            continue


def epochs(log: LogFiles, contents: Sequence[FileContent]) -> Iterator[Finding]:
    """Compares batches with the leader epoch checkpoint. A broker writes the checkpoint first, so it is read last."""
    path = os.path.join(log.directory, names.EPOCHS_FILE)
    try:
        entries = checkpoints.read_epochs(FILES, path)
    except CorruptFile as error:
        yield Finding(FindingKind.FILE, log.tp, path, error.position, error.reason)
        return
    for content in contents:
        yield from checks.epochs(content, entries)


def records(log: LogFiles, until: Offset) -> ReplicaRecords:
    """The records below an offset, as hashes that only this process can compare. CorruptFile if one is unreadable."""
    offsets, keys, contents, may_go = array("q"), array("q"), array("q"), bytearray()
    aborted = segments.aborted_in(log, log.log_start, until)
    for batch in segments.rows(log, log.log_start, until, headers=True, aborted=aborted):
        offsets.extend(batch.column("offset").to_pylist())
        pairs = [batch.column(name).to_pylist() for name in ("key", "value")]
        times = batch.column("timestamp").view(pa.int64()).to_pylist()
        headers = map(repr, batch.column("headers").to_pylist())
        keys.extend(map(hash, pairs[0]))
        contents.extend(map(hash, zip(*pairs, times, headers, strict=True)))
        may_go.extend(key is None or value is None for key, value in zip(*pairs, strict=True))
    offset, key, content = (np.array(column, np.int64) for column in (offsets, keys, contents))
    return ReplicaRecords(offset, key, content, np.frombuffer(may_go, np.bool_))
