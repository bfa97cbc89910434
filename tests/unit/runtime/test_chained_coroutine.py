"""A coroutine that is handed another one."""

import asyncio
import warnings
from collections.abc import Awaitable

import pytest

from leadline.runtime.chained_coroutine import ChainedCoroutine


async def answer() -> int:
    await asyncio.sleep(0)
    return 7


async def doubled(inner: Awaitable[int]) -> int:
    return 2 * await inner


def chained() -> ChainedCoroutine[int]:
    first = answer()
    second = ChainedCoroutine(doubled(first), first)
    return ChainedCoroutine(doubled(second), second)


def test_it_returns_what_the_chain_returns() -> None:
    async def test() -> None:
        assert await chained() == 28
        assert await asyncio.ensure_future(chained()) == 28

    asyncio.run(test())


@pytest.mark.parametrize("steps", [0, 1])
def test_a_task_may_be_cancelled_before_and_after_its_first_step(steps: int) -> None:
    async def test() -> None:
        task = asyncio.ensure_future(chained())
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        asyncio.run(test())
    assert [str(warning.message) for warning in noted] == []


def test_a_chain_that_nobody_awaits_can_be_closed() -> None:
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        chained().close()
    assert [str(warning.message) for warning in noted] == []
