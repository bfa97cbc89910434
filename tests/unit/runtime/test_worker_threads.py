"""Work beside the loop, and on the loop where there is no thread to be had."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from leadline.runtime.worker_threads import WorkerThreads


def test_work_is_done_in_a_thread_and_its_errors_come_back() -> None:
    async def test() -> None:
        threads = WorkerThreads(1, "work")
        assert (await threads.run(lambda: threading.current_thread().name)).startswith("work")
        with pytest.raises(ZeroDivisionError):
            await threads.run(lambda: 1 // 0)
        threads.close()

    asyncio.run(test())


def test_without_threads_the_loop_does_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    async def test() -> None:
        threads = WorkerThreads(1, "work")
        assert await threads.run(threading.current_thread) is threading.main_thread()
        threads.close()
        monkeypatch.undo()

    monkeypatch.setattr(ThreadPoolExecutor, "submit", exhausted)
    asyncio.run(test())
