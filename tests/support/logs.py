"""Logs for tests: a clock that stands still until moved, a background that runs at once, short ways to batches."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from leadline.config.topic import LogConfig
from leadline.errors import CorruptFile, LogDirFailed
from leadline.log import segment_removal
from leadline.log.compaction import CleanerThrottle, Compaction
from leadline.log.compaction_request import CleanedGroup, CompactionRequest
from leadline.log.files import unusable_file
from leadline.log.local_log import LocalLog
from leadline.log.log import Log, ReadResult
from leadline.log.log_context import LogContext
from leadline.log.producer_state import AppendOrigin
from leadline.log.recovery import Opening, open_log
from leadline.model import Offset, TopicPartition
from leadline.records.batch import walk
from leadline.records.build import BatchFields, build
from leadline.records.compression import Codec
from leadline.records.control import ControlType, EndMarker, end_marker
from leadline.records.record import Record, records_of
from leadline.runtime.ports import Files, OsFiles
from tests.support.chance import SeededChance
from tests.support.inline_background import InlineBackground

TP = TopicPartition("orders", 0)
START_MS = 1_700_000_000_000


class ManualClock:
    def __init__(self, now_ms: int = START_MS) -> None:
        self.ms, self.ahead_ms = now_ms, 0  # the wall clock may be ahead of the one that never goes back

    def now_ms(self) -> int:
        return self.ms + self.ahead_ms

    def monotonic_s(self) -> float:
        return self.ms / 1000


class LogBench:
    """A partition's directory, and the log opened on it again and again."""

    def __init__(
        self,
        parent: Path,
        settings: Mapping[str, str] | None = None,
        files: Files | None = None,
        tp: TopicPartition = TP,
    ) -> None:
        self.tp, self.directory = tp, parent / str(tp)
        self.clock, self.config = ManualClock(), LogConfig.parse(settings or {})
        self.files: Files = files or OsFiles()
        self.failures: list[LogDirFailed] = []
        self.unusable: list[CorruptFile] = []  # files that took a log offline
        self.background = InlineBackground(str(parent), self.failures.append)
        self.context = LogContext(self.clock, SeededChance(), self.files, self.background, self.failed)
        self.directory.mkdir(exist_ok=True)

    def failed(self, log: LocalLog, doing: str, error: OSError | CorruptFile) -> None:
        """As `LogDirs.log_failed`."""
        if (unusable := unusable_file(error, log.directory)) is not None:
            self.unusable.append(unusable)
            log.go_offline(f"{log.tp} is offline: {unusable}")
        else:
            self.failures.append(failure := LogDirFailed(log.parent, f"{doing} {log.tp}", error))
            log.go_offline(f"{log.tp} is offline: {failure}")

    def open(
        self, *, clean: bool = True, recovery_point: Offset = 0, log_start: Offset = 0, contiguous: bool = False
    ) -> Log:
        directory = str(self.directory)
        opening = Opening(self.tp, directory, self.config, clean, recovery_point, log_start, contiguous=contiguous)
        return open_log(opening, self.context)


def records(count: int, timestamp: int = START_MS, key: str | None = "k", size: int = 10) -> list[Record]:
    return [Record(n, timestamp + n, f"{key}{n}".encode() if key else None, b"v" * size) for n in range(count)]


def batch(
    count: int = 1,
    *,
    timestamp: int = START_MS,
    key: str | None = "k",
    size: int = 10,
    producer_id: int = -1,
    producer_epoch: int = 0,
    sequence: int = 0,
    transactional: bool = False,
    codec: Codec = Codec.NONE,
) -> bytearray:
    is_idempotent = producer_id >= 0
    fields = BatchFields(
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch if is_idempotent else -1,
        base_sequence=sequence if is_idempotent else -1,
        transactional=transactional,
    )
    return build(records(count, timestamp, key, size), fields)


def marker(producer_id: int, *, commit: bool, producer_epoch: int = 0, coordinator_epoch: int = 0) -> bytearray:
    kind = ControlType.COMMIT if commit else ControlType.ABORT
    return end_marker(EndMarker(kind, coordinator_epoch, START_MS), producer_id, producer_epoch)


def at_offset(data: bytearray, base_offset: Offset, leader_epoch: int = 0) -> bytearray:
    """A batch as a leader would send it to a follower."""
    data = bytearray(data)
    data[0:8] = base_offset.to_bytes(8, "big")
    data[12:16] = leader_epoch.to_bytes(4, "big", signed=True)
    return data


def compact(log: Log, request: CompactionRequest) -> list[CleanedGroup]:
    """One pass, as a cleaner would have it made, in this process."""
    groups, throttle = [], CleanerThrottle(1e12, lambda: 0.0, lambda _: None)
    for group in Compaction(request, OsFiles(), ManualClock(), throttle, bytes(range(16))).run():
        new = segment_removal.cleaned_segment(log, group.bases[0])
        segment_removal.ready_to_swap(log, new)
        old = [segment for segment in log.segments if segment.base_offset in group.bases]
        segment_removal.swap_in(log, new, old)
        segment_removal.swapped_in(log, new)
        groups.append(group)
    return groups


def bytes_of(read: ReadResult, files: Files | None = None) -> bytes:
    if read.slice is None:
        return b""
    return (files or OsFiles()).pread(read.slice.file.fd, read.slice.length, read.slice.position)


def records_in(data: bytes) -> list[Record]:
    return [record for position, header in walk(data) for record in records_of(data, position, header)]


def offsets_in(data: bytes) -> list[Offset]:
    return [record.offset for record in records_in(data)]


def whole_log(log: Log, files: Files | None = None) -> bytes:
    """Every byte of it, segment by segment."""
    files = files or OsFiles()
    return b"".join(files.pread(s.file.fd, s.size, 0) for s in log.segments)


def listing(directory: Path) -> Sequence[str]:
    return sorted(path.name for path in directory.iterdir())


def append_batches(log: Log, *counts: int) -> list[bytes]:
    """One batch for each count, all of it replicated."""
    written = []
    for count in counts:
        data = batch(count)
        log.append_as_leader(data, 0)
        written.append(bytes(data))
    log.advance_high_watermark(log.log_end)
    return written


def three_segments(parent: Path) -> LogBench:
    """Three segments of three records, each with its own epoch; an aborted transaction in the second."""
    bench = LogBench(parent, {"index.interval.bytes": "100"})
    log = bench.open()
    for n in range(3):
        if n:
            log.roll()
        log.append_as_leader(batch(producer_id=1, sequence=n), n)
        log.append_as_leader(batch(producer_id=2, sequence=n, transactional=True), n)
        log.append_as_leader(marker(2, commit=n != 1), n, AppendOrigin.COORDINATOR)
    log.close()
    return bench


def holds_everything(log: Log) -> bool:
    aborted = [(txn.producer_id, txn.first_offset, txn.last_offset) for txn in log.aborted_between(0, 9)]
    return (
        offsets_in(whole_log(log)) == list(range(9))
        and [tuple(entry) for entry in log.epochs.entries] == [(0, 0), (1, 3), (2, 6)]
        and aborted == [(2, 4, 5)]
        and {producer_id: entry.last_sequence for producer_id, entry in log.producer_state.by_id.items()}
        == {1: 2, 2: 2}
    )
