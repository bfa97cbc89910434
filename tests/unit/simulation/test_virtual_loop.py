"""Time jumps from timer to timer; a process that is killed or paused runs nothing."""

import asyncio
from functools import partial
from types import CoroutineType

import pytest

from leadline.simulation.virtual_loop import CURRENT, Deadlock, Process, VirtualLoop


def test_an_hour_passes_at_once() -> None:
    loop = VirtualLoop()
    loop.run_until_complete(asyncio.sleep(3600))
    assert loop.time() == 3600


def test_a_killed_process_runs_nothing_more_not_even_its_finally() -> None:
    loop, done = VirtualLoop(), list[str]()

    async def work() -> None:
        try:
            await asyncio.sleep(2)
            done.append("slept")
        finally:
            done.append("finally")

    async def main() -> None:
        process = Process("broker")
        loop.spawn(process, work())
        await asyncio.sleep(1)
        loop.kill(process)
        await asyncio.sleep(10)
        assert done == []

    loop.run_until_complete(main())
    loop.close()


def test_a_paused_process_goes_on_where_it_was_and_in_its_order() -> None:
    loop, done = VirtualLoop(), list[tuple[str, float]]()

    async def work(name: str, after_s: float) -> None:
        await asyncio.sleep(after_s)
        done.append((name, loop.time()))

    async def main() -> None:
        process = Process("broker")
        tasks = [loop.spawn(process, work(name, after_s)) for name, after_s in (("b", 2), ("a", 1), ("c", 9))]
        await asyncio.sleep(0.5)
        loop.pause(process)
        await asyncio.sleep(4.5)
        assert done == []
        loop.resume(process)
        await asyncio.gather(*tasks)

    loop.run_until_complete(main())
    assert done == [("a", 5), ("b", 5), ("c", 9)]


def test_jobs_of_one_thread_run_one_after_the_other_and_a_job_may_wait_for_another() -> None:
    loop, ran = VirtualLoop(lambda: 1.0), list[tuple[str, float]]()

    def job(name: str) -> str:
        ran.append((name, loop.time()))
        return name

    async def main() -> None:
        one, several = loop.new_threads(1, "one"), loop.new_threads(4, "several")
        first = several.submit(job, "first")

        def second() -> str:
            return job(f"second after {first.result()}")

        names = [loop.run_in_executor(one, call) for call in (second, partial(job, "third"))]
        assert await asyncio.gather(*names) == ["second after first", "third"]

    loop.run_until_complete(main())
    assert ran == [("first", 1.0), ("second after first", 1.0), ("third", 2.0)]


def test_whoever_waits_for_nothing_is_stuck() -> None:
    loop = VirtualLoop()
    with pytest.raises(Deadlock):
        loop.run_until_complete(loop.create_future())
    loop.close()


def test_what_a_callback_raises_is_kept() -> None:
    loop = VirtualLoop()

    async def main() -> None:
        loop.call_soon(lambda: 1 / 0)
        await asyncio.sleep(1)

    loop.run_until_complete(main())
    assert [type(failure["exception"]) for failure in loop.failures] == [ZeroDivisionError]


def test_a_task_that_does_the_same_again_and_again_is_named() -> None:
    async def spin() -> None:
        for _ in range(1_000_000):
            await asyncio.sleep(0.00001)

    with pytest.raises(Deadlock, match=r"task .*spin"):
        VirtualLoop().run_until_complete(spin())


def test_a_job_that_was_cancelled_does_not_run_and_one_that_failed_says_why() -> None:
    loop, ran = VirtualLoop(lambda: 1.0), list[str]()

    def fail() -> None:
        raise OSError("no space")

    async def main() -> None:
        threads = loop.new_threads(1, "one")
        cancelled = loop.run_in_executor(threads, ran.append, "cancelled")
        cancelled.cancel()
        with pytest.raises(OSError, match="no space"):
            await loop.run_in_executor(threads, fail)

    loop.run_until_complete(main())
    assert ran == []


def test_a_step_at_once_belongs_to_its_process() -> None:
    loop, ran, checked = VirtualLoop(), list[tuple[Process | None, float]](), list[float]()
    process = Process("broker")
    process.after_step = lambda: checked.append(loop.time())

    def note() -> None:
        ran.append((CURRENT.get(), loop.time()))

    async def main() -> None:
        loop.call_soon(loop.run_as, process, note)
        await asyncio.sleep(1)
        loop.pause(process)
        loop.call_soon(loop.run_as, process, note)
        await asyncio.sleep(1)
        assert ran == [(process, 0)], "it is paused"
        loop.resume(process)
        await asyncio.sleep(1)
        loop.kill(process)
        loop.call_soon(loop.run_as, process, note)
        await asyncio.sleep(1)

    loop.run_until_complete(main())
    assert ran == [(process, 0), (process, 2)]
    assert checked == [0, 2]


def test_what_a_callback_raises_is_a_failure_unless_its_process_is_dead() -> None:
    loop, process = VirtualLoop(), Process("broker")

    def fail() -> None:
        raise ValueError("a bug")

    def die() -> None:
        loop.kill(process)
        raise ValueError("nobody sees it")

    async def main() -> None:
        loop.call_soon(fail, context=process.context.copy())
        loop.call_soon(die, context=process.context.copy())
        await asyncio.sleep(1)

    loop.run_until_complete(main())
    assert [str(failure["exception"]) for failure in loop.failures] == ["a bug"]


def test_what_begins_while_the_rest_ends_is_ended_too() -> None:
    async def begun() -> None: ...

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            tasks.append(asyncio.create_task(begun()))

    loop, tasks = VirtualLoop(), list[asyncio.Task[None]]()
    waiting = loop.spawn(Process("broker"), work())
    loop.run_until_complete(asyncio.sleep(1))
    assert not waiting.done()
    loop.close()
    coroutine = tasks[0].get_coro()
    assert isinstance(coroutine, CoroutineType)
    assert coroutine.cr_frame is None
