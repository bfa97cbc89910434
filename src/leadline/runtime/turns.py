"""Long work on the loop: when its share of a turn is used up, the rest waits for the next turn.

While one turn of the loop lasts, no client is served. Work on all partitions of a broker, or of a large topic, is
therefore spread over as many turns as it takes.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TypeVar

from leadline.runtime.steps import Steps

T = TypeVar("T")

SHARE_S = 0.01  # of one turn


class Turns:
    """The turns of one task."""

    def __init__(self) -> None:
        self._share_ends_s = 0.0

    async def pause(self) -> None:
        """Waits for the next turn, unless the share of this one lasts."""
        if asyncio.get_running_loop().time() >= self._share_ends_s:
            await self.next()

    async def next(self) -> None:
        await asyncio.sleep(0)
        self.begin()

    def begin(self) -> None:
        """The task has waited for something else: its share of this turn begins."""
        self._share_ends_s = asyncio.get_running_loop().time() + SHARE_S

    async def run(self, steps: Steps[T], check: Callable[[], object] = lambda: None) -> T:
        """`check` is called in each turn. It raises if the work is no longer needed."""
        time_s = asyncio.get_running_loop().time
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            if time_s() >= self._share_ends_s:
                await self.next()
                check()


async def over_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """The items in their order. Those that do not fit into this turn follow in later ones."""
    turns = Turns()
    turns.begin()
    for item in items:
        yield item
        await turns.pause()
