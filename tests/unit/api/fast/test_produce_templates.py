"""Templates of produce requests: a request with the prefix of an earlier one means the same, and no other does."""

from collections.abc import Callable

import pytest

from leadline.api.fast.produce import match_template
from leadline.api.fast.produce_templates import MOST, MOST_BYTES, NEWEST, OLDEST, ProduceTemplates
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


def learned(request: ProduceRequest, version: int, client: str | None = "me") -> ProduceTemplates:
    templates, frame = ProduceTemplates(), frame_of(request, version, client=client)
    learn(templates, frame, version)
    return templates


def learn(templates: ProduceTemplates, frame: memoryview, version: int) -> None:
    body_at = request_head(frame).body_at
    request, _ = decode_from(ProduceRequest, frame, version, body_at)
    templates.learn(frame, body_at, request, version)


@pytest.mark.parametrize("client", ["me", "", None])
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [1, 60, 100, 9000, 3_000_000])
def test_the_next_request_of_a_producer_matches_with_its_own_records(
    version: int, size: int, client: str | None
) -> None:
    templates, records = learned(produce(), version, client), batch(b"x" * size)
    match = match_template(templates, frame_of(produce(records), version, 12, client), version)
    assert match is not None
    template, view = match
    assert (template.tp, bytes(view)) == (TopicPartition("orders", 3), records)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_reply_is_the_one_that_the_codec_makes(version: int) -> None:
    match = match_template(learned(produce(), version), frame_of(produce(), version), version)
    assert match is not None
    template, _ = match
    reply = template.response.pack(template.size, 99, template.front, 5_000_000_000, -1, 17, template.back)
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
def test_another_prefix_does_not_match(version: int, other: str) -> None:
    assert match_template(learned(produce(), version), frame_of(OTHERS[other](), version), version) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_another_client_or_version_does_not_match(version: int) -> None:
    templates = learned(produce(), version)
    assert match_template(templates, frame_of(produce(), version, client="you"), version) is None
    assert all(
        match_template(templates, frame_of(produce(), other), other) is None for other in VERSIONS if other != version
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_a_frame_that_is_cut_or_has_more_does_not_match(version: int) -> None:
    templates, whole = learned(produce(), version), bytes(frame_of(produce(), version))
    assert all(match_template(templates, memoryview(whole[:length]), version) is None for length in range(len(whole)))
    assert match_template(templates, memoryview(whole + b"\0"), version) is None


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
def test_a_request_that_needs_more_checks_becomes_no_template(
    version: int, request_of: Callable[[], ProduceRequest]
) -> None:
    request = request_of()
    assert match_template(learned(request, version), frame_of(request, version), version) is None


def test_a_length_that_is_encoded_differently_becomes_no_template() -> None:
    """As two bytes of a number that needs but one: it would end where another request goes on."""
    plain = bytes(frame_of(produce(), NEWEST))
    at = request_head(plain).body_at
    odd = memoryview(plain[:at] + b"\x80\x00" + plain[at + 1 :])  # no transactional id
    templates = ProduceTemplates()
    learn(templates, odd, NEWEST)
    assert match_template(templates, odd, NEWEST) is None


def test_all_templates_are_forgotten_when_there_are_too_many() -> None:
    templates = learned(produce(), NEWEST)
    for n in range(MOST):
        learn(templates, frame_of(produce(index=n), NEWEST, client="others"), NEWEST)
    assert match_template(templates, frame_of(produce(), NEWEST), NEWEST) is None
    assert match_template(templates, frame_of(produce(index=MOST - 1), NEWEST, client="others"), NEWEST) is not None


@pytest.mark.parametrize("version", VERSIONS)
def test_a_very_long_name_becomes_no_template(version: int) -> None:
    """A template keeps the prefix of a request: 4096 of 32 KB would be 128 MB."""
    name = "x" * MOST_BYTES
    assert (
        match_template(learned(produce(), version, client=name), frame_of(produce(), version, client=name), version)
        is None
    )
