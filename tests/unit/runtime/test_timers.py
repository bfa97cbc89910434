"""Timers by name. Each expires once, at the deadline that was set last."""

import asyncio
from collections.abc import Callable

from leadline.runtime.timers import Timers

LONG_MS, SHORT_MS = 60_000, 30


def expired(act: Callable[[Timers[str]], None], last: str = "last") -> list[str]:
    """The timers that expire until `last` does, which is set to expire after all short ones."""

    async def run() -> list[str]:
        done, names = asyncio.Event(), []

        def on_expired(name: str) -> None:
            names.append(name)
            if name == last:
                done.set()

        timers = Timers(on_expired)
        act(timers)
        timers.set(last, 4 * SHORT_MS)
        async with asyncio.timeout(20):
            await done.wait()
        timers.cancel_all()
        assert len(timers) == 0
        return names

    return asyncio.run(run())


def test_a_timer_that_is_postponed_expires_later() -> None:
    def act(timers: Timers[str]) -> None:
        timers.set("postponed", SHORT_MS)
        timers.set("once", 2 * SHORT_MS)
        timers.set("postponed", 3 * SHORT_MS)

    assert expired(act) == ["once", "postponed", "last"]


def test_a_timer_that_is_brought_forward_expires_earlier() -> None:
    def act(timers: Timers[str]) -> None:
        timers.set("forward", LONG_MS)
        timers.set("forward", SHORT_MS)

    assert expired(act) == ["forward", "last"]


def test_a_timer_that_is_cancelled_does_not_expire() -> None:
    def act(timers: Timers[str]) -> None:
        timers.set("cancelled", SHORT_MS)
        timers.cancel("cancelled")
        timers.cancel("never set")
        timers.set("far away", LONG_MS)

    assert expired(act) == ["last"]
