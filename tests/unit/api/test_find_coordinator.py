"""FindCoordinator: the broker that coordinates a group or a transactional id."""

import pytest

from leadline.model import TopicPartition
from leadline.wire.messages import FindCoordinatorRequest, FindCoordinatorResponse
from tests.support.in_memory_broker import InMemoryClient, run

GROUP, TRANSACTION = 0, 1
NOT_AVAILABLE, INVALID_REQUEST = 15, 42


@pytest.mark.parametrize(("key_type", "topic"), [(GROUP, "__consumer_offsets"), (TRANSACTION, "__transaction_state")])
def test_the_first_request_creates_the_topic_of_the_coordinator(key_type: int, topic: str) -> None:
    async def test(client: InMemoryClient) -> None:
        assert topic not in client.broker.services.metadata.topics
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["a", "b"])
        response = await client.send(request, FindCoordinatorResponse, 4)
        me = client.broker.services.metadata.me
        endpoint = me.endpoints["PLAINTEXT"]
        assert [(result.key, result.error_code, result.node_id) for result in response.coordinators] == [
            ("a", 0, me.id),
            ("b", 0, me.id),
        ]
        assert {(result.host, result.port) for result in response.coordinators} == {(endpoint.host, endpoint.port)}
        assert topic in client.broker.services.metadata.topics

    run(test)


@pytest.mark.parametrize("version", range(4))
def test_older_versions_have_one_key(version: int) -> None:
    async def test(client: InMemoryClient) -> None:
        response = await client.send(FindCoordinatorRequest(key="readers"), FindCoordinatorResponse, version)
        assert (response.error_code, response.node_id) == (0, client.broker.services.metadata.me.id)
        assert response.error_message == ("NONE" if version >= 1 else "")

    run(test)


def test_an_unknown_key_type_is_rejected() -> None:
    async def test(client: InMemoryClient) -> None:
        request = FindCoordinatorRequest(key_type=9, coordinator_keys=["a"])
        (result,) = (await client.send(request, FindCoordinatorResponse, 4)).coordinators
        assert (result.error_code, result.node_id, result.host, result.port) == (INVALID_REQUEST, -1, "", -1)

    run(test)


@pytest.mark.parametrize("state", ["fenced", "offline"])
def test_a_leader_that_is_fenced_or_offline_is_no_coordinator(state: str) -> None:
    async def test(client: InMemoryClient) -> None:
        request = FindCoordinatorRequest(coordinator_keys=["readers"])
        await client.send(request, FindCoordinatorResponse, 4)
        hosted = client.broker.replicas.hosted[TopicPartition("__consumer_offsets", 0)]
        if state == "fenced":
            hosted.is_fenced = True
        else:
            hosted.log.offline = True
        (result,) = (await client.send(request, FindCoordinatorResponse, 4)).coordinators
        assert (result.error_code, result.node_id) == (NOT_AVAILABLE, -1)

    run(test)
