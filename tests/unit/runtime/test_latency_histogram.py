"""Histograms of durations, and their percentiles."""

import pytest

from leadline.runtime.latency_histogram import BOUNDS_S, LatencyHistogram, difference, percentiles_s, summed


def test_percentiles_are_near_the_durations_that_were_recorded() -> None:
    histogram = LatencyHistogram()
    for n in range(1, 1001):
        histogram.record(n / 1000)  # 1 ms to 1 s
    median_s, p99_s = percentiles_s(histogram.counts, [0.5, 0.99])
    assert median_s == pytest.approx(0.5, rel=0.1)
    assert p99_s == pytest.approx(0.99, rel=0.1)
    assert histogram.total_s == pytest.approx(500.5)


@pytest.mark.parametrize("seconds", [0.0, -0.001, 1e-9])
def test_no_time_at_all_is_zero(seconds: float) -> None:
    histogram = LatencyHistogram()
    histogram.record(seconds)
    assert percentiles_s(histogram.counts, [0.5, 0.999]) == [0.0, 0.0]


def test_a_duration_beyond_the_last_bound_counts_as_that_bound() -> None:
    histogram = LatencyHistogram()
    histogram.record(1e9)
    assert percentiles_s(histogram.counts, [0.5]) == [BOUNDS_S[-1]]


def test_without_durations_percentiles_are_zero() -> None:
    assert percentiles_s(LatencyHistogram().counts, [0.5]) == [0.0]


def test_counts_of_several_histograms_are_added_and_earlier_ones_subtracted() -> None:
    one, other = LatencyHistogram(), LatencyHistogram()
    one.record(0.001)
    other.record(0.001)
    both = summed([one.counts, other.counts])
    assert sum(both) == 2
    assert difference(both, one.counts) == other.counts
