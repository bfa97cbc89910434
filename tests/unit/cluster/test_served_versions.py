"""What a broker does not understand, by the versions that it serves."""

from leadline.cluster.served_versions import not_served, served_versions
from leadline.wire.messages import ApiVersionsResponse

FETCH, STOP_REPLICA = 1, 5


def test_versions_that_are_not_served_are_named() -> None:
    fetch = ApiVersionsResponse.ApiVersion(api_key=FETCH, min_version=0, max_version=13)
    served = served_versions(ApiVersionsResponse(api_keys=[fetch]))
    assert list(not_served({FETCH: 13}, served)) == []
    assert list(not_served({FETCH: 16, STOP_REPLICA: 4}, served)) == [
        "serves versions 0 to 13 of Fetch; Leadline's brokers send version 16",
        "serves no version of StopReplica; Leadline's brokers send version 4",
    ]
