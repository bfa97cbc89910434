"""Writes to topics, exactly once, from the columns of Spark's own Kafka connector.

    value       string or binary, required; all others are optional
    key         string or binary
    topic       required unless the option `topic` names one for all records
    partition   int; if it is null or missing, the key decides, as in Kafka's Java clients
    headers     array<struct<key: string, value: binary>>
    timestamp   with includeTimestamp=true; otherwise records get the time of the write

Spark asks for a mode in a write that is not a stream, as its own connector does not: `.mode("append")`.

Tasks encode rows as record batches and stage them in files. The driver sends all of them in one transaction. For a
batch of a stream, the same transaction commits a note that this batch of this query is written:
    a batch that runs again reads the note first: with a note it writes nothing; without one, no record is visible
"""

import json
import time
import uuid
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType, TimestampType

from leadline.spark.batches.encode import BatchEncoder, EncodedBatch, RecordColumns
from leadline.spark.batches.partitioning import Ints, partitions_of_keys
from leadline.spark.client.cluster import ClusterClient, GroupOffset
from leadline.spark.client.transaction import ClientTransaction, StagedBatch
from leadline.spark.topics.options import WriteOptions
from leadline.spark.topics.source_options import BadOption
from leadline.spark.topics.staging import StagedFile, StagedPiece, Staging

HEADERS = "array<struct<key: string, value: binary>>"
TYPES: dict[str, tuple[type[DataType], ...]] = {
    "value": (StringType, BinaryType),
    "key": (StringType, BinaryType),
    "topic": (StringType,),
    "partition": (IntegerType,),
    "headers": (ArrayType,),
    "timestamp": (TimestampType,),
}
MOST_OPEN = 100  # staged files that are open at a time


@dataclass
class TaskStaged(WriterCommitMessage):
    """The staged batches of a task, and its query."""

    staging: Staging
    staged: StagedFile
    query: str | None


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """BadOption, with one line, if a column is missing or has a wrong type."""
    kinds = {column.name: column.dataType for column in schema}
    if "value" not in kinds:
        raise BadOption(f"there is no column value among {', '.join(kinds)}")
    if "topic" not in kinds and options.topic is None:
        raise BadOption("there is neither a column topic nor an option topic")
    if options.timestamps and "timestamp" not in kinds:
        raise BadOption(f"includeTimestamp=true, and there is no column timestamp among {', '.join(kinds)}")
    for name, expected in TYPES.items():
        if name in kinds and (name != "timestamp" or options.timestamps) and not isinstance(kinds[name], expected):
            types = " or ".join(kind().simpleString() if kind is not ArrayType else HEADERS for kind in expected)
            raise BadOption(f"the column {name} is {kinds[name].simpleString()}; it must be {types}")


# Tasks


