"""Fetch, answered as Kafka does: offsets, limits, waiting, epochs, topic ids and incremental sessions."""

import time
from collections.abc import Callable
from uuid import UUID

import pytest

from leadline.wire.frames import parse_response
from leadline.wire.messages import FetchRequest, FetchResponse, ProduceRequest, ProduceResponse
from tests.conformance.both import Both, Side, produced
from tests.conformance.test_requests_offsets import delete
from tests.support.logs import START_MS, batch

pytestmark = pytest.mark.conformance

VERSIONS, NEW = range(17), range(4, 17)
UNKNOWN_ID = UUID("01234567-89ab-cdef-0123-456789abcdef")
PARTITION = FetchRequest.FetchPartition
MOST = (1 << 31) - 1

Topics = dict[str, list[FetchRequest.FetchPartition]]
Make = Callable[[Side], FetchRequest]


def fetching(
    version: int,
    topics: Topics,
    *,
    max_bytes: int = MOST,
    min_bytes: int = 1,
    wait_ms: int = 0,
    isolation: int = 0,
    session: dict[str, int] | int = 0,
    epoch: int = -1,
    forgotten: dict[str, list[int]] | None = None,
) -> Make:
    """Version 13 and later name topics by id, which each side has of its own; `session`: likewise."""

    def topic_id(side: Side, name: str) -> UUID:
        return UNKNOWN_ID if name == "missing" else side.id_of(name)

    def make(side: Side) -> FetchRequest:
        by_id = version >= 13
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=isolation,
            topics=[
                FetchRequest.FetchTopic(topic_id=topic_id(side, name), partitions=parts)
                if by_id
                else FetchRequest.FetchTopic(topic=name, partitions=parts)
                for name, parts in topics.items()
            ],
        )
        if version >= 7:
            request.session_id = session if isinstance(session, int) else session[side.name]
            request.session_epoch = epoch
            request.forgotten_topics_data = [
                FetchRequest.ForgottenTopic(topic_id=topic_id(side, name), partitions=parts)
                if by_id
                else FetchRequest.ForgottenTopic(topic=name, partitions=parts)
                for name, parts in (forgotten or {}).items()
            ]
        return request

    return make


def part(partition: int, offset: int, limit: int = 1 << 20, **more: int) -> FetchRequest.FetchPartition:
    return PARTITION(partition=partition, fetch_offset=offset, partition_max_bytes=limit, **more)


@pytest.fixture(scope="module")
def topic(both: Both) -> str:
    """Partition 0: offsets 2 to 13 in batches of three, of which 0 and 1 are deleted; 1: empty; 2: 9 records."""
    name = both.create("fetched", 3)
    both.produce(name, *(bytes(batch(3, timestamp=START_MS + n)) for n in range(4)))
    both.produce(name, *(bytes(batch(3, size=100, timestamp=START_MS + n)) for n in range(3)), partition=2)
    delete(both, 2, name, p0=2)
    return name


@pytest.mark.parametrize(("version", "isolation"), [(n, 0) for n in VERSIONS] + [(n, 1) for n in NEW])
def test_offsets_inside_and_outside_of_the_log_are_answered_as_kafka_does(
    both: Both, topic: str, version: int, isolation: int
) -> None:
    for offset in (0, 1, 2, 3, 5, 11, 12, 13, -1, 1 << 40):
        both.ask_and_compare(FetchResponse, fetching(version, {topic: [part(0, offset)]}, isolation=isolation), version)
    partitions = [part(0, 4), part(1, 0), part(2, 0), part(3, 0), part(-1, 0)]
    both.ask_and_compare(
        FetchResponse, fetching(version, {topic: partitions, "missing": [part(0, 0), part(7, 1)]}), version
    )
    both.ask_and_compare(FetchResponse, fetching(version, {}), version)
    both.ask_and_compare(FetchResponse, fetching(version, {topic: []}), version)


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4, 11, 12, 13, 16])
def test_the_limits_of_bytes_cut_answers_where_kafka_does(both: Both, topic: str, version: int) -> None:
    for limit in (0, 1, 50, 100, 118, 119, 120, 236, 237, 1000):
        both.ask_and_compare(FetchResponse, fetching(version, {topic: [part(0, 3, limit)]}), version)
        both.ask_and_compare(
            FetchResponse, fetching(version, {topic: [part(0, 3), part(2, 0)]}, max_bytes=limit), version
        )
        both.ask_and_compare(
            FetchResponse, fetching(version, {topic: [part(1, 0), part(2, 2, limit), part(0, 2)]}), version
        )


@pytest.mark.parametrize("version", range(9, 17))
@pytest.mark.parametrize("epoch", [-1, 0, 1, 9, -2])
def test_the_leader_epoch_of_a_fetch_is_checked_as_kafka_does(both: Both, topic: str, version: int, epoch: int) -> None:
    partitions = [part(0, 3, current_leader_epoch=epoch), part(5, 3, current_leader_epoch=epoch)]
    both.ask_and_compare(FetchResponse, fetching(version, {topic: partitions}), version)


