"""The comparison of replicas: below the high watermark they hold the same batches.

A compacted replica may lack records that another one still holds. Compaction keeps the last record of each key, keeps
tombstones for a while, and removes records of aborted transactions. Every other missing record is a finding.

Pure: columns in, findings out.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from leadline.model import Offset, TopicPartition
from leadline.spark.audit.checks import BatchColumns, Bools, FileContent, Finding, FindingKind, Longs, lookup


@dataclass(frozen=True)
class ReplicaContent:
    """The content of one log, within a range of offsets."""

    tp: TopicPartition
    files: tuple[FileContent, ...]
    log_start: Offset
    high_watermark: Offset | None
    cleaned_until: Offset = 0  # offsets below it were compacted

    @cached_property
    def batches(self) -> BatchColumns:
        columns = zip(*(file.batches.columns() for file in self.files), strict=True)
        return BatchColumns(*map(np.concatenate, columns)) if self.files else BatchColumns.of([])

    def file_of(self, row: int) -> FileContent:
        """The file that holds a batch, by the row of the batch in `batches`."""
        for file in self.files:
            if row < len(file.batches):
                return file
            row -= len(file.batches)
        return self.files[-1]

    def place_of(self, offset: Offset) -> tuple[FileContent, int]:
        """The file and position of the batch that holds the offset; if none does, of the batch after it."""
        file = max((file for file in self.files if file.base_offset <= offset), key=lambda file: file.base_offset)
        row = int(np.searchsorted(file.batches.last, offset))
        return file, int(file.batches.position[row]) if row < len(file.batches) else file.end

    @property
    def has_holes(self) -> bool:
        return any(file.unreadable for file in self.files)


def committed_until(replicas: Sequence[ReplicaContent]) -> Offset:
    """All replicas must agree below this offset: the highest high watermark, or the lowest log end if there is none."""
    marks = [replica.high_watermark for replica in replicas if replica.high_watermark is not None]
    return max(marks) if marks else min((replica.batches.end or 0 for replica in replicas), default=0)


def compare(replicas: Sequence[ReplicaContent], first: Offset, until: Offset) -> Iterator[Finding]:
    """The differences between the first replica and each other one, batch by batch, in offsets that both hold.

    The version of a batch that more replicas hold is the right one.
    """
    holding = [replica for replica in replicas if len(replica.batches)]
    for other in holding[1:]:
        yield from _compare(holding, holding[0], other, first, until)


def _compare(
    replicas: Sequence[ReplicaContent],
    first_replica: ReplicaContent,
    other: ReplicaContent,
    first: Offset,
    until: Offset,
) -> Iterator[Finding]:
    batches, other_batches = first_replica.batches, other.batches
    first = max(first, int(batches.base[0]), int(other_batches.base[0]), first_replica.log_start, other.log_start)
    until = min(until, int(batches.last[-1]) + 1, int(other_batches.last[-1]) + 1)
    rows, other_rows = (np.flatnonzero((b.base >= first) & (b.last < until)) for b in (batches, other_batches))
    if _alike(batches, rows, other_batches, other_rows):
        return
    _, common, other_common = np.intersect1d(batches.base[rows], other_batches.base[other_rows], return_indices=True)
    common, other_common = rows[common], other_rows[other_common]
    for start, end in _runs(_differences(batches, common, other_batches, other_common)):
        row, other_row, last = int(common[start]), int(other_common[start]), int(batches.last[common[end - 1]])
        if _votes(replicas, other_batches.version(other_row)) > _votes(replicas, batches.version(row)):
            yield _difference(other, other_row, first_replica, row, last)
        else:
            yield _difference(first_replica, row, other, other_row, last)
    yield from _missing_batches(first_replica, other, first, until)
    yield from _missing_batches(other, first_replica, first, until)


def _votes(replicas: Iterable[ReplicaContent], version: tuple[int, ...]) -> int:
    """How many replicas hold this version of a batch."""
    rows = ((replica.batches, int(np.searchsorted(replica.batches.base, version[0]))) for replica in replicas)
    return sum(row < len(batches) and batches.version(row) == version for batches, row in rows)


def _alike(batches: BatchColumns, rows: Longs, other_batches: BatchColumns, other_rows: Longs) -> bool:
    return len(rows) == len(other_rows) and not _differences(batches, rows, other_batches, other_rows).any()


def _differences(batches: BatchColumns, rows: Longs, other_batches: BatchColumns, other_rows: Longs) -> Bools:
    differ = np.zeros(len(rows), np.bool_)
    for name in ("base", "last", "size", "epoch", "crc"):
        differ |= getattr(batches, name)[rows] != getattr(other_batches, name)[other_rows]
    return differ


def _runs(flags: Bools) -> Iterator[tuple[int, int]]:
    """The start and end of each run of flags that are set."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], flags.astype(np.int8), [0]))))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def _difference(right: ReplicaContent, right_row: int, wrong: ReplicaContent, row: int, last: Offset) -> Finding:
    """The finding for a run of different batches, which ends at offset `last`."""
    right_batches, wrong_batches = right.batches, wrong.batches
    base, mark = int(wrong_batches.base[row]), wrong.high_watermark
    offsets = f"the offsets {base} to {last}" if last > wrong_batches.last[row] else f"the batch of offset {base}"
    parts = [
        f"{label} {getattr(wrong_batches, name)[row]}, not {getattr(right_batches, name)[right_row]}"
        for name, label in (("epoch", "epoch"), ("last", "last offset"), ("size", "size"), ("crc", "CRC"))
        if getattr(wrong_batches, name)[row] != getattr(right_batches, name)[right_row]
    ]
    reference = f"as in {right.file_of(right_row).path} at byte {right_batches.position[right_row]}"
    above = "; above its own high watermark: it will be cut off there" if mark is not None and base >= mark else ""
    kind = FindingKind.EPOCH if wrong_batches.epoch[row] != right_batches.epoch[right_row] else FindingKind.BYTES
    text = f"{offsets}: {', '.join(parts)} {reference}{above}"
    return wrong.file_of(row).finding(kind, wrong_batches.position[row], text, base)


