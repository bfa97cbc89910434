"""A topic becomes a table, exactly once, batch after batch.

A batch starts at the offsets where the table ends. Tasks write its files (write_task.py), and the driver commits them.
The commits of a batch, in this order:

    1. columns that the table lacks               no row depends on it; again, it changes nothing
    2. bad records, to the dead-letter table      with the batch's number and the offsets where it ends
       deletes, to the table that remembers them  the same; of tables by key only (remembered_deletes.py)
    3. files, offsets, batch number               the table's own commit, which makes the batch part of it

If the process ends before 3, the table has nothing of the batch. If it ends within or after 2, the tables beside it are
one batch ahead: the next start repeats that batch up to the same offsets and skips what is there of 2. The columns
exist by then, so the same records are bad.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import compress
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from leadline.model import Offset, TopicPartition, format_id
from leadline.spark.batches.decode import SPARK_SCHEMA_WITH_HEADERS
from leadline.spark.client.cluster import ClusterClient, TopicMetadata
from leadline.spark.client.connection import Unreachable, is_outage
from leadline.spark.client.failures import RequestFailed
from leadline.spark.client.range_fetch import FetchOptions
from leadline.spark.positions import Loss, data_loss
from leadline.spark.ranges import Range, Task, admit, plan
from leadline.spark.session import run_tasks
from leadline.spark.table.bucketed_files import BucketPaths
from leadline.spark.table.change_events import CHANGE_COLUMNS
from leadline.spark.table.data_directory import DataDirectory
from leadline.spark.table.declared_columns import ColumnTypes, declare, with_columns
from leadline.spark.table.masks import check_schema
from leadline.spark.table.merge import (
    STAGING,
    PreparedMerge,
    bucket_count,
    delete_directory,
    merge_job,
    prepare,
    staging_directory,
)
from leadline.spark.table.payload import BESIDE, CHANGE_FORMATS, DEAD_LETTERS, extended, record_schema
from leadline.spark.table.quality import Quality, check_interrupted, check_quality
from leadline.spark.table.remembered_deletes import DELETES, deletes_origin
from leadline.spark.table.shared_directory import check_shared
from leadline.spark.table.table import (
    BY_KEY,
    HISTORY,
    UPSERT,
    DataFile,
    FilesChanged,
    HistoryColumns,
    LiveFile,
    OriginColumns,
    Table,
    TableError,
    TableOrigin,
    TableProgress,
    TableState,
    check_origin,
    renamed_columns,
)
from leadline.spark.table.table_format import DELETES as DELETES_SUFFIX
from leadline.spark.table.write_task import TaskOutput, WriteTask, write_files
from leadline.spark.topics.resolution import bytes_per_offset

BATCH_BYTES = 512 << 20  # of a topic, at most, in one commit
BY_KEY_BYTES = 64 << 20  # of a batch by key: a task that looks for its keys has all of them in memory
MERGES = 3  # tries, while others compact the table
ROUNDS = 3  # of tasks: one finds the columns that the table lacks, the next one writes what differs by them


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
    columns: ColumnTypes = field(default_factory=dict)  # that the user declares
    group: str = ""  # where offsets are committed, for tools that show lag; empty: nowhere
    history: HistoryColumns = field(default_factory=HistoryColumns)  # of scd2
    quality: Quality = field(default_factory=Quality)

    @property
    def is_by_key(self) -> bool:
        return self.mode in BY_KEY


@dataclass(frozen=True, slots=True)
class BatchSummary:
    """The records that a batch wrote, and those that remain."""

    batch: int
    records: int
    size: int
    dead: int
    files: int
    lag_offsets: int
    lag_bytes: int
    newest_ms: int  # the latest time of a record in the batch; -1: it had none
    seconds: float
    ranges: Sequence[Range] = ()  # the offsets that it read
    late: int = 0  # changes that came after a newer one of their key
    repeated: int = 0


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
        rest = {tp: latest - self.end.get(tp, self.start[tp]) for tp, latest in self.latest.items()}
        size = sum(count * self.bytes_per_offset.get(tp, 0.0) for tp, count in rest.items())
        return sum(rest.values()), int(size)

    @property
    def lag_offsets(self) -> int:
        """Before the batch."""
        return sum(latest - self.start[tp] for tp, latest in self.latest.items())


class TableWriter:
    """Writes a topic into its table. The table belongs to this writer from the start."""

    def __init__(self, spark: SparkSession, cluster: ClusterClient, table: Table, dead: Table, spec: TableSpec) -> None:
        self.spark, self.cluster, self.table, self.dead, self.spec = spark, cluster, table, dead, spec
        check_quality(spec.quality, spec.format, spec.mode)
        check_schema(pa.schema(list(spec.columns.items())), spec.quality.parsed_masks)
        self.topic = cluster.existing_topics([spec.topic])[spec.topic]
        self.origin = origin_of(spec, self.topic)
        self.columns = OriginColumns.of(spec.format)
        self.deletes = table.beside(DELETES_SUFFIX)
        if not table.in_catalog:
            check_shared(spark, table.data_directory)
        self.state = self._opened(table, self.origin, schema_of(spec.format, self.origin.history))
        if table.in_catalog:
            check_shared(spark, table.data_directory)
        self._check_rules()
        self.dead_state = self._opened_beside(dead, self._dead_origin, DEAD_LETTERS)
        self.deletes_state: TableState | None = None
        if spec.is_by_key:
            self.deletes_state = self._opened_beside(self.deletes, deletes_origin(self.origin), DELETES)
            delete_directory(table.data_directory.child(STAGING))  # of a merge that was interrupted
        for beside, state in ((dead, self.dead_state), (self.deletes, self.deletes_state)):
            if state and state.progress.batch > self.state.progress.batch + 1:
                raise TableError(f"{beside.uri} is ahead of {table.uri}: it belongs to another table")
        self._has_declared = False
        self._declare_columns()
        self.state = with_columns(table, self.state, spec.quality.columns)
        check_schema(self.state.schema, spec.quality.parsed_masks)

    @property
    def _dead_origin(self) -> TableOrigin:
        return replace(dead_origin(self.origin), rules=self.spec.quality.rules_text)

    def _check_rules(self) -> None:
        letters = self.dead.state()
        if letters is not None and letters.progress.batch > self.state.progress.batch:
            check_interrupted(letters.origin, self.spec.quality.rules_text, self.table.uri)

    def _opened(self, table: Table, origin: TableOrigin, schema: pa.Schema) -> TableState:
        existing = table.state()
        if existing is None:
            table.create(origin, schema, TableProgress())
            return table.take_over(origin)
        check_origin(existing.origin, origin, table.uri)
        if names := renamed_columns(existing):
            table.rename_columns(names, table.take_over(existing.origin).progress)
        if (existing.origin.mode, origin.mode) == ("append", UPSERT):
            self._renew(table.take_over(existing.origin).progress)  # the rows first, then the mode
        return table.take_over(origin)

    def _renew(self, before: TableProgress) -> None:
        """A table with a row for each record becomes one by key."""
        state = self._opened_beside(self.deletes, deletes_origin(self.origin), DELETES)
        files = self.table.live_files()
        buckets = bucket_count(sum(file.size for file in files), 0, self._width)
        staging = staging_directory(self.table)
        try:
            job = merge_job(self.table, self.deletes, self.origin, staging, buckets)
            prepared = prepare(self._run_all, job, files, [], None, self._width)
            if prepared.remembered:
                state = state or self._created(self.deletes, deletes_origin(self.origin), DELETES)
                self.deletes.append(prepared.remembered, state.progress, replace(before, epoch=state.progress.epoch))
            self.table.merge(prepared.merge, before, before)
        finally:
            delete_directory(staging)

    def _opened_beside(self, table: Table, origin: TableOrigin, schema: pa.Schema) -> TableState | None:
        """A table beside the table of the topic. None: there is none yet."""
        existing = table.state()
        if existing is not None:
            check_origin(existing.origin, origin, table.uri)
            return table.take_over(origin)
        return self._created(table, origin, schema) if table.in_catalog else None  # which says where tasks write

    def _created(self, table: Table, origin: TableOrigin, schema: pa.Schema) -> TableState:
        table.create(origin, schema, TableProgress())
        return table.take_over(origin)

    @property
    def _width(self) -> int:
        return max(self.spark.sparkContext.defaultParallelism, 1)

    def _run_all(self, work: Callable[[Any], Any], tasks: Sequence[Any]) -> list[Any]:
        return run_tasks(self.spark, work, tasks)

    def _declare_columns(self) -> None:
        """Not before an interrupted batch is complete: other records would be bad with other types."""
        if self._ahead is None:
            self.state = declare(self.table, self.state, self.spec.columns)
            self._has_declared = True

    @property
    def _ahead(self) -> TableState | None:
        """A table beside that has a batch whose rows are not committed."""
        states = [state for state in (self.dead_state, self.deletes_state) if state is not None]
        return next((state for state in states if state.progress.batch > self.state.progress.batch), None)

    def is_current(self) -> bool:
        """Whether all tables are as this writer left them. If not, a commit of it failed halfway, or others wrote."""
        beside = [(self.dead, self.dead_state)]
        if self.spec.is_by_key:
            beside.append((self.deletes, self.deletes_state))
        states = [(table.state(), state) for table, state in beside]
        return self.table.state() == self.state and all(
            (newest and newest.progress) == (state and state.progress) for newest, state in states
        )

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
        average = bytes_per_offset(self.cluster, earliest, latest)
        end = self._resumed(latest) or admit(start, latest, average, max_bytes=self._batch_bytes)
        batch = PlannedBatch(start, end, latest, average)
        return batch if batch.ranges else None

    @property
    def _batch_bytes(self) -> int:
        return min(self.spec.batch_bytes, BY_KEY_BYTES) if self.spec.is_by_key else self.spec.batch_bytes

    def _resumed(self, latest: Mapping[TopicPartition, Offset]) -> dict[TopicPartition, Offset] | None:
        """The end of an interrupted batch."""
        if (ahead := self._ahead) is None:
            return None
        ends = ahead.progress.offsets
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

    def write_batch(self, batch: PlannedBatch) -> BatchSummary:
        started = time.monotonic()
        after = self.state.progress.after({tp.partition: until for tp, until in batch.end.items()})
        files, merge = 0, None
        if self.spec.is_by_key:
            done, merge = self._write_merged(batch, after)
            files = len(merge.merge.new_files)
        else:
            done = self._task_outputs(batch, self.table.data_directory)
            self._commit_dead(done, after)
            appended = [file for output in done for file in output.files]
            self.table.append(appended, self.state.progress, after)
            files = len(appended)
        self.state = replace(self.state, progress=after)
        if not self._has_declared:
            self._declare_columns()
        if self.spec.group:
            self._commit_to_group(batch)
        lag_offsets, lag_bytes = batch.remaining()
        return BatchSummary(
            after.batch,
            sum(output.records for output in done),
            sum(output.size for output in done),
            sum(file.rows for output in done for file in output.dead),
            files,
            lag_offsets,
            lag_bytes,
            max(output.newest_ms for output in done),
            time.monotonic() - started,
            batch.ranges,
            0 if merge is None else merge.late,
            0 if merge is None else merge.repeated,
        )

    def _commit_to_group(self, batch: PlannedBatch) -> None:
        """Commits offsets for tools that show lag. During an outage the next batch does it: the table has this one."""
        try:
            self.cluster.commit(self.spec.group, batch.end)
        except (Unreachable, RequestFailed) as error:
            if not is_outage(error):
                raise

    def _write_merged(self, batch: PlannedBatch, after: TableProgress) -> tuple[list[TaskOutput], PreparedMerge]:
        """Again, with the files that the table has by then, if others compact it meanwhile."""
        files = self.table.live_files()
        sizes = [range_.length * batch.bytes_per_offset.get(range_.tp, 0.0) for range_ in batch.ranges]
        buckets = bucket_count(sum(sizes), sum(file.size for file in files), self._width)
        staging = staging_directory(self.table)
        try:
            done = self._task_outputs(batch, staging, buckets)
            staged = BucketPaths.joined(output.staged for output in done)
            job = merge_job(self.table, self.deletes, self.origin, staging, buckets)
            self._commit_dead(done, after)
            for left in reversed(range(MERGES)):
                prepared = prepare(self._run_all, job, files, self._delete_files(), staged, self._width)
                self._commit_deletes(prepared.remembered, after)
                try:
                    self.table.merge(prepared.merge, self.state.progress, after)
                    return done, prepared
                except FilesChanged:
                    if not left:
                        raise
                    files = self.table.live_files()
            raise AssertionError("the last try returns or raises")
        finally:
            delete_directory(staging)

    def _delete_files(self) -> list[LiveFile]:
        return [] if self.deletes_state is None else self.deletes.live_files()

    def _task_outputs(self, batch: PlannedBatch, directory: DataDirectory, buckets: int = 0) -> list[TaskOutput]:
        """Runs the tasks. The table gets columns that the records need; where these change what a task wrote, again."""
        tasks = plan(batch.ranges, batch.bytes_per_offset, min_tasks=self.spark.sparkContext.defaultParallelism)
        done: list[TaskOutput] = []
        for _ in range(ROUNDS):
            before = self.state.schema
            results = self._run(tasks, directory, buckets)
            if unknown := [output.unknown for output in results if output.lacks_columns]:
                self._add_columns(unknown)
            is_kept = [output.is_kept(before, self.state.schema) for output in results]
            done += compress(results, is_kept)
            tasks = [task for task, kept in zip(tasks, is_kept, strict=True) if not kept]
            if not tasks:
                return done
        raise TableError(f"{self.table.uri}: its columns cannot hold some fields of the records: {unknown[0]}")

    def _run(self, tasks: Sequence[Task], directory: DataDirectory, buckets: int) -> list[TaskOutput]:
        results: list[TaskOutput] = self._run_all(partial(write_files, self._job(directory, buckets)), tasks)
        for output in results:
            if output.error:
                raise Unreachable(output.error) if output.is_outage else TableError(output.error)
        return results

    def _job(self, directory: DataDirectory, buckets: int) -> WriteTask:
        return WriteTask(
            self.spec.properties,
            FetchOptions(committed=self.spec.committed, fail_on_data_loss=self.spec.fail_on_data_loss),
            self.spec.format,
            self.spec.registry,
            self.columns,
            record_schema(self.state),
            directory,
            self.dead.data_directory,
            self.spec.partition_by,
            self.table.slot(self.origin),
            buckets,
            self.spec.quality,
        )

    def _add_columns(self, unknown: Sequence[pa.DataType]) -> None:
        columns = record_schema(self.state)
        new = [column for column in extended(columns, unknown) if column not in columns]
        self.table.add_columns(new, self.state.progress)
        newest = self.table.state()
        assert newest is not None
        self.state = replace(self.state, schema=newest.schema)

    def _commit_dead(self, done: Sequence[TaskOutput], after: TableProgress) -> None:
        files = [file for output in done for file in output.dead]
        self.dead_state = self._commit_beside(self.dead, self.dead_state, self._dead_origin, DEAD_LETTERS, files, after)

    def _commit_deletes(self, files: Sequence[DataFile], after: TableProgress) -> None:
        self.deletes_state = self._commit_beside(
            self.deletes, self.deletes_state, deletes_origin(self.origin), DELETES, files, after
        )

    def _commit_beside(
        self,
        table: Table,
        state: TableState | None,
        origin: TableOrigin,
        schema: pa.Schema,
        files: Sequence[DataFile],
        after: TableProgress,
    ) -> TableState | None:
        """Commits files of a batch to a table beside, unless that has them already."""
        if not files or (state is not None and state.progress.batch == after.batch):
            return state
        state = state or self._created(table, origin, schema)
        ahead = replace(after, epoch=state.progress.epoch)
        table.append(files, state.progress, ahead)
        return replace(state, progress=ahead)

    def batches(self) -> Iterator[BatchSummary]:
        """Batch after batch, until the table has all records that the topic had when the last of them was planned."""
        while (summary := self.write_next()) is not None:
            yield summary
            if not summary.lag_offsets:
                return

    def write_next(self) -> BatchSummary | None:
        """None: there is nothing to write."""
        batch = self.next_batch()
        return None if batch is None else self.write_batch(batch)


def check_table(cluster: ClusterClient, table: Table, spec: TableSpec) -> None:
    """Before anything is written: the topic exists, and an existing table follows it."""
    origin = origin_of(spec, cluster.existing_topics([spec.topic])[spec.topic])
    if (existing := table.state()) is not None:
        check_origin(existing.origin, origin, table.uri)


def origin_of(spec: TableSpec, topic: TopicMetadata) -> TableOrigin:
    isolation = "read_committed" if spec.committed else "read_uncommitted"
    history = ",".join(spec.history.names) if spec.mode == HISTORY else ""
    return TableOrigin(
        topic.name,
        format_id(topic.id),
        spec.format,
        spec.mode,
        spec.partition_by,
        isolation,
        history,
        spec.quality.masks_text,
    )


def dead_origin(origin: TableOrigin) -> TableOrigin:
    return replace(origin, format="raw", mode="append", partition_by="none", history_columns="", masks="")


def schema_of(format: str, history: HistoryColumns | None = None) -> pa.Schema:
    schema = SPARK_SCHEMA_WITH_HEADERS if format == "raw" else BESIDE
    if format in CHANGE_FORMATS:
        schema = pa.schema([*schema, *CHANGE_COLUMNS])
    return schema if history is None else pa.schema([*schema, *history.fields])
