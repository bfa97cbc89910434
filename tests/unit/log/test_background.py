"""The thread of a log directory: order, failure for good, and what is for later."""

import asyncio
import threading

import pytest

from leadline.errors import LogDirFailed
from leadline.log.background import DiskThread


def broken() -> int:
    raise OSError(5, "Input/output error")


def test_jobs_run_in_their_order_on_one_other_thread_and_report_on_the_loop() -> None:
    async def play() -> tuple[list[int], set[int], set[int]]:
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

    done, there, here = asyncio.run(play())
    assert done == list(range(20))
    assert len(there) == 1
    assert here == {threading.get_ident()}
    assert there.isdisjoint(here)


def test_after_a_failure_nothing_more_is_done_or_reported() -> None:
    async def play() -> tuple[list[LogDirFailed], list[str]]:
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

    failures, done = asyncio.run(play())
    assert [str(failure) for failure in failures] == [
        "log directory d failed while flushing orders-0: [Errno 5] Input/output error"
    ]
    assert done == []


def test_a_call_that_fails_is_told_to_the_caller_and_to_the_directory() -> None:
    async def play() -> list[LogDirFailed]:
        failures = list[LogDirFailed]()
        disk = DiskThread("d", failures.append)
        with pytest.raises(LogDirFailed, match="while checkpointing"):
            await disk.call("checkpointing", broken)
        await disk.stop()
        return failures

    assert len(asyncio.run(play())) == 1


def test_what_is_for_later_waits_and_does_not_outlive_the_end() -> None:
    async def play() -> list[str]:
        disk, done = DiskThread("d", lambda _: None), list[str]()
        disk.later(1, lambda: done.append("soon"))
        disk.later(50_000, lambda: done.append("never"))
        assert done == []
        await asyncio.sleep(0.05)
        await disk.stop()
        return done

    assert asyncio.run(play()) == ["soon"]