class RowEncoder:
    """Encodes the rows of a task into record batches."""

    def __init__(self, cluster: ClusterClient, options: WriteOptions) -> None:
        self._cluster, self._options = cluster, options
        self._packing = BatchEncoder(options.codec, options.batch_bytes)
        self._partitions: dict[str, int] = {}  # the partition count of each topic
        self._turn = uuid.uuid4().int % 1000  # rotates the partition of records without a key

    def batches(self, rows: Iterator[pa.RecordBatch]) -> Iterator[EncodedBatch]:
        for batch in rows:
            for topic, of_topic in self._by_topic(batch):
                yield from self._packing.add(self._columns(topic, of_topic))
        yield from self._packing.rest()

    def _by_topic(self, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self._options.topic is not None:
            yield self._options.topic, rows
            return
        topics = rows.column("topic")
        if topics.null_count:
            raise BadOption("a row has no topic: the column topic is null, and there is no option topic")
        for topic in pc.unique(topics).to_pylist():
            yield topic, rows.filter(pc.equal(topics, topic))

    def _columns(self, topic: str, rows: pa.RecordBatch) -> RecordColumns:
        names = rows.schema.names
        keys = _bytes(rows, "key") if "key" in names else pa.nulls(rows.num_rows, pa.binary())
        return RecordColumns(
            topic,
            keys.to_pylist(),
            _bytes(rows, "value").to_pylist(),
            rows.column("headers").to_pylist() if "headers" in names else None,
            self._timestamps(rows),
            self._chosen(topic, keys, rows.column("partition") if "partition" in names else None),
        )

    def _timestamps(self, rows: pa.RecordBatch) -> Sequence[int]:
        now_ms = time.time_ns() // 1_000_000
        if not self._options.timestamps:
            return [now_ms] * rows.num_rows
        times = rows.column("timestamp").cast(pa.timestamp("ms", rows.column("timestamp").type.tz), safe=False)
        result: list[int] = pc.fill_null(times.cast(pa.int64()), now_ms).to_pylist()
        return result

    def _chosen(self, topic: str, keys: pa.Array, column: pa.Array | None) -> Ints:
        count = self._count(topic)
        chosen = partitions_of_keys(keys, count)
        self._turn += 1
        chosen[chosen < 0] = self._turn % count
        if column is None:
            return chosen
        requested = pc.fill_null(column, -1).to_numpy(zero_copy_only=False).astype(np.int64)
        if (requested >= count).any():
            raise BadOption(f"a row is for partition {requested.max()} of {topic}, which has {count}")
        return np.where(requested >= 0, requested, chosen)

    def _count(self, topic: str) -> int:
        if topic not in self._partitions:
            self._partitions[topic] = len(self._cluster.created_topic(topic).leaders)
        return self._partitions[topic]


def _bytes(rows: pa.RecordBatch, name: str) -> pa.Array:
    return rows.column(name).cast(pa.binary())


def stage(rows: Iterator[pa.RecordBatch], options: WriteOptions, staging: Staging, query: str | None) -> TaskStaged:
    with ClusterClient(options.client) as cluster:
        return TaskStaged(staging, staging.write(RowEncoder(cluster, options).batches(rows)), query)


# The driver


@contextmanager
def staged_batches(lefts: Sequence[TaskStaged], tags: Sequence[object] | None = None) -> Iterator[list[StagedBatch]]:
    """The staged batches, in the order of the tasks. `tags` holds one tag for each batch."""
    with closing(StagedFiles()) as files:
        batches = [
            StagedBatch(piece.tp, piece.size, piece.count, partial(files.load, left, piece))
            for left in lefts
            for piece in left.staged.pieces
        ]
        yield batches if tags is None else [replace(batch, tag=tag) for batch, tag in zip(batches, tags, strict=True)]


class StagedFiles:
    """Staged files for reading; at most MOST_OPEN are open."""

    def __init__(self) -> None:
        self._open: dict[str, BinaryIO] = {}  # in the order in which they were opened

    def load(self, left: TaskStaged, piece: StagedPiece) -> bytes:
        file = self._open.get(left.staged.path)
        if file is None:
            if len(self._open) >= MOST_OPEN:
                self._open.pop(next(iter(self._open))).close()
            file = self._open[left.staged.path] = left.staging.open(left.staged)
        file.seek(piece.position)
        return file.read(piece.size)

    def close(self) -> None:
        for file in self._open.values():
            file.close()


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame in one transaction: readers see all of it or nothing."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_columns(schema, options)
        self.options = options
        self.job = str(uuid.uuid4())
        self.staging = Staging.of(options.staging, self.job)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskStaged:
        return stage(iterator, self.options, self.staging, None)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        lefts = [message for message in messages if isinstance(message, TaskStaged)]
        if any(left.staged.pieces for left in lefts):
            name = self.options.transactional_id or f"leadline-spark-{self.job}"
            with ClusterClient(self.options.client) as cluster:
                write_once(cluster, ClientTransaction(cluster, name, self.options.transaction_timeout_ms), lefts, None)
        self.staging.clear()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self.staging.clear()


@dataclass(frozen=True, slots=True)
class BatchNote:
    """The note that a batch of a query is written: metadata of a group's committed offsets."""

    query: str
    batch: int

    @property
    def group(self) -> str:
        return f"leadline-sink-{self.query}"

    @property
    def remark(self) -> str:
        return json.dumps({"batch": self.batch})

    def is_committed(self, cluster: ClusterClient, topics: Collection[str]) -> bool:
        """Whether the note of this batch, or of a later one, is committed for a partition of the topics."""
        partitions = [tp for topic in cluster.existing_topics(topics).values() for tp in topic.partitions]
        return any(_batch(note.metadata) >= self.batch for note in cluster.committed(self.group, partitions).values())


def _batch(remark: str) -> int:
    try:
        return int(json.loads(remark)["batch"])
    except (KeyError, TypeError, ValueError):
        return -1


def write_once(
    cluster: ClusterClient, transaction: ClientTransaction, lefts: Sequence[TaskStaged], note: BatchNote | None
) -> bool:
    """Sends all staged batches and the note in one transaction; False if the note was committed before."""
    transaction.begin()  # first: from here on no other writer can commit the note
    written = {piece.tp for left in lefts for piece in left.staged.pieces}
    if note is not None and note.is_committed(cluster, {tp.topic for tp in written}):
        return False
    try:
        transaction.add(written)
        with staged_batches(lefts) as batches:
            transaction.send(batches)
        if note is not None:
            transaction.commit_offsets(
                note.group, {tp: GroupOffset(end, note.remark) for tp, end in transaction.ends.items()}
            )
        transaction.commit()
    except Exception:
        transaction.abort()
        raise
    return True
