"""One topic and its table, as a job among others: it is opened when it is first written, and again after an error.

A step that failed may have committed all the same. So before the next one, the writer is held against its tables: it
continues if they are unchanged, and is replaced by a new writer otherwise. That one begins where the table ends.
A table that was there and is gone, as when a disk is not mounted, is not created again: the topic would be written to
another place from its first record on.
The job holds the lock of a table in a local directory from its first step until it is closed.
"""

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from leadline.spark.client.cluster import ClusterClient
from leadline.spark.jobs.job_schedule import Upkeep, UpkeepSpec
from leadline.spark.jobs.job_statistics import JobStatistics
from leadline.spark.jobs.lineage import CommitFacts
from leadline.spark.table.table import TableError
from leadline.spark.table.table_format import TablePlace
from leadline.spark.table.table_writer import BatchSummary, TableSpec, TableWriter
from leadline.spark.table.writer_lock import WriterLock


@dataclass(frozen=True, slots=True)
class TableJobSpec:
    """The topic, its table, and how both are treated."""

    place: TablePlace
    spec: TableSpec
    directory: Path | None  # of the lock; None: the table is not on this machine
    interval_s: float
    upkeep: UpkeepSpec

    @property
    def name(self) -> str:
        """Unique: no two jobs may write to one table."""
        return self.place.uri


class TableJob:
    def __init__(self, job: TableJobSpec, spark: SparkSession) -> None:
        self.job, self._spark = job, spark
        self.statistics = JobStatistics(job.spec.topic, job.place.uri, _now_ms())
        self._writer: TableWriter | None = None
        self._is_suspect = False  # the last step failed
        self._had_table = False
        self._held = ExitStack()
        self._is_locked = False

    def write(self, cluster: ClusterClient) -> BatchSummary | None:
        """The next batch. None: there is nothing to write."""
        writer = self._current(cluster)
        self._is_suspect = True
        batch = writer.next_batch()
        if batch is None:
            self.statistics.checked(0, _now_ms())
            self._is_suspect = False
            return None
        self.statistics.planned(batch.lag_offsets)
        summary = writer.write_batch(batch)
        self._is_suspect = False
        self.statistics.committed(
            summary.records, summary.size, summary.dead, summary.lag_offsets, summary.newest_ms, _now_ms()
        )
        self.statistics.late += summary.late
        self.statistics.repeated += summary.repeated
        return summary

    def _current(self, cluster: ClusterClient) -> TableWriter:
        if self._writer is not None and self._is_suspect and not self._writer.is_current():
            self._writer = None
        if self._writer is None:
            if not self._is_locked:
                self._held.enter_context(WriterLock(self.job.directory, self.job.place.uri))
                self._is_locked = True
            table, dead = self.job.place.open(), self.job.place.dead_letters.open()
            if self._had_table and table.state() is None:
                raise TableError(f"{table.uri} is gone: it was there before. A new start would create it again")
            self._writer = TableWriter(self._spark, cluster, table, dead, self.job.spec)
        self._had_table = True
        self._writer.cluster = cluster  # of the thread that takes this step
        return self._writer

    def maintain(self, upkeep: Upkeep) -> Mapping[str, int]:
        """Compacts or vacuums the table and its dead letters. Returns the numbers of files."""
        if upkeep is Upkeep.COUNT:
            self._count_files()
            return {}
        done: dict[str, int] = {}
        for place in (self.job.place, self.job.place.dead_letters, self.job.place.deletes):
            table = place.open()
            if table.state() is None:
                continue
            if upkeep is Upkeep.COMPACT:
                result = table.compact(self.job.upkeep.target_bytes)
            else:
                result = {"deleted": len(table.vacuum(self.job.upkeep.keep_hours, dry_run=False))}
            done = {name: done.get(name, 0) + count for name, count in result.items()}
        self.statistics.compactions += bool(done.get("removed"))
        self.statistics.vacuumed += done.get("deleted", 0)
        return done

    def _count_files(self) -> None:
        table = self.job.place.open()
        sizes = [] if table.state() is None else table.file_sizes()
        self.statistics.files, self.statistics.file_bytes = len(sizes), sum(sizes)

    def facts_of(self, summary: BatchSummary) -> CommitFacts:
        """The facts of a commit that this job has just made, for its lineage."""
        spec, place = self.job.spec, self.job.place
        return CommitFacts(
            spec.properties.get("bootstrap.servers", ""),
            spec.topic,
            "" if self._writer is None else self._writer.origin.topic_id,
            place.kind,
            place.uri,
            summary.batch,
            summary.ranges,
            summary.records,
            summary.dead,
            summary.files,
            self.statistics.committed_ms,
            summary.seconds,
        )

    def close(self) -> None:
        self._writer, self._is_locked = None, False
        self._held.close()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
