"""A follower's fetch by hand: the same bytes as the codec's, and nothing else is taken for one."""

import uuid
from struct import Struct
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from leadline.log.open_files import OpenFile
from leadline.log.segment import FileSlice
from leadline.wire import follower_fetch
from leadline.wire.frames import parse_response, request_frame, response_frame
from leadline.wire.messages import FetchRequest, FetchResponse
from tests.support.brokers import joined

LONGS, INTS = st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1)
IDS = st.integers(1, 2**31 - 1)
TOPICS = st.dictionaries(st.uuids(), st.lists(st.integers(0, 300), unique=True, max_size=150), max_size=4)


def _frame(request: FetchRequest, client_id: str | None = "broker-1") -> memoryview:
    return memoryview(bytearray(joined(request_frame(request, 16, 7, client_id)))[4:])


@st.composite
def requests(draw: Any) -> FetchRequest:
    topics = [
        FetchRequest.FetchTopic(
            topic_id=topic_id,
            partitions=[
                FetchRequest.FetchPartition(
                    partition=number,
                    current_leader_epoch=draw(INTS),
                    fetch_offset=draw(LONGS),
                    last_fetched_epoch=draw(INTS),
                    log_start_offset=draw(LONGS),
                    partition_max_bytes=draw(INTS),
                )
                for number in numbers
            ],
        )
        for topic_id, numbers in draw(st.dictionaries(st.uuids(), st.lists(st.integers(0, 9), max_size=5))).items()
    ]
    return FetchRequest(
        max_wait_ms=draw(INTS),
        min_bytes=draw(INTS),
        max_bytes=draw(INTS),
        session_id=draw(IDS),
        session_epoch=draw(IDS),
        topics=topics,
        replica_state=FetchRequest.ReplicaState(replica_id=draw(st.integers(0, 100)), replica_epoch=draw(LONGS)),
    )


@given(requests(), st.none() | st.text(max_size=20))
def test_a_request_is_read_as_the_codec_wrote_it(request: FetchRequest, client_id: str | None) -> None:
    parsed = follower_fetch.parse_request(_frame(request, client_id))
    assert parsed is not None
    assert parsed == (
        7,
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.session_id,
        request.session_epoch,
        [
            (
                topic.topic_id.bytes,
                part.partition,
                part.current_leader_epoch,
                part.fetch_offset,
                part.last_fetched_epoch,
                part.log_start_offset,
                part.partition_max_bytes,
            )
            for topic in request.topics
            for part in topic.partitions
        ],
        request.replica_state.replica_id,
        request.replica_state.replica_epoch,
    )


@given(requests(), st.text(max_size=20))
def test_a_request_is_written_as_the_codec_would(request: FetchRequest, client_id: str) -> None:
    request.topics = [topic for topic in request.topics if topic.partitions]
    asking = follower_fetch.parse_request(_frame(request))
    assert asking is not None
    assert follower_fetch.encode_request(asking, client_id) == joined(request_frame(request, 16, 7, client_id))


def test_requests_in_another_form_are_left_to_the_codec() -> None:
    state = FetchRequest.ReplicaState(replica_id=1, replica_epoch=5)
    common = FetchRequest(session_id=9, session_epoch=3, replica_state=state)
    assert follower_fetch.parse_request(_frame(common)) is not None
    forgotten = FetchRequest.ForgottenTopic(topic_id=uuid.uuid4(), partitions=[1])
    for name, value in (
        ("session_id", 0),
        ("session_epoch", 0),
        ("session_epoch", -1),
        ("forgotten_topics_data", [forgotten]),
        ("rack_id", "here"),
        ("cluster_id", "other"),
        ("replica_state", FetchRequest.ReplicaState()),
    ):
        uncommon = FetchRequest(session_id=9, session_epoch=3, replica_state=state)
        setattr(uncommon, name, value)
        assert follower_fetch.parse_request(_frame(uncommon)) is None, name


@given(st.binary(max_size=120), st.integers(0, 120))
def test_no_bytes_are_too_strange(data: bytes, length: int) -> None:
    request = FetchRequest(session_id=9, session_epoch=3, topics=[FetchRequest.FetchTopic(topic_id=uuid.uuid4())])
    follower_fetch.parse_request(memoryview(bytes(_frame(request)[:length]) + data))
    follower_fetch.parse_response(memoryview(bytes(_answer(FetchResponse(session_id=9))[:length]) + data))


class CountedStruct:
    """Counts how often it reads."""

    def __init__(self, struct: Struct) -> None:
        self.struct, self.size, self.reads = struct, struct.size, 0

    def unpack_from(self, data: memoryview, at: int) -> tuple[Any, ...]:
        self.reads += 1
        return self.struct.unpack_from(data, at)


