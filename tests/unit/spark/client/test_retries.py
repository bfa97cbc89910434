"""Retries of a request: growing pauses, up to a deadline."""

import pytest

from leadline.spark.client import retries
from leadline.spark.client.retries import LONGEST_PAUSE_S, Retries


class FakeTime:
    """A clock that only pauses move."""

    def __init__(self) -> None:
        self.now_s, self.pauses = 100.0, list[float]()

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, pause_s: float) -> None:
        self.pauses.append(pause_s)
        self.now_s += pause_s


def wait_for_ever(tries: Retries, error: Exception) -> None:
    while True:
        tries.wait(error)


def test_pauses_grow_until_the_deadline_and_then_the_last_error_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeTime()
    monkeypatch.setattr(retries, "time", clock)
    with pytest.raises(ValueError, match="still wrong"):
        wait_for_ever(Retries(5.0), ValueError("still wrong"))
    assert clock.pauses[:3] == [0.05, 0.1, 0.2]
    assert max(clock.pauses) == LONGEST_PAUSE_S
    assert 5.0 - LONGEST_PAUSE_S < clock.now_s - 100.0 <= 5.0
