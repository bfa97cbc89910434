"""A fault that waits for a moment strikes when it comes, and only once."""

import asyncio

from leadline.simulation.moments import APPEND, SYNC, Moments
from leadline.simulation.virtual_loop import VirtualLoop


def test_a_fault_strikes_at_its_moment() -> None:
    moments, struck = Moments(), list[str]()

    async def play() -> bool:
        waiting = asyncio.ensure_future(moments.wait_for(APPEND, 5.0, lambda: struck.append("now")))
        await asyncio.sleep(1.0)
        moments.came(SYNC)
        assert not struck
        moments.came(APPEND)
        assert struck == ["now"]
        moments.came(APPEND)
        return await waiting

    assert VirtualLoop().run_until_complete(play())
    assert struck == ["now"]


def test_a_moment_that_does_not_come_is_not_waited_for() -> None:
    moments, struck, loop = Moments(), list[str](), VirtualLoop()
    assert not loop.run_until_complete(moments.wait_for(APPEND, 5.0, lambda: struck.append("now")))
    moments.came(APPEND)
    assert not struck
    assert loop.time() == 5.0
