"""ListOffsets and OffsetForLeaderEpoch: the offsets of a time, of an end, or of an epoch."""

import pytest

from leadline.model import TopicPartition
from leadline.wire.messages import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from tests.support.in_memory_broker import InMemoryClient, run
from tests.support.logs import START_MS, batch

TP = TopicPartition("orders", 0)
EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3
READ_COMMITTED = 1
UNKNOWN_TOPIC, INVALID_REQUEST, UNKNOWN_EPOCH = 3, 42, 75


def partition(timestamp: int, number: int = 0, epoch: int = -1) -> ListOffsetsRequest.ListOffsetsPartition:
    return ListOffsetsRequest.ListOffsetsPartition(
        partition_index=number, timestamp=timestamp, current_leader_epoch=epoch
    )


async def list_offsets(
    client: InMemoryClient, *partitions: ListOffsetsRequest.ListOffsetsPartition, version: int = 8, isolation: int = 0
) -> list[ListOffsetsResponse.ListOffsetsPartitionResponse]:
    if version == 0:
        for requested in partitions:
            requested.max_num_offsets = 10
    topic = ListOffsetsRequest.ListOffsetsTopic(name="orders", partitions=list(partitions))
    request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=[topic])
    return (await client.send(request, ListOffsetsResponse, version)).topics[0].partitions


async def fill(client: InMemoryClient) -> None:
    """Offsets 0 and 1 at the start, offset 2 ten seconds later."""
    await client.create("orders")
    await client.produce(TP, batch(2, timestamp=START_MS))
    await client.produce(TP, batch(1, timestamp=START_MS + 10_000))


@pytest.mark.parametrize(
    ("timestamp", "offset"),
    [(EARLIEST, 0), (LATEST, 3), (MAX_TIMESTAMP, 2), (START_MS, 0), (START_MS + 5_000, 2), (START_MS + 60_000, -1)],
)
def test_a_time_or_an_end_has_an_offset(timestamp: int, offset: int) -> None:
    async def test(client: InMemoryClient) -> None:
        await fill(client)
        (result,) = await list_offsets(client, partition(timestamp))
        assert (result.error_code, result.offset) == (0, offset)

    run(test)


@pytest.mark.parametrize("version", range(9))
def test_every_version_finds_the_end(version: int) -> None:
    async def test(client: InMemoryClient) -> None:
        await fill(client)
        (result,) = await list_offsets(client, partition(LATEST), version=version)
        assert result.error_code == 0
        assert (result.old_style_offsets == [3, 0]) if version == 0 else (result.offset == 3)
        assert result.leader_epoch == (0 if version >= 4 else -1)

    run(test)


@pytest.mark.parametrize(("isolation", "offset"), [(0, 1), (READ_COMMITTED, 0)])
def test_an_open_transaction_hides_records_from_read_committed_clients(isolation: int, offset: int) -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        response = await client.produce(TP, batch(1, producer_id=7, transactional=True), transactional_id="shop")
        assert response.error_code == 0
        (result,) = await list_offsets(client, partition(LATEST), isolation=isolation)
        assert (result.error_code, result.offset) == (0, offset)

    run(test, transaction_partition_verification_enable="false")


@pytest.mark.parametrize(
    ("number", "epoch", "code"), [(1, -1, UNKNOWN_TOPIC), (0, 5, UNKNOWN_EPOCH), (0, 0, 0), (0, -1, 0)]
)
def test_a_partition_or_epoch_that_does_not_exist_is_an_error(number: int, epoch: int, code: int) -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        (result,) = await list_offsets(client, partition(LATEST, number, epoch))
        assert result.error_code == code

    run(test)


def test_a_partition_that_is_named_twice_is_rejected() -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        results = await list_offsets(client, partition(LATEST), partition(EARLIEST))
        assert [(result.error_code, result.offset) for result in results] == [(INVALID_REQUEST, -1)] * 2

    run(test)


@pytest.mark.parametrize(
    ("number", "epoch", "code", "end"), [(0, 0, 0, (0, 3)), (0, 1, 0, (-1, -1)), (1, 0, UNKNOWN_TOPIC, (-1, -1))]
)
def test_an_epoch_has_an_end(number: int, epoch: int, code: int, end: tuple[int, int]) -> None:
    async def test(client: InMemoryClient) -> None:
        await fill(client)
        requested = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=number, leader_epoch=epoch)
        topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic="orders", partitions=[requested])
        response = await client.send(OffsetForLeaderEpochRequest(topics=[topic]), OffsetForLeaderEpochResponse, 4)
        (result,) = response.topics[0].partitions
        assert (result.error_code, (result.leader_epoch, result.end_offset)) == (code, end)

    run(test)
