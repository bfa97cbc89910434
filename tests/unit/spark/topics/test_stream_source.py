"""The reader of a stream before it asks a broker: limits, and what a task gets of it."""

import pickle

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows

from leadline.spark.topics.options import read_options
from leadline.spark.topics.stream_source import StreamReader, names

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({"maxoffsetspertrigger": "10"}, ReadMaxRows(10)),
        ({"maxbytespertrigger": "10"}, ReadMaxBytes(10)),
    ],
)
def test_the_options_limit_a_batch(options: dict[str, str], limit: ReadLimit) -> None:
    reader = StreamReader(read_options({**SERVERS, "subscribe": "orders", **options}, streaming=True))
    assert reader.getDefaultReadLimit() == limit


def test_a_task_gets_the_options_alone() -> None:
    reader = StreamReader(read_options({**SERVERS, "subscribe": "orders"}, streaming=True))
    assert vars(pickle.loads(pickle.dumps(reader))) == {"options": reader.options}


@pytest.mark.parametrize(
    ("options", "topics"),
    [
        ({"subscribe": "a,b"}, {"a", "b"}),
        ({"assign": '{"a": [0, 1]}'}, {"a"}),
        ({"subscribepattern": "a.*"}, set()),
    ],
)
def test_a_checkpoint_is_compared_with_topics_that_are_named(options: dict[str, str], topics: set[str]) -> None:
    assert names(read_options({**SERVERS, **options}, streaming=True).topics) == topics
