"""The writer of a stream, as Spark calls it beside its tasks and transactions."""

from pathlib import Path

import pytest
from pyspark.sql.types import IntegerType, StringType, StructType

from leadline.model import TopicPartition
from leadline.spark.batches.encode import EncodedBatch
from leadline.spark.topics.options import write_options
from leadline.spark.topics.sink import TaskStaged
from leadline.spark.topics.source_options import BadOption
from leadline.spark.topics.staging import FOLDER, Staging
from leadline.spark.topics.stream_sink import StreamWriter

OPTIONS = {"kafka.bootstrap.servers": "localhost:9092", "topic": "orders"}


def test_columns_of_a_wrong_type_are_refused_before_the_query_starts() -> None:
    with pytest.raises(BadOption, match="the column value is int; it must be string or binary"):
        StreamWriter(write_options(OPTIONS), StructType().add("value", IntegerType()))


def test_what_tasks_staged_is_cleared_after_a_batch_that_fails_or_is_empty(tmp_path: Path) -> None:
    writer = StreamWriter(write_options(OPTIONS), StructType().add("value", StringType()))
    batch = EncodedBatch(TopicPartition("orders", 0), bytearray(b"x"), 1)
    failed, empty = Staging.of(str(tmp_path), "query-0"), Staging.of(str(tmp_path), "query-1")
    writer.abort([None, TaskStaged(failed, failed.write([batch]), "query")], 0)
    writer.commit([TaskStaged(empty, empty.write([]), "query"), None], 1)
    assert list((tmp_path / FOLDER).iterdir()) == []
