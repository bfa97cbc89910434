"""A loop spins while that costs little more than sleeping."""

from dataclasses import dataclass

import pytest

from leadline.runtime.spin_policy import MAX_SPIN_CPU_S, MAX_SPIN_S, SLEEP_TRIAL_WAITS, SpinPolicy

US = 1e-6
MAX_CPU_US = MAX_SPIN_CPU_S / US


@dataclass
class Load:
    """What waits are like: the work after each, how long it is, and what a sleep costs."""

    worked_us: float
    waited_us: float
    wake_up_us: float = 40
    cpu_share: float = 1.0  # of the time of a spin: others may use the core meanwhile

    @property
    def spin_us(self) -> float:
        cpu_us = self.waited_us * self.cpu_share
        in_vain = cpu_us > MAX_CPU_US or self.waited_us > MAX_SPIN_S / US
        return min(cpu_us, MAX_CPU_US) + (self.wake_up_us if in_vain else 0)

    def run(self, policy: SpinPolicy, times: int = 2000) -> tuple[float, int]:
        """The CPU time of so many waits with their work, and how many of them were spins."""
        total_us, spins = 0.0, 0
        for _ in range(times):
            spun = policy.should_spin()
            cost_us = self.worked_us + (self.spin_us if spun else self.wake_up_us)
            policy.observe(self.waited_us * US, cost_us * US, spun=spun)
            total_us += cost_us
            spins += spun
        return total_us, spins

    def prefers_spinning(self, policy: SpinPolicy) -> bool:
        return self.run(policy)[1] > 1000


def test_a_new_loop_sleeps() -> None:
    assert not SpinPolicy().should_spin()


@pytest.mark.parametrize(
    ("load", "spins"),
    [
        (Load(40, 20), True),  # one client, one request at a time
        (Load(40, 45), True),
        (Load(40, 90), False),  # the same at 8,000 requests a second
        (Load(40, 210), False),
        (Load(40, 1000), False),
        (Load(40, 20, wake_up_us=5), False),  # where a sleep costs little
        (Load(40, 10, wake_up_us=5), True),
        (Load(100, 300), False),
        (Load(100, 300, cpu_share=0.2), True),  # a follower on a busy machine
        (Load(900, 1000), False),  # much work, but no client waits for an answer within a millisecond
    ],
)
def test_it_spins_where_that_costs_little_more_than_sleeping(load: Load, spins: bool) -> None:
    assert load.prefers_spinning(SpinPolicy()) is spins


@pytest.mark.parametrize("wake_up_us", [2, 10, 40])
@pytest.mark.parametrize("waited_us", [5, 10, 25, 50, 60, 75, 100, 150, 200, 400, 900, 2000, 10_000])
@pytest.mark.parametrize("worked_us", [10, 40, 200, 1000])
def test_at_no_rate_it_costs_much_more_than_sleeping(worked_us: int, waited_us: int, wake_up_us: int) -> None:
    cost_us, _ = Load(worked_us, waited_us, wake_up_us).run(SpinPolicy(), 5000)
    assert cost_us <= 1.3 * (worked_us + wake_up_us) * 5000


def test_it_follows_the_load() -> None:
    policy = SpinPolicy()
    for load, spins in ((Load(1000, 20), True), (Load(40, 210), False), (Load(40, 20), True), (Load(5, 210), False)):
        load.run(policy, 20 * SLEEP_TRIAL_WAITS)
        assert load.prefers_spinning(policy) is spins


def test_one_long_wait_does_not_end_the_spinning_and_some_do() -> None:
    policy = SpinPolicy()
    Load(40, 20).run(policy)
    rare = Load(40, 3600e6)
    rare.run(policy, 1)
    assert policy.should_spin()
    rare.run(policy, 10)
    assert not policy.should_spin()


def test_after_a_long_sleep_it_spins_again_soon() -> None:
    policy = SpinPolicy()
    Load(40, 3600e6).run(policy)
    _, spins = Load(40, 20).run(policy, 100)
    assert spins > 50


def test_few_of_the_waits_are_trials_of_sleeping() -> None:
    policy, load = SpinPolicy(), Load(40, 20)
    load.run(policy)
    _, spins = load.run(policy, 10_000)
    assert 9900 < spins < 10_000
