"""Writes of a streaming query to topics, exactly once: each batch is one transaction, which also commits a note of it.

How that works is in sink.py.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from leadline.spark.client.cluster import ClusterClient
from leadline.spark.client.transaction import ClientTransaction
from leadline.spark.topics.options import WriteOptions
from leadline.spark.topics.sink import BatchNote, TaskStaged, check_columns, stage, write_once
from leadline.spark.topics.staging import Staging
from leadline.spark.topics.stream_interfaces import DataSourceStreamArrowWriter

QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"  # local properties of a stream's tasks


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_columns(schema, options)
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskStaged:
        context = TaskContext.get()
        assert context is not None
        query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        assert query is not None, "Spark sets the query id in the tasks of a stream"
        return stage(iterator, self.options, Staging.of(self.options.staging, f"{query}-{batch}"), query)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        lefts = [message for message in messages if isinstance(message, TaskStaged)]
        if any(left.staged.pieces for left in lefts):
            assert lefts[0].query is not None
            note = BatchNote(lefts[0].query, batchId)
            name = self.options.transactional_id or note.group
            with ClusterClient(self.options.client) as cluster:
                write_once(cluster, ClientTransaction(cluster, name, self.options.transaction_timeout_ms), lefts, note)
        self._clear(lefts)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._clear([message for message in messages if isinstance(message, TaskStaged)])

    def _clear(self, lefts: Sequence[TaskStaged]) -> None:
        for staging in {left.staging for left in lefts}:
            staging.clear()
