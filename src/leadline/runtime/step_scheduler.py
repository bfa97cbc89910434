"""Turns: what takes long is done in steps, one at a time, and between two steps all others are served.

A turn of the loop serves whoever has sent something by then. A step lets one such turn pass before it is taken: so a
small request waits for one step at most, however many connections have large ones. While there are no small requests,
nobody waits, and there need be no steps.

The loop is ours: what is called soon comes behind those whose bytes have come by then.
"""

import asyncio
from collections import deque
from collections.abc import Callable

QUIET_SECONDS = 0.02  # without small requests, until large ones are not held up any longer

Step = Callable[[], None]


class StepScheduler:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._steps: deque[Step] = deque()
        self.last_small_request_s = -QUIET_SECONDS  # when a small request came last, in seconds

    def is_quiet(self, now: float) -> bool:
        return now - self.last_small_request_s >= QUIET_SECONDS

    def schedule(self, step: Step) -> None:
        """Take a step when it is its turn."""
        self._steps.append(step)
        if len(self._steps) == 1:
            self._loop.call_soon(self._let_others_pass)

    def _let_others_pass(self) -> None:
        """What those who are served ask for soon comes in the same turn: the next one begins with a look around."""
        self._loop.call_soon(self._take_next)

    def _take_next(self) -> None:
        try:
            self._steps[0]()
        finally:
            self._steps.popleft()
            if self._steps:
                self._loop.call_soon(self._take_next)
