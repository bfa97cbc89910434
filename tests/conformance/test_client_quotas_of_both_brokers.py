"""Quotas of clients on a real Kafka and on Leadline: the same requests, the same history, the same throttle times.

Where nothing but one request is measured, the throttle times are equal. Where earlier requests count, they differ by no
more than the time between them: each broker has its own clock.
"""

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping

import pytest

from leadline.wire.messages import (
    AlterClientQuotasResponse,
    ApiVersionsRequest,
    ApiVersionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeClientQuotasResponse,
    FetchRequest,
    FetchResponse,
    ProduceRequest,
    ProduceResponse,
)
from tests.conformance.both import Both, Side, produced
from tests.conformance.kafka.tools import tool
from tests.support.client_quotas import EntityNames, QuotaComponent, altering, describing
from tests.support.logs import batch
from tests.support.waiting import until

pytestmark = pytest.mark.conformance

USER = "ANONYMOUS"
EXACT, OF_DEFAULT, ANY = 0, 1, 2
TOPIC = "with-quotas"
_unused_clients = (f"limited-{number}" for number in itertools.count())

ALTERATIONS: list[tuple[EntityNames, Mapping[str, float | None]]] = [
    ({"user": "alice"}, {"producer_byte_rate": 1024, "request_percentage": 50.5}),
    ({"user": "alice"}, {"producer_byte_rate": None, "controller_mutation_rate": 10}),
    ({"user": "a/b c", "client-id": "cl*1"}, {"consumer_byte_rate": 2048.0000001}),
    ({"user": None, "client-id": None}, {"consumer_byte_rate": 1e15}),
    ({"client-id": "app"}, {"request_percentage": 1e7}),
    ({"client-id": "app"}, {"unknown": None}),
    ({"ip": "127.9.0.1"}, {"connection_creation_rate": 100}),
    ({"ip": "localhost"}, {"connection_creation_rate": 1e6}),
    ({"ip": None}, {"connection_creation_rate": 2_000_000}),
    ({"user": "a"}, {"speed": 1}),
    ({"user": "a"}, {"connection_creation_rate": 1}),
    ({"user": "a"}, {"producer_byte_rate": 1.5}),
    ({"user": "a"}, {"producer_byte_rate": 1e19}),
    ({"ip": "127.9.0.1"}, {"producer_byte_rate": 1}),
    ({"ip": "127.9.0.1"}, {"connection_creation_rate": 1.5}),
    ({"ip": "127.9.0.1"}, {"connection_creation_rate": 3e9}),
    ({"ip": "no such host"}, {"connection_creation_rate": 1}),
    ({"ip": "127.9.0.1", "user": "a"}, {"connection_creation_rate": 1}),
    ({"user": ""}, {"producer_byte_rate": 1}),
    ({"group": "g"}, {"producer_byte_rate": 1}),
    ({}, {"producer_byte_rate": 1}),
]
FILTERS: list[tuple[list[QuotaComponent], bool]] = [
    ([], False),
    ([], True),
    ([("user", EXACT, "alice")], False),
    ([("user", EXACT, "alice")], True),
    ([("user", EXACT, "nobody")], False),
    ([("user", OF_DEFAULT, None)], False),
    ([("user", ANY, None)], False),
    ([("user", ANY, None)], True),
    ([("user", ANY, None), ("client-id", ANY, None)], True),
    ([("user", EXACT, "a/b c"), ("client-id", EXACT, "cl*1")], False),
    ([("client-id", ANY, None)], False),
    ([("client-id", OF_DEFAULT, None)], True),
    ([("ip", ANY, None)], False),
    ([("ip", OF_DEFAULT, None)], True),
    ([("ip", EXACT, "127.9.0.1")], True),
    ([("", ANY, None)], False),
    ([("group", ANY, None)], False),
    ([("user", ANY, None), ("user", ANY, None)], False),
    ([("ip", ANY, None), ("ip", ANY, None)], False),
    ([("user", ANY, None), ("ip", ANY, None)], False),
    ([("user", 3, None)], False),
    ([("user", EXACT, None)], False),
]


def alter(both: Both, names: EntityNames, **values: float | None) -> None:
    answer = both.ask_and_compare(AlterClientQuotasResponse, altering(names, values), 1)
    assert [entry.error_code for entry in answer.entries] == [0]


@pytest.fixture(autouse=True)
def no_quotas_afterwards(both: Both) -> Iterator[None]:
    yield
    for side in both.sides:
        answer = side.ask(DescribeClientQuotasResponse, describing(), 1)
        for entry in answer.entries or []:
            names = {part.entity_type: part.entity_name for part in entry.entity}
            values = dict.fromkeys((value.key for value in entry.values), None)
            side.ask(AlterClientQuotasResponse, altering(names, values), 1)