@pytest.mark.parametrize("version", range(12, 17))
@pytest.mark.parametrize("epoch", [0, 1, 7, -2])
@pytest.mark.parametrize("offset", [0, 3, 12, 13])
def test_a_diverging_epoch_is_answered_as_kafka_does(
    both: Both, topic: str, version: int, epoch: int, offset: int
) -> None:
    both.ask_and_compare(
        FetchResponse, fetching(version, {topic: [part(0, offset, last_fetched_epoch=epoch)]}), version
    )


def test_unknown_topic_ids_are_refused_as_kafka_does(both: Both, topic: str) -> None:
    request = FetchRequest(topics=[FetchRequest.FetchTopic(topic_id=UNKNOWN_ID, partitions=[part(0, 0)])])
    for version in (13, 16):
        for epoch in (-1, 0):
            request.session_epoch = epoch
            both.ask_and_compare(FetchResponse, request, version)


@pytest.mark.parametrize("version", [3, 4, 7, 12, 16])
def test_a_batch_larger_than_every_limit_comes_alone_and_whole(both: Both, version: int) -> None:
    topic = both.create(f"large-{version}", 2)
    both.produce(topic, bytes(batch(size=100_000)), bytes(batch()))
    both.produce(topic, bytes(batch(size=50_000)), partition=1)
    for partitions in ([part(0, 0, 1000)], [part(0, 0, 1000), part(1, 0, 1000)], [part(1, 0, 10), part(0, 1, 10)]):
        answer = both.ask_and_compare(FetchResponse, fetching(version, {topic: partitions}, max_bytes=500), version)
        records = answer.responses[0].partitions[0].records
        assert isinstance(records, memoryview)
        assert len(records) > 50_000


@pytest.mark.parametrize("version", [0, 3, 4, 16])
def test_what_is_not_enough_is_waited_for(both: Both, version: int) -> None:
    topic = both.create(f"awaited-{version}")
    request = fetching(version, {topic: [part(0, 0)]}, wait_ms=300)

    def timed(make: Make) -> FetchResponse:
        took = []
        answers = []
        for side in both.sides:
            started = time.monotonic()
            answers.append(side.ask(FetchResponse, make(side), version))
            took.append(time.monotonic() - started)
        assert all(0.28 < seconds < 30 for seconds in took), took
        return both.compare(answers, version)

    timed(request)
    both.produce(topic, bytes(batch(3)))
    timed(fetching(version, {topic: [part(0, 3)]}, wait_ms=300))
    timed(fetching(version, {topic: [part(0, 0)]}, wait_ms=300, min_bytes=100_000))
    both.ask_and_compare(
        FetchResponse, fetching(version, {topic: [part(0, 4)]}, wait_ms=5000), version
    )  # an error does not wait
    both.ask_and_compare(FetchResponse, fetching(version, {topic: [part(0, 0)]}, wait_ms=5000, min_bytes=0), version)
    both.ask_and_compare(FetchResponse, fetching(version, {}, wait_ms=5000), version)


@pytest.mark.parametrize("version", [1, 4, 16])
def test_a_waiting_fetch_is_woken_by_new_records(both: Both, version: int) -> None:
    topic = both.create(f"woken-{version}", 2)

    connections = both.map(Side.connect)
    request = fetching(version, {topic: [part(0, 0), part(1, 0)]}, wait_ms=10_000)
    for side, connection in zip(both.sides, connections, strict=True):
        connection.send(request(side), version)
    # Both wait once a later fetch has given up.
    both.ask_and_compare(FetchResponse, fetching(version, {topic: [part(0, 0)]}, wait_ms=200), version)
    for side in both.sides:
        produce(side, topic, bytes(batch(2)))
    answers = []
    for connection in connections:
        frame = connection.receive()
        assert frame is not None
        answers.append(parse_response(FetchResponse, frame, version)[1])
        connection.close()
    both.compare(answers, version)


def produce(side: Side, topic: str, data: bytes) -> None:
    connection = side.connect()
    connection.ask(ProduceResponse, ProduceRequest(acks=-1, timeout_ms=9999, topic_data=[produced(topic, data)]), 9)
    connection.close()


