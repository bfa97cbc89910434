"""The records inside a batch: walking them without copies, and as values.

Format of one record: length (varint), attributes (1, unused), timestamp delta (varint), offset delta (varint),
key length (varint, -1: null), key, value length (varint, -1: null), value, count of headers (varint), and each
header: key length, key, value length (-1: null), value. Compressed, the records are one block behind the header.

Pure: no file, no clock.
"""

from collections.abc import Iterator
from typing import NamedTuple

from leadline.errors import CorruptMessage
from leadline.model import Buffer, Offset
from leadline.records import compression, varint
from leadline.records.batch import HEADER_BYTES, LOG_APPEND_TIME, Header
from leadline.records.compression import Codec

# What a varint of one byte stands for, as nearly all of them are; none for a byte that others follow.
_ONE_BYTE: tuple[int | None, ...] = tuple((n >> 1) ^ -(n & 1) if n < 0x80 else None for n in range(0x100))


class RecordHeader(NamedTuple):
    key: str
    value: bytes | None


class Record(NamedTuple):
    offset: Offset
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[RecordHeader, ...] = ()


class Span(NamedTuple):
    """Where one record lies in the decompressed body, for code that need not copy it."""

    timestamp_delta: int
    offset_delta: int
    key_at: int  # where the key's length stands: from here on a record can be copied as it is
    key: tuple[int, int] | None  # from, to
    value: tuple[int, int] | None
    headers_at: int
    end: int


def body_of(data: Buffer, position: int, header: Header, limit: int = compression.MAX_DECOMPRESSED_BYTES) -> Buffer:
    """The decompressed records of a batch."""
    body = memoryview(data)[position + HEADER_BYTES : position + header.size]
    codec = header.codec
    if codec is Codec.NONE:
        return body
    try:
        return compression.decompress(codec, body, limit)
    except (compression.CorruptCompression, compression.DecompressedTooLarge) as error:
        raise CorruptMessage(f"the batch at offset {header.base_offset} cannot be decompressed: {error}") from error


def spans(body: Buffer, count: int) -> Iterator[Span]:
    """Each record's place. The lengths inside must agree with each other, with the count and with the body."""
    data, position = bytes(body), 0
    for _ in range(count):
        span = span_at(data, position)
        yield span
        position = span.end
    _check_end(data, position, count)


def span_at(data: bytes, position: int) -> Span:
    """The place of the record that starts at a position."""
    one, decode = _ONE_BYTE, varint.decode
    try:
        length, start = decode(data, position)
        end = start + length
        if length < 0 or end > len(data):
            raise CorruptMessage(f"a record of {length} bytes where {len(data) - start} are left")
        timestamp_delta, at = one[data[start + 1]], start + 2
        if timestamp_delta is None:
            timestamp_delta, at = decode(data, start + 1)
        offset_delta, key_at = one[data[at]], at + 1
        if offset_delta is None:
            offset_delta, key_at = decode(data, at)
        size, at = decode(data, key_at)
        key = None
        if size >= 0:
            key, at = (at, at + size), at + size
        size, at = decode(data, at)
        value = None
        if size >= 0:
            value, at = (at, at + size), at + size
    except (IndexError, ValueError):
        raise CorruptMessage("a record is cut off") from None
    if at >= end:
        raise CorruptMessage("a record's key or value is longer than the record")
    return Span(timestamp_delta, offset_delta, key_at, key, value, at, end)


def check_records(data: Buffer, position: int, end: int, count: int) -> None:
    """So many records, from the first byte to the last, each of which Kafka would read."""
    for _ in range(count):
        position = check_record(data, position, end)
    if position != end:
        raise CorruptMessage(f"{end - position} bytes behind the last of {count} records")


def check_record(data: Buffer, position: int, limit: int) -> int:
    """Where the record that starts here ends. Its lengths must agree with each other, down to those of its headers.

    Numbers of one byte and lengths of two, which nearly all are, are read here, without a call.
    """
    decode = varint.decode
    try:
        size = data[position]
        if size < 0x80:
            length, start = (size >> 1) ^ -(size & 1), position + 1
        elif (high := data[position + 1]) < 0x80:
            size += (high - 1) << 7
            length, start = (size >> 1) ^ -(size & 1), position + 2
        else:
            length, start = decode(data, position)
        end = start + length
        if length < 0 or end > limit:
            raise CorruptMessage(f"a record of {length} bytes where {limit - start} are left")
        at = start + 2 if data[start + 1] < 0x80 else decode(data, start + 1)[1]  # after the timestamp
        at = at + 1 if data[at] < 0x80 else decode(data, at)[1]  # after the offset
        size = data[at]
        if size < 0x80:
            at += 1 if size & 1 else 1 + (size >> 1)  # odd: negative, as of a key that is null
        else:
            size, at = decode(data, at)
            at += size if size > 0 else 0
        size = data[at]
        if size < 0x80:
            at += 1 if size & 1 else 1 + (size >> 1)
        elif (high := data[at + 1]) < 0x80:
            size += (high - 1) << 7
            at += 2 if size & 1 else 2 + (size >> 1)
        else:
            size, at = decode(data, at)
            at += size if size > 0 else 0
        at = at + 1 if data[at] == 0 else _after_headers(data, at, limit)
    except (IndexError, ValueError):
        raise CorruptMessage("a record is cut off") from None
    if at != end:
        raise CorruptMessage(f"a record of {length} bytes whose parts take {at - start}")
    return end


