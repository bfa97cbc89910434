"""`Background` without threads: jobs run at once, and postponed calls when `run_due` is called."""

from collections.abc import Callable
from typing import TypeVar

from leadline.errors import LogDirFailed
from leadline.log.disk_thread import RETRY_MS
from leadline.runtime.ports import Job, shortage

T = TypeVar("T")


class InlineBackground:
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
