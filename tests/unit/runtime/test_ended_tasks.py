"""Waiting for tasks that were cancelled."""

import asyncio

import pytest

from leadline.runtime.ended_tasks import all_ended


def test_it_waits_for_all_and_takes_nothing_of_what_they_raised() -> None:
    async def fail() -> None:
        raise ValueError("of no interest")

    async def main() -> None:
        release = asyncio.Event()
        failed, cancelled = asyncio.ensure_future(fail()), asyncio.ensure_future(asyncio.sleep(3600))
        last = asyncio.ensure_future(release.wait())
        cancelled.cancel()
        waiting = asyncio.ensure_future(all_ended(failed, cancelled, last))
        await asyncio.wait([failed, cancelled])
        await asyncio.sleep(0)
        assert not waiting.done()
        release.set()
        await waiting
        assert all(task.done() for task in (failed, cancelled, last))

    asyncio.run(main())


def test_who_waits_can_be_cancelled() -> None:
    async def main() -> None:
        task = asyncio.ensure_future(asyncio.sleep(3600))
        waiting = asyncio.ensure_future(all_ended(task))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not task.done()
        task.cancel()
        await all_ended(task)

    asyncio.run(main())


def test_tasks_that_are_done_need_no_turn_of_the_loop() -> None:
    async def main() -> None:
        task = asyncio.ensure_future(asyncio.sleep(0))
        await task
        turns = list[str]()
        asyncio.get_running_loop().call_soon(turns.append, "turn")
        await all_ended(task)
        await all_ended()
        assert turns == []

    asyncio.run(main())