@pytest.mark.parametrize("version", range(7, 17))
def test_a_session_returns_only_changed_partitions(both: Both, version: int) -> None:
    topic = both.create(f"session-{version}", 3)
    both.produce(topic, bytes(batch(3)))
    ids: dict[str, int] = {}

    def go_on(epoch: int, topics: Topics, forgotten: dict[str, list[int]] | None = None) -> FetchResponse:
        make = fetching(version, topics, session=ids or 0, epoch=epoch, forgotten=forgotten)
        answers = [side.ask(FetchResponse, make(side), version) for side in both.sides]
        ids.update(
            {side.name: answer.session_id for side, answer in zip(both.sides, answers, strict=True)} if not ids else {}
        )
        return both.compare(answers, version)

    assert go_on(0, {topic: [part(0, 0), part(1, 0), part(2, 0)]}).session_id > 0
    go_on(1, {})  # the same records again
    go_on(2, {topic: [part(0, 3)]})
    assert not go_on(3, {}).responses
    both.produce(topic, bytes(batch(2)), partition=1)
    go_on(4, {})
    go_on(5, {topic: [part(1, 2)]})
    go_on(6, {"missing": [part(0, 0)]} if version < 13 else {topic: [part(7, 0)]})
    go_on(7, {})
    go_on(8, {topic: [part(2, 5)]})  # beyond the end
    go_on(9, {})
    go_on(10, {topic: [part(2, 0)]}, {"missing": [0]} if version < 13 else {topic: [7]})
    both.produce(topic, bytes(batch(2)), partition=1)
    go_on(11, {}, {topic: [1]})  # forgotten before it could be told
    go_on(12, {topic: [part(1, 2)]})
    go_on(13, {topic: [part(1, 0)]}, {topic: [1, 5]})
    for epoch, session in ((3, ids), (15, ids), (14, 77), (99, 78)):
        both.ask_and_compare(FetchResponse, fetching(version, {}, session=session, epoch=epoch), version)
    go_on(14, {})
    both.ask_and_compare(
        FetchResponse, fetching(version, {topic: [part(0, 0)]}, session=ids, epoch=-1), version
    )  # closes it
    both.ask_and_compare(FetchResponse, fetching(version, {}, session=ids, epoch=15), version)


@pytest.mark.parametrize("version", [7, 12, 16])
def test_a_session_is_replaced_by_a_new_one(both: Both, topic: str, version: int) -> None:
    for epoch, session in ((0, 0), (-1, 0), (0, 123), (-1, 123)):
        both.ask_and_compare(
            FetchResponse, fetching(version, {topic: [part(0, 3)]}, session=session, epoch=epoch), version
        )
    both.ask_and_compare(FetchResponse, fetching(version, {}, session=0, epoch=0), version)
    both.ask_and_compare(FetchResponse, fetching(version, {}, session=0, epoch=1), version)
    both.ask_and_compare(FetchResponse, fetching(version, {}, session=0, epoch=-5), version)


@pytest.mark.parametrize(("opened", "resumed"), [(12, 13), (16, 12)])
def test_a_session_goes_by_names_or_by_ids_not_by_both(both: Both, topic: str, opened: int, resumed: int) -> None:
    ids = open_session(both, opened, {topic: [part(0, 3)]})
    answer = both.ask_and_compare(FetchResponse, fetching(resumed, {}, session=ids, epoch=1), resumed)
    assert answer.error_code == 106
    both.ask_and_compare(FetchResponse, fetching(opened, {}, session=ids, epoch=1), opened)


@pytest.mark.parametrize("version", [7, 12, 16])
def test_a_session_ends_with_its_last_partition(both: Both, topic: str, version: int) -> None:
    ids = open_session(both, version, {topic: [part(0, 3), part(1, 0)]})
    forgotten = {topic: [0, 1]}
    answer = both.ask_and_compare(
        FetchResponse, fetching(version, {}, session=ids, epoch=1, forgotten=forgotten), version
    )
    assert answer.session_id == 0
    both.ask_and_compare(FetchResponse, fetching(version, {}, session=ids, epoch=2), version)


def open_session(both: Both, version: int, topics: Topics, max_bytes: int = MOST) -> dict[str, int]:
    make = fetching(version, topics, epoch=0, max_bytes=max_bytes)
    return {side.name: side.ask(FetchResponse, make(side), version).session_id for side in both.sides}


@pytest.mark.parametrize("version", [0, 3, 4, 12, 13, 16])
def test_what_does_not_exist_does_not_hurry_the_rest(both: Both, topic: str, version: int) -> None:
    started = time.monotonic()
    topics = {topic: [part(1, 0), part(9, 0)], "missing": [part(0, 0)]}
    both.ask_and_compare(FetchResponse, fetching(version, topics, wait_ms=200), version)
    assert time.monotonic() - started > 0.35
    both.ask_and_compare(FetchResponse, fetching(version, {"missing": [part(0, 0)]}, wait_ms=10_000), version)
    both.ask_and_compare(
        FetchResponse, fetching(version, {topic: [part(0, 3)]}, wait_ms=9000, min_bytes=999, max_bytes=100), version
    )


@pytest.mark.parametrize("version", [0, 3, 4, 9, 10, 12])
def test_zstd_is_not_for_old_clients(both: Both, version: int) -> None:
    topic = both.create(f"zstd-{version}", compression_type="zstd")
    both.produce(topic, bytes(batch(3)))
    for offset in (0, 3, 9):
        both.ask_and_compare(FetchResponse, fetching(version, {topic: [part(0, offset)]}), version)


def test_a_partition_that_gives_much_does_not_starve_the_others(both: Both) -> None:
    topic = both.create("fair", 3)
    for partition in range(3):
        both.produce(topic, *(bytes(batch(size=1000)) for _ in range(3)), partition=partition)
    ids = open_session(both, 12, {topic: [part(n, 0) for n in range(3)]}, max_bytes=1100)
    for epoch in range(1, 5):
        both.ask_and_compare(FetchResponse, fetching(12, {}, session=ids, epoch=epoch, max_bytes=1100), 12)
