"""Work on many things that leaves the loop to others in between.

While one turn of the loop lasts, no client is served. Work on all partitions of a broker, or of a large topic, is
therefore spread over as many turns as it takes.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

T = TypeVar("T")

TURN_S = 0.01  # of such work in one turn


async def over_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """The items in their order. Those that do not fit into this turn follow in later ones."""
    now_s = asyncio.get_running_loop().time
    until_s = now_s() + TURN_S
    for item in items:
        yield item
        if now_s() >= until_s:
            await asyncio.sleep(0)
            until_s = now_s() + TURN_S
