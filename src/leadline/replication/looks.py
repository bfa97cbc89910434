"""Looks of those who wait for more: taken together when a turn of the loop is over.

All that was appended in one turn is told in one answer. What they look for is still at hand then: see `log/recent.py`.
"""

import asyncio
from collections.abc import Callable

from leadline.log.recent import Recent

Look = Callable[[], None]


class Looks:
    def __init__(self) -> None:
        self.recent = Recent()
        self._due: list[Look] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    def soon(self, look: Look) -> None:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        if not self._due:
            self._loop.call_soon(self._take_all)
        self._due.append(look)

    def _take_all(self) -> None:
        """In their order. Should one fail, which is told by the loop, the others look nevertheless."""
        due, self._due = self._due[::-1], []
        try:
            while due:
                due.pop()()
        finally:
            self.recent.clear()
            for look in reversed(due):
                self.soon(look)