def _after_headers(data: Buffer, at: int, limit: int) -> int:
    count, at = varint.decode(data, at)
    if not 0 <= count <= limit - at:
        raise CorruptMessage(f"a record with {count} headers where {limit - at} bytes are left")
    for _ in range(count):
        size, at = varint.decode(data, at)
        if size < 0:
            raise CorruptMessage("a record header without a key")
        size, at = varint.decode(data, at + size)
        at += size if size > 0 else 0
    return at


def keys(body: Buffer, count: int) -> list[tuple[int, bytes | None, int]]:
    """Of each record: its offset delta, its key and its position. What stands behind the key is not looked at.

    Numbers of one byte, which nearly all are, come from a table, without a call.
    """
    data, one, decode = bytes(body), _ONE_BYTE, varint.decode
    position, end = 0, len(data)
    entries: list[tuple[int, bytes | None, int]] = []
    try:
        for _ in range(count):
            begin = position
            length, start = decode(data, begin)
            position = start + length
            if length < 0 or position > end:
                raise CorruptMessage(f"a record of {length} bytes where {end - start} are left")
            at = start + 2
            if data[start + 1] > 0x7F:
                _, at = decode(data, start + 1)
            offset_delta, key_at = one[data[at]], at + 1
            if offset_delta is None:
                offset_delta, key_at = decode(data, at)
            size, at = one[data[key_at]], key_at + 1
            if size is None:
                size, at = decode(data, key_at)
            if at + size >= position:
                raise CorruptMessage("a record's key is longer than the record")
            entries.append((offset_delta, data[at : at + size] if size >= 0 else None, begin))
    except (IndexError, ValueError):
        raise CorruptMessage("a record is cut off") from None
    _check_end(data, position, count)
    return entries


def _check_end(data: bytes, position: int, count: int) -> None:
    if position != len(data):
        raise CorruptMessage(f"{len(data) - position} bytes behind the last of {count} records")


def records_of(data: Buffer, position: int, header: Header) -> Iterator[Record]:
    body = body_of(data, position, header)
    stamped = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    for span in spans(body, header.record_count):
        yield Record(
            header.base_offset + span.offset_delta,
            header.base_timestamp + span.timestamp_delta if stamped is None else stamped,
            None if span.key is None else bytes(body[span.key[0] : span.key[1]]),
            None if span.value is None else bytes(body[span.value[0] : span.value[1]]),
            headers_of(body, span.headers_at, span.end),
        )


def headers_of(body: Buffer, position: int, end: int) -> tuple[RecordHeader, ...]:
    """Those of a record: from where their count stands to its end."""
    try:
        return _decode_headers(body, position, end)
    except (IndexError, ValueError):
        raise CorruptMessage("the headers of a record are cut off") from None


def _decode_headers(body: Buffer, position: int, end: int) -> tuple[RecordHeader, ...]:
    count, position = varint.decode(body, position)
    if not 0 <= count <= end - position:
        raise CorruptMessage(f"a record with {count} headers in {end - position} bytes")
    headers: list[RecordHeader] = []
    for _ in range(count):
        key, position = _sized(body, position, end)
        value, position = _sized(body, position, end)
        if key is None:
            raise CorruptMessage("a record header without a key")
        headers.append(RecordHeader(key.decode("utf-8", "replace"), value))
    if position != end:
        raise CorruptMessage(f"{end - position} bytes behind the headers of a record")
    return tuple(headers)


def _sized(body: Buffer, position: int, end: int) -> tuple[bytes | None, int]:
    size, position = varint.decode(body, position)
    if size < 0:
        return None, position
    if position + size > end:
        raise CorruptMessage("a record header is longer than its record")
    return bytes(body[position : position + size]), position + size
