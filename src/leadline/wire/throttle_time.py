"""The throttle time in a response that is encoded already, as fast paths return them.

Pure: bytes in, bytes out.

    the field is the first of the message, or nothing of variable length follows it
"""

from functools import cache
from typing import Any, cast

from leadline.wire.apis import APIS
from leadline.wire.frames import SIZE, response_frame
from leadline.wire.primitives import BUFFERS, Piece
from leadline.wire.templates import INT

Reply = bytes | list[Piece]


def with_throttle_time(reply: Reply, api_key: int, version: int, throttle_ms: int) -> bytes:
    """A response of bytes alone, whose throttle time is 0 yet."""
    frame = bytearray(reply if isinstance(reply, bytes) else b"".join(_buffers(reply)))
    at = _position(api_key, version)
    SIZE.pack_into(frame, at if at >= 0 else len(frame) + at, throttle_ms)
    return bytes(frame)


@cache
def _position(api_key: int, version: int) -> int:
    """The position of the field in the frame; below 0: from the end."""
    api = APIS[api_key]
    frame = b"".join(_buffers(response_frame(cast(Any, api.response)(throttle_time_ms=INT), version, 0)))
    at = frame.index(INT.to_bytes(4))
    header_bytes = 2 * SIZE.size + api.response_header_version(version)
    return at if at == header_bytes else at - len(frame)


def _buffers(pieces: list[Piece]) -> list[bytes]:
    return [bytes(piece) for piece in pieces if isinstance(piece, BUFFERS)]
