"""Requests that a setting forbids, or that only the settings of a broker explain."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from leadline.wire.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
)
from tests.conformance.both import Connection, produced
from tests.support import in_memory
from tests.support.broker import leadline
from tests.support.logs import batch


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    yield from in_memory.directory()


def codes(connection: Connection, version: int, *names: str) -> list[int]:
    topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    answer = connection.ask(MetadataResponse, MetadataRequest(topics=topics), version)
    return [topic.error_code for topic in answer.topics]


def test_topics_are_neither_made_nor_deleted_where_that_is_switched_off(tmp_path: Path) -> None:
    settings = {"auto.create.topics.enable": "false", "delete.topic.enable": "false"}
    with leadline(tmp_path / "data", **settings) as broker, closing(Connection("localhost", broker.port)) as connection:
        for version in MetadataRequest.VERSIONS:
            assert codes(connection, version, "new", "a b") == [3, 17]
        topic = CreateTopicsRequest.CreatableTopic(name="new", num_partitions=1, replication_factor=1)
        assert connection.ask(CreateTopicsResponse, CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code == 0
        for version in DeleteTopicsRequest.VERSIONS:
            request = DeleteTopicsRequest()
            if version >= 6:
                request.topics = [DeleteTopicsRequest.DeleteTopicState(name="new")]
            else:
                request.topic_names = ["new"]
            (response,) = connection.ask(DeleteTopicsResponse, request, version).responses
            assert response.error_code == (73 if version >= 3 else 42)
            assert version < 5 or "delete.topic.enable=false" in (response.error_message or "")
        assert codes(connection, 9, "new") == [0]


@pytest.mark.parametrize(
    ("topic", "partitions", "config"),
    [
        (
            "__consumer_offsets",
            5,
            {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "999"},
        ),
        (
            "__transaction_state",
            6,
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": "1",
                "segment.bytes": "998",
                "unclean.leader.election.enable": "false",
            },
        ),
    ],
)
def test_the_topics_of_coordinators_have_settings_of_their_own(
    topic: str, partitions: int, config: dict[str, str], tmp_path: Path
) -> None:
    """And one replica: with the embedded tree there never is a second broker, whatever the settings say."""
    settings = {
        "offsets.topic.num.partitions": 5,
        "offsets.topic.segment.bytes": 999,
        "transaction.state.log.num.partitions": 6,
        "transaction.state.log.segment.bytes": 998,
    }
    with leadline(tmp_path / "data", **settings) as broker, closing(Connection("localhost", broker.port)) as connection:
        topics = [MetadataRequest.MetadataRequestTopic(name=topic)]
        connection.ask(MetadataResponse, MetadataRequest(topics=topics), 9)  # creates it
        (description,) = connection.ask(MetadataResponse, MetadataRequest(topics=topics), 9).topics
        assert (description.error_code, description.is_internal, len(description.partitions)) == (0, True, partitions)
        assert {len(partition.replica_nodes) for partition in description.partitions} == {1}
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=2, resource_name=topic, configuration_keys=list(config)
        )
        answer = connection.ask(DescribeConfigsResponse, DescribeConfigsRequest(resources=[resource]), 4)
        assert {entry.name: entry.value for entry in answer.results[0].configs} == config


def test_a_produce_without_records_is_refused(tmp_path: Path) -> None:
    """Kafka does not answer at all."""
    with leadline(tmp_path / "data") as broker, closing(Connection("localhost", broker.port)) as connection:
        codes(connection, 9, "plain")
        request = ProduceRequest(acks=1, topic_data=[produced("plain", None)])
        (part,) = connection.ask(ProduceResponse, request, 9).responses[0].partition_responses
        assert (part.error_code, part.error_message) == (87, "no record batch in 0 bytes for plain-0")


@pytest.mark.parametrize(("transactional_id", "code"), [(None, 53), ("t", 19)])
def test_records_of_a_transaction_are_refused_while_it_has_no_coordinator(
    tmp_path: Path, transactional_id: str | None, code: int
) -> None:
    with leadline(tmp_path / "data") as broker, closing(Connection("localhost", broker.port)) as connection:
        codes(connection, 9, "plain")
        data = bytes(batch(producer_id=1, transactional=True))
        request = ProduceRequest(acks=1, transactional_id=transactional_id, topic_data=[produced("plain", data)])
        (part,) = connection.ask(ProduceResponse, request, 9).responses[0].partition_responses
        assert part.error_code == code
        assert part.error_message
