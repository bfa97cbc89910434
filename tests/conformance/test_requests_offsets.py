"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords, answered as Kafka does."""

import pytest

from leadline.records.build import BatchFields, build
from leadline.records.compression import Codec
from leadline.records.record import Record
from leadline.wire.messages import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from tests.conformance.both import Both
from tests.support.logs import START_MS, batch

pytestmark = pytest.mark.conformance

PARTITION = ListOffsetsRequest.ListOffsetsPartition
SPECIAL = [-1, -2, -3, -4, -5, -6, -100]
TIMES = [0, START_MS - 1, START_MS, START_MS + 1, START_MS + 5, START_MS + 7, START_MS + 10, START_MS + 11, 1 << 62]


def list_and_compare(
    both: Both, version: int, topic: str, *timestamps: int, partition: int = 0, isolation: int = 0, epoch: int = -1,
    replica: int = -1,
) -> list[int]:  # fmt: skip
    """One request for each: Kafka answers a partition that stands twice in one with an error."""
    offsets = []
    for timestamp in timestamps:
        part = PARTITION(partition_index=partition, timestamp=timestamp)
        if version >= 4:
            part.current_leader_epoch = epoch
        if version == 0:
            part.max_num_offsets = 5
        request = ListOffsetsRequest(
            replica_id=replica, topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[part])]
        )
        if version >= 2:
            request.isolation_level = isolation
        offsets.append(both.ask_and_compare(ListOffsetsResponse, request, version).topics[0].partitions[0].offset)
    return offsets


@pytest.fixture(scope="module")
def topic(both: Both) -> str:
    """Eleven records in several batches, with times from START_MS on that do not only go up."""
    name = both.create("timed", 2, index_interval_bytes=1)
    for times in ([0], [1, 5, 3], [2], [10, 4], [4, 4], [10]):
        records = [Record(n, START_MS + time, b"k", b"v") for n, time in enumerate(times)]
        both.produce(name, bytes(build(records, BatchFields(codec=Codec.GZIP if len(times) > 2 else Codec.NONE))))
    return name


@pytest.mark.parametrize("version", range(1, 9))
@pytest.mark.parametrize("isolation", [0, 1])
def test_by_time_and_by_special_times(both: Both, topic: str, version: int, isolation: int) -> None:
    list_and_compare(both, version, topic, *SPECIAL, *TIMES, isolation=isolation)
    list_and_compare(both, version, topic, *SPECIAL, START_MS, partition=1, isolation=isolation)


@pytest.mark.parametrize("version", ListOffsetsRequest.VERSIONS)
def test_of_partitions_that_do_not_exist(both: Both, topic: str, version: int) -> None:
    for partition in (2, -1, 1 << 30):
        list_and_compare(both, version, topic, -1, -2, START_MS, partition=partition)
    list_and_compare(both, version, "missing", -1, START_MS)
    list_and_compare(both, version, "a b", -1)


@pytest.mark.parametrize("version", range(4, 9))
@pytest.mark.parametrize("epoch", [-1, 0, 1, 1000, -2, -(1 << 31)])
def test_with_an_epoch_that_the_client_believes_in(both: Both, topic: str, version: int, epoch: int) -> None:
    list_and_compare(both, version, topic, -1, -2, -3, START_MS, epoch=epoch)


@pytest.mark.parametrize("version", ListOffsetsRequest.VERSIONS)
def test_several_partitions_and_one_that_stands_twice(both: Both, topic: str, version: int) -> None:
    parts = [PARTITION(partition_index=n, timestamp=-1) for n in (0, 1, 0, 2)]
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=parts),
            ListOffsetsRequest.ListOffsetsTopic(name="missing", partitions=parts[:1]),
        ],
    )
    both.ask_and_compare(ListOffsetsResponse, request, version)
    both.ask_and_compare(ListOffsetsResponse, ListOffsetsRequest(replica_id=-1), version)


