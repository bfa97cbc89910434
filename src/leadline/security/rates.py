"""How much of something there was per second, lately: the measure of quotas, Kafka's to the millisecond.

Pure: values and times in, a rate out. Times are milliseconds of the wall clock, as Kafka takes them.

A rate is made of samples, by default 11 of one second each. A recorded value counts towards the current sample. One
that is a second old is complete, and the next begins. One more sample is kept than is counted, since the oldest may
overlap the window.
    the window is never shorter than all samples but one: a new client may spend ten seconds' worth at once
    recording a value and then its negative leaves the sum as it was
"""

from math import floor

INT_MAX = 2**31 - 1
DEFAULT_SAMPLES = 11
DEFAULT_SAMPLE_MS = 1000


class Rate:
    __slots__ = ("_current", "_last_ms", "_sample_ms", "_samples", "_start_ms", "_values")

    def __init__(self, samples: int = DEFAULT_SAMPLES, sample_ms: int = DEFAULT_SAMPLE_MS) -> None:
        self._samples, self._sample_ms = samples, sample_ms
        self._current = 0
        self._values: list[float] = []  # by sample, the sum of recorded values
        self._start_ms: list[int] = []  # when it began
        self._last_ms: list[int] = []  # when something was last recorded in it

    def record(self, value: float, now_ms: int) -> None:
        if not self._values:
            self._append(now_ms)
        elif now_ms - self._start_ms[self._current] >= self._sample_ms:
            self._advance(now_ms)
        self._values[self._current] += value
        self._last_ms[self._current] = now_ms

    def window_ms(self, now_ms: int) -> int:
        """The time over which the rate is taken, now."""
        self._purge(now_ms)
        if not self._values:
            self._append(now_ms)
        elapsed_ms = now_ms - min(self._start_ms)
        complete = int(elapsed_ms / self._sample_ms)  # towards zero: the clock may have been set back
        if complete < self._samples - 1:
            elapsed_ms += (self._samples - 1 - complete) * self._sample_ms
        return max(elapsed_ms, 1)

    def per_second(self, now_ms: int) -> float:
        window_ms = self.window_ms(now_ms)
        return sum(self._values, 0.0) / (window_ms / 1000.0)

    def throttle_ms(self, bound: float, now_ms: int, at_most_ms: int = INT_MAX) -> int:
        """How long nothing must be recorded for the rate to come down to the bound. 0: it is not above it.

        A bound of 0 takes forever, and so does what Kafka's integers do not hold: as long as may be.
        """
        rate = self.per_second(now_ms)
        if rate <= bound:
            return 0
        if bound <= 0:
            return at_most_ms
        return min(java_round((rate - bound) / bound * self.window_ms(now_ms)), at_most_ms)

    def is_idle(self, now_ms: int) -> bool:
        """Nothing recorded counts any more: a new rate would measure the same."""
        return all(now_ms - last_ms >= self._samples * self._sample_ms for last_ms in self._last_ms)

    def _append(self, now_ms: int) -> None:
        self._values.append(0.0)
        self._start_ms.append(now_ms)
        self._last_ms.append(now_ms)

    def _advance(self, now_ms: int) -> None:
        self._current = (self._current + 1) % (self._samples + 1)
        if self._current >= len(self._values):
            self._append(now_ms)
        else:
            self._reset(self._current, now_ms)

    def _reset(self, sample: int, now_ms: int) -> None:
        self._values[sample] = 0.0
        self._start_ms[sample] = self._last_ms[sample] = now_ms

    def _purge(self, now_ms: int) -> None:
        """Samples in which nothing was recorded within the window start again, empty."""
        oldest_ms = now_ms - self._samples * self._sample_ms
        if min(self._last_ms, default=now_ms) <= oldest_ms:
            for sample, last_ms in enumerate(self._last_ms):
                if last_ms <= oldest_ms:
                    self._reset(sample, now_ms)


def java_round(value: float) -> int:
    """java.lang.Math.round: halves go up, also below zero."""
    below = floor(value)
    return below + (value - below >= 0.5)
