"""Messages from bytes, and bytes from messages.

    request = decode(FetchRequest, data, version=16)
    pieces = encode(FetchResponse(...), version=16)

`decode` raises MalformedRequest for anything but exactly one such message, and no other error.
Strings come out as str, bytes as bytes, ids as UUID, arrays as lists; records as memoryview slices of the data.

What `encode` returns is a list of pieces, to be sent one after the other: bytes, and whatever stood in a records
field, if that is not bytes but somewhere else and has a `length` (a slice of a file). It raises ValueError for a value
that does not fit its field, and NotInVersion for one that the version has no field for.
"""

from collections.abc import Iterable
from typing import TypeVar, cast

from leadline.model import Buffer
from leadline.runtime.steps import Steps
from leadline.wire.classes import Message
from leadline.wire.decoder import compile_decoder
from leadline.wire.encoder import compile_encoder, compile_step_encoder
from leadline.wire.primitives import MalformedRequest, Piece, piece_length

M = TypeVar("M", bound=Message)


def decode(kind: type[M], data: Buffer, version: int, position: int = 0) -> M:
    """The message that begins at `position` and ends where the data ends."""
    message, end = decode_from(kind, data, version, position)
    if end != len(data):
        raise MalformedRequest(f"{kind.__name__} v{version}", end, f"{len(data) - end} bytes after the end")
    return message


def decode_from(kind: type[M], data: Buffer, version: int, position: int = 0) -> tuple[M, int]:
    """The message that begins at `position`, and where it ends: for headers, and for what newer peers may extend."""
    decoder = kind.decoders.get(version)
    if decoder is None:
        _check_version(kind, version)
        decoder = kind.decoders[version] = compile_decoder(kind, version)
    return cast(tuple[M, int], decoder(data, position))


def encode(message: Message, version: int) -> list[Piece]:
    return encode_behind(bytearray(), message, version)


def encode_behind(start: bytearray, message: Message, version: int) -> list[Piece]:
    """As `encode`, with `start` before the message: it becomes part of the first piece, or is that piece."""
    encoder = message.encoders.get(version)
    if encoder is None:
        _check_version(type(message), version)
        encoder = message.encoders[version] = compile_encoder(type(message), version)
    return encoder(message, start)


def encode_in_steps(start: bytearray, message: Message, version: int) -> Steps[list[Piece]]:
    """As `encode_behind`, for a long message that is encoded over several turns of the loop."""
    encoder = message.step_encoders.get(version)
    if encoder is None:
        _check_version(type(message), version)
        encoder = message.step_encoders[version] = compile_step_encoder(type(message), version)
    return encoder(message, start)


def to_bytes(message: Message, version: int) -> bytes:
    """The bytes of a message without slices of files."""
    return b"".join(cast(list[bytes], encode(message, version)))


def length(pieces: Iterable[Piece]) -> int:
    """How many bytes they are together."""
    return sum(map(piece_length, pieces))


def _check_version(kind: type[Message], version: int) -> None:
    if version not in kind.VERSIONS:
        raise ValueError(f"{kind.__name__} has no version {version}, only {kind.VERSIONS[0]} to {kind.VERSIONS[-1]}")
