"""CreateTopics, DeleteTopics and CreatePartitions, answered as Kafka does."""

from uuid import UUID

import pytest

from leadline.wire.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    MetadataRequest,
    MetadataResponse,
)
from tests.conformance.both import CREATABLE, Both, Side
from tests.support.waiting import until

pytestmark = pytest.mark.conformance

UNKNOWN_ID = UUID("01234567-89ab-cdef-0123-456789abcdef")
VERSIONS = CreateTopicsRequest.VERSIONS
Topic = CreateTopicsRequest.CreatableTopic


def topic(name: str, partitions: int = 1, factor: int = 1, **configs: str | None) -> Topic:
    settings = [
        CreateTopicsRequest.CreateableTopicConfig(name=key.replace("_", "."), value=value)
        for key, value in configs.items()
    ]
    return CREATABLE(name=name, num_partitions=partitions, replication_factor=factor, configs=settings)


def assigned(name: str, *replicas: list[int], partitions: int = -1, factor: int = -1, first: int = 0) -> Topic:
    creatable = topic(name, partitions, factor)
    creatable.assignments = [
        CreateTopicsRequest.CreatableReplicaAssignment(partition_index=n, broker_ids=brokers)
        for n, brokers in enumerate(replicas, start=first)
    ]
    return creatable


def create(both: Both, version: int, *topics: Topic, only_check: bool = False) -> list[int]:
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=60_000)
    if version >= 1:
        request.validate_only = only_check
    answer = both.ask_and_compare(CreateTopicsResponse, request, version)
    return [result.error_code for result in answer.topics]


def same_metadata(both: Both, *names: str) -> None:
    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False
    )

    def is_settled() -> bool:
        metadata = both.kafka.ask(MetadataResponse, request, 9)
        return all(partition.error_code == 0 for topic in metadata.topics for partition in topic.partitions)

    until(is_settled)
    both.ask_and_compare(MetadataResponse, request, 9)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_is_created_once(both: Both, version: int) -> None:
    name = f"created-{version}"
    if version >= 1:
        assert create(both, version, topic(name, 3), only_check=True) == [0]
    creatable = topic(name, 3, retention_ms="1000", cleanup_policy="compact,delete", compression_type="gzip")
    assert create(both, version, creatable) == [0]
    assert create(both, version, creatable) == [36]
    if version >= 1:
        assert create(both, version, creatable, only_check=True) == [36]
    same_metadata(both, name)


@pytest.mark.parametrize("version", VERSIONS)
def test_good_and_bad_topics_side_by_side(both: Both, version: int) -> None:
    v = f"{version}"
    creatable = [
        topic(f"good-{v}", 2),
        topic(f"none-{v}", 0),
        topic(f"minus-{v}", -2),
        topic(f"no-copies-{v}", 1, 0),
        topic(f"minus-copies-{v}", 1, -2),
        topic(f"copies-{v}", 1, 2),
        topic(""),
        topic("."),
        topic("a b"),
        topic("ä"),
        topic("x" * 250),
        topic(f"twice-{v}"),
        topic(f"twice-{v}", 2),
        topic(f"wrong-value-{v}", retention_ms="soon"),
        topic(f"out-of-range-{v}", segment_bytes="1"),
        topic(f"unknown-name-{v}", retention_mss="1"),
        topic(f"mixed-{v}", retention_ms="5", cleanup_policy="shred", flush_ms="9"),
        topic(f"null-value-{v}", retention_ms=None),
        topic(f"empty-value-{v}", cleanup_policy=""),
        topic(f"contradiction-{v}", min_compaction_lag_ms="10", max_compaction_lag_ms="5"),
        topic(f"compressed-{v}", compression_type="brotli"),
        assigned(f"placed-{v}", [1], [1]),
        assigned(f"placed-twice-{v}", [1, 1]),
        assigned(f"gaps-{v}", [1], first=1),
        assigned(f"uneven-{v}", [1], []),
        assigned(f"both-ways-{v}", [1], partitions=1, factor=1),
        assigned(f"both-ways-too-{v}", [1], factor=1),
        topic(f"under.score_{v}"),
    ]
    both.create(f"under_score.{v}")
    for only_check in (True, False) if version >= 1 else (False,):
        codes = create(both, version, *creatable, only_check=only_check)
        assert {0, 17, 37, 38, 39, 40, 42} <= set(codes)
    same_metadata(both, f"good-{v}", f"placed-{v}")


def test_replicas_on_an_unknown_broker_are_refused_by_leadline(both: Both) -> None:
    """Kafka creates such a topic, and then waits for its leader until the time is over."""
    request = CreateTopicsRequest(topics=[assigned("elsewhere", [2])], timeout_ms=100)
    assert both.ours.ask(CreateTopicsResponse, request, 7).topics[0].error_code == 39


