"""AlterPartitionReassignments and ListPartitionReassignments: partitions move to other brokers."""

import pytest

from leadline.wire.messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from tests.support.in_memory_broker import InMemoryClient, run

UNKNOWN_TOPIC, INVALID_ASSIGNMENT, NONE_IN_PROGRESS, NOT_CONTROLLER = 3, 39, 85, 41


async def alter(client: InMemoryClient, topic: str, replicas: list[int] | None) -> AlterPartitionReassignmentsResponse:
    partition = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=0, replicas=replicas)
    reassigned = AlterPartitionReassignmentsRequest.ReassignableTopic(name=topic, partitions=[partition])
    request = AlterPartitionReassignmentsRequest(topics=[reassigned], timeout_ms=10_000)
    return await client.send(request, AlterPartitionReassignmentsResponse, 0)


@pytest.mark.parametrize(
    ("topic", "replicas", "code"),
    [
        ("orders", [], INVALID_ASSIGNMENT),
        ("orders", [99], INVALID_ASSIGNMENT),
        ("orders", [-1], INVALID_ASSIGNMENT),
        ("orders", None, NONE_IN_PROGRESS),
        ("missing", None, NONE_IN_PROGRESS),
    ],
)
def test_a_target_that_is_no_set_of_live_brokers_is_rejected(topic: str, replicas: list[int] | None, code: int) -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        response = await alter(client, topic, replicas)
        (result,) = response.responses[0].partitions
        assert (response.error_code, response.responses[0].name) == (0, topic)
        assert (result.partition_index, result.error_code) == (0, code)
        assert result.error_message

    run(test)


def test_the_current_replicas_are_accepted_and_nothing_moves() -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        response = await alter(client, "orders", [client.broker.services.metadata.me.id])
        (result,) = response.responses[0].partitions
        assert (result.error_code, result.error_message) == (0, None)
        listed = await client.send(
            ListPartitionReassignmentsRequest(topics=None, timeout_ms=10_000), ListPartitionReassignmentsResponse, 0
        )
        assert (listed.error_code, listed.topics) == (0, [])

    run(test)


def test_an_unknown_partition_cannot_move() -> None:
    async def test(client: InMemoryClient) -> None:
        response = await alter(client, "missing", [client.broker.services.metadata.me.id])
        assert response.responses[0].partitions[0].error_code == UNKNOWN_TOPIC

    run(test)


def test_only_the_controller_reassigns() -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        client.broker.controller.decisions = None
        altered = await alter(client, "orders", None)
        assert (altered.error_code, altered.responses) == (NOT_CONTROLLER, [])
        topic = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics(name="orders", partition_indexes=[0])
        request = ListPartitionReassignmentsRequest(topics=[topic], timeout_ms=10_000)
        listed = await client.send(request, ListPartitionReassignmentsResponse, 0)
        assert (listed.error_code, listed.topics) == (NOT_CONTROLLER, [])

    run(test)
