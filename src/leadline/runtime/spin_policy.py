"""Whether a loop that has nothing to do stays awake until there is something.

To fall asleep and to be woken costs more than to answer a small request, and the client waits meanwhile. A loop that
waits for little longer than it works therefore stays awake, for a while. That costs a few times what is worked, at
most: a loop with little to do sleeps as ever.

Pure: lengths of time in, a verdict out.
"""

TIMES = 4  # a loop that works for a fifth of its time stays awake for the rest of it
MOST_S = 0.001  # at one time
LONG_S = 2 * MOST_S  # as long as any wait counts
WEIGHT = 1 / 8  # of the last time among those before it


class SpinPolicy:
    def __init__(self) -> None:
        self._works = 0.0  # between two waits, as a rule, in seconds
        self._waits = LONG_S

    def should_spin(self) -> bool:
        return self._waits < self._works * TIMES and self._waits < MOST_S

    def observe(self, worked: float, waited: float) -> None:
        self._works += (worked - self._works) * WEIGHT
        self._waits += (min(waited, LONG_S) - self._waits) * WEIGHT
