"""The format `leadline`: topics as DataFrames, with the options and the columns of Spark's own Kafka connector.

    spark.read.format("leadline").option("kafka.bootstrap.servers", ...).option("subscribe", "orders").load()

The driver plans the partitions, their ranges of offsets and the tasks. Tasks fetch from the leaders and pass Arrow
batches to Spark. Streams have modules of their own, which older versions of Spark cannot load.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyspark
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from leadline.model import TopicPartition
from leadline.spark.batches.decode import SPARK_SCHEMA, SPARK_SCHEMA_WITH_HEADERS, spark_columns
from leadline.spark.client.cluster import ClusterClient
from leadline.spark.client.failures import NoSuchTopic
from leadline.spark.client.range_fetch import FETCH_BYTES, FetchOptions, rows
from leadline.spark.ranges import Range, Task, plan
from leadline.spark.topics import resolution
from leadline.spark.topics.options import ReadOptions, TopicPattern, read_options, write_options
from leadline.spark.topics.sink import BatchWriter
from leadline.spark.topics.source_options import BadOption

MOST_CLUSTERS = 4


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
        check_spark("a stream that reads topics", (4, 2))
        from leadline.spark.topics.stream_source import StreamReader

        return StreamReader(read_options(dict(self.options), streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise BadOption("a topic cannot be overwritten: mode('append') adds to it")
        return BatchWriter(write_options(dict(self.options)), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        check_spark("a stream that writes to topics", (4, 1))
        from leadline.spark.topics.stream_sink import StreamWriter

        return StreamWriter(write_options(dict(self.options)), schema)


def check_spark(what: str, needed: tuple[int, int]) -> None:
    """BadOption if this Spark lacks the interfaces."""
    major, minor, *_ = pyspark.__version__.split(".")
    if (int(major), int(minor)) < needed:
        raise BadOption(
            f"{what} needs Spark {'.'.join(map(str, needed))} or newer, and this is {pyspark.__version__}. Reads and "
            "writes that are no streams, and the commands of leadline pipeline, work with it"
        )


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
