"""Batch reads of the format `leadline`, planned and fetched as Spark's driver and tasks do, without Spark."""

import time
from collections.abc import Iterator

import pytest

from leadline.model import TopicPartition
from leadline.spark.client.cluster import ClusterClient
from leadline.spark.client.connection import BlockingConnection, Unreachable
from leadline.spark.client.failures import NoSuchTopic
from leadline.spark.positions import DataLoss
from leadline.spark.topics.options import read_options
from leadline.spark.topics.read_tasks import CLUSTERS, TaskPartition
from leadline.spark.topics.source import BatchReader
from leadline.spark.topics.source_options import BadOption
from leadline.wire.classes import Message
from leadline.wire.messages import FetchResponse, MetadataResponse
from tests.support.broker import RunningBroker, leadline
from tests.support.source_topic import SourceTopic, in_order, values


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with leadline(tmp_path_factory.mktemp("source") / "data") as running:
        yield running
        CLUSTERS.close()


@pytest.fixture
def topic(broker: RunningBroker) -> SourceTopic:
    return SourceTopic(broker)


def test_a_batch_reads_all_there_is(topic: SourceTopic) -> None:
    topic.produce(100)
    assert topic.batch() == in_order(range(100))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": '{"T": {"0": 10, "1": -2}}'}, [*range(20, 40, 2), *range(1, 40, 2)]),
        ({"endingOffsets": '{"T": {"0": 3, "1": -1}}'}, [0, 2, 4, *range(1, 40, 2)]),
        ({"startingOffsets": "last 3"}, [34, 36, 38, 35, 37, 39]),
        ({"startingOffsets": "last 300"}, in_order(range(40))),
        ({"startingTimestamp": "1030"}, in_order(range(30, 40))),
        ({"startingOffsetsByTimestamp": '{"T": {"0": 1030, "1": 1000}}'}, [*range(30, 40, 2), *range(1, 40, 2)]),
        ({"endingTimestamp": "1010"}, in_order(range(10))),
        ({"endingOffsetsByTimestamp": '{"T": {"0": 1004, "1": 5000}}'}, [0, 2, *range(1, 40, 2)]),
        ({"startingTimestamp": "5000", "startingOffsetsByTimestampStrategy": "latest"}, []),
        ({"assign": '{"T": [1]}'}, list(range(1, 40, 2))),
        ({"subscribePattern": "T"}, in_order(range(40))),
        ({"minPartitions": "7"}, in_order(range(40))),
        ({"kafka.max.partition.fetch.bytes": "1"}, in_order(range(40))),
    ],
)
def test_options_set_where_a_batch_starts_and_ends(
    topic: SourceTopic, options: dict[str, str], expected: list[int]
) -> None:
    topic.produce(40, timestamp=1000)
    assert topic.batch(**{name: value.replace("T", topic.name) for name, value in options.items()}) == expected


def test_a_batch_starts_some_time_ago(topic: SourceTopic) -> None:
    now_ms = time.time_ns() // 1_000_000
    topic.produce(10, timestamp=now_ms - 3_600_000)
    topic.produce(10, first=10, timestamp=now_ms - 60_000)
    assert topic.batch(startingOffsets="10 minutes ago") == in_order(range(10, 20))


def test_a_batch_starts_at_the_committed_offsets_of_a_group(topic: SourceTopic) -> None:
    topic.produce(20)
    with ClusterClient({"bootstrap.servers": topic.broker.bootstrap}) as cluster:
        cluster.commit("readers", {TopicPartition(topic.name, 0): 4})
    assert topic.batch(startingOffsets="committed", kafka__group__id="readers") == [*range(8, 20, 2), *range(1, 20, 2)]


def test_ranges_are_split_and_packed(topic: SourceTopic) -> None:
    topic.produce(40)

    def tasks(**options: str) -> list[list[int]]:
        reader = BatchReader(read_options(topic.options(**options), streaming=False))
        return [
            [one.length for one in partition.task]
            for partition in reader.partitions()
            if isinstance(partition, TaskPartition)
        ]

    assert tasks() == [[20, 20]]
    assert tasks(minPartitions="4") == [[10], [10], [10], [10]]
    assert tasks(maxRecordsPerPartition="15") == [[10], [10], [10], [10]]


def test_aborted_records_are_omitted_on_request(topic: SourceTopic) -> None:
    topic.produce(4)
    topic.transact([100, 101], commit=False)
    topic.transact([200, 201], commit=True)
    committed = [0, 2, 200, 1, 3, 201]
    assert topic.batch(kafka__isolation__level="read_committed") == committed
    assert topic.batch() == [0, 2, 100, 200, 1, 3, 101, 201]


# What cannot be done


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"subscribe": "nowhere"}, NoSuchTopic, "there is no topic nowhere"),
        ({"subscribePattern": "no.*where"}, NoSuchTopic, "subscribePattern=no.*where: no topic at"),
        ({"assign": '{"T": [0, 7]}'}, NoSuchTopic, "has 2 partitions; there is no T-7"),
        ({"startingOffsets": '{"T": {"0": 5}}'}, BadOption, "missing: T-1"),
        ({"startingOffsets": '{"T": {"0": 5, "1": 5, "2": 5}}'}, BadOption, "not read: T-2"),
        ({"startingOffsets": '{"T": {"0": 21, "1": 0}}'}, BadOption, "T-0 ends at 20; it cannot be read from 21 on"),
        ({"startingOffsets": '{"T": {"0": 3, "1": 9}}'}, DataLoss, "T-0: offsets 3 to 4 are gone: the log starts at 5"),
        ({"endingOffsets": '{"T": {"0": 21, "1": -1}}'}, BadOption, "T-0 ends at 20; it cannot be read up to 21"),
        ({"startingTimestamp": "9999999999999"}, BadOption, "T-0 has no record at or after 9999999999999"),
        ({"kafka.bootstrap.servers": "localhost:1"}, Unreachable, "cannot reach localhost:1"),
    ],
)
def test_bad_input_is_one_clear_error(
    topic: SourceTopic, options: dict[str, str], error: type[Exception], message: str
) -> None:
    topic.produce(40)
    topic.delete_before(5)
    more = {name: value.replace("T", topic.name) for name, value in options.items()}
    with pytest.raises(error) as raised:
        topic.batch(**{"kafka.default.api.timeout.ms": "1000", **more})
    assert message.replace("T-", f"{topic.name}-") in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_read_waits_for_a_broker_that_restarts(tmp_path_factory: pytest.TempPathFactory) -> None:
    with leadline(tmp_path_factory.mktemp("away") / "data") as broker:
        topic = SourceTopic(broker)
        topic.produce(1000)
        reader = BatchReader(read_options(topic.options(**{"kafka.default.api.timeout.ms": "30000"}), streaming=False))
        planned = reader.partitions()
        broker.kill()
        broker.start()
        assert values(reader, planned) == in_order(range(1000))


@pytest.mark.parametrize("code", [5, 6, 74, 78])
def test_a_fetch_follows_the_leader(topic: SourceTopic, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    topic.produce(100)
    answer, kinds = BlockingConnection.answer, list[type[Message]]()

    def answering(connection: BlockingConnection, version: int, kind: type[Message]) -> Message:
        response = answer(connection, version, kind)
        kinds.append(kind)
        if isinstance(response, FetchResponse) and kinds.count(FetchResponse) == 1:
            response.responses[0].partitions[0].error_code = code
        return response

    monkeypatch.setattr(BlockingConnection, "answer", answering)
    assert topic.batch() == in_order(range(100))
    assert MetadataResponse in kinds[kinds.index(FetchResponse) :]
