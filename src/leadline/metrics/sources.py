"""What collectors read: the broker, its event loop, and recent counts."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from leadline.broker.broker import Broker
from leadline.metrics.families import QUANTILES, FamilySamples, HistogramFamilies, labels_text
from leadline.metrics.recent_counts import RecentCounts, RecentIdleness
from leadline.runtime.latency_histogram import Counts, LatencyHistogram, percentiles_s

FRACTIONS = list(QUANTILES.values())


class LoopStatistics(Protocol):
    """How busy the loop is. Time counts from any moment on."""

    turns: int
    busy_s: float

    @property
    def recent_longest_turn_s(self) -> float: ...

    def end_period(self) -> None: ...


@dataclass(slots=True)
class MetricsSources:
    broker: Broker
    loop: LoopStatistics | None = None  # None: the loop is not measured
    idleness: RecentIdleness | None = None
    recent: RecentCounts = field(default_factory=RecentCounts)


def metrics_sources(broker: Broker, loop: LoopStatistics | None = None) -> MetricsSources:
    idleness = None if loop is None else RecentIdleness(broker.clock.monotonic_s(), loop.busy_s)
    return MetricsSources(broker, loop, idleness)


@dataclass(slots=True)
class MeasuredTimes:
    """Durations of one thing. `zeros`: further ones, of no time at all."""

    key: Hashable  # by which its earlier counts are found again
    counts: Counts
    total_s: float
    zeros: int = 0

    @classmethod
    def of(cls, key: Hashable, histogram: LatencyHistogram) -> "MeasuredTimes":
        return cls(key, list(histogram.counts), histogram.total_s)

    @property
    def snapshot(self) -> Counts:
        """The zeros count as durations of the first bucket, which is below a microsecond."""
        return [self.counts[0] + self.zeros, *self.counts[1:]]


def histogram_samples(
    families: HistogramFamilies, measured: Sequence[tuple[Mapping[str, object], MeasuredTimes]], recent: RecentCounts
) -> Iterable[FamilySamples]:
    """`measured`: labels and durations."""
    quantiles = []
    for labels, times in measured:
        values_s = percentiles_s(recent.since(times.key, times.snapshot), FRACTIONS)
        for quantile, value_s in zip(QUANTILES, values_s, strict=True):
            quantiles.append((labels_text(**labels, quantile=quantile), value_s * 1000))
    yield families.quantiles, quantiles
    yield families.count, [(labels_text(**labels), sum(times.snapshot)) for labels, times in measured]
    yield families.sum, [(labels_text(**labels), times.total_s * 1000) for labels, times in measured]
