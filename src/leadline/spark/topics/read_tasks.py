"""The tasks of a read: their ranges of offsets, and the batches that they pass to Spark."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from leadline.model import TopicPartition
from leadline.spark.batches.decode import spark_columns
from leadline.spark.client.cluster import ClusterClient
from leadline.spark.client.range_fetch import FETCH_BYTES, FetchOptions, rows
from leadline.spark.ranges import Range, Task, plan
from leadline.spark.topics.options import ReadOptions

MOST_CLUSTERS = 4


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