def _missing_batches(holder: ReplicaContent, other: ReplicaContent, first: Offset, until: Offset) -> Iterator[Finding]:
    """The batches that `other` lacks, or holds within a larger batch."""
    batches, other_batches = holder.batches, other.batches
    rows = np.flatnonzero((batches.base >= first) & (batches.last < until) & ~np.isin(batches.base, other_batches.base))
    # The row of the other replica's batch that holds the offset; if none does, of the batch after it.
    holders = np.searchsorted(other_batches.last, batches.base[rows])
    for at, start, count in zip(*np.unique(holders, return_index=True, return_counts=True), strict=True):
        if at == len(other_batches) or other.has_holes:
            continue  # file_scan.py reports unreadable bytes
        row, last_row = rows[start], rows[start + count - 1]
        is_there = other_batches.base[at] <= batches.base[row]
        kind, what = (
            (FindingKind.BYTES, "are part of a larger batch") if is_there else (FindingKind.MISSING, "are missing")
        )
        reference = f"{holder.file_of(row).path} from byte {batches.position[row]} on"
        text = f"offsets {batches.base[row]} to {batches.last[last_row]} {what}; they are in {reference}"
        yield other.file_of(at).finding(kind, other_batches.position[at], text, batches.base[row])


# Compacted replicas


@dataclass(frozen=True, slots=True)
class ReplicaRecords:
    """The records of one log, without records of aborted transactions."""

    offset: Longs
    key: Longs  # a hash; meaningless for a record without a key
    content: Longs  # a hash of key, value and time
    may_go: Bools  # has no key or no value: compaction may remove it although no newer record has its key


def compare_compacted(
    replica: ReplicaContent,
    records: ReplicaRecords,
    other: ReplicaContent,
    other_records: ReplicaRecords,
    until: Offset,
) -> Iterator[Finding]:
    """The other replica holds each record of the first one, unchanged, unless compaction was allowed to remove it."""
    first, cleaned_until = max(replica.log_start, other.log_start), other.cleaned_until
    other_offsets = other_records.offset
    end = min(until, int(other_offsets[-1]) + 1) if len(other_offsets) else first
    inside = (records.offset >= first) & (records.offset < end)
    at, is_in_other = lookup(other_offsets, records.offset)
    rows = np.flatnonzero(inside & is_in_other)
    for row in rows[records.content[rows] != other_records.content[at[rows]]].tolist():
        yield _record_finding(other, int(records.offset[row]), "differs from that", replica, FindingKind.BYTES)
    newest = _newest(records, other_records, cleaned_until)
    for row in np.flatnonzero(inside & ~is_in_other & ~records.may_go).tolist():
        offset = int(records.offset[row])
        if offset >= cleaned_until or newest.get(int(records.key[row]), -1) <= offset:
            what = "is missing, and so is any newer record of its key; it is"
            yield _record_finding(other, offset, what, replica, FindingKind.MISSING)


def _newest(records_a: ReplicaRecords, records_b: ReplicaRecords, until: Offset) -> dict[int, Offset]:
    """The last offset of each key in either replica, below an offset."""
    newest: dict[int, Offset] = {}
    for records in (records_a, records_b):
        below = records.offset < until
        for key, offset in zip(records.key[below].tolist(), records.offset[below].tolist(), strict=True):
            if offset > newest.get(key, -1):
                newest[key] = offset
    return newest


def _record_finding(
    replica: ReplicaContent, offset: Offset, what: str, other: ReplicaContent, kind: FindingKind
) -> Finding:
    """A finding at the batch that holds the offset, or at the one after it."""
    file, position = replica.place_of(offset)
    other_file, other_position = other.place_of(offset)
    text = f"the record of offset {offset} {what} in {other_file.path} at byte {other_position}"
    return file.finding(kind, position, text, offset)
