"""What must hold of one file of a log, checked on what was read of it.

Offsets only grow, without a gap unless compaction made it; each batch carries the epoch that the checkpoint of epochs
has for its offset; the last file does not end below the high watermark. Its indexes: indexes.py. Of several
replicas: comparison.py.

Pure: columns in, findings out. The files are read in files.py.
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
    CRC = "crc"  # the bytes of a batch are not those that its checksum was made of
    FRAME = "no batch"  # bytes that are none
    TORN = "torn tail"  # a last batch that is not whole
    ORDER = "order"  # offsets that go back
    MISSING = "missing"  # offsets, batches or records that are not there
    EPOCH = "epoch"  # not the one that the checkpoint of epochs, or another replica, has
    BYTES = "bytes"  # not those that another replica has
    INDEX = "index"
    TIME_INDEX = "time index"
    TXN_INDEX = "txn index"
    FILE = "file"  # a snapshot, checkpoint or index that cannot be read at all
    SHORT = "short"  # the log ends below its own high watermark
    TOPIC = "topic id"  # replicas of topics that only have the name in common


@dataclass(frozen=True, slots=True)
class Finding:
    kind: FindingKind
    tp: TopicPartition | None  # None: of a whole log directory
    path: str
    position: int
    text: str
    offset: Offset | None = None

    @property
    def place(self) -> tuple[FindingKind, str, int]:
        """By which it is the same as another one."""
        return self.kind, self.path, self.position

    def __str__(self) -> str:
        return f"{self.path}: at byte {self.position}: {self.kind}: {self.text}"


@dataclass(frozen=True, slots=True)
class BatchColumns:
    """The batches of one file, or of several of one log, in their order: a column for each field."""

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
        """From the fields of the batches, one after the other."""
        return cls(*np.array(rows, np.int64).reshape(-1, cls.COLUMNS).T)

    def __len__(self) -> int:
        return len(self.base)

    def version(self, row: int) -> tuple[int, ...]:
        """What is the same for all replicas of a batch, its base offset first."""
        return tuple(int(column[row]) for column in (self.base, self.last, self.size, self.epoch, self.crc))

    def columns(self) -> tuple[Longs, ...]:
        return self.position, self.base, self.last, self.size, self.epoch, self.crc, self.max_timestamp

    @property
    def end(self) -> Offset | None:
        return int(self.last[-1]) + 1 if len(self) else None


@dataclass(frozen=True, slots=True)
class FileContent:
    """What was read of one file of a log."""

    tp: TopicPartition
    path: str
    base_offset: Offset
    next_base: Offset | None  # of the next segment
    batches: BatchColumns
    unreadable: tuple[tuple[int, int], ...] = ()  # from where to where in the file: what should be there is not known

    def finding(
        self, kind: FindingKind, position: int, text: str, offset: Offset | None = None, path: str = ""
    ) -> Finding:
        return Finding(kind, self.tp, path or self.path, int(position), text, None if offset is None else int(offset))

    @property
    def end(self) -> int:
        """Where the last batch ends, or the unreadable bytes after it."""
        behind = int(self.batches.position[-1] + self.batches.size[-1]) if len(self.batches) else 0
        return max([behind, *(end for _, end in self.unreadable)])

    def is_unreadable_before(self, position: int) -> bool:
        """Whether bytes that cannot be read lie directly before a position."""
        return any(end == position for _, end in self.unreadable)


def settle(read: FileContent) -> tuple[FileContent, list[Finding]]:
    """Reports batches whose offsets do not fit, and gives them fitting offsets for the checks that follow."""
    base, last = read.batches.base.copy(), read.batches.last.copy()
    findings: list[Finding] = []
    for n in np.flatnonzero(base[1:] <= last[:-1]).tolist():
        before = int(last[n - 1]) if n else read.base_offset - 1
        fits_without = before < base[n + 1]
        fits_without_next = n + 2 == len(base) or bool(base[n + 2] > last[n])
        if fits_without and (not fits_without_next or base[n] != before + 1):
            wrong, due = n, before + 1
        elif fits_without_next:
            wrong, due = n + 1, int(last[n]) + 1
        else:
            continue
        behind = int(base[wrong + 1]) if wrong + 1 < len(base) else due + int(last[wrong] - base[wrong]) + 1
        text = f"the offsets {base[wrong]} to {last[wrong]}, where {due} is the next"
        findings.append(read.finding(FindingKind.ORDER, read.batches.position[wrong], text, due))
        base[wrong], last[wrong] = due, behind - 1
    return replace(read, batches=replace(read.batches, base=base, last=last)), findings


def order(read: FileContent, compacted_until: Offset) -> Iterator[Finding]:
    """Offsets go on where they ended, from the file's base to that of the next one; compaction may leave gaps."""
    batches = read.batches
    expected = np.concatenate(([read.base_offset], batches.last + 1))
    following = np.concatenate((batches.base, [] if read.next_base is None else [read.next_base])).astype(np.int64)
    positions = np.append(batches.position, read.end)
    for n in np.flatnonzero(following != expected[: len(following)]).tolist():
        at, due, actual = int(positions[n]), int(expected[n]), int(following[n])
        if actual < due:
            yield read.finding(FindingKind.ORDER, at, f"offset {actual} follows, but {due} is the next", actual)
        elif due >= compacted_until and not read.is_unreadable_before(at):
            yield read.finding(FindingKind.MISSING, at, f"offsets {due} to {actual - 1} are not there", due)


def epochs(read: FileContent, entries: Sequence[EpochEntry]) -> Iterator[Finding]:
    """Each batch has the epoch in force at its offset; without a checkpoint, epochs at least do not go back."""
    batches = read.batches
    if not entries:
        back = np.flatnonzero(np.diff(batches.epoch) < 0) + 1
        for n in back.tolist():
            text = f"epoch {batches.epoch[n]} after epoch {batches.epoch[n - 1]}"
            yield read.finding(FindingKind.EPOCH, batches.position[n], text, batches.base[n])
        return
    starts = np.array([_long(entry.start_offset) for entry in entries])
    numbers = np.array([_long(entry.epoch) for entry in entries])
    slot = np.searchsorted(starts, batches.base, side="right") - 1
    due = np.where(slot >= 0, numbers[slot], batches.epoch)
    for n in np.flatnonzero(due != batches.epoch).tolist():
        text = f"the batch of offset {batches.base[n]} has epoch {batches.epoch[n]}, the checkpoint says {due[n]}"
        yield read.finding(FindingKind.EPOCH, batches.position[n], text, batches.base[n])


def _long(number: int) -> int:
    """A text may hold any number."""
    return max(min(number, NOWHERE), -NOWHERE)


def short(last: FileContent, high_watermark: Offset | None) -> Iterator[Finding]:
    """The last file of a log ends at its high watermark or after it: clients were promised all records below."""
    end = last.batches.end or last.base_offset
    if high_watermark is not None and end < high_watermark:
        yield last.finding(
            FindingKind.SHORT, last.end, f"the log ends at offset {end}, its high watermark is {high_watermark}", end
        )


def lookup(column: Longs, values: Longs) -> tuple[Longs, Bools]:
    """Where values stand in a sorted column, and whether they do."""
    at = np.searchsorted(column, values)
    return at, np.append(column, -1)[at] == values
