"""The little of HTTP that metrics need: the head of a request in, the head of a response out.

A request is GET or HEAD without a body. Its head has at most MAX_HEAD_BYTES. The connection is closed after the
response, so bytes after a head are ignored. A body whose length is not known is sent in chunks, if the client
speaks HTTP/1.1: it then notices if the rest is missing.

Pure: bytes in, values out, and back.
"""

from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import unquote

MAX_HEAD_BYTES = 8192
LAST_CHUNK = b"0\r\n\r\n"
PLAIN = "text/plain; charset=utf-8"

_END = b"\r\n\r\n"


class BadHttpRequest(Exception):
    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class HttpRequest(NamedTuple):
    method: str
    path: str
    accept: str
    takes_chunks: bool


def parse_request(received: bytes | bytearray) -> HttpRequest | None:
    """None: its head is not complete. BadHttpRequest: it is not HTTP, or it is not served."""
    end = received.find(_END)
    if end > MAX_HEAD_BYTES or (end < 0 and len(received) > MAX_HEAD_BYTES):
        raise BadHttpRequest(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"a request has at most {MAX_HEAD_BYTES} bytes"
        )
    if end < 0:
        return None
    first, *lines = bytes(received[:end]).decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise BadHttpRequest(HTTPStatus.BAD_REQUEST, "this is not a request of HTTP/1.1")
    method, target, version = words
    if method not in ("GET", "HEAD"):
        raise BadHttpRequest(HTTPStatus.METHOD_NOT_ALLOWED, f"{method} is not served here: GET and HEAD are")
    headers = (line.partition(":") for line in lines)
    accept = ",".join(value.strip() for name, _, value in headers if name.strip().lower() == "accept")
    return HttpRequest(method, unquote(target.partition("?")[0]), accept, version != "HTTP/1.0")


def response_head(status: HTTPStatus, content_type: str, length: int | None, *, in_chunks: bool = False) -> bytes:
    """`length`: of the body; None if it is not known."""
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", f"Content-Type: {content_type}", "Connection: close"]
    if length is not None:
        lines.append(f"Content-Length: {length}")
    elif in_chunks:
        lines.append("Transfer-Encoding: chunked")
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append("Allow: GET, HEAD")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)
