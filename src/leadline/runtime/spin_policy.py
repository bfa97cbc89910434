"""Whether a loop that has nothing to do spins until the next event, instead of sleeping.

Falling asleep and waking up may cost more CPU time than serving a small request, and the client waits meanwhile. On
other machines, or while others keep the cores awake, it costs little. So the loop measures: a wait costs its own CPU
time and that of the work which follows, up to the next wait. The loop spins while that is not much more than with a
sleep.

To know both costs, it tries the other way now and then. While it sleeps, trials take a twentieth of its CPU time at
most. While it spins, less than one wait of a hundred is a trial.

Pure: durations in, a verdict out.
"""

MAX_COST = 1.15  # of spinning, as a multiple of what sleeping costs
MAX_SPIN_S = 0.001  # at a time
MAX_SPIN_CPU_S = 0.0001  # CPU time of one spin
LONG_WAIT_S = 2 * MAX_SPIN_S  # longer waits count as this long
LONG_COST_S = 0.002  # higher costs count as this much
WEIGHT = 1 / 8  # of the latest duration in the moving averages
SPIN_TRIAL_SHARE = 1 / 20  # of the CPU time
SLEEP_TRIAL_WAITS = 128  # between two trials


class SpinPolicy:
    def __init__(self) -> None:
        self._wait_s = LONG_WAIT_S  # on average
        self._sleep_cost_s = self._spin_cost_s = 0.0  # CPU time of a wait and of the work after it, on average
        self._since_trial = 0  # waits
        self._since_trial_s = 0.0  # CPU time

    def should_spin(self) -> bool:
        if self._wait_s >= MAX_SPIN_S:
            return False
        if self._prefers_spinning():
            return self._since_trial < SLEEP_TRIAL_WAITS
        return self._since_trial_s * SPIN_TRIAL_SHARE >= min(self._wait_s, MAX_SPIN_CPU_S)

    def _prefers_spinning(self) -> bool:
        return self._spin_cost_s <= self._sleep_cost_s * MAX_COST

    def observe(self, waited_s: float, cost_s: float, *, spun: bool) -> None:
        """`cost_s`: CPU time of the wait and of the work after it. `spun`: at first, even if it slept in the end."""
        is_trial = spun is not self._prefers_spinning()
        self._since_trial = 0 if is_trial else self._since_trial + 1
        self._since_trial_s = 0.0 if is_trial else self._since_trial_s + cost_s
        self._wait_s += (min(waited_s, LONG_WAIT_S) - self._wait_s) * WEIGHT
        cost_s = min(cost_s, LONG_COST_S)
        if spun:
            self._spin_cost_s += (cost_s - self._spin_cost_s) * WEIGHT
        else:
            self._sleep_cost_s += (cost_s - self._sleep_cost_s) * WEIGHT