@pytest.mark.parametrize("version", VERSIONS)
def test_partitions_and_replicas_of_minus_one_mean_the_brokers_defaults_as_in_kafka(both: Both, version: int) -> None:
    """From version 4 on; before, -1 is just a wrong number."""
    create(both, version, topic(f"by-default-{version}", -1, -1), topic(f"half-{version}", 3, -1))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_to_create_nothing_is_answered_with_no_topics(both: Both, version: int) -> None:
    assert create(both, version) == []


def test_a_topic_of_kafkas_own_is_refused(both: Both) -> None:
    for version in VERSIONS:
        assert create(both, version, topic("__cluster_metadata")) == [29]


def delete(both: Both, version: int, *names: str) -> list[int]:
    request = DeleteTopicsRequest(timeout_ms=60_000)
    if version >= 6:
        request.topics = [DeleteTopicsRequest.DeleteTopicState(name=name) for name in names]
    else:
        request.topic_names = list(names)
    return [response.error_code for response in both.ask_and_compare(DeleteTopicsResponse, request, version).responses]


@pytest.mark.parametrize("version", DeleteTopicsRequest.VERSIONS)
def test_topics_are_deleted_by_name(both: Both, version: int) -> None:
    one, two = both.create(f"gone-{version}"), both.create(f"gone-too-{version}", 2)
    for side in both.sides:
        side.id_of(one)
    assert sorted(delete(both, version, one, "missing", "a b", two)) == [0, 0, 3, 3]
    assert delete(both, version, one) == [3]
    assert delete(both, version) == []
    both.create(one)  # the name is free again
    assert delete(both, version, one, one) != [0]
    delete(both, version, one)


def test_topics_are_deleted_by_id(both: Both) -> None:
    name, other = both.create("gone-by-id"), both.create("gone-by-both")
    state = DeleteTopicsRequest.DeleteTopicState
    ids = {side: (side.id_of(name), side.id_of(other)) for side in both.sides}

    def deletion(*states: DeleteTopicsRequest.DeleteTopicState) -> DeleteTopicsRequest:
        return DeleteTopicsRequest(topics=list(states), timeout_ms=60_000)

    def named(side: Side) -> DeleteTopicsRequest:
        return deletion(state(name=other, topic_id=ids[side][1]))

    def repeated(side: Side) -> DeleteTopicsRequest:
        return deletion(state(name=None, topic_id=ids[side][0]), state(name=name))

    both.ask_and_compare(DeleteTopicsResponse, named, 6)
    both.ask_and_compare(DeleteTopicsResponse, repeated, 6)
    # not an id that is just being deleted: for a moment Kafka still knows its name
    both.ask_and_compare(DeleteTopicsResponse, deletion(state(name=None, topic_id=UNKNOWN_ID)), 6)


def grow(
    both: Both, version: int, *topics: CreatePartitionsRequest.CreatePartitionsTopic, only_check: bool
) -> list[int]:
    request = CreatePartitionsRequest(topics=list(topics), timeout_ms=60_000, validate_only=only_check)
    return [result.error_code for result in both.ask_and_compare(CreatePartitionsResponse, request, version).results]


def more(name: str, count: int, *replicas: list[int]) -> CreatePartitionsRequest.CreatePartitionsTopic:
    assignments = [CreatePartitionsRequest.CreatePartitionsAssignment(broker_ids=brokers) for brokers in replicas]
    return CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=assignments or None)


@pytest.mark.parametrize("version", CreatePartitionsRequest.VERSIONS)
def test_partitions_are_added_or_refused_as_kafka_does(both: Both, version: int) -> None:
    one, two = both.create(f"grown-{version}", 2), both.create(f"grown-too-{version}", 2)
    for only_check in (True, False):
        for count in (2, 1, 0, -1, 3):
            grow(both, version, more(one, count), more("missing", 5), only_check=only_check)
        for growth in (
            more(two, 3, [1]),
            more(two, 5, [1]),
            more(two, 4, [1], [1], [1]),
            more(two, 4, [2]),
            more(two, 4, [1, 1]),
            more(two, 4, []),
        ):
            grow(both, version, growth, only_check=only_check)
    grow(both, version, more(one, 9), more(one, 8), more("a b", 3), only_check=False)
    empty = CreatePartitionsRequest.CreatePartitionsTopic(name=one, count=7, assignments=[])
    grow(both, version, empty, only_check=False)
    grow(both, version, only_check=False)
    same_metadata(both, one, two)
