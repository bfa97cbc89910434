"""The lag of groups over time, as pages and the sampler see it. Kept in memory, for a while.

Pure: the caller passes the time.
"""

from collections import OrderedDict, deque

MAX_SAMPLES = 1200
MAX_GROUPS = 200  # the group that was sampled least recently goes first
MIN_INTERVAL_MS = 2000

LagSample = tuple[int, int]  # time in ms, lag


class LagHistory:
    def __init__(self) -> None:
        self._samples: OrderedDict[str, deque[LagSample]] = OrderedDict()

    def add(self, group: str, at_ms: int, lag: int) -> list[LagSample]:
        """The samples of this group, the oldest first."""
        samples = self._samples.setdefault(group, deque(maxlen=MAX_SAMPLES))
        self._samples.move_to_end(group)
        while len(self._samples) > MAX_GROUPS:
            self._samples.popitem(last=False)
        if not samples or at_ms - samples[-1][0] >= MIN_INTERVAL_MS:
            samples.append((at_ms, lag))
        return list(samples)
