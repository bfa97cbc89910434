"""Whether a loop that has nothing to do spins until the next event, instead of sleeping.

Falling asleep and waking up costs more than serving a small request, and the client waits meanwhile. So a loop spins
while its waits are short compared with its work. That costs a few times the work at most; a loop with little to do
sleeps.

Pure: durations in, a verdict out.
"""

MAX_WAIT_RATIO = 4  # a loop that works for a fifth of its time spins for the rest of it
MAX_SPIN_S = 0.001  # at a time
LONG_WAIT_S = 2 * MAX_SPIN_S  # longer waits count as this long
WEIGHT = 1 / 8  # of the latest duration in the moving averages


class SpinPolicy:
    def __init__(self) -> None:
        self._work_s = 0.0  # between two waits, on average
        self._wait_s = LONG_WAIT_S  # on average

    def should_spin(self) -> bool:
        return self._wait_s < self._work_s * MAX_WAIT_RATIO and self._wait_s < MAX_SPIN_S

    def observe(self, worked_s: float, waited_s: float) -> None:
        self._work_s += (worked_s - self._work_s) * WEIGHT
        self._wait_s += (min(waited_s, LONG_WAIT_S) - self._wait_s) * WEIGHT
