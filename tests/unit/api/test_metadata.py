"""Metadata and DescribeCluster: brokers, topics and leaders."""

import asyncio
import uuid
from collections.abc import Callable

import pytest

from leadline.api.metadata import LONG
from leadline.cluster.metadata_cache import CachedPartition, CachedTopic, MetadataCache
from leadline.cluster.peer_monitor import PeerMonitor
from leadline.runtime import turns
from leadline.wire.messages import DescribeClusterRequest, DescribeClusterResponse, MetadataRequest, MetadataResponse
from tests.support.in_memory_broker import InMemoryClient, run

TOPIC = MetadataRequest.MetadataRequestTopic


async def ask(client: InMemoryClient, version: int, *names: str, **more: bool) -> MetadataResponse:
    request = MetadataRequest(topics=[TOPIC(name=name) for name in names], **more)
    return await client.send(request, MetadataResponse, version)


@pytest.mark.parametrize("version", range(13))
def test_a_topic_has_its_partitions_and_their_leader_in_every_version(version: int) -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders", 2)
        response = await ask(client, version, "orders")
        (topic,), (broker,) = response.topics, response.brokers
        assert (topic.error_code, topic.name) == (0, "orders")
        assert sorted(part.partition_index for part in topic.partitions) == [0, 1]
        assert {part.leader_id for part in topic.partitions} == {broker.node_id}
        assert response.controller_id == (broker.node_id if version >= 1 else -1)
        cached = client.broker.services.metadata.topics["orders"].id
        assert topic.topic_id == (cached if version >= 10 else uuid.UUID(int=0))

    run(test)


@pytest.mark.parametrize(("version", "topics", "count"), [(0, [], 1), (1, [], 0), (1, None, 1), (12, None, 1)])
def test_an_empty_list_means_all_topics_in_version_0_and_none_later(
    version: int, topics: list[MetadataRequest.MetadataRequestTopic] | None, count: int
) -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        response = await client.send(MetadataRequest(topics=topics), MetadataResponse, version)
        assert len(response.topics) == count

    run(test)


@pytest.mark.parametrize(("name", "code"), [("missing", 3), ("not a name", 17)])
def test_a_missing_topic_is_reported(name: str, code: int) -> None:
    async def test(client: InMemoryClient) -> None:
        (topic,) = (await ask(client, 12, name)).topics
        assert (topic.name, topic.error_code, topic.partitions) == (name, code, [])

    run(test)


@pytest.mark.parametrize("allowed", [True, False])
def test_a_missing_topic_is_created_if_client_and_broker_allow_it(allowed: bool) -> None:
    async def test(client: InMemoryClient) -> None:
        await ask(client, 12, "fresh", allow_auto_topic_creation=allowed)
        assert ("fresh" in client.broker.services.metadata.topics) is allowed

    run(test, auto_create_topics_enable="true")


@pytest.mark.parametrize("version", [0, 1, 9, 12])
def test_a_topic_that_the_request_creates_has_its_leader_in_the_next_response(version: int) -> None:
    async def test(client: InMemoryClient) -> None:
        (first,) = (await ask(client, version, "fresh", allow_auto_topic_creation=True)).topics
        assert (first.error_code, first.topic_id, first.partitions) == (5, uuid.UUID(int=0), [])
        (second,) = (await ask(client, version, "fresh", allow_auto_topic_creation=True)).topics
        assert (second.error_code, len(second.partitions)) == (0, 1)

    run(test, auto_create_topics_enable="true")


@pytest.mark.parametrize("is_known", [True, False])
def test_a_topic_is_found_by_its_id(is_known: bool) -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        topic_id = client.broker.services.metadata.topics["orders"].id if is_known else uuid.UUID(int=5)
        request = MetadataRequest(topics=[TOPIC(name=None, topic_id=topic_id)])
        (topic,) = (await client.send(request, MetadataResponse, 12)).topics
        assert (topic.error_code, topic.name) == ((0, "orders") if is_known else (100, None))

    run(test)


