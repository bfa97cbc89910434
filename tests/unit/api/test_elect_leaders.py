"""ElectLeaders: elects the preferred leader of partitions, or any leader."""

import pytest

from leadline.wire.messages import ElectLeadersRequest, ElectLeadersResponse
from tests.support.in_memory_broker import InMemoryClient, run

PREFERRED, UNCLEAN = 0, 1
UNKNOWN_TOPIC, NOT_NEEDED, NOT_CONTROLLER = 3, 84, 41


async def elect(
    client: InMemoryClient, topics: dict[str, list[int]] | None, election_type: int = PREFERRED
) -> dict[tuple[str, int], int]:
    partitions = None
    if topics is not None:
        partitions = [
            ElectLeadersRequest.TopicPartitions(topic=name, partitions=numbers) for name, numbers in topics.items()
        ]
    request = ElectLeadersRequest(election_type=election_type, topic_partitions=partitions, timeout_ms=10_000)
    response = await client.send(request, ElectLeadersResponse, 2)
    assert response.error_code == 0
    return {
        (topic.topic, result.partition_id): result.error_code
        for topic in response.replica_election_results
        for result in topic.partition_result
    }


@pytest.mark.parametrize("election_type", [PREFERRED, UNCLEAN])
def test_a_partition_that_has_its_leader_needs_no_election(election_type: int) -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders", 2)
        results = await elect(client, {"orders": [0, 1, 1], "missing": [0]}, election_type)
        assert results == {("orders", 0): NOT_NEEDED, ("orders", 1): NOT_NEEDED, ("missing", 0): UNKNOWN_TOPIC}

    run(test)


def test_a_request_for_all_partitions_omits_those_that_need_no_election() -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders", 2)
        assert await elect(client, None) == {}
        assert await elect(client, {}) == {}

    run(test)


def test_only_the_controller_elects() -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        client.broker.controller.decisions = None
        assert await elect(client, {"orders": [0]}) == {("orders", 0): NOT_CONTROLLER}

    run(test)
