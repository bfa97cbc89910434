"""Those who wait until a partition's records are safe, in the order of their offsets.

With acks=all a record is acknowledged once the high watermark has passed it. Whoever waits is told once: of that, of
the end of its time, or that it will not come to pass here.

    offsets never decrease: what was appended later waits behind what was appended before

Pure: keeps who waits, and hands back who is to be told.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from leadline.errors import WireError
from leadline.model import Offset

Told = Callable[[WireError | None], None]  # None: it is safe
FOREVER_S = float("inf")


class _Waiting(NamedTuple):
    offset: Offset
    deadline_s: float
    told: Told


class Acknowledgements:
    def __init__(self) -> None:
        self._waiting: deque[_Waiting] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, offset: Offset, deadline_s: float, told: Told) -> None:
        """Wait until all below an offset is safe; FOREVER_S: however long it takes."""
        if self._waiting and self._waiting[-1].offset > offset:  # it asks late for what others wait for already
            at = next(n for n, waiting in enumerate(self._waiting) if waiting.offset > offset)
            self._waiting.insert(at, _Waiting(offset, deadline_s, told))
        else:
            self._waiting.append(_Waiting(offset, deadline_s, told))

    def passed(self, high_watermark: Offset) -> list[Told]:
        found, waiting = [], self._waiting
        while waiting and waiting[0].offset <= high_watermark:
            found.append(waiting.popleft().told)
        return found

    def expired(self, now_s: float) -> list[Told]:
        found = [waiting.told for waiting in self._waiting if waiting.deadline_s <= now_s]
        if found:
            self._waiting = deque(waiting for waiting in self._waiting if waiting.deadline_s > now_s)
        return found

    def dismissed(self) -> list[Told]:
        """All of them: it will not come to pass."""
        found = [waiting.told for waiting in self._waiting]
        self._waiting.clear()
        return found

    @property
    def next_deadline_s(self) -> float:
        return min((waiting.deadline_s for waiting in self._waiting), default=FOREVER_S)
