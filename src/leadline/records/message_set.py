"""Message sets: records in the message formats 0 and 1, as they were before Kafka 0.11 had record batches.

A message set is a row of entries. An entry is an offset (8), the length of its message (4) and the message, big-endian:

    at  0  CRC-32 from 4 on (4)
    at  4  magic: the message format, 0 or 1 (1)
    at  5  attributes: codec (bits 0-2), in format 1 timestamp type (3: log append time) (1)
    at  6  timestamp (8), in format 1 alone
    then   key length (4, -1: null), key, value length (4, -1: null), value

A message with a codec is a wrapper: its value is a compressed message set, which holds no other wrapper. Inside, the
offsets of format 1 count from the first message; those of format 0 are the log's. A wrapper has the offset of its last
message, no key and, in format 1, the largest timestamp. If that is a log append time it holds for all messages inside.

lz4 in format 0: the checksum of a frame's header covers the frame's magic number as well. That was an error of the
first clients; the checksum is not compared.

Pure: no file, no clock.
"""

import struct
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from leadline.errors import CorruptMessage
from leadline.model import NO_TIMESTAMP, Buffer, Offset
from leadline.records.batch import CODEC_MASK, LOG_APPEND_TIME, MAGIC
from leadline.records.compression import Codec, compress

ENTRY: Final = Struct(">qi")  # offset, length
MIN_LENGTH: Final = 14  # of a message: CRC, magic, attributes, and two lengths
_MAGIC_AT, _ATTRIBUTES_AT, _TIMESTAMP_AT = 4, 5, 6
_KEY_AT = (6, 14)  # by format
_MAGIC_END = ENTRY.size + _ATTRIBUTES_AT

_CRC, _LENGTH, _LONG = Struct(">I"), Struct(">i"), Struct(">q")
_FRONTS = (Struct(">bb"), Struct(">bbq"))  # by format: magic, attributes, timestamp
_NULL = _LENGTH.pack(-1)
_LZ4_HEADER_0: Final = bytes.fromhex("04224d1860401a")  # its checksum covers the magic, too


class UnreadableMessage(ValueError):
    """The lengths inside a message do not agree with its own."""


class MessageEntry(NamedTuple):
    offset: Offset
    message: memoryview

    @property
    def size(self) -> int:
        return ENTRY.size + len(self.message)

    @property
    def magic(self) -> int:
        return self.message[_MAGIC_AT]

    @property
    def codec_id(self) -> int:
        """It need not be that of a codec."""
        return self.message[_ATTRIBUTES_AT] & CODEC_MASK

    @property
    def is_valid(self) -> bool:
        """Whether its CRC matches."""
        (crc,) = _CRC.unpack_from(self.message)
        return bool(crc == crc32(self.message[_MAGIC_AT:]))

    @property
    def is_log_append_time(self) -> bool:
        return self.magic > 0 and bool(self.message[_ATTRIBUTES_AT] & LOG_APPEND_TIME)

    @property
    def timestamp(self) -> int:
        return NO_TIMESTAMP if self.magic == 0 else int(_LONG.unpack_from(self.message, _TIMESTAMP_AT)[0])

    @property
    def has_key(self) -> bool:
        try:
            return bool(_LENGTH.unpack_from(self.message, _KEY_AT[self.magic > 0])[0] >= 0)
        except struct.error:
            raise UnreadableMessage("a message ends before the length of its key") from None

    def content(self) -> tuple[memoryview | None, memoryview | None]:
        """Key and value. Bytes after them are ignored, as in Kafka."""
        key, position = self._sized(_KEY_AT[self.magic > 0])
        value, _ = self._sized(position)
        return key, value

    def _sized(self, position: int) -> tuple[memoryview | None, int]:
        try:
            (size,) = _LENGTH.unpack_from(self.message, position)
        except struct.error:
            raise UnreadableMessage(f"a message of {len(self.message)} bytes has a length at {position}") from None
        position += _LENGTH.size
        if size < 0:
            return None, position
        if position + size > len(self.message):
            raise UnreadableMessage(f"a message of {len(self.message)} bytes has a part of {size} bytes")
        return self.message[position : position + size], position + size


