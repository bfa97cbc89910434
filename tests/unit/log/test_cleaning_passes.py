"""Passes of the cleaner: no pass works on a log whose compaction is paused."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

from leadline.log.cleaning_passes import CleaningPass, CleaningPasses
from leadline.model import TopicPartition

TP, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Process:
    """A process of the cleaner, as far as a pass knows it."""

    def __init__(self) -> None:
        self.returncode: int | None = None

    def kill(self) -> None:
        self.returncode = -9


def begun(passes: CleaningPasses, tp: TopicPartition) -> CleaningPass:
    passes.by_partition[tp] = CleaningPass(cast(asyncio.subprocess.Process, Process()))
    return passes.by_partition[tp]


def run(test: Callable[[CleaningPasses], Awaitable[None]]) -> None:
    async def main() -> None:
        await test(CleaningPasses())

    asyncio.run(main())


def end(passes: CleaningPasses, tp: TopicPartition) -> None:
    passes.by_partition.pop(tp).over.set()


def test_a_pause_kills_the_current_pass_and_waits_until_it_is_over() -> None:
    async def test(passes: CleaningPasses) -> None:
        current, begun_at = begun(passes, TP), list[str]()

        async def pause() -> None:
            async with passes.paused(TP):
                begun_at.append("paused")

        pausing = asyncio.create_task(pause())
        await asyncio.sleep(0)
        assert (current.process.returncode, begun_at) == (-9, [])
        end(passes, TP)
        await pausing
        assert begun_at == ["paused"]

    run(test)


def test_no_pass_begins_while_any_pause_lasts() -> None:
    async def test(passes: CleaningPasses) -> None:
        async with passes.paused(TP):
            async with passes.paused(TP):
                assert passes.is_busy(TP)
            assert passes.is_paused(TP)
            assert passes.is_busy(TP)
            assert not passes.is_busy(OTHER)
        assert not passes.is_busy(TP)

    run(test)


def test_a_pause_ends_though_its_block_fails() -> None:
    async def test(passes: CleaningPasses) -> None:
        try:
            async with passes.paused(TP):
                raise OSError("a disk that fails")
        except OSError:
            pass
        assert not passes.is_paused(TP)

    run(test)


def test_a_pass_that_has_ended_is_not_killed() -> None:
    async def test(passes: CleaningPasses) -> None:
        current = begun(passes, TP)
        cast(Process, current.process).returncode = 0
        current.kill()
        assert current.process.returncode == 0
        assert passes.is_busy(TP)

    run(test)


def test_all_passes_are_aborted_together_with_the_broker() -> None:
    async def test(passes: CleaningPasses) -> None:
        processes = [begun(passes, tp) for tp in (TP, OTHER)]
        for current in processes:
            current.over.set()
        await passes.abort_all()
        assert [current.process.returncode for current in processes] == [-9, -9]

    run(test)
