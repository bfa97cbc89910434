"""The ranges of offsets that a batch reads, and their division into tasks.

A range holds offsets of one partition, which are read in order. A big range is split among tasks. Small ranges share a
task, so that a thousand quiet partitions do not cost a thousand tasks.
    every planned offset is in exactly one task, and the ranges of a task are in order

Pure: offsets in, plans out.
"""

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from leadline.model import Offset, TopicPartition

SPLIT_BYTES = 128 << 20  # the most that a task reads of one partition
PACK_BYTES = 16 << 20  # the most that a task reads of several partitions
UNKNOWN_BYTES = 256.0  # the assumed size of a record if the brokers report no sizes


@dataclass(frozen=True, slots=True, order=True)
class Range:
    tp: TopicPartition
    first: Offset
    until: Offset  # exclusive

    @property
    def length(self) -> int:
        """The number of offsets. There may be fewer records."""
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
    """The tasks: at least `min_tasks` if there are as many offsets, each with at most `max_records`."""

    def size(range_: Range) -> float:
        return range_.length * bytes_per_offset.get(range_.tp, UNKNOWN_BYTES)

    nonempty = [range_ for range_ in ranges if range_.length > 0]
    counts = [_pieces(range_, size(range_), split_bytes, max_records) for range_ in nonempty]
    _raise_to(counts, nonempty, min_tasks)
    pieces = [piece for range_, count in zip(nonempty, counts, strict=True) for piece in split(range_, count)]
    limit = min(pack_bytes, sum(map(size, pieces)) / max(min_tasks, 1))
    return _spread(_pack(pieces, list(map(size, pieces)), limit, max_records), min_tasks)


def _pieces(range_: Range, size: float, split_bytes: int, max_records: int | None) -> int:
    by_records = math.ceil(range_.length / max_records) if max_records else 1
    return min(max(math.ceil(size / split_bytes), by_records, 1), range_.length)


def _raise_to(counts: list[int], ranges: Sequence[Range], least: int) -> None:
    """Adds pieces until there are enough, always to the range whose pieces are the biggest."""
    biggest = [(-range_.length / count, n) for n, (range_, count) in enumerate(zip(ranges, counts, strict=True))]
    heapq.heapify(biggest)
    for _ in range(least - sum(counts)):
        if not biggest or -biggest[0][0] <= 1:
            return
        _, n = biggest[0]
        counts[n] += 1
        heapq.heapreplace(biggest, (-ranges[n].length / counts[n], n))


def split(range_: Range, count: int) -> list[Range]:
    """Splits a range into pieces whose lengths differ by at most one."""
    cuts = [range_.first + range_.length * n // count for n in range(count + 1)]
    return [Range(range_.tp, first, until) for first, until in pairwise(cuts)]


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
    """Moves ranges of shared tasks into tasks of their own until there are enough tasks."""
    while len(tasks) < least and any(len(task) > 1 for task in tasks):
        n = max(range(len(tasks)), key=lambda n: len(tasks[n]))
        half = len(tasks[n]) // 2
        tasks[n : n + 1] = [tasks[n][:half], tasks[n][half:]]
    return tasks


def admit(
    start: Mapping[TopicPartition, Offset],
    end: Mapping[TopicPartition, Offset],
    bytes_per_offset: Mapping[TopicPartition, float],
    *,
    max_offsets: int | None = None,
    max_bytes: int | None = None,
) -> dict[TopicPartition, Offset]:
    """The end offsets of a batch under limits: the same share of each partition, and at least one offset of each."""
    ranges = [Range(tp, start.get(tp, until), until) for tp, until in end.items()]
    offsets = sum(max(range_.length, 0) for range_ in ranges)
    size = sum(max(range_.length, 0) * bytes_per_offset.get(range_.tp, UNKNOWN_BYTES) for range_ in ranges)
    share = min(
        1.0,
        max_offsets / offsets if max_offsets is not None and offsets else 1.0,
        max_bytes / size if max_bytes is not None and size else 1.0,
    )
    if share == 1.0:
        return dict(end)
    return {
        range_.tp: range_.first + max(1, int(range_.length * share)) if range_.length > 0 else range_.until
        for range_ in ranges
    }