@pytest.mark.parametrize("version", ListOffsetsRequest.VERSIONS)
def test_a_debugging_client_is_answered_as_kafka_does(both: Both, topic: str, version: int) -> None:
    """A request with replica id -2 wants no leader and no limit."""
    list_and_compare(both, version, topic, -1, -2, partition=0, replica=-2)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 100])
def test_version_0_lists_the_base_offsets_of_segments(both: Both, count: int) -> None:
    name = "many-segments"
    if count == 0:
        both.create(name, segment_bytes=200)
        both.produce(name, *(bytes(batch(size=50, timestamp=START_MS + n)) for n in range(8)))
    for timestamp in (-1, -2, START_MS, 1 << 60):
        part = PARTITION(partition_index=0, timestamp=timestamp, max_num_offsets=count)
        topics = [ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=[part])]
        both.ask_and_compare(ListOffsetsResponse, ListOffsetsRequest(replica_id=-1, topics=topics), 0)


def epochs(both: Both, version: int, topic: str, *requested: int, partition: int = 0, current: int = -1) -> None:
    for epoch in requested:
        part = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=partition, leader_epoch=epoch)
        if version >= 2:
            part.current_leader_epoch = current
        request = OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=topic, partitions=[part])]
        )
        if version >= 3:
            request.replica_id = -1
        both.ask_and_compare(OffsetForLeaderEpochResponse, request, version)


@pytest.mark.parametrize("version", OffsetForLeaderEpochRequest.VERSIONS)
def test_the_ends_of_epochs_are_answered_as_kafka_does(both: Both, topic: str, version: int) -> None:
    epochs(both, version, topic, -1, 0, 1, 1000, -2)
    epochs(both, version, topic, 0, partition=1)
    epochs(both, version, topic, 0, partition=2)
    epochs(both, version, topic, 0, partition=-1)
    epochs(both, version, "missing", 0)
    epochs(both, version, "a b", 0)
    for current in (0, 1, -2, 5):
        epochs(both, version, topic, 0, current=current)


def delete(both: Both, version: int, topic: str, **offsets: int) -> DeleteRecordsResponse:
    partitions = [
        DeleteRecordsRequest.DeleteRecordsPartition(partition_index=int(name[1:]), offset=offset)
        for name, offset in offsets.items()
    ]
    deleted = DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=partitions)
    return both.ask_and_compare(
        DeleteRecordsResponse, DeleteRecordsRequest(topics=[deleted], timeout_ms=60_000), version
    )


@pytest.mark.parametrize("version", DeleteRecordsRequest.VERSIONS)
def test_records_are_deleted_up_to_an_offset(both: Both, version: int) -> None:
    topic = both.create(f"cut-{version}", 2)
    both.produce(topic, *(bytes(batch(3, timestamp=START_MS + n)) for n in range(4)))
    for offset in (0, 4, 2, 4, 13, -2, -(1 << 63), 1 << 62, 6):
        delete(both, version, topic, p0=offset, p1=offset, p2=offset)
        list_and_compare(both, 7, topic, *SPECIAL, *TIMES)
        list_and_compare(both, 7, topic, *SPECIAL, partition=1)
        epochs(both, 4, topic, 0)
    delete(both, version, topic, p0=-1)
    list_and_compare(both, 7, topic, *SPECIAL, *TIMES)
    delete(both, version, topic)
    delete(both, version, "missing", p0=0, p1=-1)
    delete(both, version, "a b", p0=0)
    both.ask_and_compare(DeleteRecordsResponse, DeleteRecordsRequest(), version)


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_records_of_a_compacted_topic_are_not_deleted(both: Both, policy: str) -> None:
    topic = both.create(f"cut-{policy.replace(',', '-')}", cleanup_policy=policy)
    both.produce(topic, bytes(batch(3)))
    for version in DeleteRecordsRequest.VERSIONS:
        delete(both, version, topic, p0=1)
        delete(both, version, topic, p0=5)
