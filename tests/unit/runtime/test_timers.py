"""Timers by name, each of which rings once, when it was last set to."""

import asyncio
from collections.abc import Callable

from leadline.runtime.timers import Timers

LONG_MS, SHORT_MS = 60_000, 30


def rung(act: Callable[[Timers[str]], None], last: str = "last") -> list[str]:
    """What rings until `last` has, which is set to ring behind all that is short."""

    async def run() -> list[str]:
        done, heard = asyncio.Event(), []

        def ring(name: str) -> None:
            heard.append(name)
            if name == last:
                done.set()

        alarms = Timers(ring)
        act(alarms)
        alarms.set(last, 4 * SHORT_MS)
        async with asyncio.timeout(120):
            await done.wait()
        alarms.cancel_all()
        assert len(alarms) == 0
        return heard

    return asyncio.run(run())


def test_one_that_is_put_off_rings_later() -> None:
    def act(alarms: Timers[str]) -> None:
        alarms.set("put off", SHORT_MS)
        alarms.set("once", 2 * SHORT_MS)
        alarms.set("put off", 3 * SHORT_MS)

    assert rung(act) == ["once", "put off", "last"]


def test_one_that_is_brought_forward_rings_earlier() -> None:
    def act(alarms: Timers[str]) -> None:
        alarms.set("forward", LONG_MS)
        alarms.set("forward", SHORT_MS)

    assert rung(act) == ["forward", "last"]


def test_one_that_is_ended_does_not_ring() -> None:
    def act(alarms: Timers[str]) -> None:
        alarms.set("ended", SHORT_MS)
        alarms.cancel("ended")
        alarms.cancel("never set")
        alarms.set("far away", LONG_MS)

    assert rung(act) == ["last"]
