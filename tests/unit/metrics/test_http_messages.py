"""Heads of requests: those that are served, and what is refused."""

from http import HTTPStatus

import pytest

from leadline.metrics.http_messages import MAX_HEAD_BYTES, BadHttpRequest, HttpRequest, parse_request


def test_a_request_is_read_once_its_head_is_complete() -> None:
    text = b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\nACCEPT: text/plain\r\naccept: */*;q=0.1\r\n\r\nrest"
    assert all(parse_request(text[:end]) is None for end in range(len(text) - 5))
    assert parse_request(text) == HttpRequest("GET", "/metrics", "text/plain,*/*;q=0.1", True)


def test_an_old_client_gets_no_chunks() -> None:
    assert parse_request(b"HEAD /healthz HTTP/1.0\r\n\r\n") == HttpRequest("HEAD", "/healthz", "", False)


@pytest.mark.parametrize(
    ("received", "status"),
    [
        (b"POST /metrics HTTP/1.1\r\n\r\n", HTTPStatus.METHOD_NOT_ALLOWED),
        (b"GET /metrics\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET /metrics HTTP/2\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * MAX_HEAD_BYTES, HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE),
        (b"G" * (MAX_HEAD_BYTES + 1), HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE),
    ],
)
def test_what_is_no_request_is_refused(received: bytes, status: HTTPStatus) -> None:
    with pytest.raises(BadHttpRequest) as refusal:
        parse_request(received)
    assert refusal.value.status is status
