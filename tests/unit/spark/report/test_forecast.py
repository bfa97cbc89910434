"""When a topic meets its limits."""

import numpy as np
import pytest

from leadline.spark.report.figures import PartitionFigures
from leadline.spark.report.forecast import Forecast, TopicLimits, forecast
from leadline.spark.report.traffic import DAY_MS, TimeSlots

HOUR_MS = 3_600_000
NOW_MS = 20_000 * DAY_MS


def part(days: float = 8, a_day: int = 2400) -> PartitionFigures:
    """That was written to evenly, once an hour, until now."""
    hours = round(days * 24)
    slots = TimeSlots()
    times = NOW_MS - HOUR_MS * np.arange(hours, 0, -1)
    slots.add(times, np.full(hours, a_day // 24), np.arange(hours))
    slots.widen(HOUR_MS)
    return PartitionFigures(hours, hours, hours * a_day // 24, slots=slots)


def foreseen(limits: TopicLimits, *parts: PartitionFigures) -> Forecast:
    result = forecast(dict(enumerate(parts or (part(),))), limits)
    assert result is not None
    return result


def test_the_rate_is_that_of_late() -> None:
    result = foreseen(TopicLimits())
    assert result.rate == pytest.approx(2400)
    assert result.overall_rate == pytest.approx(2400)
    faster = part()
    faster.slots.bytes[-48:] *= 10
    assert foreseen(TopicLimits(), faster).rate == pytest.approx(24_000)


def test_retention_by_time_settles_at_the_rate_times_the_time() -> None:
    result = foreseen(TopicLimits(retention_ms=10 * DAY_MS))
    assert (result.settles_at, result.by) == (24_000, "retention.ms")
    assert result.settles_ms == NOW_MS + 2 * DAY_MS


def test_retention_by_size_settles_when_the_last_partition_is_full() -> None:
    result = foreseen(TopicLimits(retention_ms=-1, retention_bytes=24_000), part(a_day=2400), part(a_day=1200))
    assert (result.settles_at, result.by) == (48_000, "retention.bytes")
    assert result.settles_ms == NOW_MS + 12 * DAY_MS


def test_the_setting_that_is_met_first_counts() -> None:
    assert foreseen(TopicLimits(retention_ms=9 * DAY_MS, retention_bytes=100_000)).by == "retention.ms"
    assert foreseen(TopicLimits(retention_ms=90 * DAY_MS, retention_bytes=20_000)).by == "retention.bytes"


@pytest.mark.parametrize(
    "limits", [TopicLimits(), TopicLimits(-1, -1), TopicLimits(DAY_MS, 1, cleanup_policy="compact")]
)
def test_without_retention_it_grows_on(limits: TopicLimits) -> None:
    assert foreseen(limits).settles_at is None


def test_the_disk_is_full_unless_retention_comes_first() -> None:
    assert foreseen(TopicLimits(disk_free=24_000)).disk_full_ms == NOW_MS + 10 * DAY_MS
    assert foreseen(TopicLimits(10 * DAY_MS, disk_free=24_000)).disk_full_ms is None
    assert foreseen(TopicLimits(30 * DAY_MS, disk_free=24_000)).disk_full_ms == NOW_MS + 10 * DAY_MS
    assert foreseen(TopicLimits(disk_free=1 << 60)).disk_full_ms is None


def test_of_a_few_minutes_nothing_is_foretold() -> None:
    slots = TimeSlots()
    slots.add(NOW_MS + np.arange(0, 300_000, 1000), np.full(300, 1000), np.arange(300))
    result = foreseen(TopicLimits(DAY_MS, disk_free=1000), PartitionFigures(stored=300_000, slots=slots))
    assert result.is_too_short
    assert result.settles_at is result.disk_full_ms is None


def test_without_times_there_is_no_forecast() -> None:
    assert forecast({0: PartitionFigures(1, 1, 100)}, TopicLimits()) is None
