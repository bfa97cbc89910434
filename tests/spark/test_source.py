"""What the format `leadline` reads, planned and fetched as Spark's driver and tasks do it, without Spark."""

import itertools
import json
import pickle
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Theirs
from confluent_kafka.admin import AdminClient
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from leadline.model import TopicPartition
from leadline.spark.client.cluster import ClusterClient
from leadline.spark.client.connection import BlockingConnection, Unreachable
from leadline.spark.client.failures import NoSuchTopic
from leadline.spark.positions import BadCheckpoint, DataLoss, Positions
from leadline.spark.topics.options import read_options
from leadline.spark.topics.source import CLUSTERS, BatchReader, StreamReader, TaskPartition
from leadline.spark.topics.source_options import BadOption
from leadline.wire.classes import Message
from leadline.wire.messages import FetchResponse, MetadataResponse
from tests.support.broker import RunningBroker, leadline
from tests.support.topics import create_topic

_fresh = itertools.count()
Json = dict[str, object]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with leadline(tmp_path_factory.mktemp("source") / "data") as running:
        yield running
        CLUSTERS.close()


class Topic:
    def __init__(self, broker: RunningBroker, partitions: int = 2) -> None:
        self.broker, self.name = broker, f"orders-{next(_fresh)}"
        create_topic(broker.bootstrap, self.name, partitions)
        self.admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    def produce(self, count: int, first: int = 0, partitions: int = 2, timestamp: int = 0) -> None:
        """In turns into the partitions."""
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "linger.ms": 1})
        for n in range(first, first + count):
            producer.produce(
                self.name, value=str(n), partition=n % partitions, timestamp=timestamp + n if timestamp else 0
            )
        producer.flush()

    def transact(self, values: list[int], *, commit: bool) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "transactional.id": f"t{next(_fresh)}"})
        producer.init_transactions()
        producer.begin_transaction()
        for n in values:
            producer.produce(self.name, value=str(n), partition=n % 2)
        producer.flush()
        producer.commit_transaction() if commit else producer.abort_transaction()

    def delete_before(self, offset: int) -> None:
        for future in self.admin.delete_records([Theirs(self.name, n, offset) for n in range(2)]).values():
            future.result(120)

    def delete(self) -> None:
        self.admin.delete_topics([self.name])[self.name].result(120)

    def options(self, **given: str) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.broker.bootstrap,
            "kafka.default.api.timeout.ms": "5000",
            **({} if "assign" in given or "subscribePattern" in given else {"subscribe": self.name}),
            **{name.replace("__", "."): value for name, value in given.items()},
        }

    def batch(self, **given: str) -> list[int]:
        """The values, in the order of partitions and offsets."""
        reader = BatchReader(read_options(self.options(**given), streaming=False))
        return values(reader, reader.partitions())

    def stream(self, **given: str) -> "Stream":
        return Stream(StreamReader(read_options(self.options(**given), streaming=True)))


def values(reader, partitions) -> list[int]:  # type: ignore[no-untyped-def]
    there = pickle.loads(pickle.dumps(reader))
    found = [
        (row["topic"], row["partition"], row["offset"], int(row["value"]))
        for partition in partitions
        for batch in there.read(pickle.loads(pickle.dumps(partition)))
        for row in batch.to_pylist()
    ]
    return [value for *_, value in sorted(found)]


class Stream:
    """As Spark drives it: the offsets of a batch are kept before it is read."""

    def __init__(self, reader: StreamReader, checkpoint: Json | None = None) -> None:
        self.reader, self.at = reader, checkpoint

    def next(self, limit: ReadLimit | None = None) -> list[int]:
        start = self.reader.initialOffset() if self.at is None else self.at
        end = self.reader.latestOffset(_kept(start), limit or self.reader.getDefaultReadLimit())
        self.at = _kept(end)
        return [] if end == start else values(self.reader, self.reader.partitions(_kept(start), self.at))

    def again(self, reader: StreamReader) -> "Stream":
        return Stream(reader, self.at)


def _kept(offsets: Json) -> Json:
    found: Json = json.loads(json.dumps(offsets))
    return found


@pytest.fixture
def topic(broker: RunningBroker) -> Topic:
    return Topic(broker)


def in_order(numbers: range) -> list[int]:
    return [*(n for n in numbers if n % 2 == 0), *(n for n in numbers if n % 2 == 1)]


# A batch


def test_a_batch_reads_all_there_is(topic: Topic) -> None:
    topic.produce(100)
    assert topic.batch() == in_order(range(100))


