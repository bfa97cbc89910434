"""What is recent, out of counts that only grow."""

import pytest

from leadline.metrics.recent_counts import NOTHING_COUNTED, PERIODS, RecentCounts, RecentIdleness

ONE, THREE = [1, *NOTHING_COUNTED[1:]], [3, *NOTHING_COUNTED[1:]]


def test_all_counts_are_recent_at_first() -> None:
    assert RecentCounts().since("a", THREE) == THREE


def test_what_was_counted_before_the_oldest_period_is_not_recent() -> None:
    recent = RecentCounts()
    recent.end_period({"a": ONE})
    assert recent.since("a", THREE)[0] == 2
    assert recent.since("new", THREE) == THREE
    for _ in range(PERIODS):
        recent.end_period({"a": THREE})
    assert recent.since("a", THREE)[0] == 0


@pytest.mark.parametrize(("busy_s", "idle"), [(0.0, 1.0), (2.5, 0.75), (10.0, 0.0), (11.0, 0.0)])
def test_the_idle_share_is_that_of_the_last_periods(busy_s: float, idle: float) -> None:
    assert RecentIdleness(100.0, 0.0).idle_share(110.0, busy_s) == idle


def test_earlier_busy_times_do_not_count() -> None:
    idleness = RecentIdleness(0.0, 0.0)
    for period in range(1, PERIODS + 1):
        idleness.end_period(60.0 * period, 60.0)
    assert idleness.idle_share(60.0 * PERIODS + 1, 60.0) == 1.0
