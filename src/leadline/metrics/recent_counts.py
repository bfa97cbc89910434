"""Counts of the last minutes, from counters that only grow. Kafka's percentiles are recent ones as well.

A snapshot is taken every PERIOD_S, and the last PERIODS are kept. The recent count is the difference to the oldest one.

Pure: counts in, differences out.
"""

from collections import deque
from collections.abc import Hashable, Mapping

from leadline.runtime.latency_histogram import BUCKETS, Counts, difference

PERIOD_S = 60.0
PERIODS = 5

NOTHING_COUNTED: Counts = [0] * BUCKETS


class RecentCounts:
    def __init__(self) -> None:
        self._snapshots: deque[Mapping[Hashable, Counts]] = deque(maxlen=PERIODS)

    def end_period(self, snapshot: Mapping[Hashable, Counts]) -> None:
        self._snapshots.append(snapshot)

    def since(self, key: Hashable, counts: Counts) -> Counts:
        """How many of these counts are recent."""
        if not self._snapshots:
            return counts
        return difference(counts, self._snapshots[0].get(key, NOTHING_COUNTED))


class RecentIdleness:
    """The share of the last minutes in which the loop had nothing to do."""

    def __init__(self, now_s: float, busy_s: float) -> None:
        self._snapshots: deque[tuple[float, float]] = deque([(now_s, busy_s)], maxlen=PERIODS)

    def end_period(self, now_s: float, busy_s: float) -> None:
        self._snapshots.append((now_s, busy_s))

    def idle_share(self, now_s: float, busy_s: float) -> float:
        began_s, busy_then_s = self._snapshots[0]
        elapsed_s = now_s - began_s
        return 1.0 if elapsed_s <= 0 else min(max(1 - (busy_s - busy_then_s) / elapsed_s, 0.0), 1.0)
