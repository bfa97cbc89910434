"""The format `leadline`: topics as DataFrames, with the options and the columns of Spark's own Kafka connector.

    spark.read.format("leadline").option("kafka.bootstrap.servers", ...).option("subscribe", "orders").load()

The driver plans the partitions, their ranges of offsets and the tasks. Tasks fetch from the leaders and pass Arrow
batches to Spark. The progress of a stream is in its checkpoint, and in a consumer group, where other tools see it.
"""

import logging
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from leadline.model import Offset, TopicPartition
from leadline.spark.batches.decode import SPARK_SCHEMA, SPARK_SCHEMA_WITH_HEADERS, spark_columns
from leadline.spark.client.cluster import ClusterClient
from leadline.spark.client.failures import NoSuchTopic, RequestFailed
from leadline.spark.client.range_fetch import FETCH_BYTES, FetchOptions, rows
from leadline.spark.positions import (
    BadCheckpoint,
    ClusterOffsets,
    Positions,
    data_loss,
    is_recreated,
    losses,
    resume_offsets,
)
from leadline.spark.ranges import Range, Task, admit, plan
from leadline.spark.topics import resolution
from leadline.spark.topics.options import (
    AssignedPartitions,
    ReadOptions,
    SubscribedTopics,
    TopicPattern,
    TopicSelection,
    read_options,
    write_options,
)
from leadline.spark.topics.sink import BatchWriter, StreamWriter
from leadline.spark.topics.source_options import BadOption

log = logging.getLogger(__name__)

MOST_CLUSTERS = 4
SIZES_S = 60.0  # after which the average size of records is computed again


class LeadlineSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "leadline"

    def schema(self) -> StructType:
        headers = dict(self.options).get("includeheaders", "false").strip().lower() == "true"
        return from_arrow_schema(SPARK_SCHEMA_WITH_HEADERS if headers else SPARK_SCHEMA)

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(read_options(dict(self.options), streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(read_options(dict(self.options), streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise BadOption("a topic cannot be overwritten: mode('append') adds to it")
        return BatchWriter(write_options(dict(self.options)), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return StreamWriter(write_options(dict(self.options)), schema)


# Tasks


@dataclass
class TaskPartition(InputPartition):
    """The ranges of one task."""

    task: Task


class ClusterPool:
    """The clients of a process, by their properties. Tasks of one process run in turn and share the connections."""

    def __init__(self) -> None:
        self._clusters: dict[frozenset[tuple[str, str]], ClusterClient] = {}

    def get(self, client: Mapping[str, str]) -> ClusterClient:
        key = frozenset(client.items())
        if key not in self._clusters:
            if len(self._clusters) >= MOST_CLUSTERS:
                self.close()
            self._clusters[key] = ClusterClient(client)
        return self._clusters[key]

    def close(self) -> None:
        for cluster in self._clusters.values():
            cluster.close()
        self._clusters.clear()


# Spark unpickles a new reader for each task: only the process can keep the connections.
CLUSTERS = ClusterPool()


def read_task(options: ReadOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, TaskPartition):
        return  # Spark makes one of its own where nothing is planned
    fetch_options = FetchOptions(
        options.committed,
        options.fail_on_data_loss,
        int(options.client.get("max.partition.fetch.bytes", FETCH_BYTES)),
    )
    cluster = CLUSTERS.get(options.client)
    for range_ in partition.task:
        for batch in rows(cluster, range_, fetch_options, headers=options.headers):
            yield spark_columns(batch, *range_.tp)


# A batch


class BatchReader(DataSourceReader):
    def __init__(self, options: ReadOptions) -> None:
        self.options = options

    def partitions(self) -> Sequence[InputPartition]:
        options = self.options
        with ClusterClient(options.client) as cluster:
            at = resolution.current_offsets(
                cluster, resolution.resolve_topics(cluster, options.topics), committed=options.committed
            )
            if isinstance(options.topics, TopicPattern) and not at.latest:
                raise NoSuchTopic(f"subscribePattern={options.topics.pattern}: no topic at {cluster.servers} matches")
            starts, end = resolution.start_offsets(cluster, at, options), resolution.end_offsets(cluster, at, options)
            ranges = [Range(tp, starts[tp], until) for tp, until in sorted(end.items())]
            return planned(options, ranges, resolution.bytes_per_offset(cluster, at.earliest, at.latest))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(self.options, partition)


def planned(
    options: ReadOptions, ranges: Sequence[Range], bytes_per_offset: Mapping[TopicPartition, float]
) -> list[InputPartition]:
    tasks = plan(
        ranges,
        bytes_per_offset,
        min_tasks=options.min_partitions or 1,
        max_records=options.max_records_per_partition,
    )
    return [TaskPartition(task) for task in tasks]


def names(topics: TopicSelection) -> set[str]:
    """Of the topics, where they are named."""
    match topics:
        case SubscribedTopics(topic_names):
            return set(topic_names)
        case AssignedPartitions(partitions):
            return {tp.topic for tp in partitions}
    return set()


# A stream


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """On the driver it exists as long as the query. Tasks get a copy, which can only read."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self._forget()

    def _forget(self) -> None:
        self._latest: Positions | None = None  # when the cluster was last read
        self._committed: Positions | None = None  # to the group
        self._target: Mapping[TopicPartition, Offset] | None = None  # the end of a run with the trigger availableNow
        self._sizes: dict[TopicPartition, float] = {}
        self._sizes_since_s: float | None = None
        self._last_batch_s = time.monotonic()

    def __getstate__(self) -> dict[str, object]:
        return {"options": self.options}

    @property
    def _cluster(self) -> ClusterClient:
        return CLUSTERS.get(self.options.client)

    def _now(self, *, all_of_them: bool) -> ClusterOffsets:
        topics = resolution.resolve_topics(self._cluster, self.options.topics, all_of_them=all_of_them)
        at = resolution.current_offsets(self._cluster, topics, committed=self.options.committed)
        self._latest = Positions(at.latest, "", at.ids)
        if self._target is None:
            return at
        bounded = {tp: min(until, self._target[tp]) for tp, until in at.latest.items() if tp in self._target}
        return ClusterOffsets(at.earliest, bounded, at.ids)

    def initialOffset(self) -> dict[str, object]:
        at = self._now(all_of_them=True)
        group = self.options.group or f"{self.options.group_prefix}-{uuid.uuid4()}"
        return Positions(resolution.start_offsets(self._cluster, at, self.options), group, at.ids).to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._now(all_of_them=False).latest

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit of one batch, from the options."""
        if self.options.max_offsets is not None:
            return ReadMaxRows(self.options.max_offsets)
        if self.options.max_bytes is not None:
            return ReadMaxBytes(self.options.max_bytes)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> dict[str, object]:
        before = Positions.from_json(start)
        at = self._now(all_of_them=False)
        self._check(before, at)
        self._commit(before)  # all batches before it are done; Spark calls `commit` only when another batch starts
        starts = resume_offsets(before, at)
        end = at.latest
        if not isinstance(limit, ReadAllAvailable):
            end = self._admitted(starts, at)
        group = self.options.group or before.group or f"{self.options.group_prefix}-{uuid.uuid4()}"
        if end == starts or self._is_too_little(starts, end):
            end = starts
        else:
            self._last_batch_s = time.monotonic()
        return Positions(end, group, at.ids).to_json()

    def _admitted(self, starts: Mapping[TopicPartition, Offset], at: ClusterOffsets) -> dict[TopicPartition, Offset]:
        sizes = self._bytes_per_offset(at) if self.options.max_bytes is not None else {}
        return admit(starts, at.latest, sizes, max_offsets=self.options.max_offsets, max_bytes=self.options.max_bytes)

    def _is_too_little(self, starts: Mapping[TopicPartition, Offset], end: Mapping[TopicPartition, Offset]) -> bool:
        """Whether to wait for minOffsetsPerTrigger: at most for maxTriggerDelay, and not at the end of a run."""
        if self.options.min_offsets is None or self._target is not None:
            return False
        waited_ms = (time.monotonic() - self._last_batch_s) * 1000
        return (
            sum(end[tp] - starts[tp] for tp in end) < self.options.min_offsets and waited_ms < self.options.max_delay_ms
        )

    def _check(self, before: Positions, at: ClusterOffsets) -> None:
        requested = names(self.options.topics)
        if requested and before.topics and before.topics.isdisjoint(requested):
            raise BadCheckpoint(
                f"the checkpoint is of {', '.join(sorted(before.topics))}, and the query reads "
                f"{', '.join(sorted(requested))}: it needs a checkpointLocation of its own"
            )
        if lost := losses(before, at):
            if self.options.fail_on_data_loss:
                raise data_loss(lost)
            for loss in lost:
                log.warning("%s", loss)

    def reportLatestOffset(self) -> dict[str, object] | None:
        return None if self._latest is None else self._latest.to_json()

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> Sequence[InputPartition]:
        before, after = Positions.from_json(start), Positions.from_json(end)
        cluster = self._cluster
        planned_offsets = ClusterOffsets({}, after.offsets, after.ids)
        new = [
            tp for tp in after.offsets if tp not in before.offsets or is_recreated(before, planned_offsets, tp.topic)
        ]
        starts = {**before.offsets, **cluster.earliest(new)}
        end_of = {tp: until for tp, until in after.offsets.items() if starts[tp] < until}
        if not end_of:
            return []
        at = self._now(all_of_them=False)
        self._check(
            Positions(end_of, after.group, after.ids), ClusterOffsets(dict.fromkeys(at.latest, 0), at.latest, at.ids)
        )
        ranges = [Range(tp, starts[tp], min(until, at.latest.get(tp, 0))) for tp, until in sorted(end_of.items())]
        return planned(self.options, ranges, self._bytes_per_offset(at))

    def _bytes_per_offset(self, at: ClusterOffsets) -> dict[TopicPartition, float]:
        now_s = time.monotonic()
        if self._sizes_since_s is None or now_s - self._sizes_since_s > SIZES_S:
            self._sizes, self._sizes_since_s = resolution.bytes_per_offset(self._cluster, at.earliest, at.latest), now_s
        return self._sizes

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(self.options, partition)

    def commit(self, end: dict[str, object]) -> None:
        self._commit(Positions.from_json(end))

    def _commit(self, done: Positions) -> None:
        there = {} if self._latest is None else self._latest.offsets
        offsets = {tp: offset for tp, offset in done.offsets.items() if tp in there}
        if not self.options.commit_progress or not done.group or done == self._committed or not offsets:
            return
        try:
            self._cluster.commit(done.group, offsets)
        except RequestFailed as error:
            raise RequestFailed(
                f"the progress cannot be committed to group {done.group} (kafka.group.id names another, "
                "commitProgress=false commits none)",
                error.code,
            ) from None
        self._committed = done

    def stop(self) -> None:
        self._cluster.close()
