"""Runs long work in steps: one step at a time, and between two steps every client that has sent something is served.

A step waits for one turn of the loop, which serves the sockets that are ready. So a small request waits for one step at
most, however many connections have large ones. Without small requests no client waits, and no steps are needed.

`call_soon` of the broker's loop runs after the sockets that are ready by then: see `event_loop`.
"""

import asyncio
from collections import deque
from collections.abc import Callable

QUIET_SECONDS = 0.02  # after the last small request, large ones are no longer delayed

Step = Callable[[], None]


class StepScheduler:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._steps: deque[Step] = deque()
        self.last_small_request_s = -QUIET_SECONDS  # when the last small request came

    def __len__(self) -> int:
        """Steps that wait."""
        return len(self._steps)

    def is_quiet(self, now_s: float) -> bool:
        """Whether no small request has come for a while."""
        return now_s - self.last_small_request_s >= QUIET_SECONDS

    def schedule(self, step: Step) -> None:
        """Run a step after those that are scheduled already."""
        self._steps.append(step)
        if len(self._steps) == 1:
            self._loop.call_soon(self._skip_turn)

    def _skip_turn(self) -> None:
        """Steps that are scheduled now run in the next turn, which begins with the sockets that are ready."""
        self._loop.call_soon(self._run_next)

    def _run_next(self) -> None:
        try:
            self._steps[0]()
        finally:
            self._steps.popleft()
            if self._steps:
                self._loop.call_soon(self._run_next)
