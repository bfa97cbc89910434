"""Many jobs in one process: a thin shell around their schedule.

Threads: `parallel` workers take the jobs that are due and write one batch each; one thread does the upkeep of tables;
one looks for new topics. Spark runs the tasks of all batches on its cores, so memory grows with these, and not with the
number of topics. Between two steps a job has a few kilobytes here, and no connection: those belong to the workers.

    a step that fails concerns its job alone: it is reported, and tried again after a pause
    `stop` starts no further step, waits for those under way, and then cancels their tasks: what is not committed by
    then is written again by the next run
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Protocol

from pyspark.sql import SparkSession

from leadline.spark.client.cluster import ClusterClient
from leadline.spark.client.connection import is_outage
from leadline.spark.client.failures import NoSuchTopic
from leadline.spark.jobs.backoff import BackOff
from leadline.spark.jobs.job_schedule import JobQueue, JobSchedule, StepFailure, Upkeep
from leadline.spark.jobs.job_statistics import JobStatistics
from leadline.spark.jobs.lineage import CommitFacts
from leadline.spark.jobs.table_job import TableJob, TableJobSpec
from leadline.spark.jobs.topic_discovery import JobChanges, TopicEntry, job_changes
from leadline.spark.table.table import WriterRefused
from leadline.spark.table.table_writer import BatchSummary

LONGEST_WAIT_S = 60.0  # of a thread for something to do
MISSING_CHECKS = 3  # a broker that has just started may not know all topics yet
CANCELLED_S = 15.0  # that a step may take to end after its tasks were cancelled


class JobObserver(Protocol):
    """Receives events, from any thread, one at a time."""

    def added(self, job: TableJobSpec) -> None: ...
    def removed(self, job: TableJobSpec) -> None: ...
    def conflict(self, text: str) -> None: ...
    def wrote(self, job: TableJobSpec, summary: BatchSummary | None) -> None: ...
    def failed(self, job: TableJobSpec | None, error: Exception, failure: StepFailure, pause_s: float) -> None:
        """`job` is None if the list of topics could not be read. `pause_s` is inf if there is no further try."""

    def listed(self) -> None:
        """The list of topics was read."""

    def upkept(self, job: TableJobSpec, upkeep: Upkeep, done: Mapping[str, int]) -> None: ...
    def upkeep_failed(self, job: TableJobSpec, upkeep: Upkeep, error: Exception) -> None: ...


@dataclass(frozen=True, slots=True)
class RunSpec:
    parallel: int  # batches at a time
    refresh_s: float  # between two looks for new topics
    once: bool  # each table gets the records that exist now; a job that fails is not retried


class JobEnvironment(Protocol):
    """Where jobs are run."""

    def connect(self) -> ClusterClient: ...
    def job(self, spec: TableJobSpec) -> TableJob: ...

    def begin_worker(self, name: str) -> None:
        """This thread is a worker from now on."""

    def cancel(self) -> None:
        """Ends the tasks that are under way: their steps fail."""


class SparkEnvironment:
    def __init__(self, spark: SparkSession, properties: Mapping[str, str]) -> None:
        self._spark, self._properties = spark, properties

    def connect(self) -> ClusterClient:
        return ClusterClient(self._properties)

    def job(self, spec: TableJobSpec) -> TableJob:
        return TableJob(spec, self._spark)

    def begin_worker(self, name: str) -> None:
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", name)

    def cancel(self) -> None:
        self._spark.sparkContext.cancelAllJobs()


class JobRunner:
    def __init__(
        self,
        environment: JobEnvironment,
        run: RunSpec,
        entries: Sequence[TopicEntry[TableJobSpec]],
        observer: JobObserver,
        lineage: Callable[[CommitFacts], None] | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._environment, self._run, self._entries = environment, run, entries
        self._observer, self._lineage, self._now_s = observer, lineage, now_s
        self.queue = JobQueue()
        self.jobs: dict[str, TableJob] = {}
        self._changed = threading.Condition()  # guards all that is above
        self._stopping = False
        self._is_listed = False  # topics are known
        self.list_error: Exception | None = None  # of the last look for topics
        self._conflicts: set[str] = set()
        self._missing: dict[str, int] = {}  # jobs whose topic the last looks did not see: how many looks
        self._under_way: dict[str, int] = {"write": 0, "upkeep": 0}
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        work = [self._discover, self._maintain, *[self._work] * self._run.parallel]
        for number, target in enumerate(work):
            thread = threading.Thread(target=target, name=f"leadline-run-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    @property
    def is_done(self) -> bool:
        """With `once`: all tables have the records that existed, or failed, or there is a `list_error`."""
        with self._changed:
            is_listed = self._is_listed and self.queue.is_done
            return self._run.once and (is_listed or self.list_error is not None)

    @property
    def under_way(self) -> int:
        """How many batches are being written."""
        with self._changed:
            return self._under_way["write"]

    def statistics(self) -> list[JobStatistics]:
        with self._changed:
            return [job.statistics for job in self.jobs.values()]

    # The end

    def stop(self, drain_s: float) -> tuple[int, int]:
        """Ends all threads. Returns how many batches were under way, and how many of them were given up."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
            under_way = self._under_way["write"]
            self._changed.wait_for(lambda: not self._under_way["write"], drain_s)
            given_up = self._under_way["write"]
        if given_up:
            self._environment.cancel()
        with self._changed:
            self._changed.wait_for(lambda: not self._under_way["write"], CANCELLED_S if given_up else 0)
            jobs = list(self.jobs.values())
            is_quiet = not any(self._under_way.values())
        if is_quiet:
            for thread in self._threads:
                thread.join(CANCELLED_S)
        for job in jobs:
            job.close()
        return under_way, given_up

    # Workers

    def _work(self) -> None:
        self._environment.begin_worker(threading.current_thread().name)
        with self._environment.connect() as cluster:
            while (job := self._next_write()) is not None:
                self._write(job, cluster)

    def _next_write(self) -> TableJob | None:
        with self._changed:
            while not self._stopping:
                name = self.queue.take_write(self._now_s())
                if name is not None:
                    self._under_way["write"] += 1
                    return self.jobs[name]
                self._changed.wait(min(max(self.queue.next_write_s() - self._now_s(), 0.0), LONGEST_WAIT_S))
            return None

    def _write(self, job: TableJob, cluster: ClusterClient) -> None:
        began_s, summary, error = self._now_s(), None, None
        try:
            summary = job.write(cluster)
        except Exception as caught:  # noqa: BLE001  whatever it is, it concerns this job alone
            error = caught
        with self._changed:
            self._under_way["write"] -= 1
            self._changed.notify_all()
            schedule = self._schedule_of(job)
            if schedule is None:
                job.close()  # its topic was deleted in the meantime
            elif error is None:
                self._wrote(job, schedule, summary, began_s)
            else:
                self._failed(job, schedule, error)

    def _schedule_of(self, job: TableJob) -> JobSchedule | None:
        """None: it is no job any more, though a new one may have its name."""
        return self.queue.jobs[job.job.name] if self.jobs.get(job.job.name) is job else None

    def _wrote(self, job: TableJob, schedule: JobSchedule, summary: BatchSummary | None, began_s: float) -> None:
        is_behind = summary is not None and summary.lag_offsets > 0
        if schedule.failure is StepFailure.OUTAGE:
            self.queue.retry_outages(self._now_s())
        schedule.wrote(self._now_s(), began_s, is_behind=is_behind)
        schedule.is_done = self._run.once and not is_behind
        self._observer.wrote(job.job, summary)
        if summary is not None and self._lineage is not None:
            self._lineage(job.facts_of(summary))

    def _failed(self, job: TableJob, schedule: JobSchedule, error: Exception) -> None:
        if self._stopping:
            return  # its tasks were cancelled
        failure = kind_of(error)
        pause_s = schedule.failed(self._now_s(), failure)
        schedule.is_done = self._run.once
        job.statistics.failed(str(error))
        self._observer.failed(job.job, error, failure, inf if self._run.once else pause_s)

    # Upkeep

    def _maintain(self) -> None:
        while (task := self._next_upkeep()) is not None:
            job, upkeep = task
            error, done = None, dict[str, int]()
            try:
                done = dict(job.maintain(upkeep))
            except Exception as caught:  # noqa: BLE001  as above
                error = caught
            with self._changed:
                self._under_way["upkeep"] -= 1
                self._changed.notify_all()
                if (schedule := self._schedule_of(job)) is not None:
                    schedule.upkept(self._now_s(), succeeded=error is None)
                if error is None:
                    self._observer.upkept(job.job, upkeep, done)
                elif not self._stopping:
                    self._observer.upkeep_failed(job.job, upkeep, error)

    def _next_upkeep(self) -> tuple[TableJob, Upkeep] | None:
        with self._changed:
            while not self._stopping:
                task = None if self._run.once else self.queue.take_upkeep(self._now_s())
                if task is not None:
                    name, upkeep = task
                    self._under_way["upkeep"] += 1
                    return self.jobs[name], upkeep
                self._changed.wait(1.0)
            return None

    # Topics

    def _discover(self) -> None:
        back_off = BackOff(*StepFailure.OUTAGE.value)
        with self._environment.connect() as cluster:
            while not self._stopping:
                try:
                    topics = [name for name, topic in cluster.topics().items() if not topic.is_internal]
                    changes = job_changes(self._entries, topics, self._topics_of_jobs(), lambda job: job.name)
                except Exception as error:  # noqa: BLE001  as above
                    pause_s = inf if self._run.once else back_off.failed()
                    with self._changed:
                        self.list_error = error
                        if not self._stopping and not self._run.once:
                            self._observer.failed(None, error, kind_of(error), pause_s)
                else:
                    back_off.succeeded()
                    pause_s = inf if self._run.once else self._run.refresh_s
                    with self._changed:
                        if self.list_error is not None:
                            self.list_error = None
                            self.queue.retry_outages(self._now_s())
                        self._observer.listed()
                        self._apply(changes)
                self._pause(pause_s)

    def _pause(self, pause_s: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopping, None if pause_s == inf else pause_s)

    def _topics_of_jobs(self) -> dict[str, str]:
        with self._changed:
            return {name: job.job.spec.topic for name, job in self.jobs.items()}

    def _apply(self, changes: JobChanges[TableJobSpec]) -> None:
        for job in changes.added:
            self.jobs[job.name] = self._environment.job(job)
            self.queue.jobs[job.name] = JobSchedule.starting(
                self._now_s(), job.interval_s, job.upkeep, is_by_key=job.spec.is_by_key
            )
            self._observer.added(job)
        self._missing = {name: self._missing.get(name, 0) + 1 for name in changes.removed}
        for name in [name for name, checks in self._missing.items() if checks >= MISSING_CHECKS]:
            removed, schedule = self.jobs.pop(name), self.queue.jobs.pop(name)
            if not schedule.is_writing:
                removed.close()
            self._observer.removed(removed.job)
        for conflict in changes.conflicts:
            if conflict not in self._conflicts:
                self._conflicts.add(conflict)
                self._observer.conflict(conflict)
        self._is_listed = True
        self._changed.notify_all()


def kind_of(error: Exception) -> StepFailure:
    if isinstance(error, WriterRefused):
        return StepFailure.TAKEN_OVER
    return StepFailure.OUTAGE if is_outage(error) and not isinstance(error, NoSuchTopic) else StepFailure.TABLE
