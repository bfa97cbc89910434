"""Throttles: a rate over windows, and whom it holds back."""

import pytest

from leadline.replication.throttle import Throttle, is_named


def test_without_a_limit_nothing_is_held_back() -> None:
    throttle = Throttle()
    throttle.record(1 << 60, 0)
    assert not throttle.is_exceeded(0)


def test_the_first_window_counts_as_a_whole_one() -> None:
    throttle = Throttle()
    throttle.limit = 1000
    throttle.record(1000, 5)
    assert (throttle.bytes_per_second(5), throttle.is_exceeded(5)) == (1000, False)
    throttle.record(1, 6)
    assert throttle.is_exceeded(6)


def test_the_rate_comes_down_with_time() -> None:
    throttle = Throttle()
    throttle.limit = 1000
    throttle.record(3000, 0)
    assert [throttle.bytes_per_second(now) for now in (0, 1000, 2000, 3000, 6000)] == [3000, 3000, 1500, 1000, 500]
    assert [throttle.is_exceeded(now) for now in (2999, 3000)] == [True, False]


def test_what_is_older_than_all_windows_is_forgotten() -> None:
    throttle = Throttle(windows=2, window_ms=1000)
    for now in (0, 1000, 2000):
        throttle.record(600, now)
    assert [throttle.bytes_per_second(now) for now in (2000, 3000, 4000)] == [1200, 600, 0]


def test_the_average_under_a_throttle_is_near_its_limit() -> None:
    throttle, sent = Throttle(), 0
    throttle.limit = 10_000
    for now in range(0, 60_000, 50):
        if not throttle.is_exceeded(now):
            throttle.record(7_000, now)
            sent += 7_000
    assert 0.9 * 600_000 < sent < 1.15 * 600_000


@pytest.mark.parametrize(
    ("replicas", "named"),
    [("", []), ("*", [0, 1, 2]), ("0:7,2:7,1:8", [0, 2]), ("1:70", []), ("none", [])],
)
def test_a_topic_names_its_throttled_replicas(replicas: str, named: list[int]) -> None:
    assert [partition for partition in range(3) if is_named(replicas, partition, broker=7)] == named
