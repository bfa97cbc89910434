"""The header of a record batch, read and changed in place over any buffer.

Format, big-endian; 61 bytes, then the records:

    at  0  base offset (8)            at 27  base timestamp (8)
    at  8  length after this (4)      at 35  max timestamp (8)
    at 12  partition leader epoch (4) at 43  producer id (8)
    at 16  magic = 2 (1)              at 51  producer epoch (2)
    at 17  CRC-32C from 21 on (4)     at 53  base sequence (4)
    at 21  attributes (2)             at 57  count of records (4)
    at 23  last offset delta (4)

Attributes: codec (bits 0-2), timestamp type (3: log append time), transactional (4), control (5),
delete horizon (6: the base timestamp is the time at which tombstones may go).
The broker assigns offset and epoch, which the CRC does not cover; the producer's bytes stay unchanged.

Pure: no file, no clock.
"""

from collections.abc import Callable, Iterator
from functools import partial
from struct import Struct
from typing import NamedTuple

from leadline.errors import CorruptMessage, UnsupportedForMessageFormat
from leadline.model import NO_PRODUCER_ID, Buffer, Offset
from leadline.records.checksum import crc32c
from leadline.records.compression import Codec

HEADER = Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size
LENGTH_END = 12  # base offset and length; the length counts what follows
MAGIC = 2
MIN_LENGTH = HEADER_BYTES - LENGTH_END
MAGIC_AT, CRC_AT, ATTRIBUTES_AT, MAX_TIMESTAMP_AT = 16, 17, 21, 35
PRODUCER_ID_END = 51
FLAGS_AT = ATTRIBUTES_AT + 1  # of the attributes, the byte with all that is in use

CODEC_MASK = 0b111
LOG_APPEND_TIME = 1 << 3
TRANSACTIONAL = 1 << 4
CONTROL = 1 << 5
DELETE_HORIZON = 1 << 6
ATTRIBUTES_MASK = 0b111_1111  # those with a meaning

OFFSET_LENGTH_EPOCH = Struct(">qii")  # the front of a header: what a leader assigns, and the length between
_CRC = Struct(">I")
_ATTRIBUTES = Struct(">h")
_TIMESTAMP = Struct(">q")


class Header(NamedTuple):
    """The fields of the batch, and values derived from them."""

    base_offset: Offset
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        return LENGTH_END + self.length

    @property
    def last_offset(self) -> Offset:
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        return sequence_after(self.base_sequence, self.last_offset_delta) if self.base_sequence >= 0 else -1

    @property
    def codec(self) -> Codec:
        return codec_of(self.attributes)

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def delete_horizon_ms(self) -> int | None:
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None


def codec_of(attributes: int) -> Codec:
    try:
        return Codec(attributes & CODEC_MASK)
    except ValueError:
        raise CorruptMessage(f"unknown compression codec {attributes & CODEC_MASK} in a record batch") from None


def sequence_after(sequence: int, count: int) -> int:
    """Sequence numbers are 31 bits wide and start over at 0."""
    return (sequence + count) & 0x7FFF_FFFF


header_of: Callable[[tuple[int, ...]], Header] = partial(tuple.__new__, Header)  # as Header._make, in half the time


def header_at(data: Buffer, position: int = 0) -> Header:
    return header_of(HEADER.unpack_from(data, position))


def check_frame(length: int, magic: int) -> None:
    """Refuse what cannot be a batch of this format, before its other fields are believed."""
    if magic in (0, 1):
        raise UnsupportedForMessageFormat(
            f"message format {magic} (from before Kafka 0.11) is not supported; this broker stores format {MAGIC}"
        )
    if magic != MAGIC:
        raise CorruptMessage(f"not a record batch: magic {magic}, expected {MAGIC}")
    if length < MIN_LENGTH:
        raise CorruptMessage(f"a record batch of length {length}, smaller than its own header ({MIN_LENGTH})")


def crc_of(data: Buffer, position: int, size: int) -> int:
    return crc32c(memoryview(data)[position + ATTRIBUTES_AT : position + size])


def put_crc(data: bytearray | memoryview, position: int, size: int) -> None:
    """Recompute the CRC."""
    _CRC.pack_into(data, position + CRC_AT, crc_of(data, position, size))


def walk(data: Buffer, position: int = 0) -> Iterator[tuple[int, Header]]:
    """Each whole batch with its position; an incomplete one at the end is left out. Checks the frame, not the CRC."""
    end = len(data)
    while position + HEADER_BYTES <= end:
        header = header_at(data, position)
        check_frame(header.length, header.magic)
        behind = position + header.size
        if behind > end:
            return
        yield position, header
        position = behind


def assign(data: bytearray | memoryview, position: int, base_offset: Offset, leader_epoch: int) -> None:
    length = header_at(data, position).length
    OFFSET_LENGTH_EPOCH.pack_into(data, position, base_offset, length, leader_epoch)


def stamp_append_time(data: bytearray | memoryview, position: int, size: int, now_ms: int) -> None:
    """The broker's time for all records of the batch: the type in the attributes, the time as max timestamp."""
    (attributes,) = _ATTRIBUTES.unpack_from(data, position + ATTRIBUTES_AT)
    _ATTRIBUTES.pack_into(data, position + ATTRIBUTES_AT, attributes & ATTRIBUTES_MASK | LOG_APPEND_TIME)
    _TIMESTAMP.pack_into(data, position + MAX_TIMESTAMP_AT, now_ms)
    put_crc(data, position, size)


def set_times(data: bytearray | memoryview, size: int, max_timestamp: int) -> None:
    """The producer's own times count, and this is the largest. As in Kafka, attributes without a meaning go with it."""
    (attributes,) = _ATTRIBUTES.unpack_from(data, ATTRIBUTES_AT)
    if attributes & LOG_APPEND_TIME or _TIMESTAMP.unpack_from(data, MAX_TIMESTAMP_AT)[0] != max_timestamp:
        _ATTRIBUTES.pack_into(data, ATTRIBUTES_AT, attributes & ATTRIBUTES_MASK & ~LOG_APPEND_TIME)
        _TIMESTAMP.pack_into(data, MAX_TIMESTAMP_AT, max_timestamp)
        put_crc(data, 0, size)
