"""Streams of the format `leadline`, driven as Spark drives them, without Spark."""

from collections.abc import Iterator

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from leadline.model import TopicPartition
from leadline.spark.client.cluster import ClusterClient
from leadline.spark.positions import BadCheckpoint, DataLoss, Positions
from leadline.spark.topics.read_tasks import CLUSTERS
from tests.support.broker import RunningBroker, leadline
from tests.support.source_topic import SourceTopic, in_order, values
from tests.support.topics import create_topic


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with leadline(tmp_path_factory.mktemp("source") / "data") as running:
        yield running
        CLUSTERS.close()


@pytest.fixture
def topic(broker: RunningBroker) -> SourceTopic:
    return SourceTopic(broker)


def test_a_stream_reads_what_comes_once(topic: SourceTopic) -> None:
    topic.produce(10)
    stream = topic.stream(startingOffsets="earliest")
    assert stream.next() == in_order(range(10))
    assert stream.next() == []
    topic.produce(10, first=10)
    assert stream.restarted(topic.stream().reader).next() == in_order(range(10, 20))


def test_a_stream_starts_with_new_records(topic: SourceTopic) -> None:
    topic.produce(10)
    stream = topic.stream()
    assert stream.next() == []
    topic.produce(4, first=10)
    assert stream.next() == [10, 12, 11, 13]


def test_limits_of_rows_and_bytes(topic: SourceTopic) -> None:
    topic.produce(1000)
    rows = topic.stream(startingOffsets="earliest", maxOffsetsPerTrigger="100")
    assert [len(rows.next()) for _ in range(3)] == [100, 100, 100]
    assert len(rows.next(ReadAllAvailable())) == 700
    of_bytes = topic.stream(startingOffsets="earliest", maxBytesPerTrigger="2000")
    sizes = [len(of_bytes.next()) for _ in range(3)]
    assert all(50 < size < 500 for size in sizes)


def test_it_waits_for_enough_but_not_forever(topic: SourceTopic) -> None:
    topic.produce(10)
    stream = topic.stream(startingOffsets="earliest", minOffsetsPerTrigger="20", maxTriggerDelay="1h")
    assert stream.next() == []
    topic.produce(10, first=10)
    assert stream.next() == in_order(range(20))
    hasty = topic.stream(startingOffsets="earliest", minOffsetsPerTrigger="500", maxTriggerDelay="0s")
    assert hasty.next() == in_order(range(20))


def test_a_run_that_ends_with_what_is_there_ends(topic: SourceTopic) -> None:
    topic.produce(10)
    stream = topic.stream(startingOffsets="earliest", maxOffsetsPerTrigger="6")
    stream.reader.prepareForTriggerAvailableNow()
    topic.produce(10, first=10)
    assert len(stream.next()) == 6
    assert len(stream.next()) == 4
    assert stream.next() == []


def test_progress_is_committed_to_a_group_of_the_streams_own(topic: SourceTopic) -> None:
    topic.produce(10)
    stream = topic.stream(startingOffsets="earliest", groupIdPrefix="mine")
    stream.next()
    stream.next()  # by now the first batch is done
    assert stream.at is not None
    group = Positions.from_json(stream.at).group
    assert group.startswith("mine-")
    with ClusterClient({"bootstrap.servers": topic.broker.bootstrap}) as cluster:
        committed = cluster.committed(group, cluster.existing_topics([topic.name])[topic.name].partitions)
        assert {tp.partition: note.offset for tp, note in committed.items()} == {0: 5, 1: 5}


def test_progress_is_committed_where_the_options_say(topic: SourceTopic) -> None:
    topic.produce(10)
    stream = topic.stream(startingOffsets="earliest", kafka__group__id="ours")
    stream.next()
    assert stream.at is not None
    stream.reader.commit(stream.at)
    silent = topic.stream(startingOffsets="earliest", kafka__group__id="theirs", commitProgress="false")
    silent.next()
    silent.reader.commit(stream.at)
    with ClusterClient({"bootstrap.servers": topic.broker.bootstrap}) as cluster:
        partitions = cluster.existing_topics([topic.name])[topic.name].partitions
        assert cluster.committed("ours", partitions)[TopicPartition(topic.name, 1)].offset == 5
        assert cluster.committed("theirs", partitions) == {}


def test_lag_is_reported(topic: SourceTopic) -> None:
    topic.produce(10)
    stream = topic.stream(startingOffsets="earliest", maxOffsetsPerTrigger="4")
    stream.next()
    latest = stream.reader.reportLatestOffset()
    assert latest is not None
    assert latest[topic.name] == {"0": 5, "1": 5}


