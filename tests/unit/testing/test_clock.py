"""The clock of a cluster in a test: it runs, and it is moved forward only."""

from datetime import timedelta

import pytest

from leadline.testing.clock import ClusterClock, moment_text


def test_a_moment_is_written_in_utc_with_milliseconds() -> None:
    assert moment_text(1_700_000_000_007) == "2023-11-14 22:13:20.007"


def test_advancing_moves_both_clocks_through_the_cluster() -> None:
    steps: list[float] = []
    clock = ClusterClock(steps.append)
    now_ms, monotonic_s = clock.now_ms(), clock.monotonic_s()
    clock.advance(days=1, hours=1, minutes=1, seconds=1, milliseconds=500)
    assert steps == [90_061.5]
    assert clock.ahead == timedelta(0)
    clock.jump(steps[0])
    assert clock.ahead == timedelta(seconds=90_061.5)
    assert clock.now_ms() - now_ms >= 90_061_500
    assert clock.monotonic_s() - monotonic_s >= 90_061.5
    assert repr(clock) == "<clock of a cluster, 1 day, 1:01:01.500000 ahead>"


@pytest.mark.parametrize("seconds", [0, -1])
def test_it_cannot_stand_still_or_go_back(seconds: float) -> None:
    clock = ClusterClock(lambda step: pytest.fail("it was moved"))
    with pytest.raises(ValueError, match="can only be moved forward"):
        clock.advance(seconds=seconds)
