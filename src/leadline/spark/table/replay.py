"""A replay writes a table or Parquet files back into a topic: exactly once, in the original partitions and order.

Each batch is one transaction (sink.py). Beside the records, it commits the progress of each partition for a group: the
metadata of the committed offset is {"next": the next offset of the source}. An interrupted replay resumes there. The
topic may hold other records. The cluster deletes offsets of a group without members after offsets.retention.minutes. A
second replay of the same name takes over from the first.
    a row of the source is in the topic once if its offset lies below `next`, and not at all otherwise
"""

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql import SparkSession

from leadline.model import Offset, TopicPartition
from leadline.spark.client.cluster import ClusterClient, GroupOffset
from leadline.spark.client.transaction import ClientTransaction
from leadline.spark.errors import partitions_text
from leadline.spark.ranges import Range
from leadline.spark.session import run_tasks
from leadline.spark.table.table import OffsetSlice, OriginColumns, Table, TableError
from leadline.spark.table.table_format import open_table
from leadline.spark.topics.options import WriteOptions
from leadline.spark.topics.sink import TaskStaged, stage, staged_batches
from leadline.spark.topics.staging import Staging

BATCH_RECORDS = 100_000
NEEDED = ("partition", "offset", "value")
TAKEN = ("key", "value", "partition", "timestamp", "headers")
TRANSACTION_MS = 600_000


@dataclass(frozen=True, slots=True)
class ReplaySource:
    """Rows with a partition and an offset: of a table, or of Parquet files."""

    kind: str  # delta, iceberg or parquet
    uri: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)  # of a table; they may hold secrets

    def _table(self) -> Table:
        return open_table(self.kind, self.uri, self.options)

    def for_tasks(self) -> "ReplaySource":
        """The source with all that a task needs: it may lack this process's configuration."""
        return self if self.kind == "parquet" else replace(self, options=self._table().options)

    def columns(self, names: Sequence[str], where: OffsetSlice | None = None) -> Iterator[pa.RecordBatch]:
        if self.kind != "parquet":
            yield from self._table().columns(names, where)
            return
        chosen = None
        if where is not None:
            offset = pc.field("offset")
            in_range = (offset >= where.first) & (offset < where.until)
            chosen = (pc.field("partition") == where.partition) & in_range
        yield from self._files().scanner(columns=list(names), filter=chosen).to_batches()

    def _files(self) -> ds.Dataset:
        try:
            return ds.dataset(self.uri, format="parquet", exclude_invalid_files=True, ignore_prefixes=["_", "."])
        except (OSError, ValueError) as error:
            raise TableError(f"{self.uri}: no Parquet files can be read there: {error}") from None

    def names(self) -> list[str]:
        if self.kind == "parquet":
            return list(self._files().schema.names)
        state = self._table().state()
        if state is None:
            raise TableError(f"there is no {self.kind} table at {self.uri}")
        return list(state.schema.names)


def check_source(source: ReplaySource) -> None:
    names = source.names()
    for name in NEEDED:
        if name not in names:
            raise TableError(
                f"{source.uri} has no column {name}: a replay needs {', '.join(NEEDED)}, as a table of --format raw has"
            )


@dataclass(frozen=True, slots=True)
class ReplaySpec:
    source: ReplaySource
    topic: str
    properties: Mapping[str, str]  # of the client
    name: str = ""  # of the replay; empty: a hash of source and topic
    rate: float | None = None  # records per second; None: unlimited
    batch_records: int = BATCH_RECORDS

    @property
    def id(self) -> str:
        made = hashlib.sha256(f"{self.source.kind} {self.source.uri} {self.topic}".encode()).hexdigest()[:16]
        return f"leadline-replay-{self.name or made}"


@dataclass(frozen=True, slots=True)
class ReplaySummary:
    records: int
    left: int  # offsets of the source
    seconds: float


