"""The watchdog: how long the loop was busy between two looks at its sockets.

While one turn of the loop lasts, nobody else is served. The longest one since the start, or since it was last asked
for, is the metric; a request that takes long is named by `requests`, when it does.
"""

import asyncio
import selectors
from time import perf_counter

from leadline.broker.loop import Loop


class Watchdog(selectors.DefaultSelector):
    """The selector of a loop, which knows when each turn begins and ends."""

    def __init__(self) -> None:
        super().__init__()
        self.longest_turn = 0.0  # in seconds
        self.turns = 0
        self._ready = 0  # how many of those that it watches are served in this turn
        self._began: float | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self._began is not None:
            self.turns += 1
            turn = perf_counter() - self._began
            if turn > self.longest_turn:
                self.longest_turn = turn
        found = super().select(timeout)
        self._ready = len(found)
        self._began = perf_counter()
        return found

    def serves_one(self) -> bool:
        """Whether it is one at most that is served in this turn."""
        return self._ready <= 1

    def take_longest(self) -> float:
        """And begin anew."""
        longest, self.longest_turn = self.longest_turn, 0.0
        return longest

    def new_loop(self) -> asyncio.AbstractEventLoop:
        return Loop(self)
