"""Long work in steps: at once, or in several turns of the loop."""

import asyncio

import pytest

from leadline.runtime import turns
from leadline.runtime.steps import Steps, exhaust, one_step, portions
from leadline.runtime.turns import SHARE_S, Turns, over_turns


def counted(count: int, done: list[int]) -> Steps[str]:
    for number in range(count):
        done.append(number)
        yield
    return "the result"


def test_steps_that_are_exhausted_run_at_once_and_have_a_result() -> None:
    done: list[int] = []
    assert exhaust(counted(3, done)) == "the result"
    assert done == [0, 1, 2]
    assert exhaust(one_step(lambda: 7)) == 7


def test_a_call_that_returns_steps_is_no_step() -> None:
    with pytest.raises(AssertionError, match="a caller has to run"):
        exhaust(one_step(lambda: counted(1, [])))


def test_portions_hold_all_elements_in_order() -> None:
    assert list(portions(range(5), 2)) == [[0, 1], [2, 3], [4]]
    assert list(portions([])) == []


@pytest.mark.parametrize(("share_s", "is_shared"), [(0.0, True), (3600.0, False)])
def test_others_run_between_steps_once_the_share_of_a_turn_is_used_up(
    monkeypatch: pytest.MonkeyPatch, share_s: float, is_shared: bool
) -> None:
    monkeypatch.setattr(turns, "SHARE_S", share_s)
    done: list[int] = []
    counts: list[int] = []

    async def main() -> None:
        mine = Turns()
        await mine.next()
        asyncio.get_running_loop().call_soon(lambda: counts.append(len(done)))
        assert await mine.run(counted(10, done)) == "the result"
        await asyncio.sleep(0)

    asyncio.run(main())
    assert (counts[0] < 10) is is_shared


def test_work_that_is_no_longer_needed_ends_at_the_next_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []
    monkeypatch.setattr(turns, "SHARE_S", 0.0)

    def check() -> None:
        if len(done) == 3:
            raise RuntimeError("resigned")

    async def main() -> None:
        with pytest.raises(RuntimeError, match="resigned"):
            await Turns().run(counted(10, done), check)

    asyncio.run(main())
    assert done == [0, 1, 2]


def test_what_does_not_fit_into_a_turn_follows_in_later_ones() -> None:
    async def scenario() -> tuple[list[int], int]:
        loop, now_s, count = asyncio.get_running_loop(), [0.0], [0]
        loop.time = lambda: now_s[0]  # type: ignore[method-assign]

        def count_turn() -> None:
            count[0] += 1
            loop.call_soon(count_turn)

        loop.call_soon(count_turn)
        items = []
        async for item in over_turns(range(10)):
            items.append(item)
            now_s[0] += SHARE_S
        return items, count[0]

    items, count = asyncio.run(scenario())
    assert (items, count) == (list(range(10)), 10)


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
