"""The selector of a broker's loop: it measures the turns of the loop, and spins while the next event is near.

While one turn of the loop lasts, no other client is served. The time that turns take, and the longest one, are metrics;
`requests` logs each request that takes long.
"""

import asyncio
import os
import selectors
from functools import partial
from time import perf_counter, sleep, thread_time
from typing import NamedTuple

from leadline.runtime.event_loop import EventLoop, ReadyEvent
from leadline.runtime.spin_policy import LONG_WAIT_S, MAX_SPIN_CPU_S, MAX_SPIN_S, SpinPolicy

_give_way = os.sched_yield if hasattr(os, "sched_yield") else partial(sleep, 0)  # to other processes, for a moment


class LastWait(NamedTuple):
    spun: bool
    waited_s: float
    began_cpu_s: float  # CPU time of the thread when it began


class TimedSelector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.turns = 0
        self.busy_s = 0.0  # that all turns took
        self.longest_turn_s = 0.0  # since the last report
        self._period_longest_s = 0.0  # in the current period of `end_period`
        self._last_period_longest_s = 0.0
        self.spin_policy = SpinPolicy()
        self._turn_began_s: float | None = None
        self._last_wait = LastWait(False, LONG_WAIT_S, thread_time())
        self._wakeup_fd = -1  # through which threads wake the loop

    def select(self, timeout: float | None = None) -> list[ReadyEvent]:
        now_s = perf_counter()
        if self._turn_began_s is not None:
            self.turns += 1
            turn_s = now_s - self._turn_began_s
            self.busy_s += turn_s
            if turn_s > self._period_longest_s:
                self._period_longest_s = turn_s
                self.longest_turn_s = max(self.longest_turn_s, turn_s)
        events = super().select(timeout) if timeout == 0 else self._wait(now_s, timeout)
        self._turn_began_s = perf_counter()
        return events

    def _wait(self, began_s: float, timeout: float | None) -> list[ReadyEvent]:
        policy, last, began_cpu_s = self.spin_policy, self._last_wait, thread_time()
        policy.observe(last.waited_s, began_cpu_s - last.began_cpu_s, spun=last.spun)
        spins = policy.should_spin()
        events: list[ReadyEvent] = []
        if spins:
            until_s = began_s + (MAX_SPIN_S if timeout is None else min(timeout, MAX_SPIN_S))
            events = self._spin(until_s, began_cpu_s + MAX_SPIN_CPU_S)
        if not events:
            events = super().select(None if timeout is None else began_s + timeout - perf_counter())
        not_spun_for = _has_room(events) or self._is_woken_by_thread(events)
        waited_s = LONG_WAIT_S if not_spun_for else perf_counter() - began_s
        self._last_wait = LastWait(spins, waited_s, began_cpu_s)
        return events

    def _spin(self, until_s: float, until_cpu_s: float) -> list[ReadyEvent]:
        """Poll until something is ready or the time is over; other processes get the core between two polls."""
        while not (events := super().select(0)) and thread_time() < until_cpu_s and perf_counter() < until_s:
            _give_way()
        return events

    def pop_longest_turn_s(self) -> float:
        """The longest turn since the last call."""
        longest_s, self.longest_turn_s = self.longest_turn_s, 0.0
        self._period_longest_s, self._last_period_longest_s = 0.0, self.recent_longest_turn_s
        return longest_s

    @property
    def recent_longest_turn_s(self) -> float:
        """The longest turn of this period and the one before it."""
        return max(self._period_longest_s, self._last_period_longest_s)

    def end_period(self) -> None:
        self._last_period_longest_s, self._period_longest_s = self._period_longest_s, 0.0

    def new_loop(self) -> asyncio.AbstractEventLoop:
        loop = EventLoop(self)
        self._wakeup_fd = loop.wakeup_fd
        return loop

    def _is_woken_by_thread(self, events: list[ReadyEvent]) -> bool:
        """Whether a thread has completed its work, and nothing else happened. Spinning would keep a core from it."""
        return len(events) == 1 and events[0][0].fd == self._wakeup_fd


def _has_room(events: list[ReadyEvent]) -> bool:
    """Whether a socket has room for more of a large reply. It pays to wait until its reader has made much room."""
    return any(mask & selectors.EVENT_WRITE for _, mask in events)
