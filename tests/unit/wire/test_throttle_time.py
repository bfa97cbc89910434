"""The throttle time in responses that are encoded already."""

import pytest

from leadline.wire.classes import Message
from leadline.wire.frames import parse_response, response_frame
from leadline.wire.messages import OffsetCommitResponse, ProduceResponse
from leadline.wire.throttle_time import with_throttle_time
from tests.support.brokers import joined

PART = ProduceResponse.PartitionProduceResponse(index=3, base_offset=7, log_append_time_ms=8, log_start_offset=9)
COMMITTED = OffsetCommitResponse.OffsetCommitResponsePartition(partition_index=3, error_code=5)
RESPONSES: list[Message] = [
    ProduceResponse(responses=[ProduceResponse.TopicProduceResponse(name="t", partition_responses=[PART])]),
    OffsetCommitResponse(topics=[OffsetCommitResponse.OffsetCommitResponseTopic(name="t", partitions=[COMMITTED])]),
]


@pytest.mark.parametrize(
    ("response", "version"),
    [(RESPONSES[0], version) for version in range(7, 12)] + [(RESPONSES[1], version) for version in range(6, 10)],
)
def test_it_is_put_where_the_codec_reads_it_and_nothing_else_changes(response: Message, version: int) -> None:
    assert response.API_KEY is not None
    pieces = response_frame(response, version, 77)
    for reply in (pieces, bytes(joined(pieces))):
        frame = with_throttle_time(reply, response.API_KEY, version, 123_456)
        correlation_id, decoded = parse_response(type(response), memoryview(frame)[4:], version)
        assert (correlation_id, getattr(decoded, "throttle_time_ms", None)) == (77, 123_456)
        assert with_throttle_time(frame, response.API_KEY, version, 0) == bytes(joined(pieces))
