"""Figures of any number of records in little memory. The figures of two sets of records can be merged.

    Histogram   the number of records by size; percentiles are within 3 %, and exact up to 32 bytes
    HotKeys     the most frequent keys; a count is too low by at most `error`, which is below records / KEYS
    KeySample   what compaction would keep; exact up to SAMPLE keys, and an estimate from a sample beyond
    merged figures have the same bounds as figures of all records

HotKeys is the summary of Misra and Gries, KeySample the distinct sampling of Gibbons.

Pure: columns in, figures out.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from zlib import crc32

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from leadline.spark.batches.record_positions import Bools, Longs

KEYS = 500
SAMPLE = 20_000
STEPS = 16  # buckets of a histogram between two powers of two
TOP_BITS = 1 << 63


def _no_longs() -> Longs:
    return np.zeros(0, np.int64)


# Sizes


def _bucket(sizes: Longs) -> Longs:
    fraction, exponent = np.frexp(sizes)
    steps: Longs = (exponent * STEPS + np.floor(fraction * 2 * STEPS)).astype(np.int64)
    return np.where(sizes > 0, steps - STEPS, 0)


def lower_end(bucket: int) -> float:
    """The least size of a bucket."""
    exponent, step = divmod(bucket, STEPS)
    return 0.0 if bucket == 0 else float(2.0**exponent * (STEPS + step) / (2 * STEPS))


@dataclass(slots=True)
class Histogram:
    counts: Longs = field(default_factory=_no_longs)  # by bucket
    total: int = 0
    largest: int = 0

    def add(self, sizes: Longs) -> None:
        if len(sizes):
            self._add(np.bincount(_bucket(sizes)).astype(np.int64), int(sizes.sum()), int(sizes.max()))

    def merge(self, other: "Histogram") -> None:
        self._add(other.counts, other.total, other.largest)

    def _add(self, counts: Longs, total: int, largest: int) -> None:
        longer, shorter = sorted((self.counts, counts), key=len, reverse=True)
        self.counts = longer.copy()
        self.counts[: len(shorter)] += shorter
        self.total += total
        self.largest = max(self.largest, largest)

    @property
    def count(self) -> int:
        return int(self.counts.sum())

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    def percentile(self, share: float) -> int:
        """The size that this share of the records does not exceed."""
        if not self.count:
            return 0
        bucket = int(np.searchsorted(np.cumsum(self.counts), share * self.count, side="left"))
        return min(self.largest, round((lower_end(bucket) + lower_end(bucket + 1) - 1) / 2))

    def ranges(self, most: int) -> list[tuple[int, int, int]]:
        """Smallest size, largest size and count of each range: at most `most`, equally many for each power of two.

        If there are more than `most` powers of two, each is one range.
        """
        used = np.flatnonzero(self.counts)
        if not len(used):
            return []
        first, last = int(used[0]), int(used[-1])
        width = next((n for n in (1, 2, 4, 8) if last // n - first // n < most), STEPS)
        ranges = []
        for n in range(first // width, last // width + 1):
            low, above = math.ceil(lower_end(n * width)), math.ceil(lower_end((n + 1) * width))
            if low < above:
                ranges.append((low, above - 1, int(self.counts[n * width : (n + 1) * width].sum())))
        return ranges


# Keys


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """The keys of records as a dictionary."""

    keys: pa.Array  # distinct
    of_row: Longs  # the index of the record's key in `keys`; -1: the record has no key

    @classmethod
    def of(cls, column: pa.Array) -> "KeyColumn":
        encoded = column.dictionary_encode()
        of_row = encoded.indices.fill_null(-1).to_numpy().astype(np.int64)
        return cls(encoded.dictionary, of_row)

    def sums(self, weights: Longs) -> Longs:
        """The sum of the weights of each distinct key."""
        rows = self.of_row >= 0
        sums = np.bincount(self.of_row[rows], weights[rows], minlength=len(self.keys))
        return sums.astype(np.int64)

    def last_rows(self) -> Longs:
        """The row of the last record of each distinct key."""
        rows = np.flatnonzero(self.of_row >= 0)
        last = np.zeros(len(self.keys), np.int64)
        last[self.of_row[rows]] = rows  # numpy keeps the last of several rows for a key
        return last


@dataclass(frozen=True, slots=True)
class HotKey:
    partition: int
    key: bytes
    records: int  # a lower bound
    bytes: int


@dataclass(slots=True)
class HotKeys:
    counts: dict[tuple[int, bytes], tuple[int, int]] = field(default_factory=dict)  # records and bytes
    error: int = 0

    def add(self, partition: int, keys: KeyColumn, sizes: Longs) -> None:
        records = keys.sums(np.ones(len(keys.of_row), np.int64))
        size_of = keys.sums(sizes)
        kept, dropped = _most(records)
        named = zip(keys.keys.take(pa.array(kept)).to_pylist(), kept.tolist(), strict=True)
        counts = {(partition, key): (int(records[n]) - dropped, int(size_of[n])) for key, n in named}
        self.merge(HotKeys(counts, dropped))

    def merge(self, other: "HotKeys") -> None:
        for key, (records, size) in other.counts.items():
            before = self.counts.get(key, (0, 0))
            self.counts[key] = before[0] + records, before[1] + size
        self.error += other.error
        counts = np.fromiter((records for records, _ in self.counts.values()), np.int64, len(self.counts))
        _, dropped = _most(counts)
        if dropped:
            self.counts = {key: (n - dropped, size) for key, (n, size) in self.counts.items() if n > dropped}
            self.error += dropped

    def top(self, count: int) -> list[HotKey]:
        hot = [HotKey(partition, key, *count_and_bytes) for (partition, key), count_and_bytes in self.counts.items()]
        return sorted(hot, key=lambda key: (-key.records, key.key))[:count]


def _most(counts: Longs) -> tuple[Longs, int]:
    """The indexes of the KEYS largest counts, and the next largest count, which is subtracted from all."""
    if len(counts) <= KEYS:
        return np.arange(len(counts)), 0
    dropped = int(np.partition(counts, len(counts) - KEYS - 1)[len(counts) - KEYS - 1])
    return np.flatnonzero(counts > dropped), dropped


@dataclass(frozen=True, slots=True)
class CompactionEstimate:
    """The records that compaction would keep."""

    keys: int
    bytes: int
    tombstones: int  # keys whose last record is a tombstone; compaction removes them after delete.retention.ms
    is_exact: bool


@dataclass(slots=True)
class KeySample:
    """The last record of each key and partition, for all keys whose hash is below TOP_BITS >> level."""

    hashes: Longs = field(default_factory=_no_longs)  # ascending, distinct
    offsets: Longs = field(default_factory=_no_longs)
    sizes: Longs = field(default_factory=_no_longs)
    tombstones: Bools = field(default_factory=lambda: np.zeros(0, np.bool_))
    level: int = 0

    def add(self, partition: int, keys: KeyColumn, offsets: Longs, sizes: Longs, tombstones: Bools) -> None:
        last = keys.last_rows()
        hashes = np.fromiter(_hashes(partition, keys.keys.to_pylist()), np.int64, len(last))
        self._join(hashes, offsets[last], sizes[last], tombstones[last])

    def merge(self, other: "KeySample") -> None:
        self.level = max(self.level, other.level)
        self._join(other.hashes, other.offsets, other.sizes, other.tombstones)

    def _join(self, hashes: Longs, offsets: Longs, sizes: Longs, tombstones: Bools) -> None:
        hashes = np.concatenate((self.hashes, hashes))
        offsets = np.concatenate((self.offsets, offsets))
        order = np.lexsort((offsets, hashes))
        hashes = hashes[order]
        is_last = np.append(hashes[1:] != hashes[:-1], True) if len(hashes) else np.zeros(0, np.bool_)
        chosen = is_last & (hashes < (TOP_BITS >> self.level))
        while np.count_nonzero(chosen) > SAMPLE:
            self.level += 1
            chosen &= hashes < (TOP_BITS >> self.level)
        rows = order[chosen]
        self.hashes, self.offsets = hashes[chosen], offsets[rows]
        self.sizes = np.concatenate((self.sizes, sizes))[rows]
        self.tombstones = np.concatenate((self.tombstones, tombstones))[rows]

    def kept(self) -> CompactionEstimate:
        times = 1 << self.level
        count, size = len(self.hashes), int(self.sizes.sum())
        return CompactionEstimate(count * times, size * times, int(self.tombstones.sum()) * times, self.level == 0)


def _hashes(partition: int, keys: Iterable[bytes]) -> Iterable[int]:
    """Hashes of 63 bits, equal in every process. Two checksums of different polynomials are the cheapest."""
    return ((crc32c(key, partition) << 31) | (crc32(key, partition) >> 1) for key in keys)
