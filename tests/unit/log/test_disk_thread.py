"""The thread of a log directory: order, failure for good, and what is for later."""

import asyncio
import errno
import threading
import time
from collections import defaultdict
from functools import partial
from typing import NoReturn

import pytest

from leadline.errors import LogDirFailed, StorageError
from leadline.log.disk_thread import GROUP_THREADS, DiskThread
from leadline.runtime.ports import Job
from tests.support.waiting import eventually

PATIENCE_S = 120


def broken() -> int:
    raise OSError(5, "Input/output error")


def test_jobs_run_in_their_order_on_one_other_thread_and_report_on_the_loop() -> None:
    async def scenario() -> tuple[list[int], set[int], set[int]]:
        disk = DiskThread("d", lambda _: None)
        done, in_thread, in_loop = list[int](), set[int](), set[int]()

        def job(n: int) -> int:
            in_thread.add(threading.get_ident())
            return n

        def then(n: int) -> None:
            in_loop.add(threading.get_ident())
            done.append(n)

        for n in range(20):
            disk.run("counting", lambda n=n: job(n), then)  # type: ignore[misc]
        assert await disk.call("counting", lambda: job(99)) == 99
        await disk.drain()
        await disk.stop()
        return done, in_thread, in_loop

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


@pytest.mark.parametrize("is_there", [True, False])
def test_a_file_that_cannot_be_used_fails_the_call_alone_unless_the_directory_is_gone(is_there: bool) -> None:
    def refused() -> None:
        raise IsADirectoryError(errno.EISDIR, "Is a directory", "d/checkpoint")

    async def scenario() -> list[LogDirFailed]:
        failures = list[LogDirFailed]()
        disk = DiskThread("d", failures.append, lambda: is_there)
        with pytest.raises(StorageError if is_there else LogDirFailed, match=r"writing.*d/checkpoint"):
            await disk.call("writing", refused)
        if is_there:
            assert await disk.call("reading", lambda: 7) == 7
        await disk.stop()
        return failures

    assert bool(asyncio.run(scenario())) is not is_there


class Flushes:
    """Group commits that are planned, begin and end when the test lets them; what happened, in order."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.gates: dict[str, threading.Event] = defaultdict(threading.Event)

    def plan(self, name: str) -> Job:
        self.events.append(f"plan {name}")
        return Job(partial(self.run, name), lambda result: self.events.append(f"did {result}"))

    def run(self, name: str) -> str:
        self.events.append(f"begin {name}")
        assert self.gates[name].wait(PATIENCE_S)
        self.events.append(f"end {name}")
        return name

    def add(self, disk: DiskThread, *names: str) -> None:
        for name in names:
            disk.run_in_group(f"flushing {name}", partial(self.plan, name))

    async def until(self, *events: str) -> None:
        await eventually(lambda: set(events) <= set(self.events))

    def are_in_order(self, *events: str) -> bool:
        places = [self.events.index(event) for event in events]
        return places == sorted(places)


def test_group_commits_run_beside_each_other_and_end_on_their_own() -> None:
    async def scenario() -> None:
        disk, flushes = DiskThread("d", lambda _: None), Flushes()
        disk.run_in_group("flushing nothing", lambda: None)
        flushes.add(disk, "a", "b")
        await flushes.until("begin a", "begin b")
        flushes.add(disk, "c")
        await flushes.until("begin c")
        flushes.gates["c"].set()
        await flushes.until("did c")
        assert "end a" not in flushes.events
        flushes.gates["a"].set()
        flushes.gates["b"].set()
        await disk.stop()
        assert {"did a", "did b"} <= set(flushes.events)

    asyncio.run(scenario())


def test_a_group_commit_is_planned_when_there_is_a_thread_for_it() -> None:
    async def scenario() -> None:
        disk, flushes = DiskThread("d", lambda _: None), Flushes()
        first = [str(n) for n in range(GROUP_THREADS)]
        flushes.add(disk, *first, "one more")
        await flushes.until(*(f"begin {name}" for name in first))
        assert "plan one more" not in flushes.events
        for name in (*first, "one more"):
            flushes.gates[name].set()
        await flushes.until("did one more")
        await disk.stop()

    asyncio.run(scenario())


def test_neither_jobs_nor_group_commits_overtake_each_other() -> None:
    async def scenario() -> None:
        disk, flushes = DiskThread("d", lambda _: None), Flushes()
        disk.run("writing", partial(flushes.run, "job 1"), lambda _: None)
        flushes.add(disk, "a", "b")
        await flushes.until("plan a", "plan b")
        disk.run("writing", partial(flushes.run, "job 2"), lambda _: None)
        flushes.add(disk, "c")
        await disk_has_time()
        assert "begin a" not in flushes.events
        for name in ("job 1", "a", "b", "job 2", "c"):
            flushes.gates[name].set()
        await flushes.until("did a", "did b", "did c")
        assert flushes.are_in_order("end job 1", "begin a", "end a", "begin job 2", "end job 2", "begin c")
        assert flushes.are_in_order("end job 1", "begin b", "end b", "begin job 2")
        await disk.stop()

    asyncio.run(scenario())


def test_a_job_waits_for_the_group_commits_that_run() -> None:
    async def scenario() -> None:
        disk, flushes = DiskThread("d", lambda _: None), Flushes()
        flushes.add(disk, "a")
        await flushes.until("begin a")
        flushes.gates["job"].set()
        disk.run("writing", partial(flushes.run, "job"), lambda _: None)
        await disk_has_time()
        assert "begin job" not in flushes.events
        flushes.gates["a"].set()
        await disk.drain()
        assert flushes.are_in_order("end a", "begin job")
        await disk.stop()

    asyncio.run(scenario())


async def disk_has_time() -> None:
    """For what must not happen yet: a thread that is free would do it meanwhile."""
    await asyncio.to_thread(time.sleep, 0.05)


def test_without_a_further_thread_the_disks_own_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        disk, flushes = DiskThread("d", lambda _: None), Flushes()

        def no_thread(*_: object) -> NoReturn:
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(disk._group_threads, "submit", no_thread)
        for name in "ab":
            flushes.gates[name].set()
        flushes.add(disk, "a", "b")
        await flushes.until("did a", "did b")
        await disk.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("busy", [False, True])
def test_a_group_commit_that_fails_is_the_failure_of_the_directory(busy: bool) -> None:
    async def scenario() -> tuple[list[LogDirFailed], list[object]]:
        failures, done = list[LogDirFailed](), list[object]()
        disk = DiskThread("d", failures.append)
        gate = threading.Event()
        if busy:
            disk.run("writing", partial(gate.wait, PATIENCE_S), lambda _: None)
        disk.run_in_group("flushing orders-0", partial(Job, broken, done.append))
        await asyncio.sleep(0)
        gate.set()
        await disk.drain()
        disk.run_in_group("flushing orders-1", partial(Job, lambda: 1, done.append))
        await asyncio.sleep(0)
        await disk.stop()
        return failures, done

    failures, done = asyncio.run(scenario())
    assert [str(failure) for failure in failures] == [
        "log directory d failed while flushing orders-0: [Errno 5] Input/output error"
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
        await eventually(lambda: done)
        await disk.stop()
        return done

    assert asyncio.run(scenario()) == ["soon"]