def test_operations_are_reported_on_request() -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        plain = await ask(client, 10, "orders")
        more = await ask(
            client, 10, "orders", include_topic_authorized_operations=True, include_cluster_authorized_operations=True
        )
        assert (plain.cluster_authorized_operations, more.cluster_authorized_operations) == (
            -(1 << 31),
            0b1111110100000,
        )
        operations = [response.topics[0].topic_authorized_operations for response in (plain, more)]
        assert operations == [-(1 << 31), 0b110111111000]

    run(test)


@pytest.mark.parametrize(("endpoint_type", "code"), [(1, 0), (2, 114), (9, 115)])
def test_the_cluster_is_described_by_its_brokers(endpoint_type: int, code: int) -> None:
    async def test(client: InMemoryClient) -> None:
        request = DescribeClusterRequest(endpoint_type=endpoint_type)
        response = await client.send(request, DescribeClusterResponse, 1)
        assert (response.error_code, len(response.brokers)) == (code, 1 if code == 0 else 0)

    run(test)


@pytest.mark.parametrize("shape", [(LONG, 1), (1, LONG), (3, LONG // 2)])
@pytest.mark.parametrize("by_name", [True, False])
@pytest.mark.parametrize("version", [0, 1, 8, 12])
def test_a_long_response_is_made_over_several_turns_and_others_are_served_between_them(
    shape: tuple[int, int], by_name: bool, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics, partitions = shape
    monkeypatch.setattr(turns, "SHARE_S", 0.0)

    async def test(client: InMemoryClient) -> None:
        cache = client.broker.services.metadata
        await client.create("orders")
        await client.create("small")
        one = CachedPartition(cache.me.id, 5, (cache.me.id, 8), (cache.me.id,), (8,))
        for n in range(topics):
            topic_id = uuid.UUID(int=n + 1)
            cache.topics[f"many-{n}"] = cache.by_id[topic_id] = CachedTopic(
                f"many-{n}", topic_id, dict.fromkeys(range(partitions), one)
            )
        names = [TOPIC(name=name) for name in cache.topics] if by_name else ([] if version == 0 else None)
        order: list[str] = []

        async def ask_for_all() -> MetadataResponse:
            response = await client.send(MetadataRequest(topics=names), MetadataResponse, version)
            order.append("long")
            return response

        async def ask_for_one() -> None:
            await ask(client, version, "small")
            order.append("short")

        response, _ = await asyncio.gather(ask_for_all(), ask_for_one())
        assert order == ["short", "long"]
        assert [topic.name for topic in response.topics] == list(cache.topics)
        described = [topic for topic in response.topics if "many-" in str(topic.name)]
        assert {topic.error_code for topic in described} == {0}
        assert all([row.partition_index for row in topic.partitions] == list(range(partitions)) for topic in described)
        rows = {(row.leader_id, tuple(row.replica_nodes), tuple(row.isr_nodes)) for row in described[-1].partitions}
        assert rows == {(one.leader, one.replicas, one.isr)}

    run(test)


class SuccessorElected(PeerMonitor):
    """A monitor to which the controller is suspected: its successor is elected while a response waits."""

    def __init__(self, metadata: MetadataCache, successor: int) -> None:
        self._metadata, self._successor = metadata, successor
        self._informed = asyncio.Event()
        self._informed.set()

    async def settled(self, leaders: Callable[[], set[int]]) -> None:
        assert leaders() == {self._metadata.controller}
        self._metadata.controller = self._successor
        assert leaders() == {self._successor}


def test_who_asks_for_no_topic_learns_of_the_next_controller_as_who_asks_for_the_cluster() -> None:
    async def test(client: InMemoryClient) -> None:
        services = client.broker.services
        services.peer_monitor = SuccessorElected(services.metadata, 7)
        assert (await ask(client, 12)).controller_id == 7
        services.peer_monitor = SuccessorElected(services.metadata, 8)
        assert (await client.send(DescribeClusterRequest(), DescribeClusterResponse, 1)).controller_id == 8

    run(test)
