"""Lanes: whoever begins like one before is understood like it, and nobody else is."""

from collections.abc import Callable

import pytest

from leadline.api.fast.produce_templates import MOST, MOST_BYTES, NEWEST, OLDEST, Lanes
from leadline.model import TopicPartition
from leadline.records.build import BatchFields, build
from leadline.records.record import Record
from leadline.wire.codec import decode_from
from leadline.wire.frames import parse_response, request_frame, request_head
from leadline.wire.messages import ProduceRequest, ProduceResponse

VERSIONS = range(OLDEST, NEWEST + 1)
DATA, TOPIC = ProduceRequest.PartitionProduceData, ProduceRequest.TopicProduceData


def batch(value: bytes = b"value", *, transactional: bool = False) -> bytes:
    fields = BatchFields(producer_id=1, producer_epoch=0, base_sequence=0, transactional=transactional)
    return bytes(build([Record(0, 0, None, value)], fields))


def produce(records: bytes | None = None, index: int = 3, topic: str = "orders", acks: int = -1) -> ProduceRequest:
    data = DATA(index=index, records=batch() if records is None else records)
    return ProduceRequest(acks=acks, timeout_ms=1500, topic_data=[TOPIC(name=topic, partition_data=[data])])


def frame_of(request: ProduceRequest, version: int, correlation_id: int = 7, client: str | None = "me") -> memoryview:
    pieces = request_frame(request, version, correlation_id, client)
    return memoryview(b"".join(bytes(piece) for piece in pieces if isinstance(piece, bytes | bytearray))[4:])


def opened(request: ProduceRequest, version: int, client: str | None = "me") -> Lanes:
    lanes, frame = Lanes(), frame_of(request, version, client=client)
    open_with(lanes, frame, version)
    return lanes


def open_with(lanes: Lanes, frame: memoryview, version: int) -> None:
    body_at = request_head(frame).body_at
    request, _ = decode_from(ProduceRequest, frame, version, body_at)
    lanes.open(frame, body_at, request, version)


@pytest.mark.parametrize("client", ["me", "", None])
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [1, 60, 100, 9000, 3_000_000])
def test_the_next_one_of_a_producer_is_in_its_lane_with_its_own_records(
    version: int, size: int, client: str | None
) -> None:
    lanes, records = opened(produce(), version, client), batch(b"x" * size)
    found = lanes.find(frame_of(produce(records), version, 12, client))
    assert found is not None
    lane, view, found_version, correlation_id = found
    found_at = (lane.tp, bytes(view), found_version, correlation_id)
    assert found_at == (TopicPartition("orders", 3), records, version, 12)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_reply_is_the_one_that_the_codec_makes(version: int) -> None:
    found = opened(produce(), version).find(frame_of(produce(), version))
    assert found is not None
    reply = found[0].reply(99, 5_000_000_000, -1, 17)
    assert int.from_bytes(reply[:4]) == len(reply) - 4
    correlation_id, answer = parse_response(ProduceResponse, reply[4:], version)
    part = ProduceResponse.PartitionProduceResponse(index=3, base_offset=5_000_000_000, log_start_offset=17)
    topic = ProduceResponse.TopicProduceResponse(name="orders", partition_responses=[part])
    assert (correlation_id, answer) == (99, ProduceResponse(responses=[topic]))


OTHERS: dict[str, Callable[[], ProduceRequest]] = {
    "another partition": lambda: produce(index=4),
    "another topic": lambda: produce(topic="orderz"),
    "a topic with another length": lambda: produce(topic="orders2"),
    "other acks": lambda: produce(acks=1),
    "no records": lambda: produce(b""),
    "records of a transaction": lambda: produce(batch(transactional=True)),
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("other", OTHERS)
def test_who_says_something_else_is_not_in_the_lane(version: int, other: str) -> None:
    assert opened(produce(), version).find(frame_of(OTHERS[other](), version)) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_neither_is_another_client_nor_another_version(version: int) -> None:
    lanes = opened(produce(), version)
    assert lanes.find(frame_of(produce(), version, client="you")) is None
    assert all(lanes.find(frame_of(produce(), other)) is None for other in VERSIONS if other != version)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_frame_that_was_cut_or_has_more_is_in_no_lane(version: int) -> None:
    lanes, whole = opened(produce(), version), bytes(frame_of(produce(), version))
    assert all(lanes.find(memoryview(whole[:length])) is None for length in range(len(whole)))
    assert lanes.find(memoryview(whole + b"\0")) is None


def _of_two_partitions() -> ProduceRequest:
    data = [DATA(index=0, records=batch()), DATA(index=1, records=batch())]
    return ProduceRequest(acks=-1, topic_data=[TOPIC(name="orders", partition_data=data)])


def _of_a_transaction() -> ProduceRequest:
    request = produce()
    request.transactional_id = "payments"
    return request


@pytest.mark.parametrize(
    "request_of",
    [
        _of_two_partitions,
        _of_a_transaction,
        lambda: produce(acks=0),
        lambda: produce(acks=5),
        lambda: produce(topic="__consumer_offsets"),
        lambda: ProduceRequest(acks=1),
    ],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_what_takes_a_look_opens_no_lane(version: int, request_of: Callable[[], ProduceRequest]) -> None:
    request = request_of()
    assert opened(request, version).find(frame_of(request, version)) is None


def test_a_length_that_is_written_in_another_way_opens_no_lane() -> None:
    """As two bytes of a number that needs but one: it would end where another request goes on."""
    plain = bytes(frame_of(produce(), NEWEST))
    at = request_head(plain).body_at
    odd = memoryview(plain[:at] + b"\x80\x00" + plain[at + 1 :])  # no transactional id
    lanes = Lanes()
    open_with(lanes, odd, NEWEST)
    assert lanes.find(odd) is None


def test_lanes_are_forgotten_when_there_are_too_many() -> None:
    lanes = opened(produce(), NEWEST)
    for n in range(MOST):
        open_with(lanes, frame_of(produce(index=n), NEWEST, client="others"), NEWEST)
    assert lanes.find(frame_of(produce(), NEWEST)) is None
    assert lanes.find(frame_of(produce(index=MOST - 1), NEWEST, client="others")) is not None


@pytest.mark.parametrize("version", VERSIONS)
def test_a_name_that_is_very_long_opens_no_lane(version: int) -> None:
    """A lane keeps the beginning of a request: 4096 of 32 KB would be 128 MB."""
    name = "x" * MOST_BYTES
    assert opened(produce(), version, client=name).find(frame_of(produce(), version, client=name)) is None
