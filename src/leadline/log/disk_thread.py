"""The thread of a log directory: work that would block the loop runs there, one job after the other.

One thread for each directory keeps the order of the writes: an epoch file before the flush that relies on it, the older
checkpoint before the newer. The jobs of a group take one place in that order and run in several threads, since the file
system writes its journal once for all of them.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol, TypeVar

from leadline.errors import LogDirFailed, ResourceExhausted
from leadline.runtime.ports import Job, shortage

log = logging.getLogger(__name__)

T = TypeVar("T")
GROUP_THREADS = 8  # for the jobs of a group
RETRY_MS = 1000  # delay of the next attempt after a resource was short


class JobRunner(Protocol):
    """What a group commit needs of the thread that runs it."""

    def run(self, doing: str, job: Callable[[], T], then: Callable[[T], None]) -> None: ...
    def run_all(self, jobs: Sequence[Callable[[], Any]]) -> list[Any]: ...
    def call_soon(self, call: Callable[[], None]) -> None: ...


class GroupCommit:
    """Plans that arrive while a group runs wait, and become the next group together."""

    def __init__(self, runner: JobRunner) -> None:
        self._runner = runner
        self._waiting: list[tuple[str, Callable[[], Job | None]]] = []
        self._is_running = False  # or about to run

    def add(self, doing: str, plan: Callable[[], Job | None]) -> None:
        self._waiting.append((doing, plan))
        if not self._is_running:
            self._is_running = True
            self._runner.call_soon(self._run)

    def _run(self) -> None:
        plans, self._waiting = self._waiting, []
        jobs = [job for _, plan in plans if (job := plan()) is not None]
        self._is_running = len(jobs) > 0
        if jobs:
            doing = plans[0][0] if len(plans) == 1 else f"{plans[0][0]} and {len(plans) - 1} more"
            runs = [job.run for job in jobs]
            self._runner.run(doing, partial(self._runner.run_all, runs), partial(self._ended, jobs))

    def _ended(self, jobs: Sequence[Job], results: Sequence[Any]) -> None:
        self._is_running = False
        if self._waiting:  # first, so that the disk is busy while the results are handed out
            self._is_running = True
            self._run()
        for job, result in zip(jobs, results, strict=True):
            self._runner.call_soon(partial(job.then, result))  # one that raises does not stop the others


class DiskThread:
    """`Background` for one directory. Its first failure is final: nothing is tried again. A shortage is no failure."""

    def __init__(self, directory: str, failed: Callable[[LogDirFailed], None]) -> None:
        self.directory, self._failed = directory, failed
        self.loop = asyncio.get_running_loop()
        self._stopped = False
        self._group = GroupCommit(self)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"disk-{directory}")
        self._group_threads = ThreadPoolExecutor(GROUP_THREADS, f"disk-group-{directory}")
        self._timers: set[asyncio.TimerHandle] = set()
        self._thread.submit(_do_nothing)  # starts the thread: if that is impossible, it shows now

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

    def run_in_group(self, doing: str, plan: Callable[[], Job | None]) -> None:
        self._group.add(doing, plan)

    def run_all(self, jobs: Sequence[Callable[[], Any]]) -> list[Any]:
        """In the disk's thread, which waits until all of them are done."""
        if len(jobs) == 1:
            return [jobs[0]()]
        return [future.result() for future in [self._group_threads.submit(job) for job in jobs]]

    def call_soon(self, call: Callable[[], None]) -> None:
        """In the next iteration of the loop: a group holds everything that this iteration adds."""
        self.loop.call_soon(call)

    async def call(self, doing: str, job: Callable[[], T]) -> T:
        """Run a job in its turn and wait for it. LogDirFailed if the disk fails, ResourceExhausted."""
        if self._stopped:
            raise LogDirFailed(self.directory, doing, OSError("it is offline"))
        try:
            return await asyncio.wrap_future(self._thread.submit(job))
        except (OSError, MemoryError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and shortage(error) is None:
                raise
            raise self._failure(doing, error) from error

    def _failure(self, doing: str, error: BaseException) -> LogDirFailed | ResourceExhausted:
        """What the error of a job means for the caller that waits for it."""
        if (lacking := shortage(error)) is not None:
            return ResourceExhausted(f"{doing} in {self.directory} failed: {lacking}")
        assert isinstance(error, OSError)
        return self._fail(doing, error)

    def _fail(self, doing: str, error: OSError) -> LogDirFailed:
        """Take the directory offline: what was not synced is in doubt."""
        failure = LogDirFailed(self.directory, doing, error)
        self._stopped = True
        self._failed(failure)
        return failure

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        def due() -> None:
            self._timers.discard(handle)
            call()

        handle = self.loop.call_later(delay_ms / 1000, due)
        self._timers.add(handle)

    async def drain(self) -> None:
        """Wait until all jobs so far are done, with their callbacks."""
        await asyncio.wrap_future(self._thread.submit(_do_nothing))
        await asyncio.sleep(0)

    async def stop(self) -> None:
        for timer in self._timers:
            timer.cancel()
        await self.drain()
        self._stopped = True
        self._thread.shutdown()
        self._group_threads.shutdown()


def _do_nothing() -> None:
    """A job that does nothing."""
