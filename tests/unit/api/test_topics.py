"""CreateTopics, DeleteTopics, CreatePartitions and DeleteRecords: what they do and what they refuse."""

import uuid

import pytest

from leadline.model import TopicPartition
from leadline.wire.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from tests.support.in_memory_broker import InMemoryClient, run

TP = TopicPartition("orders", 0)
TOPIC, CONFIG = CreateTopicsRequest.CreatableTopic, CreateTopicsRequest.CreateableTopicConfig


def topic(
    name: str = "orders", partitions: int = 1, replicas: int = 1, config: tuple[str, str] | None = None
) -> CreateTopicsRequest.CreatableTopic:
    configs = [] if config is None else [CONFIG(name=config[0], value=config[1])]
    return TOPIC(name=name, num_partitions=partitions, replication_factor=replicas, configs=configs)


async def create(client: InMemoryClient, *topics: CreateTopicsRequest.CreatableTopic, version: int = 7) -> list[int]:
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=10_000)
    response = await client.send(request, CreateTopicsResponse, version)
    return [result.error_code for result in response.topics]


@pytest.mark.parametrize("version", range(8))
def test_a_topic_is_created_once_in_every_version(version: int) -> None:
    async def test(client: InMemoryClient) -> None:
        assert await create(client, topic(partitions=3), version=version) == [0]
        assert client.broker.services.metadata.partition_count("orders") == 3
        assert await create(client, topic(), version=version) == [36]  # TOPIC_ALREADY_EXISTS

    run(test)


@pytest.mark.parametrize(
    ("named", "code"),
    [
        (topic("no name"), 17),  # INVALID_TOPIC_EXCEPTION
        (topic(partitions=0), 37),  # INVALID_PARTITIONS
        (topic(replicas=2), 38),  # INVALID_REPLICATION_FACTOR
        (topic(config=("retention.ms", "x")), 40),  # INVALID_CONFIG
    ],
)
def test_a_topic_that_is_not_valid_is_refused(named: CreateTopicsRequest.CreatableTopic, code: int) -> None:
    async def test(client: InMemoryClient) -> None:
        assert await create(client, named) == [code]
        assert client.broker.services.metadata.topics == {}

    run(test)


def test_validate_only_creates_nothing() -> None:
    async def test(client: InMemoryClient) -> None:
        request = CreateTopicsRequest(topics=[topic()], timeout_ms=10_000, validate_only=True)
        assert (await client.send(request, CreateTopicsResponse, 7)).topics[0].error_code == 0
        assert client.broker.services.metadata.topics == {}

    run(test)


@pytest.mark.parametrize("version", range(7))
def test_a_topic_is_deleted_by_name_or_id(version: int) -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        topic_id = client.broker.services.metadata.topics["orders"].id
        state = DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=topic_id)
        request = DeleteTopicsRequest(timeout_ms=10_000)
        if version >= 6:
            request.topics = [state]
        else:
            request.topic_names = ["orders"]
        codes = [(await client.send(request, DeleteTopicsResponse, version)).responses[0].error_code for _ in range(2)]
        assert codes == [0, 100 if version >= 6 else 3]
        assert client.broker.services.metadata.topics == {}
        assert topic_id != uuid.UUID(int=0)

    run(test)


def test_a_new_controller_refuses_changes_of_a_topic_that_its_broker_has_not_heard_of() -> None:
    """The topic exists: the client finds the controller again, and retries."""

    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        metadata = client.broker.services.metadata
        orders = metadata.topics.pop("orders")
        del metadata.by_id[orders.id]
        by_id = DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=orders.id)
        by_name = DeleteTopicsRequest.DeleteTopicState(name="orders")
        request = DeleteTopicsRequest(topics=[by_id, by_name], timeout_ms=10_000)
        response = await client.send(request, DeleteTopicsResponse, 6)
        assert [result.error_code for result in response.responses] == [41, 41]  # NOT_CONTROLLER
        named = CreatePartitionsRequest.CreatePartitionsTopic(name="orders", count=3, assignments=None)
        grown = await client.send(CreatePartitionsRequest(topics=[named], timeout_ms=1000), CreatePartitionsResponse, 3)
        assert grown.results[0].error_code == 41
        metadata.topics["orders"] = metadata.by_id[orders.id] = orders
        request.topics = [by_id]
        assert (await client.send(request, DeleteTopicsResponse, 6)).responses[0].error_code == 0

    run(test)


@pytest.mark.parametrize(("count", "code", "total"), [(3, 0, 3), (1, 37, 1), (0, 37, 1)])
def test_partitions_are_added_never_removed(count: int, code: int, total: int) -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        named = CreatePartitionsRequest.CreatePartitionsTopic(name="orders", count=count, assignments=None)
        request = CreatePartitionsRequest(topics=[named], timeout_ms=10_000)
        response = await client.send(request, CreatePartitionsResponse, 3)
        assert response.results[0].error_code == code
        assert client.broker.services.metadata.partition_count("orders") == total

    run(test)


@pytest.mark.parametrize(("offset", "code", "start"), [(2, 0, 2), (-1, 0, 3), (4, 1, 0)])
def test_records_are_deleted_up_to_an_offset(offset: int, code: int, start: int) -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        for _ in range(3):
            await client.produce(TP)
        part = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset)
        named = DeleteRecordsRequest.DeleteRecordsTopic(name="orders", partitions=[part])
        request = DeleteRecordsRequest(topics=[named], timeout_ms=10_000)
        (result,) = (await client.send(request, DeleteRecordsResponse, 2)).topics[0].partitions
        assert (result.error_code, result.low_watermark) == (code, start if code == 0 else -1)
        assert client.broker.replicas.hosted[TP].log.log_start == start

    run(test)


@pytest.mark.parametrize(
    ("names", "code", "message"),
    [
        (["__cluster_metadata"], 29, "Authorization failed."),
        (["twice", "twice"], 42, "Found multiple entries for this topic."),
        ([""], 17, "Topic name is invalid: the empty string is not allowed"),
        ([".."], 17, "Topic name is invalid: '..' is not allowed"),
    ],
)
def test_a_refused_topic_has_kafkas_message(names: list[str], code: int, message: str) -> None:
    async def test(client: InMemoryClient) -> None:
        kind = CreateTopicsRequest.CreatableTopic
        topics = [kind(name=name, num_partitions=1, replication_factor=1) for name in names]
        response = await client.send(CreateTopicsRequest(topics=topics), CreateTopicsResponse, 7)
        assert {(topic.error_code, topic.error_message) for topic in response.topics} == {(code, message)}

    run(test)
