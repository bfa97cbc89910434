"""OffsetCommit, OffsetFetch, OffsetDelete and TxnOffsetCommit: the committed offsets of groups."""

import pytest

from leadline.wire.messages import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from tests.support.in_memory_broker import InMemoryClient, run
from tests.support.waiting import eventually

RETRIABLE = {14, 15, 16}  # the coordinator is loading
UNKNOWN_TOPIC, METADATA_TOO_LARGE, NOT_COORDINATOR, GROUP_NOT_FOUND, UNKNOWN_SERVER_ERROR = 3, 12, 16, 69, -1


async def coordinate(client: InMemoryClient) -> None:
    """Creates a topic and waits until the broker coordinates the group."""
    await client.create("orders")
    await client.send(FindCoordinatorRequest(coordinator_keys=["readers"]), FindCoordinatorResponse, 4)

    async def is_coordinator() -> bool:
        return (await fetch(client, 5)).error_code not in RETRIABLE

    await eventually(is_coordinator)


async def commit(
    client: InMemoryClient, version: int = 8, *, partition: int = 0, metadata: str = "", group: str = "readers"
) -> int:
    committed = OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=5, committed_metadata=metadata
    )
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="orders", partitions=[committed])
    request = OffsetCommitRequest(group_id=group, topics=[topic])
    response = await client.send(request, OffsetCommitResponse, version)
    return response.topics[0].partitions[0].error_code


async def fetch(client: InMemoryClient, version: int, partitions: tuple[int, ...] = (0,)) -> OffsetFetchResponse:
    topic = OffsetFetchRequest.OffsetFetchRequestTopic(name="orders", partition_indexes=list(partitions))
    return await client.send(OffsetFetchRequest(group_id="readers", topics=[topic]), OffsetFetchResponse, version)


@pytest.mark.parametrize("version", range(1, 10))
def test_a_committed_offset_is_fetched(version: int) -> None:
    async def test(client: InMemoryClient) -> None:
        await coordinate(client)
        assert await commit(client, version, metadata="here") == 0
        (result,) = (await fetch(client, 5)).topics[0].partitions
        assert (result.error_code, result.committed_offset, result.metadata) == (0, 5, "here")

    run(test)


@pytest.mark.parametrize("version", [8, 9])
def test_many_groups_are_fetched_at_once(version: int) -> None:
    async def test(client: InMemoryClient) -> None:
        await coordinate(client)
        assert await commit(client, metadata="here") == 0
        topics = [OffsetFetchRequest.OffsetFetchRequestTopics(name="orders", partition_indexes=[0])]
        groups = [
            OffsetFetchRequest.OffsetFetchRequestGroup(group_id="readers", topics=topics),
            OffsetFetchRequest.OffsetFetchRequestGroup(group_id="readers", topics=None),
            OffsetFetchRequest.OffsetFetchRequestGroup(group_id="others", topics=topics),
        ]
        response = await client.send(OffsetFetchRequest(groups=groups), OffsetFetchResponse, version)
        fetched = [
            (group.group_id, group.error_code, partition.committed_offset, partition.metadata)
            for group in response.groups
            for partition in group.topics[0].partitions
        ]
        assert fetched == [("readers", 0, 5, "here"), ("readers", 0, 5, "here"), ("others", 0, -1, "")]

    run(test)


@pytest.mark.parametrize("version", [0, 8])
def test_a_commit_for_a_missing_partition_or_with_long_metadata_is_rejected(version: int) -> None:
    async def test(client: InMemoryClient) -> None:
        await coordinate(client)
        assert await commit(client, version, partition=1) == UNKNOWN_TOPIC
        assert await commit(client, version, metadata="x" * 11) == METADATA_TOO_LARGE
        assert await commit(client, version, metadata="x" * 10) == 0

    run(test, offset_metadata_max_bytes="10")


def test_a_broker_that_does_not_coordinate_the_group_rejects_a_commit() -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        assert await commit(client) == NOT_COORDINATOR
        assert (await fetch(client, 5)).error_code == NOT_COORDINATOR

    run(test)


def test_version_0_keeps_offsets_in_the_tree() -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        assert (await fetch(client, 0)).topics[0].partitions[0].error_code == UNKNOWN_TOPIC
        for _ in range(2):  # creates the node, then sets it
            assert await commit(client, 0) == 0
        results = (await fetch(client, 0, (0, 1))).topics[0].partitions
        assert [(result.error_code, result.committed_offset) for result in results] == [(0, 5), (UNKNOWN_TOPIC, -1)]
        assert await commit(client, 0, group="no\0path") == UNKNOWN_SERVER_ERROR

    run(test)


def test_version_0_answers_as_often_as_a_partition_is_named() -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        part = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="orders", partitions=[part, part])
        request = OffsetCommitRequest(group_id="readers", topics=[topic])
        (answer,) = (await client.send(request, OffsetCommitResponse, 0)).topics
        assert [(part.partition_index, part.error_code) for part in answer.partitions] == [(0, 0), (0, 0)]

    run(test)


def test_offsets_are_deleted() -> None:
    async def test(client: InMemoryClient) -> None:
        await coordinate(client)
        partitions = [OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=number) for number in (0, 1)]
        topic = OffsetDeleteRequest.OffsetDeleteRequestTopic(name="orders", partitions=partitions)
        request = OffsetDeleteRequest(group_id="readers", topics=[topic])
        assert (await client.send(request, OffsetDeleteResponse, 0)).error_code == GROUP_NOT_FOUND
        await commit(client)
        response = await client.send(request, OffsetDeleteResponse, 0)
        results = {result.partition_index: result.error_code for result in response.topics[0].partitions}
        assert (response.error_code, results) == (0, {0: 0, 1: UNKNOWN_TOPIC})
        assert (await fetch(client, 5)).topics[0].partitions[0].committed_offset == -1

    run(test)


@pytest.mark.parametrize("verified", [True, False])
def test_a_transaction_commits_offsets_if_its_coordinator_knows_it(verified: bool) -> None:
    async def test(client: InMemoryClient) -> None:
        await coordinate(client)
        partitions = [
            TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=number, committed_offset=5)
            for number in (0, 1)
        ]
        topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name="orders", partitions=partitions)
        request = TxnOffsetCommitRequest(
            transactional_id="shop", group_id="readers", producer_id=7, producer_epoch=0, topics=[topic]
        )
        response = await client.send(request, TxnOffsetCommitResponse, 3)
        results = {result.partition_index: result.error_code for result in response.topics[0].partitions}
        assert results[1] == UNKNOWN_TOPIC
        assert (results[0] == 0) is not verified

    run(test, transaction_partition_verification_enable=str(verified).lower())