@pytest.fixture(scope="module")
def topic(both: Both) -> str:
    return both.create(TOPIC)


def in_force(both: Both) -> None:
    """Kafka obeys what was altered: it reads changes in order, and obeys this one, which shows at once."""
    client_id = next(_unused_clients)
    alter(both, {"user": USER, "client-id": client_id}, request_percentage=0.00001)
    until(lambda: asked_by(both.kafka, client_id).throttle_time_ms > 0, "Kafka obeys", 60)


def asked_by(side: Side, client_id: str) -> ApiVersionsResponse:
    connection = side.connect(client_id)
    answer = connection.ask(ApiVersionsResponse, ApiVersionsRequest(), 2)
    connection.close()
    return answer


def check_messages(theirs: Iterable[str | None], ours: Iterable[str | None]) -> None:
    """They are Kafka's, wherever Kafka has one."""
    assert [message for message, kafkas in zip(ours, theirs, strict=True) if kafkas not in (None, message)] == []


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_are_altered_and_described_as_kafka_does_it(both: Both, version: int) -> None:
    for names, values in ALTERATIONS:
        for validate_only in (True, False):
            request = altering(names, values, validate_only)
            answers = [side.ask(AlterClientQuotasResponse, request, version) for side in both.sides]
            both.compare(answers, version)
            check_messages(*([entry.error_message for entry in answer.entries] for answer in answers))
    for components, strict in FILTERS:
        request_of_filter = describing(*components, strict=strict)
        described = [side.ask(DescribeClientQuotasResponse, request_of_filter, version) for side in both.sides]
        both.compare(described, version)
        check_messages(*([answer.error_message] for answer in described))


def test_kafkas_tool_prints_the_same(both: Both) -> None:
    def run(side: Side, *arguments: str) -> str:
        return tool("configs", "--bootstrap-server", side.bootstrap, *arguments)

    pair = "--entity-type users --entity-name alice --entity-type clients --entity-name app".split()
    address = "--entity-type ips --entity-name 127.9.0.2".split()
    calls = [
        ["--alter", *pair, "--add-config", "producer_byte_rate=1024,request_percentage=50.5"],
        ["--describe", *pair],
        ["--alter", *address, "--add-config", "connection_creation_rate=77"],
        ["--describe", *address],
        ["--alter", "--entity-type", "clients", "--entity-default", "--add-config", "consumer_byte_rate=5000000"],
        ["--describe", "--entity-type", "clients"],
        ["--alter", *pair, "--delete-config", "producer_byte_rate"],
        ["--describe", "--entity-type", "users"],
    ]
    for call in calls:
        theirs, ours = (run(side, *call) for side in both.sides)
        assert ours == theirs, call
        assert ours or "--describe" in call


def throttled_produce(side: Side, client_id: str, size: int = 2000) -> int:
    """By a connection of its own, since it is muted afterwards."""
    connection = side.connect(client_id)
    request = ProduceRequest(acks=1, timeout_ms=60_000, topic_data=[produced(TOPIC, bytes(batch(1, size=size)))])
    answer = connection.ask(ProduceResponse, request, 9)
    connection.close()
    assert answer.responses[0].partition_responses[0].error_code == 0
    return answer.throttle_time_ms


def test_the_quota_that_applies_is_kafkas_and_so_are_the_throttle_times(both: Both, topic: str) -> None:
    """Each of the eight levels has another bound. First all are set; then those go that have decided."""
    levels: list[EntityNames] = [
        {"user": USER, "client-id": "c1"},
        {"user": USER, "client-id": None},
        {"user": USER},
        {"user": None, "client-id": "c4"},
        {"user": None, "client-id": None},
        {"user": None},
        {"client-id": "c7"},
        {"client-id": None},
    ]
    bounds = [10 * number for number in range(1, 9)]
    for names, bound in zip(levels, bounds, strict=True):
        alter(both, names, producer_byte_rate=bound)
    began_s, slack_ms = time.monotonic(), 0
    for decisive in ([0, 1], [2], [3, 4], [5], [6, 7]):
        in_force(both)
        for level in decisive:
            theirs, ours = both.map(lambda side, level=level: throttled_produce(side, f"c{level + 1}"))  # type: ignore[misc]
            if level == 5:  # it is the user's measure again, in which what came before still counts
                slack_ms = int((time.monotonic() - began_s) * 1000)
            assert abs(ours - theirs) <= (slack_ms if level == 5 else 0), (level, theirs, ours)
            assert theirs > 0
            alter(both, levels[level], producer_byte_rate=None)


