"""What `leadline pipeline run` prints: topics that appear and disappear, each error when it begins and ends, progress.

All of that goes to stderr. With `--output jsonl`, each commit is an object on stdout.

An outage of the cluster concerns all jobs, and is one line. Trouble with a table is a line of that table, and another
one if the reason changes.
"""

import sys
import time
from collections.abc import Callable, Mapping
from math import inf
from typing import TYPE_CHECKING

from leadline.admin.formatting import age_text, count_text, size_text
from leadline.admin.json_values import Json
from leadline.cli.errors import print_error
from leadline.cli.output import Results
from leadline.cli.terminal import StatusLine
from leadline.spark.errors import JobFailed, without_credentials
from leadline.spark.jobs.job_schedule import StepFailure, Upkeep
from leadline.spark.jobs.job_statistics import JobStatistics

if TYPE_CHECKING:
    from leadline.spark.jobs.table_job import TableJobSpec
    from leadline.spark.table.table_writer import BatchSummary

LINE_INTERVAL_S = 60.0  # where stderr is not a terminal; a line is printed only after a commit
LIST_OF_TOPICS = ""  # in place of a job's name


class RunReport:
    """Implements JobObserver. It is called by one thread at a time."""

    def __init__(self, commits: Results, now_s: Callable[[], float] = time.monotonic) -> None:
        self._commit_results, self._now_s = commits, now_s
        self._outage_s: float | None = None  # since when the cluster does not answer
        self._out: set[str] = set()  # jobs that it did not answer
        self._troubles: dict[str, tuple[float, str]] = {}  # of each job that fails: since when, and why
        self._status, self._printed_s, self._commits = StatusLine(), now_s(), 0

    # As an observer

    def added(self, job: "TableJobSpec") -> None:
        self._print(f"{job.spec.topic}: becomes the {job.place.kind} table {job.place.uri}")

    def removed(self, job: "TableJobSpec") -> None:
        self._recovered(job.name)
        self._troubles.pop(job.name, None)
        self._print(f"{job.spec.topic}: the topic is gone; its table {job.place.uri} stays")

    def conflict(self, text: str) -> None:
        print_error(text)

    def wrote(self, job: "TableJobSpec", summary: "BatchSummary | None") -> None:
        self._recovered(job.name)
        if (trouble := self._troubles.pop(job.name, None)) is not None:
            self._print(f"{job.spec.topic}: works again, after {self._since(trouble[0])}")
        if summary is None:
            return
        self._commit_results.add(commit_values(job, summary))
        if summary.dead:
            place = job.place.dead_letters.uri
            self._print(f"{job.spec.topic}: {count_text(summary.dead, 'dead letter')} more in {place}")

    def failed(self, job: "TableJobSpec | None", error: Exception, failure: StepFailure, pause_s: float) -> None:
        name = LIST_OF_TOPICS if job is None else job.name
        if failure is StepFailure.OUTAGE:
            self._out.add(name)
            if self._outage_s is None:
                self._outage_s = self._now_s()
                print_error(reason(error) + (". Trying again until it is over" if pause_s < inf else ""))
            return
        self._recovered(name)
        since_s, before = self._troubles.get(name, (self._now_s(), ""))
        self._troubles[name] = since_s, reason(error)
        if before != reason(error):
            what = "the list of topics" if job is None else job.spec.topic
            more = f". Next try in {age_text(round(pause_s * 1000))}" if pause_s < inf else ""
            print_error(f"{what}: {reason(error)}{more}")

    def listed(self) -> None:
        self._recovered(LIST_OF_TOPICS)
        self._troubles.pop(LIST_OF_TOPICS, None)

    def upkept(self, job: "TableJobSpec", upkeep: Upkeep, done: Mapping[str, int]) -> None:
        if upkeep is Upkeep.COMPACT and done.get("removed"):
            self._print(f"{job.spec.topic}: {count_text(done['removed'], 'small file')} became {done['added']:,}")
        elif upkeep is Upkeep.VACUUM and done.get("deleted"):
            self._print(f"{job.spec.topic}: {count_text(done['deleted'], 'unused file')} deleted")

    def upkeep_failed(self, job: "TableJobSpec", upkeep: Upkeep, error: Exception) -> None:
        print_error(f"{job.spec.topic}: {upkeep.value} failed, and will be tried again: {reason(error)}")

    # Progress

    def progress(self, jobs: list[JobStatistics], seconds: float) -> str:
        text = progress_text(jobs, seconds)
        self._status.show(text)
        commits = sum(job.commits for job in jobs)
        is_time = self._now_s() - self._printed_s >= LINE_INTERVAL_S
        if is_time and commits > self._commits and not sys.stderr.isatty():
            self._printed_s, self._commits = self._now_s(), commits
            self._print(text)
        return text

    def end(self) -> None:
        self._status.__exit__(None, None, None)

    # Outages

    def _recovered(self, name: str) -> None:
        self._out.discard(name)
        if not self._out and self._outage_s is not None:
            since_s, self._outage_s = self._outage_s, None
            self._print(f"the cluster answers again, after {self._since(since_s)}")

    def _since(self, then_s: float) -> str:
        return age_text(round((self._now_s() - then_s) * 1000))

    def _print(self, text: str) -> None:
        self._status.__exit__(None, None, None)
        print(text, file=sys.stderr, flush=True)


def commit_values(job: "TableJobSpec", summary: "BatchSummary") -> Json:
    return {
        "topic": job.spec.topic,
        "table": job.place.uri,
        "batch": summary.batch,
        "records": summary.records,
        "bytes": summary.size,
        "files": summary.files,
        "dead_letters": summary.dead,
        "late_changes": summary.late,
        "repeated_changes": summary.repeated,
        "lag_records": summary.lag_offsets,
        "seconds": round(summary.seconds, 3),
    }


def reason(error: Exception) -> str:
    """One line. An error that is not one of a job names its kind: it may be a fault of ours."""
    text = " ".join(str(error).split())
    return without_credentials(text if isinstance(error, JobFailed | OSError) else f"{type(error).__name__}: {text}")


def progress_text(jobs: list[JobStatistics], seconds: float) -> str:
    records, size = sum(job.records for job in jobs), sum(job.size for job in jobs)
    commits, dead = sum(job.commits for job in jobs), sum(job.dead for job in jobs)
    current = sum(not job.lag_records and not job.trouble for job in jobs)
    lag, failing = sum(job.lag_records for job in jobs), sum(bool(job.trouble) for job in jobs)
    parts = [
        f"{current:,} of {count_text(len(jobs), 'table')} up to date",
        f"{count_text(records, 'record')} ({size_text(size)}) in {count_text(commits, 'commit')}",
        f"{records / max(seconds, 0.001):,.0f}/s",
        *([f"{count_text(dead, 'dead letter')}"] if dead else []),
        *([f"{failing:,} failing"] if failing else []),
        *([f"lag {count_text(lag, 'record')}"] if lag else [] if failing else ["no lag"]),
    ]
    return ", ".join(parts)
