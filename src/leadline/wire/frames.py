"""The frame of a message on a connection: its size (int32), a header, then the message.

The size counts the bytes after it; the reader of a socket removes it and passes on the rest, the frame.
The first eight bytes of a request are the same in all versions of everything, so that even a request that cannot be
understood can be answered, or reported in a log.
"""

from functools import lru_cache
from struct import Struct
from typing import NamedTuple, TypeVar

from leadline.model import Buffer
from leadline.runtime.steps import Steps
from leadline.wire import messages
from leadline.wire.apis import APIS, Api
from leadline.wire.classes import Message, SharedArray
from leadline.wire.codec import decode, decode_from, encode, encode_behind, encode_in_steps, length
from leadline.wire.primitives import (
    BUFFERS,
    MalformedRequest,
    Piece,
    TooManyTags,
    bad_length,
    read_varint,
    skip_tags,
    text,
    truncated,
)

SIZE = Struct(">i")
FRONT = Struct(">hhi")  # api key, version, correlation id: the front of each request
_CLIENT_ID = Struct(">h")
_RESPONSES = Struct(">ii"), Struct(">iix")  # size and header of a response, by header version

M = TypeVar("M", bound=Message)


class RequestHead(NamedTuple):
    """The header of a request. Of one in a version that is not supported only the first three are known."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    api: Api | None  # None if there is no such request
    body_at: int  # where in the frame the request itself begins

    @property
    def is_supported(self) -> bool:
        return self.api is not None and self.version in self.api.versions


def request_head(frame: Buffer) -> RequestHead:
    if len(frame) < FRONT.size:
        raise short_header(frame)
    return rest_of_head(frame, *FRONT.unpack_from(frame))


def short_header(frame: Buffer) -> MalformedRequest:
    return MalformedRequest("request header", 0, f"truncated: {len(frame)} bytes of at least {FRONT.size}")


def rest_of_head(frame: Buffer, key: int, version: int, correlation_id: int) -> RequestHead:
    """The header of a request whose front has been read."""
    api = APIS.get(key)
    if api is None or version not in api.versions:
        return RequestHead(key, version, correlation_id, None, api, FRONT.size)
    header_version = api.request_header_version(version)
    if header_version == 0:
        return RequestHead(key, version, correlation_id, "", api, FRONT.size)
    client_id, body_at = _client_id(frame)
    if header_version == 2:
        body_at = _behind_tags(frame, body_at)
    return RequestHead(key, version, correlation_id, client_id, api, body_at)


def client_id_of(frame: Buffer) -> str | None:
    """The client id in the header of any request but ControlledShutdown v0, which has none."""
    return _client_id(frame)[0]


def is_head_known(front: Buffer) -> bool:
    """Whether the beginning of a frame has its whole header. TooManyTags: the rest need not be awaited."""
    if len(front) < FRONT.size:
        return False
    try:
        request_head(front)
    except TooManyTags:
        raise
    except MalformedRequest:  # more may come
        return False
    return True


def _client_id(frame: Buffer) -> tuple[str | None, int]:
    """Read by hand: the decoder of a message without records would copy the whole frame, records and all."""
    at = FRONT.size + _CLIENT_ID.size
    if len(frame) < at:
        raise truncated("request header", FRONT.size, len(frame))
    (length,) = _CLIENT_ID.unpack_from(frame, FRONT.size)
    if length == -1:
        return None, at
    if not 0 <= length <= len(frame) - at:
        raise bad_length("request header client_id", at, length, len(frame))
    return _text(bytes(frame[at : at + length])), at + length


@lru_cache(maxsize=1024)
def _text(data: bytes) -> str:
    """Clients send the same name with every request."""
    return text(data)


def _behind_tags(frame: Buffer, position: int) -> int:
    try:
        count, position = read_varint(frame, position, "request header")
        return skip_tags(frame, position, count, "request header") if count else position
    except IndexError:
        raise truncated("request header", position, len(frame)) from None


def request_frame(message: Message, version: int, correlation_id: int, client_id: str | None) -> list[Piece]:
    api = _api(message)
    header = messages.RequestHeader(
        request_api_key=api.key, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    (start,) = encode_behind(bytearray(SIZE.size), header, api.request_header_version(version))
    assert isinstance(start, bytearray)
    return _sized(start, encode_behind(start, message, version))


def encode_shared(message: Message, version: int) -> None:
    """Encodes the array that the message shares with others, unless one of them was encoded already."""
    states = getattr(message, "topic_states", None)
    if isinstance(states, SharedArray) and states.encoded_version != version:
        encode(message, version)


def request_bytes(message: Message, version: int, correlation_id: int, client_id: str | None) -> Buffer:
    """A request without file slices, as one buffer."""
    pieces = [
        piece for piece in request_frame(message, version, correlation_id, client_id) if isinstance(piece, BUFFERS)
    ]
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def response_frame(message: Message, version: int, correlation_id: int) -> list[Piece]:
    start = _response_start(message, version, correlation_id)
    return _sized(start, encode_behind(start, message, version))


def response_frame_in_steps(message: Message, version: int, correlation_id: int) -> Steps[list[Piece]]:
    start = _response_start(message, version, correlation_id)
    return _sized(start, (yield from encode_in_steps(start, message, version)))


def _response_start(message: Message, version: int, correlation_id: int) -> bytearray:
    """The size, which is filled in later, and the header."""
    header = _RESPONSES[_api(message).response_header_version(version)]
    return bytearray(header.pack(0, correlation_id))


def parse_response(kind: type[M], frame: Buffer, version: int) -> tuple[int, M]:
    """The correlation id and the message, out of the frame that answers a request of this version."""
    assert kind.API_KEY is not None
    header, body_at = decode_from(messages.ResponseHeader, frame, APIS[kind.API_KEY].response_header_version(version))
    return header.correlation_id, decode(kind, frame, version, body_at)


def _api(message: Message) -> Api:
    assert message.API_KEY is not None, f"{type(message).__name__} is neither request nor response"
    return APIS[message.API_KEY]


def _sized(start: bytearray, pieces: list[Piece]) -> list[Piece]:
    """The pieces, with the size filled in at the front of the first one."""
    size = len(start) if len(pieces) == 1 else length(pieces)
    SIZE.pack_into(start, 0, size - SIZE.size)
    return pieces
