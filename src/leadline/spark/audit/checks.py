"""The checks of one segment file, on its content.

    offsets increase, without a gap unless compaction made it
    each batch carries the epoch that the leader epoch checkpoint has for its offset
    the last segment of a log does not end below the high watermark

The checks of its indexes are in indexes.py, those of several replicas in comparison.py.

Pure: columns in, findings out. file_scan.py reads the files.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from leadline.log.checkpoints import EpochEntry
from leadline.model import Offset, TopicPartition

Longs = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
NOWHERE = (1 << 63) - 1  # an offset after all others


class FindingKind(StrEnum):
    CRC = "crc"  # the checksum of a batch does not match its bytes
    FRAME = "no batch"  # bytes that are not a batch
    TORN = "torn tail"  # the last batch is incomplete
    ORDER = "order"  # offsets decrease
    MISSING = "missing"  # offsets, batches or records are missing
    EPOCH = "epoch"  # differs from the leader epoch checkpoint, or from another replica
    BYTES = "bytes"  # differ from another replica
    INDEX = "index"
    TIME_INDEX = "time index"
    TXN_INDEX = "txn index"
    FILE = "file"  # a snapshot, checkpoint or index cannot be read
    SHORT = "short"  # the log ends below its own high watermark
    TOPIC = "topic id"  # replicas of different topics that have the same name


@dataclass(frozen=True, slots=True)
class Finding:
    kind: FindingKind
    tp: TopicPartition | None  # None: the finding concerns a whole log directory
    path: str
    position: int
    text: str
    offset: Offset | None = None

    @property
    def place(self) -> tuple[FindingKind, str, int]:
        """Two findings with the same place are the same finding."""
        return self.kind, self.path, self.position

    def __str__(self) -> str:
        return f"{self.path}: at byte {self.position}: {self.kind}: {self.text}"


@dataclass(frozen=True, slots=True)
class BatchColumns:
    """The batches of one or several segments of a log, in order: a column for each field."""

    position: Longs
    base: Longs
    last: Longs
    size: Longs
    epoch: Longs
    crc: Longs
    max_timestamp: Longs

    COLUMNS = 7

    @classmethod
    def of(cls, rows: Sequence[int]) -> "BatchColumns":
        """From the fields of the first batch, then those of the second, and so on."""
        return cls(*np.array(rows, np.int64).reshape(-1, cls.COLUMNS).T)

    def __len__(self) -> int:
        return len(self.base)

    def version(self, row: int) -> tuple[int, ...]:
        """The fields that are equal in all replicas of a batch. The base offset comes first."""
        return tuple(int(column[row]) for column in (self.base, self.last, self.size, self.epoch, self.crc))

    def columns(self) -> tuple[Longs, ...]:
        return self.position, self.base, self.last, self.size, self.epoch, self.crc, self.max_timestamp

    @property
    def end(self) -> Offset | None:
        return int(self.last[-1]) + 1 if len(self) else None


@dataclass(frozen=True, slots=True)
class FileContent:
    """The content of one segment file."""

    tp: TopicPartition
    path: str
    base_offset: Offset
    next_base: Offset | None  # of the next segment
    batches: BatchColumns
    unreadable: tuple[tuple[int, int], ...] = ()  # start and end positions of bytes that are not a batch

    def finding(
        self, kind: FindingKind, position: int, text: str, offset: Offset | None = None, path: str = ""
    ) -> Finding:
        return Finding(kind, self.tp, path or self.path, int(position), text, None if offset is None else int(offset))

    @property
    def end(self) -> int:
        """The position after the last batch, or after the unreadable bytes that follow it."""
        batches_end = int(self.batches.position[-1] + self.batches.size[-1]) if len(self.batches) else 0
        return max([batches_end, *(end for _, end in self.unreadable)])

    def is_unreadable_before(self, position: int) -> bool:
        """Whether unreadable bytes end at the position."""
        return any(end == position for _, end in self.unreadable)


def settle(content: FileContent) -> tuple[FileContent, list[Finding]]:
    """Reports batches with wrong offsets, and corrects the offsets, so that later checks do not report them again."""
    base, last = content.batches.base.copy(), content.batches.last.copy()
    findings: list[Finding] = []
    for n in np.flatnonzero(base[1:] <= last[:-1]).tolist():
        before = int(last[n - 1]) if n else content.base_offset - 1
        fits_without = before < base[n + 1]
        fits_without_next = n + 2 == len(base) or bool(base[n + 2] > last[n])
        if fits_without and (not fits_without_next or base[n] != before + 1):
            wrong, expected = n, before + 1
        elif fits_without_next:
            wrong, expected = n + 1, int(last[n]) + 1
        else:
            continue
        next_base = int(base[wrong + 1]) if wrong + 1 < len(base) else expected + int(last[wrong] - base[wrong]) + 1
        text = f"offsets {base[wrong]} to {last[wrong]}, but {expected} is the next"
        findings.append(content.finding(FindingKind.ORDER, content.batches.position[wrong], text, expected))
        base[wrong], last[wrong] = expected, next_base - 1
    return replace(content, batches=replace(content.batches, base=base, last=last)), findings


def order(content: FileContent, compacted_until: Offset) -> Iterator[Finding]:
    """Offsets continue without a gap, from the file's base offset to that of the next file. Compaction leaves gaps."""
    batches = content.batches
    expected_offsets = np.concatenate(([content.base_offset], batches.last + 1))
    next_base = [] if content.next_base is None else [content.next_base]
    following = np.concatenate((batches.base, next_base)).astype(np.int64)
    positions = np.append(batches.position, content.end)
    for n in np.flatnonzero(following != expected_offsets[: len(following)]).tolist():
        at, expected, actual = int(positions[n]), int(expected_offsets[n]), int(following[n])
        if actual < expected:
            yield content.finding(FindingKind.ORDER, at, f"offset {actual} follows, but {expected} is the next", actual)
        elif expected >= compacted_until and not content.is_unreadable_before(at):
            text = f"offsets {expected} to {actual - 1} are missing"
            yield content.finding(FindingKind.MISSING, at, text, expected)


