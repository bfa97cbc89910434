"""A loop spins while that costs little compared with its work."""

import pytest

from leadline.runtime.spin_policy import LONG_WAIT_S, MAX_WAIT_RATIO, SpinPolicy

US = 1e-6


def after(worked: float, waited: float, times: int = 100) -> SpinPolicy:
    policy = SpinPolicy()
    for _ in range(times):
        policy.observe(worked, waited)
    return policy


def test_a_new_loop_sleeps() -> None:
    assert not SpinPolicy().should_spin()


@pytest.mark.parametrize(
    ("worked_us", "waited_us", "spins"),
    [
        (40, 20, True),  # one client, one request at a time
        (100, 300, True),  # a follower of a partition that is written to
        (40, 40 * MAX_WAIT_RATIO + 40, False),  # it would spin for longer than it works
        (40, 1000, False),
        (900, 1000, False),  # much work, but no client waits for an answer within a millisecond
        (0, 20, False),
    ],
)
def test_it_spins_for_waits_that_are_short_compared_with_the_work(worked_us: int, waited_us: int, spins: bool) -> None:
    assert after(worked_us * US, waited_us * US).should_spin() is spins


def test_one_long_wait_does_not_end_the_spinning_and_a_few_do() -> None:
    policy = after(100 * US, 20 * US)
    policy.observe(100 * US, 3600)
    assert policy.should_spin()
    for _ in range(3):
        policy.observe(100 * US, 3600)
    assert not policy.should_spin()


def test_after_a_long_sleep_it_spins_again_soon() -> None:
    policy = after(100 * US, 3600)
    needed = 0
    while not policy.should_spin():
        policy.observe(100 * US, 20 * US)
        needed += 1
    assert needed < 20


@pytest.mark.parametrize("waited_us", [10, 100, 400, 900, 2000, 10_000])
@pytest.mark.parametrize("worked_us", [10, 50, 200, 1000])
def test_the_spinning_is_bounded_by_the_work(worked_us: int, waited_us: int) -> None:
    spins = after(worked_us * US, waited_us * US).should_spin()
    assert not spins or min(waited_us * US, LONG_WAIT_S) < worked_us * US * MAX_WAIT_RATIO
