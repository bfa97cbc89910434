"""How long things took: counts by duration, and percentiles of them.

Buckets grow by an eighth of an octave, 9 %, from a microsecond to more than two minutes. To record a duration is to
increment a bucket and to add to a sum. Everything else happens when it is read.

Pure: durations in, percentiles out.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from math import ceil

FIRST_S, STEPS, OCTAVES = 1e-6, 8, 27
BOUNDS_S = tuple(FIRST_S * 2 ** (step / STEPS) for step in range(STEPS * OCTAVES + 1))  # ascending
BUCKETS = len(BOUNDS_S) + 1  # a bucket holds durations from the bound before it on; the first one, those below all

Counts = list[int]  # by bucket


class LatencyHistogram:
    """Hot paths repeat the two lines of `record` instead of calling it."""

    __slots__ = ("counts", "total_s")

    def __init__(self) -> None:
        self.counts: Counts = [0] * BUCKETS
        self.total_s = 0.0

    def record(self, seconds: float) -> None:
        self.counts[bisect_right(BOUNDS_S, seconds)] += 1
        self.total_s += seconds


def summed(all_counts: Iterable[Counts]) -> Counts:
    return [sum(column) for column in zip(*all_counts, strict=True)] or [0] * BUCKETS


def difference(later: Counts, earlier: Counts) -> Counts:
    return [count - before for count, before in zip(later, earlier, strict=True)]


def percentiles_s(counts: Counts, fractions: Sequence[float]) -> list[float]:
    """The quantile for each fraction: that share of all durations is not longer. 0 if there is none."""
    running = list(accumulate(counts))
    total = running[-1]
    return [_middle_s(bisect_left(running, ceil(fraction * total))) if total else 0.0 for fraction in fractions]


def _middle_s(bucket: int) -> float:
    """Buckets are narrow: their middle is near enough. Less than a microsecond is nothing."""
    if bucket == 0:
        return 0.0
    if bucket >= len(BOUNDS_S):
        return BOUNDS_S[-1]
    return (BOUNDS_S[bucket - 1] + BOUNDS_S[bucket]) / 2
