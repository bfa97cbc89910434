"""Periodic work, and tasks that outlive whoever started them."""

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from leadline.runtime import periodic
from leadline.runtime.periodic import end_now, every, kept_running, spawn

PATIENCE_S = 60
LONG_MS, SHORT_MS = 3_600_000, 1


async def run_until(runs: int, interval_ms: float, *, first_ms: float | None = None) -> int:
    """How often the work had run when it had run so often, or when time was up."""
    count, done = 0, asyncio.Event()

    async def work() -> None:
        nonlocal count
        count += 1
        if count == runs:
            done.set()

    task = asyncio.create_task(every(interval_ms, work, first_ms=first_ms))
    async with asyncio.timeout(PATIENCE_S):
        await done.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return count


def test_work_runs_again_after_each_interval() -> None:
    assert asyncio.run(run_until(3, SHORT_MS)) == 3


def test_the_first_delay_replaces_the_first_interval_alone() -> None:
    assert asyncio.run(run_until(1, LONG_MS, first_ms=0)) == 1


class FailsOnce:
    """Work that raises in its first run. In its second one it waits for ever."""

    def __init__(self) -> None:
        self.runs = 0
        self.has_run_again = asyncio.Event()

    async def __call__(self) -> None:
        self.runs += 1
        if self.runs == 1:
            raise ValueError("broken")
        self.has_run_again.set()
        await asyncio.Event().wait()


@pytest.mark.parametrize("keep", [lambda work: every(SHORT_MS, work), kept_running])
def test_work_that_fails_is_reported_and_runs_again(
    keep: Callable[[FailsOnce], Coroutine[Any, Any, None]],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(periodic, "RESTART_S", SHORT_MS / 1000)

    async def run() -> None:
        work = FailsOnce()
        task = asyncio.create_task(keep(work), name="counting")
        async with asyncio.timeout(PATIENCE_S):
            await work.has_run_again.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
    assert "a bug in the task 'counting': it runs again in 0.001 s" in caplog.text
    assert "ValueError: broken" in caplog.text


def test_kept_work_that_returns_has_ended() -> None:
    async def work() -> None:
        await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(kept_running(work), PATIENCE_S))


def test_a_deadline_can_be_ended_even_when_it_is_over_in_the_same_turn() -> None:
    async def wait(timeout_s: float) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(timeout_s) as deadline:
            loop.call_soon(end_now, deadline)
            loop.call_soon(end_now, deadline)
            await asyncio.Event().wait()

    for timeout_s in (3600.0, 0.0):
        with pytest.raises(TimeoutError):
            asyncio.run(wait(timeout_s))


def test_a_task_is_held_until_it_ends() -> None:
    async def run() -> None:
        tasks: set[asyncio.Task[Any]] = set()
        gate = asyncio.Event()

        async def work() -> int:
            await gate.wait()
            return 7

        task = spawn(work(), tasks, "a name")
        assert tasks == {task}
        assert task.get_name() == "a name"
        gate.set()
        assert await task == 7
        await asyncio.sleep(0)
        assert not tasks

    asyncio.run(run())


def test_an_unawaited_error_is_not_reported_as_lost() -> None:
    async def run() -> list[dict[str, Any]]:
        reports: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, report: reports.append(report))
        tasks: set[asyncio.Task[Any]] = set()

        async def work() -> None:
            raise ValueError("broken")

        spawn(work(), tasks, quiet=True)
        while tasks:
            await asyncio.wait(tasks)
            await asyncio.sleep(0)
        gc.collect()
        return reports

    assert asyncio.run(run()) == []


def test_an_error_reaches_the_awaiter_of_the_task() -> None:
    async def work() -> None:
        raise ValueError("broken")

    async def run() -> None:
        with pytest.raises(ValueError, match="broken"):
            await spawn(work(), set())

    asyncio.run(run())
