"""Waits for the records of a partition, in the order of their offsets.

With acks=all a record is acknowledged once the high watermark has passed it. Each wait ends once: with that, with its
timeout, or with the reason why it will not happen here.

    offsets never decrease: a wait for a later append stands after a wait for an earlier one

Pure: keeps the waits, and returns those that end.
"""

from collections import deque
from typing import NamedTuple

from leadline.model import Offset
from leadline.runtime.deferred_completions import OnAcknowledged

FOREVER_S = float("inf")


class _Wait(NamedTuple):
    offset: Offset
    deadline_s: float
    on_acknowledged: OnAcknowledged


_NO_WAITS: deque[_Wait] = deque()


class Acknowledgements:
    __slots__ = ("_waits",)

    def __init__(self) -> None:
        self._waits = _NO_WAITS  # shared by all that have none: nearly every partition is idle

    def __bool__(self) -> bool:
        return bool(self._waits)

    def add(self, offset: Offset, deadline_s: float, on_acknowledged: OnAcknowledged) -> None:
        """Wait until everything below an offset is safe. FOREVER_S: without a time limit."""
        if self._waits is _NO_WAITS:
            self._waits = deque()
        if self._waits and self._waits[-1].offset > offset:  # a late wait for an earlier append
            at = next(n for n, wait in enumerate(self._waits) if wait.offset > offset)
            self._waits.insert(at, _Wait(offset, deadline_s, on_acknowledged))
        else:
            self._waits.append(_Wait(offset, deadline_s, on_acknowledged))

    def passed(self, high_watermark: Offset) -> list[OnAcknowledged]:
        """End the waits for offsets that are safe now."""
        ended, waits = [], self._waits
        while waits and waits[0].offset <= high_watermark:
            ended.append(waits.popleft().on_acknowledged)
        return ended

    def expired(self, now_s: float) -> list[OnAcknowledged]:
        """End the waits that have timed out."""
        ended = [wait.on_acknowledged for wait in self._waits if wait.deadline_s <= now_s]
        if ended:
            self._waits = deque(wait for wait in self._waits if wait.deadline_s > now_s)
        return ended

    def dismissed(self) -> list[OnAcknowledged]:
        """End all waits: it will not happen here."""
        ended = [wait.on_acknowledged for wait in self._waits]
        self._waits.clear()
        return ended

    @property
    def next_deadline_s(self) -> float:
        return min((wait.deadline_s for wait in self._waits), default=FOREVER_S)