def test_a_produce_is_throttled_by_what_came_before_it(both: Both, topic: str) -> None:
    client_id = next(_unused_clients)
    alter(both, {"client-id": client_id}, producer_byte_rate=999)
    in_force(both)
    began_s = time.monotonic()
    for size in (100, 5000, 20_000):
        theirs, ours = both.map(lambda side, size=size: throttled_produce(side, client_id, size))  # type: ignore[misc]
        assert abs(ours - theirs) <= (time.monotonic() - began_s) * 1000
    assert ours > 0


@pytest.mark.parametrize(("version", "epoch"), [(4, -1), (7, 0), (12, -1), (16, 0)])
def test_a_fetch_above_the_quota_is_empty_for_as_long(both: Both, topic: str, version: int, epoch: int) -> None:
    """The response is larger than the quota allows in its window, by what stands around the records."""
    both.produce(topic, *[bytes(batch(1, size=1000)) for _ in range(4)])
    client_id = next(_unused_clients)
    alter(both, {"client-id": client_id}, consumer_byte_rate=200)
    in_force(both)

    def fetch(side: Side) -> FetchResponse:
        part = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000_000)
        named = FetchRequest.FetchTopic(topic=topic, partitions=[part])
        if version >= 13:
            named = FetchRequest.FetchTopic(topic_id=side.id_of(topic), partitions=[part])
        request = FetchRequest(max_wait_ms=100, min_bytes=1, session_epoch=epoch, topics=[named])
        connection = side.connect(client_id)
        answer = connection.ask(FetchResponse, request, version)
        connection.close()
        return answer

    answers = both.map(fetch)
    both.compare(answers, version)
    assert (answers[1].responses, answers[1].session_id) == ([], 0)
    assert answers[1].throttle_time_ms > 0


def test_mutations_are_refused_and_throttled_as_kafka_does_it(both: Both) -> None:
    client_id = next(_unused_clients)
    alter(both, {"client-id": client_id}, controller_mutation_rate=0.1)
    in_force(both)

    def create(side: Side, name: str, partitions: int, version: int) -> CreateTopicsResponse:
        made = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        connection = side.connect(client_id)
        answer = connection.ask(CreateTopicsResponse, CreateTopicsRequest(topics=[made], timeout_ms=60_000), version)
        connection.close()
        return answer

    began_s = time.monotonic()
    for name, partitions, version in (("q-1", 3, 7), ("q-2", 1, 7), ("q-3", 1, 5), ("q-4", 1, 6)):
        theirs, ours = both.map(lambda side, made=(name, partitions, version): create(side, *made))  # type: ignore[misc]
        assert [topic.error_code for topic in ours.topics] == [topic.error_code for topic in theirs.topics]
        check_messages(*([topic.error_message for topic in answer.topics] for answer in (theirs, ours)))
        assert abs(ours.throttle_time_ms - theirs.throttle_time_ms) <= (time.monotonic() - began_s) * 1000
    assert ours.topics[0].error_code == 89


def test_the_time_of_requests_counts_and_is_throttled_for_one_window_at_most(both: Both) -> None:
    client_id = next(_unused_clients)
    alter(both, {"client-id": client_id}, request_percentage=0.00001)
    in_force(both)
    answers = both.map(lambda side: asked_by(side, client_id))
    assert [answer.throttle_time_ms for answer in answers] == [1000, 1000]


def test_a_throttled_connection_is_not_read_until_its_time_is_over(both: Both, topic: str) -> None:
    client_id = next(_unused_clients)
    alter(both, {"client-id": client_id}, producer_byte_rate=190)
    in_force(both)
    request = ProduceRequest(acks=1, timeout_ms=60_000, topic_data=[produced(topic, bytes(batch(1, size=2000)))])
    for side in both.sides:
        connection, began_s = side.connect(client_id), time.monotonic()
        throttle_ms = connection.ask(ProduceResponse, request, 9).throttle_time_ms
        assert throttle_ms > 500, side
        connection.ask(ApiVersionsResponse, ApiVersionsRequest(), 2)
        assert (time.monotonic() - began_s) * 1000 >= throttle_ms, side
        connection.close()


def test_an_address_that_connects_too_often_is_not_served(both: Both) -> None:
    address = "127.7.7.7"
    alter(both, {"ip": address}, connection_creation_rate=0)
    in_force(both)
    for side in both.sides:
        connection = side.connect(source=address)
        try:
            connection.send(ApiVersionsRequest(), 0)
            assert connection.receive() is None, side
        except OSError:
            pass  # it was closed before it could send
        finally:
            connection.close()
    alter(both, {"ip": address}, connection_creation_rate=None)
    in_force(both)
    for side in both.sides:
        connection = side.connect(source=address)
        assert connection.ask(ApiVersionsResponse, ApiVersionsRequest(), 0).error_code == 0, side
        connection.close()
