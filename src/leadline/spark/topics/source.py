"""The format `leadline`: topics as DataFrames, with the options and the columns of Spark's own Kafka connector.

    spark.read.format("leadline").option("kafka.bootstrap.servers", ...).option("subscribe", "orders").load()

The driver plans the partitions, their ranges of offsets and the tasks. Tasks fetch from the leaders and pass Arrow
batches to Spark.
"""

from collections.abc import Iterator, Sequence

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
from pyspark.sql.types import StructType

from leadline.spark.batches.decode import SPARK_SCHEMA, SPARK_SCHEMA_WITH_HEADERS
from leadline.spark.client.cluster import ClusterClient
from leadline.spark.client.failures import NoSuchTopic
from leadline.spark.ranges import Range
from leadline.spark.topics import resolution
from leadline.spark.topics.options import ReadOptions, TopicPattern, read_options, write_options
from leadline.spark.topics.read_tasks import planned, read_task
from leadline.spark.topics.sink import BatchWriter
from leadline.spark.topics.source_options import BadOption
from leadline.spark.topics.stream_sink import StreamWriter
from leadline.spark.topics.stream_source import StreamReader


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