@pytest.mark.parametrize(
    ("given", "found"),
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
def test_where_a_batch_begins_and_ends(topic: Topic, given: dict[str, str], found: list[int]) -> None:
    topic.produce(40, timestamp=1000)
    assert topic.batch(**{name: value.replace("T", topic.name) for name, value in given.items()}) == found


def test_a_batch_begins_some_time_ago(topic: Topic) -> None:
    now_ms = time.time_ns() // 1_000_000
    topic.produce(10, timestamp=now_ms - 3_600_000)
    topic.produce(10, first=10, timestamp=now_ms - 60_000)
    assert topic.batch(startingOffsets="10 minutes ago") == in_order(range(10, 20))


def test_a_batch_begins_where_a_group_stands(topic: Topic) -> None:
    topic.produce(20)
    with ClusterClient({"bootstrap.servers": topic.broker.bootstrap}) as cluster:
        cluster.commit("readers", {TopicPartition(topic.name, 0): 4})
    assert topic.batch(startingOffsets="committed", kafka__group__id="readers") == [*range(8, 20, 2), *range(1, 20, 2)]


def test_ranges_are_split_and_packed(topic: Topic) -> None:
    topic.produce(40)

    def tasks(**given: str) -> list[list[int]]:
        reader = BatchReader(read_options(topic.options(**given), streaming=False))
        return [
            [one.length for one in partition.task]
            for partition in reader.partitions()
            if isinstance(partition, TaskPartition)
        ]

    assert tasks() == [[20, 20]]
    assert tasks(minPartitions="4") == [[10], [10], [10], [10]]
    assert tasks(maxRecordsPerPartition="15") == [[10], [10], [10], [10]]


def test_aborted_records_are_left_out_where_that_is_asked(topic: Topic) -> None:
    topic.produce(4)
    topic.transact([100, 101], commit=False)
    topic.transact([200, 201], commit=True)
    committed = [0, 2, 200, 1, 3, 201]
    assert topic.batch(kafka__isolation__level="read_committed") == committed
    assert topic.batch() == [0, 2, 100, 200, 1, 3, 101, 201]


# What cannot be done


@pytest.mark.parametrize(
    ("given", "error", "said"),
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
def test_bad_input_is_one_clear_error(topic: Topic, given: dict[str, str], error: type[Exception], said: str) -> None:
    topic.produce(40)
    topic.delete_before(5)
    more = {name: value.replace("T", topic.name) for name, value in given.items()}
    with pytest.raises(error) as found:
        topic.batch(**{"kafka.default.api.timeout.ms": "1000", **more})
    assert said.replace("T-", f"{topic.name}-") in str(found.value)
    assert "\n" not in str(found.value)


# A stream


def test_a_stream_reads_what_comes_once(topic: Topic) -> None:
    topic.produce(10)
    stream = topic.stream(startingOffsets="earliest")
    assert stream.next() == in_order(range(10))
    assert stream.next() == []
    topic.produce(10, first=10)
    assert stream.again(topic.stream().reader).next() == in_order(range(10, 20))


def test_a_stream_begins_with_what_comes(topic: Topic) -> None:
    topic.produce(10)
    stream = topic.stream()
    assert stream.next() == []
    topic.produce(4, first=10)
    assert stream.next() == [10, 12, 11, 13]


def test_limits_of_rows_and_bytes(topic: Topic) -> None:
    topic.produce(1000)
    rows = topic.stream(startingOffsets="earliest", maxOffsetsPerTrigger="100")
    assert [len(rows.next()) for _ in range(3)] == [100, 100, 100]
    assert len(rows.next(ReadAllAvailable())) == 700
    of_bytes = topic.stream(startingOffsets="earliest", maxBytesPerTrigger="2000")
    sizes = [len(of_bytes.next()) for _ in range(3)]
    assert all(50 < size < 500 for size in sizes)


def test_it_waits_for_enough_but_not_forever(topic: Topic) -> None:
    topic.produce(10)
    stream = topic.stream(startingOffsets="earliest", minOffsetsPerTrigger="20", maxTriggerDelay="1h")
    assert stream.next() == []
    topic.produce(10, first=10)
    assert stream.next() == in_order(range(20))
    hasty = topic.stream(startingOffsets="earliest", minOffsetsPerTrigger="500", maxTriggerDelay="0s")
    assert hasty.next() == in_order(range(20))


def test_a_run_that_ends_with_what_is_there_ends(topic: Topic) -> None:
    topic.produce(10)
    stream = topic.stream(startingOffsets="earliest", maxOffsetsPerTrigger="6")
    stream.reader.prepareForTriggerAvailableNow()
    topic.produce(10, first=10)
    assert len(stream.next()) == 6
    assert len(stream.next()) == 4
    assert stream.next() == []


def test_progress_is_committed_to_a_group_of_the_streams_own(topic: Topic) -> None:
    topic.produce(10)
    stream = topic.stream(startingOffsets="earliest", groupIdPrefix="mine")
    stream.next()
    stream.next()  # by now the first batch is done
    assert stream.at is not None
    group = Positions.from_json(stream.at).group
    assert group.startswith("mine-")
    with ClusterClient({"bootstrap.servers": topic.broker.bootstrap}) as cluster:
        assert {tp.partition: note.offset for tp, note in cluster.committed(group).items()} == {0: 5, 1: 5}


def test_progress_is_committed_where_the_options_say(topic: Topic) -> None:
    topic.produce(10)
    stream = topic.stream(startingOffsets="earliest", kafka__group__id="ours")
    stream.next()
    assert stream.at is not None
    stream.reader.commit(stream.at)
    silent = topic.stream(startingOffsets="earliest", kafka__group__id="theirs", commitProgress="false")
    silent.next()
    silent.reader.commit(stream.at)
    with ClusterClient({"bootstrap.servers": topic.broker.bootstrap}) as cluster:
        assert cluster.committed("ours")[TopicPartition(topic.name, 1)].offset == 5
        assert cluster.committed("theirs") == {}


def test_lag_is_reported(topic: Topic) -> None:
    topic.produce(10)
    stream = topic.stream(startingOffsets="earliest", maxOffsetsPerTrigger="4")
    stream.next()
    latest = stream.reader.reportLatestOffset()
    assert latest is not None
    assert latest[topic.name] == {"0": 5, "1": 5}


def test_new_partitions_are_read_from_their_begin(topic: Topic) -> None:
    from confluent_kafka.cimpl import NewPartitions

    topic.produce(10)
    stream = topic.stream(startingOffsets="latest")
    assert stream.next() == []
    topic.admin.create_partitions([NewPartitions(topic.name, 3)])[topic.name].result(120)
    topic.produce(3, first=0, partitions=3)
    assert stream.next() == [0, 1, 2]


# What is lost


@pytest.mark.parametrize("tolerant", [False, True])
def test_records_that_retention_took_are_told_in_numbers(topic: Topic, tolerant: bool) -> None:
    topic.produce(20)
    stream = topic.stream(startingOffsets="earliest", maxOffsetsPerTrigger="8")
    assert len(stream.next()) == 8
    topic.delete_before(7)
    again = stream.again(topic.stream(failOnDataLoss=str(not tolerant)).reader)
    if tolerant:
        assert again.next() == in_order(range(14, 20))
        return
    with pytest.raises(DataLoss, match=rf"{topic.name}-0: offsets 4 to 6 are gone: the log starts at 7 \(retention"):
        again.next()


@pytest.mark.parametrize("tolerant", [False, True])
def test_records_that_go_while_they_are_read_are_told(topic: Topic, tolerant: bool) -> None:
    topic.produce(20)
    reader = topic.stream(failOnDataLoss=str(not tolerant), startingOffsets="earliest").reader
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    planned = reader.partitions(start, end)
    topic.delete_before(6)
    if tolerant:
        assert values(reader, planned) == in_order(range(12, 20))
        return
    with pytest.raises(DataLoss, match="offsets 0 to 5 are gone: the log now starts at 6"):
        values(reader, planned)


@pytest.mark.parametrize("tolerant", [False, True])
def test_another_topic_of_the_same_name_is_not_taken_for_the_first(topic: Topic, tolerant: bool) -> None:
    topic.produce(20)
    stream = topic.stream(startingOffsets="earliest")
    stream.next()
    topic.delete()
    create_topic(topic.broker.bootstrap, topic.name, 2)
    topic.produce(30, first=100)
    again = stream.again(topic.stream(failOnDataLoss=str(not tolerant)).reader)
    if tolerant:
        assert again.next() == in_order(range(100, 130))
        return
    with pytest.raises(DataLoss, match=f"{topic.name}-0: all from offset 10 on are gone: the topic was deleted, and"):
        again.next()


def test_a_topic_that_is_gone_is_told(topic: Topic) -> None:
    topic.produce(20)
    stream = topic.stream(startingOffsets="earliest")
    stream.next()
    topic.delete()
    with pytest.raises(DataLoss, match="no longer exists"):
        stream.again(topic.stream().reader).next()


def test_a_checkpoint_of_another_topic_is_refused(topic: Topic) -> None:
    topic.produce(2)
    stream = topic.stream(startingOffsets="earliest")
    stream.next()
    other = Topic(topic.broker)
    with pytest.raises(BadCheckpoint, match=f"is of {topic.name}, and the query reads {other.name}"):
        stream.again(other.stream().reader).next()


def test_a_broker_that_is_away_for_a_while_is_waited_for(tmp_path_factory: pytest.TempPathFactory) -> None:
    with leadline(tmp_path_factory.mktemp("away") / "data") as broker:
        topic = Topic(broker)
        topic.produce(1000)
        reader = BatchReader(read_options(topic.options(**{"kafka.default.api.timeout.ms": "30000"}), streaming=False))
        planned = reader.partitions()
        broker.kill()
        broker.start()
        assert values(reader, planned) == in_order(range(1000))


@pytest.mark.parametrize("code", [5, 6, 74, 78])
def test_a_leader_that_moved_is_looked_for(topic: Topic, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    topic.produce(100)
    answer, asked = BlockingConnection.answer, list[type[Message]]()

    def answering(connection: BlockingConnection, version: int, kind: type[Message]) -> Message:
        found = answer(connection, version, kind)
        asked.append(kind)
        if isinstance(found, FetchResponse) and asked.count(FetchResponse) == 1:
            found.responses[0].partitions[0].error_code = code
        return found

    monkeypatch.setattr(BlockingConnection, "answer", answering)
    assert topic.batch() == in_order(range(100))
    assert MetadataResponse in asked[asked.index(FetchResponse) :]
