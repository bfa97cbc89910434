"""Threads for work that takes too long for the loop, and needs nothing of it: values in, values out.

If no thread can be started, the loop does the work: all clients wait then, but nothing fails.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from leadline.runtime.ports import shortage
from leadline.runtime.threads import new_threads

T = TypeVar("T")


class WorkerThreads:
    def __init__(self, count: int, name: str) -> None:
        self._threads = new_threads(count, name)

    async def run(self, job: Callable[[], T]) -> T:
        try:
            future = asyncio.get_running_loop().run_in_executor(self._threads, job)
        except RuntimeError as error:
            if shortage(error) is None:
                raise
            return job()
        return await future

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