def test_a_request_for_more_partitions_than_there_may_be_is_left_to_the_codec(monkeypatch: Any) -> None:
    partition = FetchRequest.FetchPartition(partition=1)
    topic = FetchRequest.FetchTopic(
        topic_id=uuid.uuid4(), partitions=[partition] * (follower_fetch.MOST_PARTITIONS + 1)
    )
    frame = _frame(FetchRequest(session_id=5, session_epoch=5, topics=[topic]))
    counted = CountedStruct(follower_fetch._POSITION)
    monkeypatch.setattr(follower_fetch, "_POSITION", counted)
    assert follower_fetch.parse_request(frame) is None
    assert counted.reads == 0


def test_topics_share_the_limit_of_partitions(monkeypatch: Any) -> None:
    partition = FetchRequest.FetchPartition(partition=1)
    half = follower_fetch.MOST_PARTITIONS // 2 + 1
    topics = [FetchRequest.FetchTopic(topic_id=uuid.uuid4(), partitions=[partition] * half) for _ in range(4)]
    frame = _frame(FetchRequest(session_id=5, session_epoch=5, topics=topics))
    counted = CountedStruct(follower_fetch._POSITION)
    monkeypatch.setattr(follower_fetch, "_POSITION", counted)
    assert follower_fetch.parse_request(frame) is None
    assert counted.reads == half


@given(TOPICS, LONGS, st.booleans())
def test_an_answer_is_what_the_codec_would_write(
    topics: dict[uuid.UUID, list[int]], mark: int, with_records: bool
) -> None:
    topics = {topic_id: numbers for topic_id, numbers in topics.items() if numbers}
    with open(__file__, "rb") as file:
        opened = OpenFile.__new__(OpenFile)
        opened.fd, opened.path = file.fileno(), __file__
        records = FileSlice(opened, 3, 200) if with_records else None
        by_hand = follower_fetch.encode_response(
            11,
            77,
            [
                follower_fetch.FetchedPartition(topic_id.bytes, number, mark, mark, mark, records)
                for topic_id, numbers in topics.items()
                for number in numbers
            ],
        )
        response = FetchResponse(session_id=77)
        for topic_id, numbers in topics.items():
            parts = [
                FetchResponse.PartitionData(
                    partition_index=number,
                    high_watermark=mark,
                    last_stable_offset=mark,
                    log_start_offset=mark,
                    aborted_transactions=None,
                    records=records if records is not None else b"",
                )
                for number in numbers
            ]
            response.responses.append(FetchResponse.FetchableTopicResponse(topic_id=topic_id, partitions=parts))
        written = joined(by_hand)
        assert written == joined(response_frame(response, 16, 11))
        opened.fd = -1
    assert parse_response(FetchResponse, bytearray(written[4:]), 16)[0] == 11


def _answer(response: FetchResponse) -> memoryview:
    return memoryview(bytearray(joined(response_frame(response, 16, 11)))[4:])


@given(TOPICS, LONGS, LONGS, LONGS, st.binary(max_size=300), st.none() | st.just([]))
def test_an_answer_is_read_as_the_codec_wrote_it(
    topics: dict[uuid.UUID, list[int]], safe: int, stable: int, start: int, records: bytes, aborted: list[Any] | None
) -> None:
    response = FetchResponse(session_id=77)
    for topic_id, numbers in topics.items():
        parts = [
            FetchResponse.PartitionData(
                partition_index=number,
                high_watermark=safe,
                last_stable_offset=stable,
                log_start_offset=start,
                aborted_transactions=aborted,
                records=records,
            )
            for number in numbers
        ]
        response.responses.append(FetchResponse.FetchableTopicResponse(topic_id=topic_id, partitions=parts))
    expected = [
        (topic_id.bytes, number, safe, stable, start, records or None)
        for topic_id, numbers in topics.items()
        for number in numbers
    ]
    assert follower_fetch.parse_response(_answer(response)) == (77, expected)


def test_an_answer_with_anything_else_in_it_is_left_to_the_codec() -> None:
    def answered(*changes: tuple[str, object], **whole: Any) -> memoryview:
        part = FetchResponse.PartitionData(records=b"records")
        for name, value in changes:
            setattr(part, name, value)
        topic = FetchResponse.FetchableTopicResponse(topic_id=uuid.uuid4(), partitions=[part])
        return _answer(FetchResponse(session_id=9, responses=[topic], **whole))

    assert follower_fetch.parse_response(answered()) is not None
    for change in (
        ("error_code", 6),
        ("records", None),
        ("diverging_epoch", FetchResponse.EpochEndOffset(epoch=3, end_offset=5)),
        ("current_leader", FetchResponse.LeaderIdAndEpoch(leader_id=3, leader_epoch=5)),
        ("aborted_transactions", [FetchResponse.AbortedTransaction(producer_id=1, first_offset=2)]),
    ):
        assert follower_fetch.parse_response(answered(change)) is None, change
    assert follower_fetch.parse_response(answered(error_code=70)) is None
    assert follower_fetch.parse_response(answered(throttle_time_ms=5)) is None
    assert follower_fetch.parse_response(answered(node_endpoints=[FetchResponse.NodeEndpoint(node_id=1)])) is None
