"""What must hold of several replicas: below the high watermark they are the same, batch by batch.

Where one was compacted, every record that another one still has is there, or was allowed to go: compaction keeps the
last record of each key, tombstones for a while, and nothing of aborted transactions.

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
    """What was read of one log, as far as a range of offsets goes."""

    tp: TopicPartition
    files: tuple[FileContent, ...]
    log_start: Offset
    high_watermark: Offset | None
    cleaned_until: Offset = 0  # compaction has been at work below

    @cached_property
    def batches(self) -> BatchColumns:
        columns = zip(*(file.batches.columns() for file in self.files), strict=True)
        return BatchColumns(*map(np.concatenate, columns)) if self.files else BatchColumns.of([])

    def file_of(self, row: int) -> FileContent:
        """The file that the n-th batch of all is in."""
        for file in self.files:
            if row < len(file.batches):
                return file
            row -= len(file.batches)
        return self.files[-1]

    def place_of(self, offset: Offset) -> tuple[FileContent, int]:
        """The file and the position of the batch that holds an offset, or follows it."""
        file = max((file for file in self.files if file.base_offset <= offset), key=lambda file: file.base_offset)
        row = int(np.searchsorted(file.batches.last, offset))
        return file, int(file.batches.position[row]) if row < len(file.batches) else file.end

    @property
    def has_holes(self) -> bool:
        return any(file.unreadable for file in self.files)


def committed_until(replicas: Sequence[ReplicaContent]) -> Offset:
    """Below this all of them must agree: the highest watermark that one has; without any, what all of them hold."""
    marks = [replica.high_watermark for replica in replicas if replica.high_watermark is not None]
    return max(marks) if marks else min((replica.batches.end or 0 for replica in replicas), default=0)


def compare(replicas: Sequence[ReplicaContent], first: Offset, until: Offset) -> Iterator[Finding]:
    """Where the others differ from the first one, in offsets that both hold, batch by batch. The fewer are wrong."""
    holding = [replica for replica in replicas if len(replica.batches)]
    for other in holding[1:]:
        yield from _compare(holding, holding[0], other, first, until)


def _compare(
    all_of_them: Sequence[ReplicaContent],
    first_replica: ReplicaContent,
    other: ReplicaContent,
    first: Offset,
    until: Offset,
) -> Iterator[Finding]:
    ours, theirs = first_replica.batches, other.batches
    first = max(first, int(ours.base[0]), int(theirs.base[0]), first_replica.log_start, other.log_start)
    until = min(until, int(ours.last[-1]) + 1, int(theirs.last[-1]) + 1)
    rows, their_rows = (np.flatnonzero((b.base >= first) & (b.last < until)) for b in (ours, theirs))
    if _alike(ours, rows, theirs, their_rows):
        return
    _, mine, yours = np.intersect1d(ours.base[rows], theirs.base[their_rows], return_indices=True)
    mine, yours = rows[mine], their_rows[yours]
    for begin, behind in _runs(_differences(ours, mine, theirs, yours)):
        row, their_row, last = int(mine[begin]), int(yours[begin]), int(ours.last[mine[behind - 1]])
        if _votes(all_of_them, theirs.version(their_row)) > _votes(all_of_them, ours.version(row)):
            yield _difference(other, their_row, first_replica, row, last)
        else:
            yield _difference(first_replica, row, other, their_row, last)
    yield from _lacking(first_replica, other, first, until)
    yield from _lacking(other, first_replica, first, until)


def _votes(replicas: Iterable[ReplicaContent], version: tuple[int, ...]) -> int:
    """How many have a batch as it is."""
    rows = ((replica.batches, int(np.searchsorted(replica.batches.base, version[0]))) for replica in replicas)
    return sum(row < len(batches) and batches.version(row) == version for batches, row in rows)


def _alike(ours: BatchColumns, rows: Longs, theirs: BatchColumns, their_rows: Longs) -> bool:
    return len(rows) == len(their_rows) and not _differences(ours, rows, theirs, their_rows).any()


def _differences(ours: BatchColumns, rows: Longs, theirs: BatchColumns, their_rows: Longs) -> Bools:
    differ = np.zeros(len(rows), np.bool_)
    for name in ("base", "last", "size", "epoch", "crc"):
        differ |= getattr(ours, name)[rows] != getattr(theirs, name)[their_rows]
    return differ


def _runs(flags: Bools) -> Iterator[tuple[int, int]]:
    """From where to where flags are set without a gap."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], flags.astype(np.int8), [0]))))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def _difference(right: ReplicaContent, right_row: int, wrong: ReplicaContent, row: int, last: Offset) -> Finding:
    """Of batches up to one that ends with `last`."""
    due, actual = right.batches, wrong.batches
    base, mark = int(actual.base[row]), wrong.high_watermark
    offsets = f"the offsets {base} to {last}" if last > actual.last[row] else f"the batch of offset {base}"
    parts = [
        f"{label} {getattr(actual, name)[row]}, not {getattr(due, name)[right_row]}"
        for name, label in (("epoch", "epoch"), ("last", "last offset"), ("size", "size"), ("crc", "CRC"))
        if getattr(actual, name)[row] != getattr(due, name)[right_row]
    ]
    there = f"as in {right.file_of(right_row).path} at byte {due.position[right_row]}"
    above = "; above its own high watermark: it will be cut off there" if mark is not None and base >= mark else ""
    kind = FindingKind.EPOCH if actual.epoch[row] != due.epoch[right_row] else FindingKind.BYTES
    text = f"{offsets}: {', '.join(parts)} {there}{above}"
    return wrong.file_of(row).finding(kind, actual.position[row], text, base)


