"""The thread of a log directory: what would block the loop is done there, one job after the other.

One thread for each disk keeps the order of what is written to it: an epoch file before the flush that relies on it,
the older checkpoint before the newer.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from leadline.errors import LogDirFailed

T = TypeVar("T")


class Disk:
    """A directory whose first failure is its last: nothing in it is tried again."""

    def __init__(self, directory: str, failed: Callable[[LogDirFailed], None]) -> None:
        self.directory, self._failed = directory, failed
        self._stopped = False

    def _fail(self, doing: str, error: OSError) -> LogDirFailed:
        """What was not synced is in doubt."""
        failure = LogDirFailed(self.directory, doing, error)
        self._stopped = True
        self._failed(failure)
        return failure


class DiskThread(Disk):
    """Background, for one directory."""

    def __init__(self, directory: str, failed: Callable[[LogDirFailed], None]) -> None:
        super().__init__(directory, failed)
        self.loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"disk-{directory}")
        self._timers: set[asyncio.TimerHandle] = set()

    def run(self, doing: str, job: Callable[[], T], then: Callable[[T], None]) -> None:
        if self._stopped:
            return

        def done(future: asyncio.Future[T]) -> None:
            error = future.exception()
            if isinstance(error, OSError):
                self._fail(doing, error)
            elif not self._stopped:
                then(future.result())

        asyncio.wrap_future(self._thread.submit(job), loop=self.loop).add_done_callback(done)

    async def call(self, doing: str, job: Callable[[], T]) -> T:
        """Run a job in its turn and wait for it. LogDirFailed if the disk says no."""
        if self._stopped:
            raise LogDirFailed(self.directory, doing, OSError("it is offline"))
        try:
            return await asyncio.wrap_future(self._thread.submit(job))
        except OSError as error:
            raise self._fail(doing, error) from error

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        def due() -> None:
            self._timers.discard(handle)
            call()

        handle = self.loop.call_later(delay_ms / 1000, due)
        self._timers.add(handle)

    async def drain(self) -> None:
        """Until all jobs so far are done, and what follows from them."""
        await asyncio.wrap_future(self._thread.submit(lambda: None))
        await asyncio.sleep(0)

    async def stop(self) -> None:
        for timer in self._timers:
            timer.cancel()
        await self.drain()
        self._stopped = True
        self._thread.shutdown()


class Inline:
    """Background for tools and tests: jobs run at once, what is for later when `run_due` says so."""

    def __init__(self, directory: str, failed: Callable[[LogDirFailed], None]) -> None:
        self.directory, self._failed = directory, failed
        self.postponed: list[tuple[int, Callable[[], None]]] = []

    def run(self, doing: str, job: Callable[[], T], then: Callable[[T], None]) -> None:
        try:
            result = job()
        except OSError as error:
            self._failed(LogDirFailed(self.directory, doing, error))
            return
        then(result)

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        self.postponed.append((delay_ms, call))

    def run_due(self) -> None:
        due, self.postponed = self.postponed, []
        for _, call in due:
            call()
