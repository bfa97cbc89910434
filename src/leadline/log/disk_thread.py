"""The thread of a log directory: what would block the loop is done there, one job after the other.

One thread for each disk keeps the order of what is written to it: an epoch file before the flush that relies on it,
the older checkpoint before the newer. The jobs of a group take one place in that order and run in several threads: the
file system writes its journal once for all of them.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from leadline.errors import LogDirFailed, ResourceExhausted
from leadline.runtime.ports import Job, shortage

log = logging.getLogger(__name__)

T = TypeVar("T")
FLUSHED_AT_ONCE = 8  # threads for the jobs of a group
RETRY_MS = 1000  # after which a job is tried again for which a resource was short


class Disk:
    """A directory whose first failure is its last: nothing in it is tried again. A shortage is no failure of it."""

    def __init__(self, directory: str, failed: Callable[[LogDirFailed], None]) -> None:
        self.directory, self._failed = directory, failed
        self._stopped = False
        self._next_group: list[tuple[str, Callable[[], Job | None]]] = []
        self._group_runs = False  # or is about to

    def run(
        self, doing: str, job: Callable[[], T], then: Callable[[T], None], short: Callable[[], None] | None = None
    ) -> None:
        raise NotImplementedError

    def run_in_group(self, doing: str, plan: Callable[[], Job | None]) -> None:
        self._next_group.append((doing, plan))
        if not self._group_runs:
            self._group_runs = True
            self._soon(self._run_group)

    def _run_group(self) -> None:
        waiting, self._next_group = self._next_group, []
        jobs = [job for _, plan in waiting if (job := plan()) is not None]
        self._group_runs = len(jobs) > 0
        if jobs:
            doing = waiting[0][0] if len(waiting) == 1 else f"{waiting[0][0]} and {len(waiting) - 1} more"
            runs = [job.run for job in jobs]
            self.run(doing, partial(self._run_all, runs), partial(self._group_ended, jobs))

    def _group_ended(self, jobs: Sequence[Job], results: Sequence[Any]) -> None:
        self._group_runs = False
        if self._next_group:  # at once: the disk has work while the results are told
            self._group_runs = True
            self._run_group()
        for job, result in zip(jobs, results, strict=True):
            self._soon(partial(job.then, result))  # one that fails keeps nobody from the others

    def _soon(self, call: Callable[[], None]) -> None:
        call()

    def _run_all(self, jobs: Sequence[Callable[[], Any]]) -> list[Any]:
        return [job() for job in jobs]

    def _fail(self, doing: str, error: OSError) -> LogDirFailed:
        """What was not synced is in doubt."""
        failure = LogDirFailed(self.directory, doing, error)
        self._stopped = True
        self._failed(failure)
        return failure

    def _judge(self, doing: str, error: BaseException) -> LogDirFailed | ResourceExhausted:
        """What whoever waits for a job is told of its error."""
        if (lacking := shortage(error)) is not None:
            return ResourceExhausted(f"{doing} in {self.directory} failed: {lacking}")
        assert isinstance(error, OSError)
        return self._fail(doing, error)


class DiskThread(Disk):
    """Background, for one directory."""

    def __init__(self, directory: str, failed: Callable[[LogDirFailed], None]) -> None:
        super().__init__(directory, failed)
        self.loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"disk-{directory}")
        self._group_threads = ThreadPoolExecutor(FLUSHED_AT_ONCE, f"disk-group-{directory}")
        self._timers: set[asyncio.TimerHandle] = set()
        self._thread.submit(_ignore)  # starts it: if that is not possible, it is known now

    def run(
        self, doing: str, job: Callable[[], T], then: Callable[[T], None], short: Callable[[], None] | None = None
    ) -> None:
        if self._stopped:
            return

        def done(future: asyncio.Future[T]) -> None:
            error = future.exception()
            if error is not None and (lacking := shortage(error)) is not None:
                log.warning("%s in %s failed and is tried again: %s", doing, self.directory, lacking)
                self.later(RETRY_MS, short or (lambda: self.run(doing, job, then)))
            elif isinstance(error, OSError):
                self._fail(doing, error)
            elif not self._stopped:
                then(future.result())

        asyncio.wrap_future(self._thread.submit(job), loop=self.loop).add_done_callback(done)

    def _soon(self, call: Callable[[], None]) -> None:
        """Once all that this turn of the loop brings is in the group."""
        self.loop.call_soon(call)

    def _run_all(self, jobs: Sequence[Callable[[], Any]]) -> list[Any]:
        """In the disk's thread, which waits until all of them are done."""
        if len(jobs) == 1:
            return [jobs[0]()]
        return [done.result() for done in [self._group_threads.submit(job) for job in jobs]]

    async def call(self, doing: str, job: Callable[[], T]) -> T:
        """Run a job in its turn and wait for it. LogDirFailed if the disk says no, ResourceExhausted."""
        if self._stopped:
            raise LogDirFailed(self.directory, doing, OSError("it is offline"))
        try:
            return await asyncio.wrap_future(self._thread.submit(job))
        except (OSError, MemoryError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and shortage(error) is None:
                raise
            raise self._judge(doing, error) from error

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
        self._group_threads.shutdown()


class Inline:
    """Background for tools and tests: jobs run at once, what is for later when `run_due` says so."""

    def __init__(self, directory: str, failed: Callable[[LogDirFailed], None]) -> None:
        self.directory, self._failed = directory, failed
        self.postponed: list[tuple[int, Callable[[], None]]] = []

    def run(
        self, doing: str, job: Callable[[], T], then: Callable[[T], None], short: Callable[[], None] | None = None
    ) -> None:
        try:
            result = job()
        except OSError as error:
            if shortage(error) is not None:
                self.later(RETRY_MS, short or (lambda: self.run(doing, job, then)))
            else:
                self._failed(LogDirFailed(self.directory, doing, error))
            return
        then(result)

    def run_in_group(self, doing: str, plan: Callable[[], Job | None]) -> None:
        if (job := plan()) is not None:
            self.run(doing, job.run, job.then)

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        self.postponed.append((delay_ms, call))

    def run_due(self) -> None:
        due, self.postponed = self.postponed, []
        for _, call in due:
            call()


def _ignore() -> None:
    """A job that does nothing."""
