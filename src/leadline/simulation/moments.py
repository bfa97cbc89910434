"""Moments at which a fault hurts most: a write to a log, a sync, a rename, a truncation, an election.

A fault that waits for one strikes when it comes. With the power, everything that the process does afterwards is lost,
even within the same call.
"""

import asyncio
from collections.abc import Callable

APPEND, SYNC, RENAME, TRUNCATION = "append", "sync", "rename", "truncation"  # on the disk of a broker
ELECTION = "election"  # the broker becomes the leader of a partition
TREE_WRITE = "tree write"  # the broker writes to the coordination tree
DISK_MOMENTS = (APPEND, SYNC, RENAME, TRUNCATION)
MOMENTS = (*DISK_MOMENTS, ELECTION, TREE_WRITE)


class Moments:
    """The moments of one host. `noticed` is called with each."""

    def __init__(self) -> None:
        self.noticed: Callable[[str], None] = lambda moment: None
        self._waiting: dict[str, tuple[asyncio.Future[None], Callable[[], None]]] = {}

    async def wait_for(self, moment: str, longest_s: float, strike: Callable[[], None]) -> bool:
        """Whether it came. `strike` is called at once when it does."""
        came: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[moment] = came, strike
        try:
            async with asyncio.timeout(longest_s):
                await came
        except TimeoutError:
            return False
        finally:
            self._waiting.pop(moment, None)
        return True

    def came(self, moment: str) -> None:
        self.noticed(moment)
        if self._waiting and (waiting := self._waiting.pop(moment, None)) is not None:
            came, strike = waiting
            if not came.done():
                strike()
                came.set_result(None)