class Replay:
    def __init__(self, spark: SparkSession, cluster: ClusterClient, spec: ReplaySpec) -> None:
        self.spark, self.cluster, self.spec = spark, cluster, spec
        check_source(spec.source)
        self.ends = ends_of(spec.source)
        check_partitions(cluster, spec, self.ends)

    def batches(self) -> Iterator[ReplaySummary]:
        """Writes batches until the topic has all rows, no faster than the rate."""
        started, records = time.monotonic(), 0
        while (summary := self._batch()) is not None:
            records += summary.records
            if self.spec.rate is not None:
                time.sleep(max(records / self.spec.rate - (time.monotonic() - started), 0))
            yield summary

    def _batch(self) -> ReplaySummary | None:
        began = time.monotonic()
        transaction = ClientTransaction(self.cluster, self.spec.id, TRANSACTION_MS)
        transaction.begin()  # first: from here on no other replay can commit progress
        places = positions_of(self.cluster, self.spec)
        ranges = self._ranges(places)
        if not ranges:
            return None
        lefts = self._staged(ranges)
        try:
            self._send(transaction, ranges, lefts)
        except BaseException:
            transaction.abort()
            raise
        finally:
            for left in lefts:
                left.staging.clear()
        records = sum(piece.count for left in lefts for piece in left.staged.pieces)
        after = {**places, **{range_.tp.partition: range_.until for range_ in ranges}}
        left_over = sum(max(end - after.get(partition, first), 0) for partition, (first, end) in self.ends.items())
        return ReplaySummary(records, left_over, time.monotonic() - began)

    def _ranges(self, places: Mapping[int, Offset]) -> list[Range]:
        """The same number of offsets of each partition that is not finished."""
        starts = {partition: max(places.get(partition, first), first) for partition, (first, _) in self.ends.items()}
        unfinished = [partition for partition, (_, end) in self.ends.items() if starts[partition] < end]
        most = self.spec.batch_records if self.spec.rate is None else min(self.spec.batch_records, int(self.spec.rate))
        share = max(most // max(len(unfinished), 1), 1)
        return [
            Range(TopicPartition(self.spec.topic, n), starts[n], min(starts[n] + share, self.ends[n][1]))
            for n in unfinished
        ]

    def _staged(self, ranges: Sequence[Range]) -> list[TaskStaged]:
        options = WriteOptions(topic=self.spec.topic, timestamps=True, client=self.spec.properties)
        staging = Staging.of(None, self.spec.id)
        task = partial(_stage, self.spec.source.for_tasks(), options, staging)
        return run_tasks(self.spark, task, ranges)

    def _send(self, transaction: ClientTransaction, ranges: Sequence[Range], lefts: Sequence[TaskStaged]) -> None:
        transaction.add({range_.tp for range_ in ranges})
        with staged_batches(lefts) as batches:
            transaction.send(batches)
        notes = {
            range_.tp: GroupOffset(transaction.ends.get(range_.tp, 0), json.dumps({"next": range_.until}))
            for range_ in ranges
        }
        transaction.commit_offsets(self.spec.id, notes)
        transaction.commit()


def _stage(source: ReplaySource, options: WriteOptions, staging: Staging, range_: Range) -> TaskStaged:
    where = OffsetSlice(OriginColumns.of("raw"), range_.tp.partition, range_.first, range_.until)
    existing = source.names()
    names = [name for name in TAKEN if name in existing]
    rows = pa.Table.from_batches(list(source.columns([*names, "offset"], where)))
    ordered = rows.sort_by("offset").drop_columns(["offset"]) if rows.num_rows else rows
    if "timestamp" not in names:
        ordered = ordered.append_column("timestamp", pa.nulls(rows.num_rows, pa.timestamp("us", "UTC")))
    return stage(iter(ordered.combine_chunks().to_batches()), options, staging, None)


def ends_of(source: ReplaySource) -> dict[int, tuple[Offset, Offset]]:
    """The lowest offset of each partition, and the one after the highest."""
    ends: dict[int, tuple[Offset, Offset]] = {}
    for batch in source.columns(["partition", "offset"]):
        grouped = pa.Table.from_batches([batch]).group_by("partition").aggregate([("offset", "min"), ("offset", "max")])
        for row in grouped.to_pylist():
            first, end = ends.get(row["partition"], (row["offset_min"], 0))
            ends[row["partition"]] = min(first, row["offset_min"]), max(end, row["offset_max"] + 1)
    return ends


def check_partitions(cluster: ClusterClient, spec: ReplaySpec, ends: Mapping[int, object]) -> None:
    count = len(cluster.existing_topics([spec.topic])[spec.topic].leaders)
    if ends and max(ends) >= count:
        raise TableError(
            f"{spec.source.uri} has rows of partition {max(ends)}, and {spec.topic} has {partitions_text(count)}: "
            f"leadline topics alter {spec.topic} --partitions {max(ends) + 1}"
        )


def positions_of(cluster: ClusterClient, spec: ReplaySpec) -> dict[int, Offset]:
    """The next offset of the source, for each partition."""
    committed = cluster.committed(spec.id, cluster.existing_topics([spec.topic])[spec.topic].partitions)
    return {tp.partition: int(json.loads(note.metadata)["next"]) for tp, note in committed.items()}
