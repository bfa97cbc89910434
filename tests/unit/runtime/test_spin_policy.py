"""A loop stays awake while that costs little beside what it works."""

import pytest

from leadline.runtime.spin_policy import LONG_S, TIMES, SpinPolicy

US = 1e-6


def after(worked: float, waited: float, times: int = 100) -> SpinPolicy:
    wakefulness = SpinPolicy()
    for _ in range(times):
        wakefulness.observe(worked, waited)
    return wakefulness


def test_at_first_it_sleeps() -> None:
    assert not SpinPolicy().should_spin()


@pytest.mark.parametrize(
    ("worked_us", "waited_us", "pays"),
    [
        (40, 20, True),  # one client, one request at a time
        (100, 300, True),  # a follower of a partition that is written to
        (40, 40 * TIMES + 40, False),  # it would be awake for more than it works
        (40, 1000, False),
        (900, 1000, False),  # much work, but nobody who waits for an answer within a millisecond
        (0, 20, False),
    ],
)
def test_it_stays_awake_for_waits_that_are_short_beside_the_work(worked_us: int, waited_us: int, pays: bool) -> None:
    assert after(worked_us * US, waited_us * US).should_spin() is pays


def test_one_long_wait_changes_nothing_and_a_few_do() -> None:
    wakefulness = after(100 * US, 20 * US)
    wakefulness.observe(100 * US, 3600)
    assert wakefulness.should_spin()
    for _ in range(3):
        wakefulness.observe(100 * US, 3600)
    assert not wakefulness.should_spin()


def test_who_slept_for_long_is_awake_again_soon() -> None:
    wakefulness = after(100 * US, 3600)
    needed = 0
    while not wakefulness.should_spin():
        wakefulness.observe(100 * US, 20 * US)
        needed += 1
    assert needed < 20


@pytest.mark.parametrize("waited_us", [10, 100, 400, 900, 2000, 10_000])
@pytest.mark.parametrize("worked_us", [10, 50, 200, 1000])
def test_what_it_costs_is_bounded_by_what_is_worked(worked_us: int, waited_us: int) -> None:
    assert (
        not after(worked_us * US, waited_us * US).should_spin() or min(waited_us * US, LONG_S) < worked_us * US * TIMES
    )
