"""ApiVersions, Metadata, DescribeCluster, FindCoordinator and ElectLeaders, answered as Kafka does."""

from struct import pack
from uuid import UUID

import pytest

from leadline.wire.frames import parse_response
from leadline.wire.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from tests.conformance.both import Both, Side
from tests.support.waiting import until

pytestmark = pytest.mark.conformance

TOPIC = MetadataRequest.MetadataRequestTopic
LEADER_NOT_AVAILABLE = 5
UNKNOWN_ID = UUID("01234567-89ab-cdef-0123-456789abcdef")
INVALID_NAMES = ["", ".", "..", "a b", "a/b", "ä", "x" * 250, "x" * 249 + "-"]


@pytest.mark.parametrize("version", ApiVersionsRequest.VERSIONS)
def test_what_a_broker_can_do(both: Both, version: int) -> None:
    request = ApiVersionsRequest()
    if version >= 3:
        request = ApiVersionsRequest(client_software_name="a.b-c", client_software_version="1.0")
    both.ask_and_compare(ApiVersionsResponse, request, version)


@pytest.mark.parametrize(("name", "software_version"), [("", "1"), ("a b", "1"), ("a", ""), ("-a", "1"), ("a", "1 2")])
def test_a_client_with_an_invalid_name_is_refused(both: Both, name: str, software_version: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=software_version)
    answer = both.ask_and_compare(ApiVersionsResponse, request, 3)
    assert answer.error_code == 42


@pytest.mark.parametrize("version", [4, 99, 32767, -1])
@pytest.mark.parametrize("rest", [b"\0\0", b"\0\0\0", b"\0\1x\0\2a\2b\0"])
def test_api_versions_in_a_version_that_is_too_new_is_answered_in_version_0(
    both: Both, version: int, rest: bytes
) -> None:
    if version > 0 and len(rest) == 2:
        return  # a header without tagged fields, which all versions from 3 on have

    def ask(side: Side) -> ApiVersionsResponse:
        connection = side.connect()
        connection.socket.sendall(pack(">ihhi", 8 + len(rest), 18, version, 77) + rest)
        frame = connection.receive()
        connection.close()
        assert frame is not None
        correlation, answer = parse_response(ApiVersionsResponse, frame, 0)
        assert correlation == 77
        return answer

    answer = both.compare(both.map(ask), 0)
    assert (answer.error_code, len(answer.api_keys)) == (35, 1)


@pytest.mark.parametrize("key", [1000, -1, 32767])
def test_what_is_no_request_closes_the_connection(both: Both, key: int) -> None:
    for side in both.sides:
        connection = side.connect()
        connection.socket.sendall(pack(">ihhihh", 12, key, 0, 1, -1, 0))
        assert connection.receive() is None
        connection.close()


def named(version: int, *names: str) -> MetadataRequest:
    request = MetadataRequest(topics=[TOPIC(name=name) for name in names])
    if version >= 4:
        request.allow_auto_topic_creation = False
    return request


@pytest.mark.parametrize("version", MetadataRequest.VERSIONS)
def test_metadata_of_named_topics_is_kafkas(both: Both, version: int) -> None:
    topic = both.create(f"told-{version}", 3)
    metadata = both.ask_and_compare(MetadataResponse, named(version, topic, topic, f"told-{version}"), version)
    assert metadata.topics
    if version > 0:
        assert not both.ask_and_compare(MetadataResponse, named(version), version).topics
    if version >= 4:
        missing = both.ask_and_compare(MetadataResponse, named(version, "missing", topic, *INVALID_NAMES), version)
        assert {description.error_code for description in missing.topics} == {0, 3, 17}


@pytest.mark.parametrize("version", MetadataRequest.VERSIONS)
def test_metadata_of_all_topics_is_kafkas(both: Both, version: int) -> None:
    both.create(f"all-{version}", 2)
    request = MetadataRequest(topics=None if version else [])
    metadata = both.ask_and_compare(MetadataResponse, request, version)
    assert f"all-{version}" in {topic.name for topic in metadata.topics}


@pytest.mark.parametrize("version", [8, 9, 10, 11, 12])
def test_authorized_operations_are_those_of_kafka(both: Both, version: int) -> None:
    request = named(version, both.create(f"allowed-{version}"), "missing")
    request.include_topic_authorized_operations = True
    request.include_cluster_authorized_operations = version <= 10
    assert both.ask_and_compare(MetadataResponse, request, version).topics[0].topic_authorized_operations != -(1 << 31)


