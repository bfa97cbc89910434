"""The smallest parts of the protocol, and the one error for malformed bytes.

What the compiled functions of `decoder` and `encoder` call: variable-length integers, ids, tagged fields to skip,
records to put in. The functions that only describe what is wrong return the error; it is raised where it was found.
"""

import codecs
from functools import lru_cache
from struct import Struct
from typing import Protocol
from uuid import UUID

from leadline.model import Buffer

MAX_STRING = 0x7FFF
MOST_ELEMENTS = 250_000  # of all arrays and tagged fields of a message together
MOST_TAGS = 100  # tagged fields of one structure; Kafka's own have three at most, and a newer release may have more
_MAX_VARINT = 0x7FFF_FFFF
_JOIN_BELOW = 8192  # records of fewer bytes are appended to the preceding bytes: one piece less to send
_INT32 = Struct(">i")


class MalformedRequest(Exception):
    """Bytes of a peer that are not a message: names the message, its version, the byte and the error."""

    def __init__(self, what: str, position: int, reason: str) -> None:
        super().__init__(f"{what}: at byte {position}: {reason}")
        self.what, self.position, self.reason = what, position, reason


class TooManyTags(MalformedRequest):
    """It is raised before all of them have arrived."""


class Slice(Protocol):
    """Bytes in a file, which become part of a reply unchanged."""

    @property
    def length(self) -> int: ...


BUFFERS = (bytes, bytearray, memoryview)
Piece = bytes | bytearray | memoryview | Slice
Records = Piece


def piece_length(piece: Piece) -> int:
    return len(piece) if isinstance(piece, BUFFERS) else piece.length


def truncated(what: str, position: int, end: int) -> MalformedRequest:
    return MalformedRequest(what, position, f"truncated: more was to come, but the message ends at byte {end}")


def bad_length(what: str, position: int, length: int, end: int) -> MalformedRequest:
    """The error for an impossible length or count, such as -1, which stands for null, where null is not allowed."""
    if length == -1:
        return MalformedRequest(what, position, "null, which it must not be")
    if length < 0:
        return MalformedRequest(what, position, f"a negative length: {length}")
    return MalformedRequest(what, position, f"a length of {length}, but {end - position} bytes are left")


def too_many(what: str, position: int, count: int) -> MalformedRequest:
    return MalformedRequest(what, position, f"{count} more elements, with which it has more than {MOST_ELEMENTS}")


def too_many_tags(what: str, position: int, count: int) -> TooManyTags:
    return TooManyTags(what, position, f"{count} tagged fields, and {MOST_TAGS} are the limit")


def too_long(what: str, position: int, length: int) -> MalformedRequest:
    return MalformedRequest(what, position, f"a string of {length} bytes, and {MAX_STRING} are the limit")


def duplicate_tag(what: str, position: int) -> MalformedRequest:
    return MalformedRequest(what, position, "this tag was there before")


def bad_tag_size(what: str, position: int, stop: int) -> MalformedRequest:
    return MalformedRequest(what, position, f"a tagged field that should end at byte {stop}")


def read_unsigned(data: Buffer, at: int, most: int) -> tuple[int, int]:
    """A number in at most `most` bytes, seven bits each, the least significant first; and the position after it.

    IndexError past the end of the data, ValueError beyond `most` bytes.
    """
    byte = data[at]
    value, shift = byte & 0x7F, 7
    while byte > 0x7F:
        if shift == 7 * most:
            raise ValueError(f"a variable-length integer of more than {most} bytes")
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        shift += 7
    return value, at + 1


def read_varint(data: Buffer, position: int, what: str) -> tuple[int, int]:
    """An unsigned number of at most 31 bits and the position after it. IndexError past the end."""
    if (byte := data[position]) < 0x80:  # nearly all of them
        return byte, position + 1
    try:
        value, end = read_unsigned(data, position, 5)
    except ValueError:
        value = end = _MAX_VARINT + 1
    if value > _MAX_VARINT:
        raise MalformedRequest(what, position, "a varint of more than 31 bits")
    return value, end


def write_varint(value: int) -> bytes:
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7)) if value > 0x7F else bytes((value,))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


VARINTS = tuple(write_varint(value) for value in range(128))  # nearly all there are


def string_length(length: int) -> bytes:
    """The length of a string that is not short, in its compact form."""
    if length > MAX_STRING:
        raise ValueError(f"a string of {length} bytes, and {MAX_STRING} are the limit")
    return write_varint(length + 1)


def array_length(length: int) -> bytes:
    """The count of an array or the length of bytes, in its compact form."""
    return write_varint(length + 1)


def skip_tags(data: Buffer, position: int, count: int, what: str) -> int:
    """The position after tagged fields, all of which are unknown. They begin at `position`, after their count."""
    if count > MOST_TAGS:
        raise too_many_tags(what, position, count)
    end = len(data)
    for _ in range(count):
        _, at = read_varint(data, position, what)
        size, at = read_varint(data, at, what)
        if size > end - at:
            raise bad_length(what, at, size, end)
        position = at + size
    return position


@lru_cache(maxsize=4096)
def id_of(data: bytes) -> UUID:
    """Few ids are in use at a time, and making one takes ten times as long as looking it up."""
    return UUID(bytes=data)


@lru_cache(maxsize=256)
def numbers(count: int, code: str) -> Struct:
    """An array of numbers, without its count. Most arrays are short: lists of replicas."""
    return Struct(f">{count}{code}")


_REPLACEMENT = "\ufffd"
_AS_JAVA = "leadline.as-java"


def _replace_as_java(error: UnicodeError) -> tuple[str, int]:
    """Half of a surrogate pair is one character to Java, and three to Python."""
    assert isinstance(error, UnicodeDecodeError)
    data, at = error.object, error.start
    if data[at] == 0xED and at + 1 < len(data) and 0xA0 <= data[at + 1] <= 0xBF:
        is_whole = at + 2 < len(data) and 0x80 <= data[at + 2] <= 0xBF
        return _REPLACEMENT, at + (3 if is_whole else 2)
    return _REPLACEMENT, error.end


codecs.register_error(_AS_JAVA, _replace_as_java)


def text(data: Buffer) -> str:
    """The text of bytes that need not be UTF-8, as Kafka reads them: U+FFFD for invalid bytes."""
    return str(data, "utf-8", _AS_JAVA)


def put_records(
    records: Records | None, out: bytearray, pieces: list[Piece], is_compact: bool, is_nullable: bool
) -> bytearray:
    """Appends records to `out`, or puts both into the pieces. Returns the buffer in which writing continues."""
    if records is None:
        if not is_nullable:
            raise TypeError("records must not be null")
        out += b"\0" if is_compact else b"\xff\xff\xff\xff"
        return out
    length = piece_length(records)
    out += array_length(length) if is_compact else _INT32.pack(length)
    if isinstance(records, BUFFERS) and length < _JOIN_BELOW:
        out += records
    elif length:
        pieces += out, records
        return bytearray()
    return out
