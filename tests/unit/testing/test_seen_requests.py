"""Requests as the report of a failed test shows them."""

from uuid import UUID

from leadline.testing.seen_requests import MOST_KEPT_BYTES, SeenRequest, seen_request
from leadline.wire.frames import FRONT, request_frame, response_frame
from leadline.wire.messages import ProduceRequest, ProduceResponse
from tests.support.brokers import joined

VERSION = 9


def produce(*partitions: int, records: bytes = b"", client_id: str | None = "app") -> SeenRequest:
    data = [ProduceRequest.PartitionProduceData(index=n, records=records) for n in partitions]
    request = ProduceRequest(acks=1, topic_data=[ProduceRequest.TopicProduceData(name="orders", partition_data=data)])
    frame = memoryview(joined(request_frame(request, VERSION, 7, client_id)))[4:]
    front = FRONT.unpack_from(frame)
    return seen_request(1, 1_700_000_000_000, frame, front, "127.0.0.1", dict[UUID, str](), set[str]())


def answered(request: SeenRequest, *codes: int) -> SeenRequest:
    parts = [ProduceResponse.PartitionProduceResponse(index=n, error_code=code) for n, code in enumerate(codes)]
    topic = ProduceResponse.TopicProduceResponse(name="orders", partition_responses=parts)
    request.response = bytes(joined(response_frame(ProduceResponse(responses=[topic]), VERSION, 7)))
    request.took_s = 0.012
    return request


def test_it_names_what_it_is_about() -> None:
    request = produce(0, 1)
    assert (request.api, request.client_id, request.is_of_broker) == ("Produce", "app", False)
    assert [(part.topic, part.partition) for part in request.parts] == [("orders", 0), ("orders", 1)]


def test_errors_of_its_response_are_collected_without_successes() -> None:
    assert produce(0).error_codes() == set()
    assert answered(produce(0, 1, 2), 0, 6, 3).error_codes() == {3, 6}


def test_a_line_has_the_time_the_partitions_and_the_outcome() -> None:
    line = produce(0).line(str)
    assert line == "2023-11-14 22:13:20.000  broker 1  Produce v9 from app  orders-0  no response yet"
    line = answered(produce(*range(6), client_id=None), 6).line({6: "NOT_LEADER"}.__getitem__)
    assert "from (no client id)  orders-0 orders-1 orders-2 orders-3 and 2 more  12 ms  NOT_LEADER" in line


def test_a_large_request_is_kept_in_part_and_not_decoded() -> None:
    request = produce(0, records=bytes(MOST_KEPT_BYTES))
    assert (request.message, request.parts, len(request.frame)) == (None, [], 64)
    assert request.size > MOST_KEPT_BYTES


def test_requests_that_look_alike_repeat_each_other() -> None:
    assert produce(0).repeats(produce(0))
    assert not produce(0).repeats(produce(1))
    assert not produce(0).repeats(answered(produce(0), 6))