@pytest.mark.parametrize("version", [10, 11, 12])
def test_metadata_of_topics_by_id_is_kafkas(both: Both, version: int) -> None:
    topic = both.create(f"by-id-{version}")

    def by_id(side: Side) -> MetadataRequest:
        topics = [TOPIC(name=None, topic_id=id) for id in (side.id_of(topic), UNKNOWN_ID)]
        return MetadataRequest(topics=topics, allow_auto_topic_creation=False)

    both.ask_and_compare(MetadataResponse, by_id, version)


def test_a_name_and_an_id_together(both: Both) -> None:
    topic = both.create("name-and-id")

    def mixed(side: Side) -> MetadataRequest:
        ids = [TOPIC(name=None, topic_id=side.id_of(topic)), TOPIC(name=topic)]
        return MetadataRequest(topics=ids, allow_auto_topic_creation=False)

    both.ask_and_compare(MetadataResponse, mixed, 12)


@pytest.mark.parametrize("version", MetadataRequest.VERSIONS)
def test_a_topic_is_created_by_asking_for_it(both: Both, version: int) -> None:
    """Both first answer that it has no leader yet. Leadline's next answer has it, Kafka's a later one."""
    name = f"new-by-{version}"
    request = MetadataRequest(topics=[TOPIC(name=name), *(TOPIC(name=name) for name in INVALID_NAMES)])

    def is_there(side: Side) -> bool:
        description = {topic.name: topic for topic in side.ask(MetadataResponse, request, version).topics}[name]
        return description.error_code == 0 and all(partition.error_code == 0 for partition in description.partitions)

    first = both.ask_and_compare(MetadataResponse, request, version)
    assert {topic.name: topic.error_code for topic in first.topics}[name] == LEADER_NOT_AVAILABLE
    assert is_there(both.ours)
    until(lambda: is_there(both.kafka))
    metadata = both.ask_and_compare(MetadataResponse, request, version)
    assert sum(len(topic.partitions) for topic in metadata.topics) == 2


@pytest.mark.parametrize("version", DescribeClusterRequest.VERSIONS)
def test_the_cluster_is_described_as_kafka_does(both: Both, version: int) -> None:
    both.ask_and_compare(DescribeClusterResponse, DescribeClusterRequest(), version)
    both.ask_and_compare(
        DescribeClusterResponse, DescribeClusterRequest(include_cluster_authorized_operations=True), version
    )


@pytest.mark.parametrize("endpoint_type", [2, 0, 3, -1, 127])
def test_there_are_only_brokers_in_the_cluster(both: Both, endpoint_type: int) -> None:
    request = DescribeClusterRequest(endpoint_type=endpoint_type)
    assert both.ask_and_compare(DescribeClusterResponse, request, 1).error_code != 0


@pytest.mark.parametrize("version", FindCoordinatorRequest.VERSIONS)
@pytest.mark.parametrize("key_type", [0, 1, 2, -1])
def test_coordinators_are_located_as_kafka_does(both: Both, version: int, key_type: int) -> None:
    """Kafka answers that there is none until it has created its topic; then it names the coordinator."""
    if version == 0 and key_type:
        return
    keys = ["a", "", "b c"]
    requests = (
        [FindCoordinatorRequest(key_type=key_type, coordinator_keys=keys)]
        if version >= 4
        else [FindCoordinatorRequest(key_type=key_type, key=key) for key in keys]
    )

    def is_there() -> bool:
        answer = both.kafka.ask(FindCoordinatorResponse, requests[0], version)
        return 15 not in {answer.error_code, *(coordinator.error_code for coordinator in answer.coordinators)}

    until(is_there)
    for request in requests:
        both.ask_and_compare(FindCoordinatorResponse, request, version)


@pytest.mark.parametrize("version", ElectLeadersRequest.VERSIONS)
def test_leaders_are_elected_or_refused_as_kafka_does(both: Both, version: int) -> None:
    topic = both.create(f"elected-{version}", 2)
    partitions = ElectLeadersRequest.TopicPartitions
    for kind in range(2 if version else 1):
        for requested in (
            None,
            [],
            [partitions(topic=topic, partitions=[0, 1, 7, -1])],
            [partitions(topic="missing", partitions=[0]), partitions(topic=topic, partitions=[0])],
            [partitions(topic=topic, partitions=[])],
            [partitions(topic=topic, partitions=[1]), partitions(topic=topic, partitions=[1, 0, 0])],
        ):
            request = ElectLeadersRequest(election_type=kind, topic_partitions=requested, timeout_ms=60_000)
            both.ask_and_compare(ElectLeadersResponse, request, version)
