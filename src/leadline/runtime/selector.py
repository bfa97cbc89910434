"""The watchdog: how long the loop was busy between two looks at its sockets, and whether it sleeps when it is not.

While one turn of the loop lasts, nobody else is served. The longest one since the start, or since it was last asked
for, is the metric; a request that takes long is named by `requests`, when it does.
"""

import asyncio
import selectors
from os import sched_yield
from time import perf_counter

from leadline.runtime.event_loop import EventLoop
from leadline.runtime.spin_policy import LONG_S, MOST_S, SpinPolicy

_Found = list[tuple[selectors.SelectorKey, int]]


class TimedSelector(selectors.DefaultSelector):
    """The selector of a loop, which knows when each turn begins and ends."""

    def __init__(self) -> None:
        super().__init__()
        self.longest_turn = 0.0  # in seconds
        self.turns = 0
        self.spin_policy = SpinPolicy()
        self._ready = 0  # how many of those that it watches are served in this turn
        self._began: float | None = None
        self._worked = 0.0  # since it had to wait last

    def select(self, timeout: float | None = None) -> _Found:
        ended = perf_counter()
        if self._began is not None:
            self.turns += 1
            turn = ended - self._began
            self._worked += turn
            if turn > self.longest_turn:
                self.longest_turn = turn
        found = super().select(timeout) if timeout == 0 else self._wait(ended, timeout)
        self._ready = len(found)
        self._began = perf_counter()
        return found

    def _wait(self, began: float, timeout: float | None) -> _Found:
        found: _Found = []
        if self.spin_policy.should_spin():
            found = self._look_out(began + (MOST_S if timeout is None else min(timeout, MOST_S)))
        if not found:
            found = super().select(None if timeout is None else began + timeout - perf_counter())
        self.spin_policy.observe(self._worked, LONG_S if _is_room(found) else perf_counter() - began)
        self._worked = 0.0
        return found

    def _look_out(self, until: float) -> _Found:
        """Again and again; whoever else can use the core has it between two looks."""
        while not (found := super().select(0)) and perf_counter() < until:
            sched_yield()
        return found

    def serves_one(self) -> bool:
        """Whether it is one at most that is served in this turn."""
        return self._ready <= 1

    def take_longest(self) -> float:
        """And begin anew."""
        longest, self.longest_turn = self.longest_turn, 0.0
        return longest

    def new_loop(self) -> asyncio.AbstractEventLoop:
        return EventLoop(self, self.serves_one)


def _is_room(found: _Found) -> bool:
    """Whether a socket takes more of a large answer: it is worth waiting until its reader has made much room."""
    return any(events & selectors.EVENT_WRITE for _, events in found)
