"""A topic becomes a table, exactly once, batch after batch.

A batch starts at the offsets where the table ends. Tasks write its files (write_task.py), and the driver commits them.
The commits of a batch, in this order:

    1. columns that the table lacks               no row depends on it; again, it changes nothing
    2. bad records, to the dead-letter table      with the batch's number and the offsets where it ends
    3. files, offsets, batch number               the table's own commit, which makes the batch part of it

If the process ends before 3, the table has nothing of the batch. If it ends between 2 and 3, the dead letters are one
batch ahead: the next start repeats that batch up to the same offsets and skips 2. The columns exist by then, so the
same records are bad.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
from pyspark.sql import SparkSession

from leadline.model import Offset, TopicPartition, format_id
from leadline.spark.batches.decode import SPARK_SCHEMA_WITH_HEADERS
from leadline.spark.client.cluster import ClusterClient, TopicMetadata
from leadline.spark.client.range_fetch import FetchOptions
from leadline.spark.positions import Loss, data_loss
from leadline.spark.ranges import Range, Task, admit, plan
from leadline.spark.session import run_tasks
from leadline.spark.table.evolution import additions
from leadline.spark.table.payload import BESIDE, DEAD_LETTERS, RESERVED
from leadline.spark.table.table import (
    DataFile,
    OriginColumns,
    Table,
    TableError,
    TableOrigin,
    TableProgress,
    TableState,
    check_origin,
)
from leadline.spark.table.upserts import PendingRows, last_of_each_key, rows_by_key, with_slot
from leadline.spark.table.write_task import TaskOutput, WriteTask, write_files

BATCH_BYTES, BY_KEY_BYTES = 512 << 20, 64 << 20  # of a topic, at most, in one commit
ROUNDS = 3  # of tasks: one reports the columns that the table lacks, the next one writes
DEAD = "_dead_letters"


@dataclass(frozen=True, slots=True)
class TableSpec:
    """The table that a user requests."""

    topic: str
    properties: Mapping[str, str]  # of the client
    format: str = "raw"
    mode: str = "append"
    partition_by: str = "none"
    registry: str = ""
    committed: bool = True  # omit records of transactions that are open or were aborted
    fail_on_data_loss: bool = True
    batch_bytes: int = BATCH_BYTES
    group: str = ""  # where offsets are committed, for tools that show lag; empty: nowhere


@dataclass(frozen=True, slots=True)
class BatchSummary:
    """What a batch wrote, and what remains."""

    batch: int
    records: int
    size: int
    dead: int
    files: int
    lag_offsets: int
    lag_bytes: int
    newest_ms: int  # the latest time of a record in the batch; -1: it had none
    seconds: float


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """The offsets of a batch, and the figures of the rest."""

    start: Mapping[TopicPartition, Offset]
    end: Mapping[TopicPartition, Offset]
    latest: Mapping[TopicPartition, Offset]
    bytes_per_offset: Mapping[TopicPartition, float]

    @property
    def ranges(self) -> list[Range]:
        return [Range(tp, self.start[tp], until) for tp, until in self.end.items() if until > self.start[tp]]

    def remaining(self) -> tuple[int, int]:
        """Offsets and bytes after the batch."""
        rest = {tp: latest - self.end.get(tp, latest) for tp, latest in self.latest.items()}
        size = sum(count * self.bytes_per_offset.get(tp, 0.0) for tp, count in rest.items())
        return sum(rest.values()), int(size)


class TableWriter:
    """Writes a topic into its table. The table belongs to this writer from the start."""

    def __init__(self, spark: SparkSession, cluster: ClusterClient, table: Table, dead: Table, spec: TableSpec) -> None:
        self.spark, self.cluster, self.table, self.dead, self.spec = spark, cluster, table, dead, spec
        self.topic = cluster.existing_topics([spec.topic])[spec.topic]
        self.origin = origin_of(spec, self.topic)
        self.columns = OriginColumns.of(spec.format)
        self.state = self._opened(table, self.origin, schema_of(spec.format))
        self.dead_state = self._opened_dead_letters()
        if self.dead_state and self.dead_state.progress.batch > self.state.progress.batch + 1:
            raise TableError(f"{dead.uri} is ahead of {table.uri}: it belongs to another table")

    def _opened(self, table: Table, origin: TableOrigin, schema: pa.Schema) -> TableState:
        existing = table.state()
        if existing is None:
            table.create(origin, schema, TableProgress())
            return table.take_over(origin)
        check_origin(existing.origin, origin, table.uri)
        if (existing.origin.mode, origin.mode) == ("append", "upsert"):
            before = table.take_over(
                existing.origin
            ).progress  # the rows are rewritten by key first, then the mode changes
            table.rewrite(rows_by_key(table, OriginColumns.of(origin.format)), before)
        return table.take_over(origin)

    def _opened_dead_letters(self) -> TableState | None:
        existing = self.dead.state()
        if existing is None:
            return None
        origin = dead_origin(self.origin)
        check_origin(existing.origin, origin, self.dead.uri)
        return self.dead.take_over(origin)

    # One batch

    def next_batch(self) -> PlannedBatch | None:
        """None: the table has all records of the topic."""
        self.topic = self.cluster.existing_topics([self.spec.topic])[self.spec.topic]
        check_origin(self.origin, origin_of(self.spec, self.topic), self.table.uri)
        partitions = self.topic.partitions
        earliest = self.cluster.earliest(partitions)
        latest = self.cluster.latest(partitions, committed=self.spec.committed)
        start = {tp: self.state.progress.offsets.get(tp.partition, earliest[tp]) for tp in partitions}
        start = self._existing_offsets(start, earliest, latest)
        average = self._bytes_per_offset(earliest, latest)
        end = self._resumed(latest) or admit(start, latest, average, max_bytes=self._batch_bytes)
        batch = PlannedBatch(start, end, latest, average)
        return batch if batch.ranges else None

    @property
    def _batch_bytes(self) -> int:
        """Upserts are limited: their rows are in the driver's memory for a while."""
        return min(self.spec.batch_bytes, BY_KEY_BYTES) if self.spec.mode == "upsert" else self.spec.batch_bytes

    def _resumed(self, latest: Mapping[TopicPartition, Offset]) -> dict[TopicPartition, Offset] | None:
        """The end of an interrupted batch, whose dead letters are committed and whose rows are not."""
        if self.dead_state is None or self.dead_state.progress.batch <= self.state.progress.batch:
            return None
        ends = self.dead_state.progress.offsets
        return {tp: ends[tp.partition] for tp in latest if tp.partition in ends}

    def _existing_offsets(
        self,
        start: Mapping[TopicPartition, Offset],
        earliest: Mapping[TopicPartition, Offset],
        latest: Mapping[TopicPartition, Offset],
    ) -> dict[TopicPartition, Offset]:
        losses = [
            Loss(Range(tp, first, earliest[tp]), f"the log now starts at {earliest[tp]} (retention, or deleted)")
            for tp, first in start.items()
            if first < earliest[tp]
        ]
        if losses and self.spec.fail_on_data_loss:
            raise data_loss(losses)
        for tp, first in start.items():
            if first > latest[tp]:
                raise TableError(f"{self.table.uri} has {tp} up to {first}, but the log ends at {latest[tp]}")
        return {tp: max(first, earliest[tp]) for tp, first in start.items()}

    def _bytes_per_offset(
        self, earliest: Mapping[TopicPartition, Offset], latest: Mapping[TopicPartition, Offset]
    ) -> dict[TopicPartition, float]:
        sizes = self.cluster.sizes(self.topic.partitions)
        return {tp: size / max(latest[tp] - earliest[tp], 1) for tp, size in sizes.items()}

    def write_batch(self, batch: PlannedBatch) -> BatchSummary:
        started = time.monotonic()
        done = self._task_outputs(batch)
        after = self.state.progress.after({tp.partition: until for tp, until in batch.end.items()})
        self._commit_dead([file for output in done for file in output.dead], after)
        files = [file for output in done for file in output.files]
        if files and self.spec.mode == "upsert":
            self._upsert(files, after)
        else:
            self.table.append(files, self.state.progress, after)
        self.state = replace(self.state, progress=after)
        if self.spec.group:
            self.cluster.commit(self.spec.group, batch.end)
        lag_offsets, lag_bytes = batch.remaining()
        return BatchSummary(
            after.batch,
            sum(output.records for output in done),
            sum(output.size for output in done),
            sum(file.rows for output in done for file in output.dead),
            len(files),
            lag_offsets,
            lag_bytes,
            max(output.newest_ms for output in done),
            time.monotonic() - started,
        )

    def _task_outputs(self, batch: PlannedBatch) -> list[TaskOutput]:
        """Runs the tasks, again where the table first had to get columns that the records need."""
        tasks = plan(batch.ranges, batch.bytes_per_offset, min_tasks=self.spark.sparkContext.defaultParallelism)
        done: list[TaskOutput] = []
        unknown: list[pa.DataType] = []
        for _ in range(ROUNDS):
            results = self._run(tasks)
            done += [output for output in results if not output.lacks_columns]
            unknown = [output.unknown for output in results if output.lacks_columns]
            if not unknown:
                return done
            tasks = [task for task, output in zip(tasks, results, strict=True) if output.lacks_columns]
            self._add_columns(unknown)
        raise TableError(f"{self.table.uri}: its columns cannot hold some fields of the records: {unknown[0]}")

    def _run(self, tasks: Sequence[Task]) -> list[TaskOutput]:
        results: list[TaskOutput] = run_tasks(self.spark, partial(write_files, self._job()), tasks)
        for output in results:
            if output.error:
                raise TableError(output.error)
        return results

    def _job(self) -> WriteTask:
        return WriteTask(
            self.spec.properties,
            FetchOptions(committed=self.spec.committed, fail_on_data_loss=self.spec.fail_on_data_loss),
            self.spec.format,
            self.spec.registry,
            self.columns,
            self.state.schema,
            self._directory,
            self.dead.data_directory,
            self.spec.partition_by if self.spec.mode == "append" else "none",
            self.table.slot(self.origin),
            self.spec.mode == "upsert",
        )

    def _add_columns(self, unknown: Sequence[pa.DataType]) -> None:
        columns = pa.schema([column for column in self.state.schema if column.name not in RESERVED])
        merged = additions(columns, unknown)
        new = [column for column in merged if column not in columns]
        self.table.add_columns(new, self.state.progress)
        newest = self.table.state()
        assert newest is not None
        self.state = replace(self.state, schema=newest.schema)

    def _upsert(self, files: Sequence[DataFile], after: TableProgress) -> None:
        """Reads the files of the tasks, which are never part of the table, and deletes them afterwards."""
        with PendingRows(self._directory, files) as waiting:
            rows = last_of_each_key(waiting.rows(), self.columns)
            if slot := self.table.slot(self.origin):
                rows = with_slot(rows, slot, self.spec.partition_by, self.columns)
            self.table.upsert(rows, self.columns.key, self.state.progress, after)

    @property
    def _directory(self) -> str:
        """The directory that tasks write their files to."""
        return f"{self.table.data_directory}/_by_key" if self.spec.mode == "upsert" else self.table.data_directory

    def _commit_dead(self, files: Sequence[DataFile], after: TableProgress) -> None:
        if not files or (self.dead_state is not None and self.dead_state.progress.batch == after.batch):
            return
        if self.dead_state is None:
            self.dead.create(dead_origin(self.origin), DEAD_LETTERS, TableProgress())
            self.dead_state = self.dead.take_over(dead_origin(self.origin))
        before = self.dead_state.progress
        ahead = replace(after, epoch=before.epoch)
        self.dead.append(files, before, ahead)
        self.dead_state = replace(self.dead_state, progress=ahead)

    def batches(self) -> Iterator[BatchSummary]:
        """Batch after batch, until the table has all records of the topic."""
        while (batch := self.next_batch()) is not None:
            yield self.write_batch(batch)


def check_table(cluster: ClusterClient, table: Table, spec: TableSpec) -> None:
    """Before anything is written: the topic exists, and an existing table follows it."""
    origin = origin_of(spec, cluster.existing_topics([spec.topic])[spec.topic])
    if (existing := table.state()) is not None:
        check_origin(existing.origin, origin, table.uri)


def origin_of(spec: TableSpec, topic: TopicMetadata) -> TableOrigin:
    isolation = "read_committed" if spec.committed else "read_uncommitted"
    return TableOrigin(topic.name, format_id(topic.id), spec.format, spec.mode, spec.partition_by, isolation)


def dead_origin(origin: TableOrigin) -> TableOrigin:
    return replace(origin, format="raw", mode="append", partition_by="none")


def schema_of(format: str) -> pa.Schema:
    return SPARK_SCHEMA_WITH_HEADERS if format == "raw" else BESIDE