def test_new_partitions_are_read_from_their_earliest_offset(topic: SourceTopic) -> None:
    from confluent_kafka.cimpl import NewPartitions

    topic.produce(10)
    stream = topic.stream(startingOffsets="latest")
    assert stream.next() == []
    topic.admin.create_partitions([NewPartitions(topic.name, 3)])[topic.name].result(120)
    topic.produce(3, first=0, partitions=3)
    assert stream.next() == [0, 1, 2]


def test_it_need_not_be_told_where_a_batch_begins(topic: SourceTopic) -> None:
    """As Spark 4.0 and 4.1 drive a stream. With the trigger availableNow they ask for the end first."""
    topic.produce(10)
    reader = topic.stream(startingOffsets="earliest").reader
    end = reader.latestOffset()
    start = reader.initialOffset()
    assert values(reader, reader.partitions(start, end)) == in_order(range(10))
    positions = Positions.from_json(end)
    assert positions.group == Positions.from_json(start).group
    assert reader.latestOffset() == end
    partitions = sorted(positions.offsets)
    with ClusterClient({"bootstrap.servers": topic.broker.bootstrap}) as cluster:
        assert [cluster.committed(positions.group, partitions)[tp].offset for tp in partitions] == [5, 5]
    topic.produce(4, first=10)
    resumed = topic.stream(startingOffsets="earliest").reader
    assert resumed.partitions(end, end) == []
    assert values(resumed, resumed.partitions(end, resumed.latestOffset())) == [10, 12, 11, 13]


def test_the_end_of_a_batch_that_has_yet_to_run_again_is_no_progress(topic: SourceTopic) -> None:
    """A stream that resumes in the middle of a batch begins with its end, before Spark 4.2."""
    topic.produce(10)
    end = topic.stream(startingOffsets="earliest").reader.latestOffset()
    resumed = topic.stream(startingOffsets="earliest").reader
    resumed.partitions(end, end)
    assert resumed.latestOffset() == end
    positions = Positions.from_json(end)
    with ClusterClient({"bootstrap.servers": topic.broker.bootstrap}) as cluster:
        assert cluster.committed(positions.group, list(positions.offsets)) == {}


# What is lost


@pytest.mark.parametrize("tolerant", [False, True])
def test_records_that_retention_deleted_are_reported_with_their_offsets(topic: SourceTopic, tolerant: bool) -> None:
    topic.produce(20)
    stream = topic.stream(startingOffsets="earliest", maxOffsetsPerTrigger="8")
    assert len(stream.next()) == 8
    topic.delete_before(7)
    again = stream.restarted(topic.stream(failOnDataLoss=str(not tolerant)).reader)
    if tolerant:
        assert again.next() == in_order(range(14, 20))
        return
    with pytest.raises(DataLoss, match=rf"{topic.name}-0: offsets 4 to 6 are gone: the log starts at 7 \(retention"):
        again.next()


@pytest.mark.parametrize("tolerant", [False, True])
def test_records_that_are_deleted_during_a_read_are_reported(topic: SourceTopic, tolerant: bool) -> None:
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
def test_another_topic_of_the_same_name_is_not_taken_for_the_first(topic: SourceTopic, tolerant: bool) -> None:
    topic.produce(20)
    stream = topic.stream(startingOffsets="earliest")
    stream.next()
    topic.delete()
    create_topic(topic.broker.bootstrap, topic.name, 2)
    topic.produce(30, first=100)
    again = stream.restarted(topic.stream(failOnDataLoss=str(not tolerant)).reader)
    if tolerant:
        assert again.next() == in_order(range(100, 130))
        return
    with pytest.raises(DataLoss, match=f"{topic.name}-0: all from offset 10 on are gone: the topic was deleted, and"):
        again.next()


def test_a_deleted_topic_is_reported(topic: SourceTopic) -> None:
    topic.produce(20)
    stream = topic.stream(startingOffsets="earliest")
    stream.next()
    topic.delete()
    with pytest.raises(DataLoss, match="no longer exists"):
        stream.restarted(topic.stream().reader).next()


def test_a_checkpoint_of_another_topic_is_refused(topic: SourceTopic) -> None:
    topic.produce(2)
    stream = topic.stream(startingOffsets="earliest")
    stream.next()
    other = SourceTopic(topic.broker)
    with pytest.raises(BadCheckpoint, match=f"is of {topic.name}, and the query reads {other.name}"):
        stream.restarted(other.stream().reader).next()
