"""The thread of a log directory: order, failure for good, and what is for later."""

import asyncio
import threading
from functools import partial

import pytest

from leadline.errors import LogDirFailed
from leadline.log.disk_thread import DiskThread
from leadline.runtime.ports import Job


def broken() -> int:
    raise OSError(5, "Input/output error")


def test_jobs_run_in_their_order_on_one_other_thread_and_report_on_the_loop() -> None:
    async def scenario() -> tuple[list[int], set[int], set[int]]:
        disk = DiskThread("d", lambda _: None)
        done, there, here = list[int](), set[int](), set[int]()

        def job(n: int) -> int:
            there.add(threading.get_ident())
            return n

        def then(n: int) -> None:
            here.add(threading.get_ident())
            done.append(n)

        for n in range(20):
            disk.run("counting", lambda n=n: job(n), then)  # type: ignore[misc]
        assert await disk.call("counting", lambda: job(99)) == 99
        await disk.drain()
        await disk.stop()
        return done, there, here

    done, there, here = asyncio.run(scenario())
    assert done == list(range(20))
    assert len(there) == 1
    assert here == {threading.get_ident()}
    assert there.isdisjoint(here)


def test_after_a_failure_nothing_more_is_done_or_reported() -> None:
    async def scenario() -> tuple[list[LogDirFailed], list[str]]:
        failures, done = list[LogDirFailed](), list[str]()
        disk = DiskThread("d", failures.append)
        disk.run("flushing orders-0", broken, lambda _: done.append("broken"))
        disk.run("flushing orders-1", lambda: "queued already", done.append)
        await disk.drain()
        disk.run("flushing orders-2", lambda: "too late", done.append)
        with pytest.raises(LogDirFailed, match="while checkpointing: it is offline"):
            await disk.call("checkpointing", lambda: done.append("called"))
        await disk.stop()
        return failures, done

    failures, done = asyncio.run(scenario())
    assert [str(failure) for failure in failures] == [
        "log directory d failed while flushing orders-0: [Errno 5] Input/output error"
    ]
    assert done == []


def test_what_comes_while_a_group_runs_is_planned_and_run_as_the_next_group() -> None:
    async def scenario() -> list[str]:
        disk, gate, done = DiskThread("d", lambda _: None), threading.Event(), list[str]()

        def plan(name: str) -> Job:
            done.append(f"plan {name}")
            return Job(lambda: gate.wait(120) and name, lambda result: done.append(f"did {result}"))

        disk.run_in_group("flushing a", partial(plan, "a"))
        disk.run_in_group("flushing b", partial(plan, "b"))
        disk.run_in_group("flushing c", lambda: None)
        await asyncio.sleep(0)
        disk.run_in_group("flushing d", partial(plan, "d"))
        disk.run_in_group("flushing e", partial(plan, "e"))
        await asyncio.sleep(0)
        gate.set()
        async with asyncio.timeout(120):
            while len(done) < 8:
                await disk.drain()
        await disk.stop()
        return done

    done = asyncio.run(scenario())
    assert done[:4] == ["plan a", "plan b", "plan d", "plan e"]
    assert sorted(done[4:]) == ["did a", "did b", "did d", "did e"]


def test_a_group_of_which_one_fails_is_the_failure_of_the_directory() -> None:
    async def scenario() -> tuple[list[LogDirFailed], list[object]]:
        failures, done = list[LogDirFailed](), list[object]()
        disk = DiskThread("d", failures.append)
        for name, run in (("orders-0", lambda: 1), ("orders-1", broken)):
            disk.run_in_group(f"flushing {name}", partial(Job, run, done.append))
        await asyncio.sleep(0)
        await disk.drain()
        await disk.stop()
        return failures, done

    failures, done = asyncio.run(scenario())
    assert [str(failure) for failure in failures] == [
        "log directory d failed while flushing orders-0 and 1 more: [Errno 5] Input/output error"
    ]
    assert done == []


def test_a_failing_call_is_reported_to_the_caller_and_to_the_directory() -> None:
    async def scenario() -> list[LogDirFailed]:
        failures = list[LogDirFailed]()
        disk = DiskThread("d", failures.append)
        with pytest.raises(LogDirFailed, match="while checkpointing"):
            await disk.call("checkpointing", broken)
        await disk.stop()
        return failures

    assert len(asyncio.run(scenario())) == 1


def test_what_is_for_later_waits_and_does_not_outlive_the_end() -> None:
    async def scenario() -> list[str]:
        disk, done = DiskThread("d", lambda _: None), list[str]()
        disk.later(1, lambda: done.append("soon"))
        disk.later(50_000, lambda: done.append("never"))
        assert done == []
        async with asyncio.timeout(120):
            while not done:  # noqa: ASYNC110  nobody tells
                await asyncio.sleep(0.005)
        await disk.stop()
        return done

    assert asyncio.run(scenario()) == ["soon"]
