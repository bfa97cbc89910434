"""Topics that the broker creates at their first use, with the partitions and settings that they get."""

import pytest

from leadline.api.authorization import OWN_REQUEST
from leadline.api.auto_create import auto_create
from leadline.api.context import Context
from leadline.cluster.metadata_cache import CachedTopic
from leadline.coordination import znodes
from leadline.errors import InvalidReplicationFactor, InvalidTopic, TopicAlreadyExists
from tests.support.in_memory_broker import InMemoryClient, run


def context(client: InMemoryClient) -> Context:
    return Context(client.broker.services, 0, "test", client.client, OWN_REQUEST)


async def created(client: InMemoryClient, name: str) -> tuple[CachedTopic, dict[str, str]]:
    """The topic, and the settings that were written with it."""
    topic = await auto_create(name, context(client))
    path = znodes.config_path("topics", name)
    node = await client.broker.tree.get(path)
    assert node is not None
    return topic, znodes.decode_config(path, node.data)


def test_a_topic_of_a_client_has_the_defaults_of_the_broker() -> None:
    async def test(client: InMemoryClient) -> None:
        topic, config = await created(client, "orders")
        assert (len(topic.partitions), config) == (3, {})
        assert all(partition.leader == client.broker.metadata.me.id for partition in topic.partitions.values())

    run(test, num_partitions="3")


def test_the_topic_of_offsets_is_compacted_and_has_one_replica_on_a_single_node() -> None:
    async def test(client: InMemoryClient) -> None:
        topic, config = await created(client, "__consumer_offsets")
        assert [len(partition.replicas) for partition in topic.partitions.values()] == [1, 1]
        assert config == {"cleanup.policy": "compact", "segment.bytes": "1048576", "compression.type": "producer"}

    run(test, offsets_topic_num_partitions="2", offsets_topic_segment_bytes="1048576")


def test_the_topic_of_transactions_needs_no_more_replicas_in_sync_than_a_single_node_has() -> None:
    async def test(client: InMemoryClient) -> None:
        topic, config = await created(client, "__transaction_state")
        assert [len(partition.replicas) for partition in topic.partitions.values()] == [1]
        assert config == {
            "unclean.leader.election.enable": "false",
            "compression.type": "uncompressed",
            "cleanup.policy": "compact",
            "min.insync.replicas": "1",
            "segment.bytes": "104857600",
        }

    run(test)


@pytest.mark.parametrize(("name", "error"), [("no spaces", InvalidTopic), ("orders", TopicAlreadyExists)])
def test_a_topic_that_cannot_be_created_is_refused(name: str, error: type[Exception]) -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        with pytest.raises(error):
            await auto_create(name, context(client))

    run(test)


def test_a_topic_of_a_client_is_refused_if_there_are_too_few_brokers() -> None:
    async def test(client: InMemoryClient) -> None:
        with pytest.raises(InvalidReplicationFactor):
            await auto_create("orders", context(client))
        assert "orders" not in client.broker.metadata.topics

    run(test, default_replication_factor="2")