def epochs(content: FileContent, entries: Sequence[EpochEntry]) -> Iterator[Finding]:
    """Each batch has the epoch of its offset in the checkpoint. Without a checkpoint, epochs do not decrease."""
    batches = content.batches
    if not entries:
        back = np.flatnonzero(np.diff(batches.epoch) < 0) + 1
        for n in back.tolist():
            text = f"epoch {batches.epoch[n]} after epoch {batches.epoch[n - 1]}"
            yield content.finding(FindingKind.EPOCH, batches.position[n], text, batches.base[n])
        return
    starts = np.array([_long(entry.start_offset) for entry in entries])
    numbers = np.array([_long(entry.epoch) for entry in entries])
    slot = np.searchsorted(starts, batches.base, side="right") - 1
    expected = np.where(slot >= 0, numbers[slot], batches.epoch)
    for n in np.flatnonzero(expected != batches.epoch).tolist():
        text = f"the batch of offset {batches.base[n]} has epoch {batches.epoch[n]}, the checkpoint says {expected[n]}"
        yield content.finding(FindingKind.EPOCH, batches.position[n], text, batches.base[n])


def _long(number: int) -> int:
    """A checkpoint is a text, which may hold numbers of any size: they are cut to 64 bits."""
    return max(min(number, NOWHERE), -NOWHERE)


def short(last: FileContent, high_watermark: Offset | None) -> Iterator[Finding]:
    """The log ends at its high watermark or after it. All records below the high watermark were acknowledged."""
    end = last.batches.end or last.base_offset
    if high_watermark is not None and end < high_watermark:
        yield last.finding(
            FindingKind.SHORT, last.end, f"the log ends at offset {end}; its high watermark is {high_watermark}", end
        )


def lookup(column: Longs, values: Longs) -> tuple[Longs, Bools]:
    """The positions of values in a sorted column, and whether the column holds them."""
    at = np.searchsorted(column, values)
    return at, np.append(column, -1)[at] == values
