"""Metrics and health of `leadline pipeline run`, over the HTTP server that brokers have.

The server runs on an event loop of its own, in a thread. It reads counters that the workers write.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Thread

from leadline.metrics.collectors.process import process_samples
from leadline.metrics.exposition import TextForm, exposed
from leadline.metrics.families import Collected, Family, FamilySet, labels_text, one
from leadline.metrics.metrics_server import MetricsServer
from leadline.runtime.network import TcpNetwork
from leadline.spark.errors import without_credentials
from leadline.spark.jobs.job_statistics import JobStatistics

FAMILIES = FamilySet("The pipeline: `leadline pipeline run`")
_LABELS = ("topic", "table")
TABLES = FAMILIES.gauge("leadline_pipeline_tables", "Topics that are written to tables")
LAG = FAMILIES.gauge("leadline_pipeline_lag_records", "Offsets of the topic that the table does not have yet", *_LABELS)
LAG_S = FAMILIES.gauge(
    "leadline_pipeline_lag_seconds", "Age of the newest record that the table has; 0 if it has all of them", *_LABELS
)
FAILING = FAMILIES.gauge(
    "leadline_pipeline_failing", "1: the last step failed and will be retried; 0: it did not", *_LABELS
)
FAILURES = FAMILIES.counter("leadline_pipeline_failures_total", "Steps that failed", *_LABELS)
COMMITS = FAMILIES.counter("leadline_pipeline_commits_total", "Commits of the table", *_LABELS)
COMMITTED = FAMILIES.gauge(
    "leadline_pipeline_last_commit_time_seconds", "When the last commit was made, in seconds since 1970", *_LABELS
)
RECORDS = FAMILIES.counter(
    "leadline_pipeline_records_total", "Records that were committed, dead letters included", *_LABELS
)
BYTES = FAMILIES.counter("leadline_pipeline_bytes_total", "Bytes of keys and values that were committed", *_LABELS)
DEAD = FAMILIES.counter("leadline_pipeline_dead_letters_total", "Records that became dead letters", *_LABELS)
LATE = FAMILIES.counter(
    "leadline_pipeline_late_changes_total", "Changes of a database that came after a newer one of their key", *_LABELS
)
REPEATED = FAMILIES.counter(
    "leadline_pipeline_repeated_changes_total", "Changes of a database that came more than once", *_LABELS
)
FILES = FAMILIES.gauge("leadline_pipeline_files", "Files of the newest version of the table", *_LABELS)
FILE_BYTES = FAMILIES.gauge("leadline_pipeline_file_bytes", "Bytes of these files", *_LABELS)
COMPACTIONS = FAMILIES.counter("leadline_pipeline_compactions_total", "Compactions that merged files", *_LABELS)
VACUUMED = FAMILIES.counter("leadline_pipeline_vacuumed_files_total", "Files that vacuum deleted", *_LABELS)

_VALUES: tuple[tuple[Family, Callable[[JobStatistics, int], float | None]], ...] = (
    (LAG, lambda job, _: job.lag_records),
    (LAG_S, lambda job, now_ms: job.lag_s(now_ms)),
    (FAILING, lambda job, _: int(bool(job.trouble))),
    (FAILURES, lambda job, _: job.failures),
    (COMMITS, lambda job, _: job.commits),
    (COMMITTED, lambda job, _: job.committed_ms / 1000 if job.committed_ms >= 0 else None),
    (RECORDS, lambda job, _: job.records),
    (BYTES, lambda job, _: job.size),
    (DEAD, lambda job, _: job.dead),
    (LATE, lambda job, _: job.late),
    (REPEATED, lambda job, _: job.repeated),
    (FILES, lambda job, _: job.files),
    (FILE_BYTES, lambda job, _: None if job.files is None else job.file_bytes),
    (COMPACTIONS, lambda job, _: job.compactions),
    (VACUUMED, lambda job, _: job.vacuumed),
)


@dataclass(slots=True)
class RunState:
    """What the server serves: a process that writes tables, or is about to."""

    jobs: Callable[[], list[JobStatistics]] | None = None  # None: Spark starts
    is_stopping: bool = False
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000

    def scrape(self, form: TextForm) -> Iterator[str]:
        return exposed(self._samples(), form)

    def _samples(self) -> Collected:
        yield from process_samples()
        if self.jobs is None:
            return
        jobs, now_ms = self.jobs(), self.now_ms()
        labels = [labels_text(topic=job.topic, table=without_credentials(job.table)) for job in jobs]
        yield one(TABLES, len(jobs))
        for family, value_of in _VALUES:
            values = [(text, value_of(job, now_ms)) for text, job in zip(labels, jobs, strict=True)]
            yield family, [(text, value) for text, value in values if value is not None]

    def reasons_not_ready(self) -> list[str]:
        """One failing table is no reason: the others are written. If all fail, that is a reason."""
        if self.is_stopping:
            return ["it stops"]
        if self.jobs is None:
            return ["it starts Spark"]
        jobs = self.jobs()
        if not jobs:
            return ["it has no topic yet"]
        if all(job.trouble for job in jobs):
            return [f"no table is written: {without_credentials(' '.join(jobs[0].trouble.split()))}"]
        return []

    def end_period(self) -> None:
        """Nothing here is of the last minutes only."""


@contextmanager
def served_metrics(state: RunState, host: str, port: int) -> Iterator[int]:
    """Serves the metrics while the block runs. Yields the port."""
    loop = asyncio.new_event_loop()
    server = MetricsServer(state, TcpNetwork())
    _, bound = server.listen(host, port)
    thread = Thread(target=_serve, args=(loop, server), name="leadline-metrics", daemon=True)
    thread.start()
    try:
        yield bound
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


def _serve(loop: asyncio.AbstractEventLoop, server: MetricsServer) -> None:
    asyncio.set_event_loop(loop)
    loop.call_soon(server.start)
    loop.run_forever()
    loop.run_until_complete(_stop(server))
    loop.close()


async def _stop(server: MetricsServer) -> None:
    server.stop()
