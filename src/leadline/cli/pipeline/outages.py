"""Outages of a cluster while a job runs that has no end: they are reported once, and waited for."""

import time
from collections.abc import Callable

from leadline.admin.formatting import time_text
from leadline.cli.errors import print_error
from leadline.spark.jobs.backoff import BackOff
from leadline.spark.jobs.job_schedule import StepFailure


class OutageReport:
    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._since_s: float | None = None  # None: there is none
        self._back_off = BackOff(*StepFailure.OUTAGE.value)

    def failed(self, error: Exception) -> float:
        """The seconds until the next try."""
        if self._since_s is None:
            self._since_s = self._now_s()
            self._back_off.succeeded()
            print_error(f"{error}. Trying again until it is over")
        return self._back_off.failed()

    def over(self) -> None:
        if self._since_s is not None:
            print_error(f"the cluster answers again, after {time_text(self._now_s() - self._since_s)}")
            self._since_s = None
