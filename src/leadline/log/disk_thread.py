"""The thread of a log directory: work that would block the loop runs there, one job after the other.

One thread for each directory keeps the order of the writes: an epoch file before the flush that relies on it, the older
checkpoint before the newer. Group commits, the flushes of several logs, run beside each other in further threads, since
the file system writes its journal once for all of them. They keep the order, too:

    a group commit begins when all jobs before it are done
    a job begins when all group commits before it are done
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from leadline.errors import LogDirFailed, ResourceExhausted, StorageError
from leadline.log.files import unusable_file
from leadline.runtime.ordered_set import OrderedSet
from leadline.runtime.ports import Job, shortage
from leadline.runtime.threads import new_threads

log = logging.getLogger(__name__)

T = TypeVar("T")
GROUP_THREADS = 8  # for group commits
RETRY_MS = 1000  # delay of the next attempt after a resource was short


class DiskThread:
    """`Background` for one directory. Its first failure is final: nothing is tried again. A shortage is not a failure.

    `is_there`: if the directory is not, that is its failure, whatever a job could not find in it.
    """

    def __init__(
        self, directory: str, failed: Callable[[LogDirFailed], None], is_there: Callable[[], bool] = lambda: True
    ) -> None:
        self.directory, self._failed, self._is_there = directory, failed, is_there
        self.loop = asyncio.get_running_loop()
        self._stopped = False
        self._thread = new_threads(1, f"disk-{directory}")
        self._jobs: deque[Future[Any]] = deque()  # of the thread, in their order; the first ones may have ended
        self._group_threads = new_threads(GROUP_THREADS, f"disk-group-{directory}")
        self._plans: deque[tuple[str, Callable[[], Job | None]]] = deque()  # of group commits that have not begun
        self._commits: OrderedSet[Future[Any]] = OrderedSet()  # group commits that run
        self._begins_soon = False  # the loop calls `_begin_commits` in its next iteration
        self._whole_group_runs = False  # as a job of the thread; or it is queued there
        self._timers: set[asyncio.TimerHandle] = set()
        self._thread.submit(_do_nothing)  # starts the thread: if that is impossible, it shows now

    def run(
        self, doing: str, job: Callable[[], T], then: Callable[[T], None], short: Callable[[], None] | None = None
    ) -> None:
        if not self._stopped:
            again = short or (lambda: self.run(doing, job, then))
            self._submit(job).add_done_callback(partial(self._job_ended, doing, then, again))

    def _submit(self, job: Callable[[], T]) -> "asyncio.Future[T]":
        """Run a job in the thread, after all jobs and group commits that were there before."""
        commits = tuple(self._commits)
        future = self._thread.submit(_run_after, commits, job) if commits else self._thread.submit(job)
        self._forget_ended_jobs()
        self._jobs.append(future)
        return asyncio.wrap_future(future, loop=self.loop)

    def _forget_ended_jobs(self) -> None:
        while self._jobs and self._jobs[0].done():
            self._jobs.popleft()

    def _job_ended(
        self, doing: str, then: Callable[[T], None], again: Callable[[], None], future: "asyncio.Future[T]"
    ) -> None:
        error = future.exception()
        if error is not None and (lacking := shortage(error)) is not None:
            log.warning("%s in %s failed; retrying: %s", doing, self.directory, lacking)
            self.later(RETRY_MS, again)
        elif isinstance(error, OSError):
            self._fail(doing, error)
        elif not self._stopped:
            then(future.result())

    # Group commits

    def run_in_group(self, doing: str, plan: Callable[[], Job | None]) -> None:
        self._plans.append((doing, plan))
        self._begin_soon()

    def _begin_soon(self) -> None:
        """Begins in the next iteration of the loop: a plan covers everything that this iteration appends."""
        if not self._begins_soon:
            self._begins_soon = True
            self.loop.call_soon(self._begin_commits)

    def _begin_commits(self) -> None:
        self._begins_soon = False
        if self._whole_group_runs or self._stopped:
            return
        self._forget_ended_jobs()
        if self._jobs:
            self._queue_group()
        while self._plans and len(self._commits) < GROUP_THREADS:
            doing, plan = self._plans.popleft()
            if (job := plan()) is not None:
                self._commit(doing, job)

    def _commit(self, doing: str, job: Job) -> None:
        """Begin a group commit now: the thread has nothing to do before it."""
        run_in_thread = partial(self.run, doing, job.run, job.then)
        try:
            commit = self._group_threads.submit(job.run)
        except RuntimeError as error:
            if shortage(error) is None:
                raise
            run_in_thread()  # no further thread can be started
            return
        self._commits.add(commit)

        def ended(future: "asyncio.Future[Any]") -> None:
            self._commits.discard(commit)
            if self._plans:
                self._begin_soon()
            self._job_ended(doing, job.then, run_in_thread, future)

        asyncio.wrap_future(commit, loop=self.loop).add_done_callback(ended)

    def _queue_group(self) -> None:
        """All that wait become one job of the thread, after the jobs that it already has."""
        plans, self._plans = self._plans, deque()
        jobs = [job for _, plan in plans if (job := plan()) is not None]
        if jobs:
            self._whole_group_runs = True
            doing = plans[0][0] if len(plans) == 1 else f"{plans[0][0]} and {len(plans) - 1} more"
            self.run(doing, partial(self._run_all, [job.run for job in jobs]), partial(self._group_ended, jobs))

    def _run_all(self, jobs: Sequence[Callable[[], Any]]) -> list[Any]:
        """Runs in the thread, which waits until all jobs are done."""
        if len(jobs) == 1:
            return [jobs[0]()]
        return [future.result() for future in [self._group_threads.submit(job) for job in jobs]]

    def _group_ended(self, jobs: Sequence[Job], results: Sequence[Any]) -> None:
        self._whole_group_runs = False
        if self._plans:
            self._begin_soon()
        for job, result in zip(jobs, results, strict=True):
            self.loop.call_soon(partial(job.then, result))  # one that raises does not stop the others

    # Jobs that a caller waits for

    async def call(self, doing: str, job: Callable[[], T]) -> T:
        """Run a job in its turn and wait for it. LogDirFailed if the disk fails.

        StorageError if a file of the job cannot be used, or ResourceExhausted: the directory goes on.
        """
        if self._stopped:
            raise LogDirFailed(self.directory, doing, OSError("it is offline"))
        try:
            return await self._submit(job)
        except (OSError, MemoryError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and shortage(error) is None:
                raise
            raise self._failure(doing, error) from error

    def _failure(self, doing: str, error: BaseException) -> LogDirFailed | StorageError:
        """What the error of a job means for the caller that waits for it."""
        if (lacking := shortage(error)) is not None:
            return ResourceExhausted(f"{doing} in {self.directory} failed: {lacking}")
        assert isinstance(error, OSError)
        if (unusable := unusable_file(error, self.directory)) is not None and self._is_there():
            return StorageError(f"{doing} in {self.directory} failed: {unusable}; {unusable.remedy}")
        return self._fail(doing, error)

    def _fail(self, doing: str, error: OSError) -> LogDirFailed:
        """Take the directory offline: unsynced data may be lost."""
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
        """Wait until all jobs and group commits so far are done, with their callbacks."""
        await self._submit(_do_nothing)
        await asyncio.sleep(0)

    async def stop(self) -> None:
        for timer in self._timers:
            timer.cancel()
        await self.drain()
        self._stopped = True
        self._thread.shutdown()
        self._group_threads.shutdown()


def _run_after(commits: Iterable[Future[Any]], job: Callable[[], T]) -> T:
    for commit in commits:
        commit.exception()  # waits until it has ended
    return job()


def _do_nothing() -> None:
    """A job that does nothing."""
