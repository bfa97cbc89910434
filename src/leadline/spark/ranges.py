"""Which offsets a batch reads, and which task reads which of them.

A range is offsets of one partition that are read in order. Big ones are split, so that many tasks share them; small
ones are packed into one task, so that a thousand quiet partitions do not cost a thousand tasks.
    every offset of the ranges that are planned is in exactly one task, and the ranges of a task are in order

Pure: offsets in, plans out.
"""

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from leadline.model import Offset, TopicPartition

SPLIT_BYTES = 128 << 20  # a task reads so much of one partition at most
PACK_BYTES = 16 << 20  # and so much of several
UNKNOWN_BYTES = 256.0  # of a record, where nobody could tell


@dataclass(frozen=True, slots=True, order=True)
class Range:
    tp: TopicPartition
    first: Offset
    until: Offset  # exclusive

    @property
    def length(self) -> int:
        """Of offsets; of records there may be fewer."""
        return self.until - self.first


Task = tuple[Range, ...]


def plan(
    ranges: Iterable[Range],
    bytes_per_offset: Mapping[TopicPartition, float],
    *,
    min_tasks: int = 1,
    max_records: int | None = None,
    split_bytes: int = SPLIT_BYTES,
    pack_bytes: int = PACK_BYTES,
) -> list[Task]:
    """At least `min_tasks` of them, where there are as many offsets; each of at most `max_records`."""

    def size(one: Range) -> float:
        return one.length * bytes_per_offset.get(one.tp, UNKNOWN_BYTES)

    wanted = [one for one in ranges if one.length > 0]
    counts = [_pieces(one, size(one), split_bytes, max_records) for one in wanted]
    _raise_to(counts, wanted, min_tasks)
    pieces = [piece for one, count in zip(wanted, counts, strict=True) for piece in split(one, count)]
    limit = min(pack_bytes, sum(map(size, pieces)) / max(min_tasks, 1))
    return _spread(_pack(pieces, list(map(size, pieces)), limit, max_records), min_tasks)


def _pieces(one: Range, size: float, split_bytes: int, max_records: int | None) -> int:
    by_records = math.ceil(one.length / max_records) if max_records else 1
    return min(max(math.ceil(size / split_bytes), by_records, 1), one.length)


def _raise_to(counts: list[int], wanted: Sequence[Range], least: int) -> None:
    """More pieces, always of the range whose pieces are the biggest, until there are enough."""
    biggest = [(-one.length / count, n) for n, (one, count) in enumerate(zip(wanted, counts, strict=True))]
    heapq.heapify(biggest)
    for _ in range(least - sum(counts)):
        if not biggest or -biggest[0][0] <= 1:
            return
        _, n = biggest[0]
        counts[n] += 1
        heapq.heapreplace(biggest, (-wanted[n].length / counts[n], n))


def split(one: Range, count: int) -> list[Range]:
    """Into so many pieces of the same length, or one more."""
    cuts = [one.first + one.length * n // count for n in range(count + 1)]
    return [Range(one.tp, first, until) for first, until in pairwise(cuts)]


def _pack(pieces: Sequence[Range], sizes: Sequence[float], limit: float, max_records: int | None) -> list[Task]:
    tasks: list[Task] = []
    task: list[Range] = []
    filled, records = 0.0, 0
    for piece, size in zip(pieces, sizes, strict=True):
        full = filled + size > limit or (max_records is not None and records + piece.length > max_records)
        if task and full:
            tasks.append(tuple(task))
            task, filled, records = [], 0.0, 0
        task.append(piece)
        filled, records = filled + size, records + piece.length
    return [*tasks, tuple(task)] if task else tasks


def _spread(tasks: list[Task], least: int) -> list[Task]:
    """Take packed ranges apart again, where packing left too few tasks."""
    while len(tasks) < least and any(len(task) > 1 for task in tasks):
        n = max(range(len(tasks)), key=lambda n: len(tasks[n]))
        half = len(tasks[n]) // 2
        tasks[n : n + 1] = [tasks[n][:half], tasks[n][half:]]
    return tasks


def admit(
    begin: Mapping[TopicPartition, Offset],
    end: Mapping[TopicPartition, Offset],
    bytes_per_offset: Mapping[TopicPartition, float],
    *,
    max_offsets: int | None = None,
    max_bytes: int | None = None,
) -> dict[TopicPartition, Offset]:
    """How far to read now, under limits: the same share of what each partition has, and at least one offset of each."""
    ranges = [Range(tp, begin.get(tp, until), until) for tp, until in end.items()]
    offsets = sum(max(one.length, 0) for one in ranges)
    size = sum(max(one.length, 0) * bytes_per_offset.get(one.tp, UNKNOWN_BYTES) for one in ranges)
    share = min(
        1.0,
        max_offsets / offsets if max_offsets is not None and offsets else 1.0,
        max_bytes / size if max_bytes is not None and size else 1.0,
    )
    if share == 1.0:
        return dict(end)
    return {one.tp: one.first + max(1, int(one.length * share)) if one.length > 0 else one.until for one in ranges}
