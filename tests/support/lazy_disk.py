"""The thread of a log directory without a thread: jobs wait until told to run, so that a seed repeats a run."""

from collections import deque
from collections.abc import Callable
from typing import TypeVar

from leadline.errors import LogDirFailed, ResourceExhausted, StorageError
from leadline.log.disk_thread import RETRY_MS
from leadline.log.files import unusable_file
from leadline.runtime.ports import Job, shortage

T = TypeVar("T")


class LazyDisk:
    """A peer of `DiskThread`: the same order of jobs, but as late as can be."""

    def __init__(
        self, directory: str, failed: Callable[[LogDirFailed], None], is_there: Callable[[], bool] = lambda: True
    ) -> None:
        self.directory, self._failed, self._is_there = directory, failed, is_there
        self._stopped = False
        self.waiting: deque[tuple[str, Callable[[], None]]] = deque()
        self.postponed: list[Callable[[], None]] = []

    def run(
        self, doing: str, job: Callable[[], T], then: Callable[[T], None], short: Callable[[], None] | None = None
    ) -> None:
        again = short or (lambda: self.run(doing, job, then))

        def work() -> None:
            try:
                result = job()
            except OSError as error:
                if shortage(error) is None:
                    raise
                self.later(RETRY_MS, again)
            else:
                then(result)

        if not self._stopped:
            self.waiting.append((doing, work))

    def run_in_group(self, doing: str, plan: Callable[[], Job | None]) -> None:
        if (job := plan()) is not None:
            self.run(doing, job.run, job.then)

    def step(self) -> bool:
        """The next job. False if there is none."""
        if not self.waiting or self._stopped:
            return False
        doing, work = self.waiting.popleft()
        try:
            work()
        except OSError as error:
            self._fail(doing, error)
        return True

    async def call(self, doing: str, job: Callable[[], T]) -> T:
        await self.drain()
        if self._stopped:
            raise LogDirFailed(self.directory, doing, OSError("it is offline"))
        try:
            return job()
        except OSError as error:
            if (lacking := shortage(error)) is not None:
                raise ResourceExhausted(f"{doing} in {self.directory} failed: {lacking}") from error
            if unusable_file(error, self.directory) is not None and self._is_there():
                raise StorageError(f"{doing} in {self.directory} failed: {error}") from error
            raise self._fail(doing, error) from error

    def _fail(self, doing: str, error: OSError) -> LogDirFailed:
        self._stopped = True
        self._failed(failure := LogDirFailed(self.directory, doing, error))
        return failure

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        self.postponed.append(call)

    def run_due(self) -> None:
        due, self.postponed = self.postponed, []
        for call in due:
            call()

    async def drain(self) -> None:
        while self.step():
            pass

    async def stop(self) -> None:
        await self.drain()
        self._stopped = True