def _lacking(holder: ReplicaContent, lacking: ReplicaContent, first: Offset, until: Offset) -> Iterator[Finding]:
    """Batches of the one that the other does not have, or has cut differently."""
    held, lacked = holder.batches, lacking.batches
    rows = np.flatnonzero((held.base >= first) & (held.last < until) & ~np.isin(held.base, lacked.base))
    holders = np.searchsorted(lacked.last, held.base[rows])  # the batch there that holds the offset, or follows it
    for at, begin, count in zip(*np.unique(holders, return_index=True, return_counts=True), strict=True):
        if at == len(lacked) or lacking.has_holes:
            continue  # unreadable bytes are reported already
        row, last_row = rows[begin], rows[begin + count - 1]
        is_there = lacked.base[at] <= held.base[row]
        kind, what = (
            (FindingKind.BYTES, "are part of a larger batch") if is_there else (FindingKind.MISSING, "are not there")
        )
        there = f"{holder.file_of(row).path} from byte {held.position[row]} on"
        text = f"offsets {held.base[row]} to {held.last[last_row]} {what}; they are in {there}"
        yield lacking.file_of(at).finding(kind, lacked.position[at], text, held.base[row])


# What compaction left


@dataclass(frozen=True, slots=True)
class ReplicaRecords:
    """The records of one log, without those of aborted transactions."""

    offset: Longs
    key: Longs  # a hash; of no meaning where there is none
    content: Longs  # a hash of key, value and time
    may_go: Bools  # without a key or a value: compaction may drop it on its own account


def compare_compacted(
    replica: ReplicaContent,
    records: ReplicaRecords,
    other: ReplicaContent,
    their_records: ReplicaRecords,
    until: Offset,
) -> Iterator[Finding]:
    """Each record of the first one is in the other, and the same there, unless that was compacted and may lack it."""
    first, cleaned_until = max(replica.log_start, other.log_start), other.cleaned_until
    theirs = their_records.offset
    end = min(until, int(theirs[-1]) + 1) if len(theirs) else first
    inside = (records.offset >= first) & (records.offset < end)
    at, there = lookup(theirs, records.offset)
    rows = np.flatnonzero(inside & there)
    for row in rows[records.content[rows] != their_records.content[at[rows]]].tolist():
        yield _of_record(other, int(records.offset[row]), "differs from that", replica, FindingKind.BYTES)
    newest = _newest(records, their_records, cleaned_until)
    for row in np.flatnonzero(inside & ~there & ~records.may_go).tolist():
        offset = int(records.offset[row])
        if offset >= cleaned_until or newest.get(int(records.key[row]), -1) <= offset:
            yield _of_record(
                other, offset, "is not there, and nothing newer of its key; it is", replica, FindingKind.MISSING
            )


def _newest(records_a: ReplicaRecords, records_b: ReplicaRecords, until: Offset) -> dict[int, Offset]:
    """The last offset of each key below an offset, by either."""
    newest: dict[int, Offset] = {}
    for records in (records_a, records_b):
        below = records.offset < until
        for key, offset in zip(records.key[below].tolist(), records.offset[below].tolist(), strict=True):
            if offset > newest.get(key, -1):
                newest[key] = offset
    return newest


def _of_record(here: ReplicaContent, offset: Offset, what: str, there: ReplicaContent, kind: FindingKind) -> Finding:
    """At the batch that holds an offset, or would."""
    file, position = here.place_of(offset)
    other, other_position = there.place_of(offset)
    text = f"the record of offset {offset} {what} in {other.path} at byte {other_position}"
    return file.finding(kind, position, text, offset)
