"""Error codes are found wherever they stand in a response."""

from leadline.wire.error_codes import error_codes
from leadline.wire.messages import ApiVersionsResponse, FetchResponse, HeartbeatResponse, MetadataResponse


def test_codes_are_read_from_the_response_and_from_the_structs_in_its_arrays() -> None:
    topics = [
        FetchResponse.FetchableTopicResponse(
            partitions=[FetchResponse.PartitionData(error_code=code) for code in (0, 6, 1)]
        ),
        FetchResponse.FetchableTopicResponse(),
    ]
    assert error_codes(FetchResponse(error_code=70, responses=topics)) == [70, 6, 1]


def test_a_response_without_errors_has_no_codes() -> None:
    assert error_codes(HeartbeatResponse()) == []
    assert error_codes(ApiVersionsResponse(api_keys=[ApiVersionsResponse.ApiVersion(api_key=1)])) == []


def test_an_array_may_be_null() -> None:
    topic = MetadataResponse.MetadataResponseTopic(error_code=3)
    topic.partitions = None  # type: ignore[assignment]
    assert error_codes(MetadataResponse(topics=[topic])) == [3]
