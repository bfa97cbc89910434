"""Work that is spread over turns of the loop."""

import asyncio

from leadline.runtime.turn_limit import TURN_S, over_turns


def test_what_does_not_fit_into_a_turn_follows_in_later_ones() -> None:
    async def scenario() -> tuple[list[int], int]:
        loop, now_s, turns = asyncio.get_running_loop(), [0.0], [0]
        loop.time = lambda: now_s[0]  # type: ignore[method-assign]

        def count_turn() -> None:
            turns[0] += 1
            loop.call_soon(count_turn)

        loop.call_soon(count_turn)
        items = []
        async for item in over_turns(range(10)):
            items.append(item)
            now_s[0] += TURN_S
        return items, turns[0]

    items, turns = asyncio.run(scenario())
    assert (items, turns) == (list(range(10)), 10)


def test_what_fits_into_a_turn_leaves_the_loop_to_nobody() -> None:
    async def scenario() -> bool:
        ran = list[bool]()
        loop = asyncio.get_running_loop()
        loop.time = lambda: 0.0  # type: ignore[method-assign]
        loop.call_soon(ran.append, True)
        async for _ in over_turns(range(10)):
            pass
        return not ran

    assert asyncio.run(scenario())
