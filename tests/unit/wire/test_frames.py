"""Frames and headers, and the table of requests."""

from struct import pack

import pytest

from leadline.wire import frames
from leadline.wire.apis import API_VERSIONS, APIS, unsupported_api_versions
from leadline.wire.codec import decode, to_bytes
from leadline.wire.frames import parse_response, request_frame, request_head, response_frame
from leadline.wire.messages import (
    ControlledShutdownRequest,
    FetchRequest,
    FetchResponse,
    HeartbeatRequest,
    ProduceRequest,
    RequestHeader,
)
from leadline.wire.primitives import MalformedRequest, Piece
from leadline.wire.schema import heads
from tests.unit.wire.test_codec import FileSlice, fetched


def joined(pieces: list[Piece]) -> bytes:
    return b"".join(piece for piece in pieces if isinstance(piece, bytes | bytearray | memoryview))


def test_there_are_sixty_two_requests_each_with_its_response() -> None:
    assert len(APIS) == 62
    for api in APIS.values():
        assert api.request.API_KEY == api.response.API_KEY == api.key
        assert api.request.VERSIONS == api.response.VERSIONS == api.versions
        assert api.request.FLEXIBLE == api.response.FLEXIBLE == api.flexible
    assert len(heads()) == 2 + 2 * 62 + 3 + 4 + 2


@pytest.mark.parametrize(
    ("key", "version", "request_header", "response_header"),
    [
        (1, 11, 1, 0),
        (1, 12, 2, 1),
        (7, 0, 0, 0),
        (7, 1, 1, 0),
        (7, 3, 2, 1),
        (18, 2, 1, 0),
        (18, 3, 2, 0),
        (17, 1, 1, 0),
    ],
)
def test_each_version_has_its_header_version(key: int, version: int, request_header: int, response_header: int) -> None:
    api = APIS[key]
    headers = api.request_header_version(version), api.response_header_version(version)
    assert headers == (request_header, response_header)


@pytest.mark.parametrize("version", FetchRequest.VERSIONS)
@pytest.mark.parametrize("client_id", ["client", "", None])
def test_a_request_frame_is_read_back(version: int, client_id: str | None) -> None:
    request = FetchRequest(max_wait_ms=5)
    frame = joined(request_frame(request, version, 77, client_id))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    head = request_head(memoryview(frame)[4:])
    assert (head.api_key, head.version, head.correlation_id, head.client_id) == (1, version, 77, client_id)
    assert head.is_supported
    assert decode(FetchRequest, frame[4:], version, head.body_at) == request


def test_the_first_controlled_shutdown_has_no_client_id() -> None:
    frame = joined(request_frame(ControlledShutdownRequest(broker_id=3), 0, 1, "dropped"))
    assert frame == pack(">ihhii", 12, 7, 0, 1, 3)
    assert request_head(frame[4:])[3:] == ("", APIS[7], 8)


def test_a_header_with_tagged_fields() -> None:
    header = to_bytes(RequestHeader(request_api_key=1, request_api_version=16, client_id="c"), 2)[:-1]
    head = request_head(header + b"\1\5\2ab" + b"body")
    assert (head.client_id, head.body_at) == ("c", len(header) + 5)


@pytest.mark.parametrize(("key", "version"), [(18, 4), (18, -1), (1, 17), (1, 32767), (999, 0), (-1, 0)])
def test_what_is_not_supported_is_still_read_as_far_as_its_correlation_id(key: int, version: int) -> None:
    head = request_head(pack(">hhi", key, version, 42) + b"\xff whatever this may be")
    assert (head.api_key, head.version, head.correlation_id, head.client_id) == (key, version, 42, None)
    assert not head.is_supported
    assert (head.api is None) == (key not in APIS)


@pytest.mark.parametrize("frame", [b"", b"\0\1\0", pack(">hhi", 1, 16, 0), pack(">hhih", 1, 16, 0, 500)])
def test_a_header_that_is_cut_off_is_refused(frame: bytes) -> None:
    with pytest.raises(MalformedRequest):
        request_head(frame)


def test_a_response_frame_counts_the_slices_of_files() -> None:
    pieces = response_frame(fetched(FileSlice("log", 0, 1000), b"here"), 16, 5)
    first, _, last = pieces
    assert isinstance(first, bytearray)
    assert isinstance(last, bytearray)
    assert frames.SIZE.unpack_from(first) == (len(first) - 4 + 1000 + len(last),)
    data = bytes(first[4:]) + b"x" * 1000 + last
    correlation_id, response = parse_response(FetchResponse, data, 16)
    assert (correlation_id, response.responses[0].partitions[0].records) == (5, b"x" * 1000)


@pytest.mark.parametrize("version", FetchResponse.VERSIONS)
def test_a_response_frame_is_read_back(version: int) -> None:
    frame = joined(response_frame(FetchResponse(), version, 5))
    assert parse_response(FetchResponse, frame[4:], version) == (5, FetchResponse())


def test_a_client_that_is_too_new_can_read_which_api_versions_there_are() -> None:
    frame = joined(response_frame(unsupported_api_versions(), 0, 9))
    assert frame == pack(">iihihhh", 16, 9, 35, 1, API_VERSIONS, 0, 3)


@pytest.mark.parametrize(
    ("client_id", "text"),
    [
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"a\xc3", "a\ufffd"),
        (b"\xed\xa0\x80x", "\ufffdx"),  # half of a surrogate pair, which Java counts as one
        (b"\xed\xa0", "\ufffd"),
        (b"\xed\xa0x", "\ufffdx"),
    ],
)
def test_a_client_id_that_is_not_utf_8_is_read_with_replacement_characters(client_id: bytes, text: str) -> None:
    for api in APIS.values():
        for version in api.versions:
            if api.request_header_version(version) > 0:
                front = pack(">hhih", api.key, version, 7, len(client_id))
                head = request_head(front + client_id + b"\0")
                assert (head.client_id, head.version, head.correlation_id) == (text, version, 7)


def test_any_string_that_is_not_utf_8_is_read_with_replacement_characters() -> None:
    data = to_bytes(HeartbeatRequest(group_id="abcd", member_id="m"), 4).replace(b"abcd", b"a\xff\xfed")
    assert decode(HeartbeatRequest, data, 4).group_id == "a\ufffd\ufffdd"
    topic = ProduceRequest.TopicProduceData(name="abcd")
    data = to_bytes(ProduceRequest(topic_data=[topic]), 9).replace(b"abcd", b"a\xff\xfed")
    assert decode(ProduceRequest, data, 9).topic_data[0].name == "a\ufffd\ufffdd"