def entries(data: Buffer) -> Iterator[MessageEntry]:
    """The whole entries of a message set; an incomplete one at the end is left out. Record batches are entries, too.

    CorruptMessage where an entry is too small or has a magic that no format has.
    """
    view, position, end = memoryview(data), 0, len(data)
    while position + ENTRY.size <= end:
        offset, length = ENTRY.unpack_from(view, position)
        if length < MIN_LENGTH:
            raise _too_small(length)
        if position + _MAGIC_END > end:
            return
        if (magic := view[position + ENTRY.size + _MAGIC_AT]) > MAGIC:
            raise _no_format(magic)
        behind = position + ENTRY.size + length
        if behind > end:
            return
        yield MessageEntry(offset, view[position + ENTRY.size : behind])
        position = behind


def no_entry(data: Buffer) -> CorruptMessage | None:
    """Why `entries` fails at the first one. None: it does not."""
    if len(data) < ENTRY.size:
        return None
    if (length := ENTRY.unpack_from(data)[1]) < MIN_LENGTH:
        return _too_small(length)
    if len(data) >= _MAGIC_END and (magic := data[_MAGIC_END - 1]) > MAGIC:
        return _no_format(magic)
    return None


def inner_entries(chunks: Iterable[Buffer]) -> Iterator[MessageEntry]:
    """The whole entries of a wrapper's message set, which comes in chunks. Their magic may be any. CorruptMessage."""
    parts, size, needed = list[bytes](), 0, ENTRY.size
    for chunk in chunks:
        parts.append(bytes(chunk))
        size += len(chunk)
        if size < needed:
            continue
        data, position, needed = b"".join(parts), 0, ENTRY.size
        view = memoryview(data)
        while position + ENTRY.size <= size:
            offset, length = ENTRY.unpack_from(view, position)
            if length < MIN_LENGTH:
                raise _too_small(length)
            behind = position + ENTRY.size + length
            if behind > size:
                needed = behind - position
                break
            yield MessageEntry(offset, view[position + ENTRY.size : behind])
            position = behind
        parts, size = [data[position:]], size - position


def _too_small(length: int) -> CorruptMessage:
    """In Kafka's words."""
    return CorruptMessage(f"Record size {length} is less than the minimum record overhead ({MIN_LENGTH})")


def _no_format(magic: int) -> CorruptMessage:
    """In Kafka's words, whose bytes have a sign."""
    return CorruptMessage(f"Invalid magic found in record: {magic - 256 if magic > 127 else magic}")


class MessageFields(NamedTuple):
    """What the messages of a set have in common."""

    magic: int
    append_time_ms: int | None = None  # set: log append time

    @property
    def attributes(self) -> int:
        return LOG_APPEND_TIME if self.magic and self.append_time_ms is not None else 0


def put_message(
    out: bytearray,
    offset: Offset,
    timestamp: int,
    key: Buffer | None,
    value: Buffer | None,
    fields: MessageFields,
    codec: Codec = Codec.NONE,
) -> None:
    """Append an entry to `out`."""
    magic, append_time_ms = fields
    attributes = codec | fields.attributes
    if magic == 0:
        front = _FRONTS[0].pack(0, attributes)
    else:
        front = _FRONTS[1].pack(magic, attributes, timestamp if append_time_ms is None else append_time_ms)
    start = _NULL if key is None else _LENGTH.pack(len(key)) + key
    message = b"".join((front, start, _NULL if value is None else _LENGTH.pack(len(value)), value or b""))
    out += ENTRY.pack(offset, _CRC.size + len(message))
    out += _CRC.pack(crc32(message))
    out += message


def put_wrapper(
    out: bytearray, last_offset: Offset, newest: int, inner: Buffer, fields: MessageFields, codec: Codec
) -> None:
    """Append a compressed message set to `out`."""
    packed = compress(codec, inner)
    if codec is Codec.LZ4 and fields.magic == 0:
        packed = _LZ4_HEADER_0 + packed[len(_LZ4_HEADER_0) :]
    put_message(out, last_offset, newest, None, packed, fields, codec)
