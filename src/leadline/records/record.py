"""The records inside a batch: walking them without copies, and as values.

Format of one record: length (varint), attributes (1, unused), timestamp delta (varint), offset delta (varint),
key length (varint, -1: null), key, value length (varint, -1: null), value, count of headers (varint), and each
header: key length, key, value length (-1: null), value. Compressed, the records are one block after the header.

Pure: no file, no clock.
"""

from collections.abc import Callable, Iterator
from functools import partial
from struct import Struct
from typing import NamedTuple

from leadline.errors import CorruptMessage
from leadline.model import Buffer, Offset
from leadline.records import compression, varint, walker
from leadline.records.batch import HEADER_BYTES, LOG_APPEND_TIME, Header
from leadline.records.compression import Codec
from leadline.records.python_walker import ROW, Row


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
    """The place of one record in the decompressed body, for code that need not copy it. Sizes below 0: null."""

    timestamp_delta: int
    offset_delta: int
    rest_at: int  # position of the key's length: from here on a record can be copied unchanged
    key_at: int
    key_bytes: int
    value_at: int
    value_bytes: int
    headers_at: int
    end: int


_span: Callable[[Row], Span] = partial(tuple.__new__, Span)  # as Span._make, in half the time
_unpack_rows: Callable[[bytes], Iterator[Row]] = ROW.iter_unpack
_LAST_END = Struct("q")  # the last number of a row
_ROWS_AT_ONCE = 4096  # rows take more memory than small records


def body_of(data: Buffer, position: int, header: Header, limit: int = compression.MAX_DECOMPRESSED_BYTES) -> Buffer:
    """The decompressed records of a batch."""
    body = memoryview(data)[position + HEADER_BYTES : position + header.size]
    codec = header.codec
    if codec is Codec.NONE:
        return body
    try:
        try:
            return compression.decompress(codec, body, limit)
        except compression.CorruptCompression:
            return compression.decompress_as_kafka(codec, body, limit)
    except (compression.CorruptCompression, compression.DecompressedTooLarge) as error:
        raise CorruptMessage(f"the batch at offset {header.base_offset} cannot be decompressed: {error}") from error


def spans(body: Buffer, count: int) -> Iterator[Span]:
    """Each record's place. The lengths inside must agree with each other, with the count and with the body."""
    return map(_span, rows_of(body, count))


def rows_of(body: Buffer, count: int) -> Iterator[Row]:
    """As `spans`, as plain tuples."""
    position, number, end = 0, 0, len(body)
    while number < count:
        some = min(count - number, _ROWS_AT_ONCE)
        packed = walker.rows(body, position, end, some, number)
        yield from _unpack_rows(packed)
        position, number = _LAST_END.unpack_from(packed, len(packed) - _LAST_END.size)[0], number + some
    if position != end:
        raise CorruptMessage(f"there are bytes behind the last of {max(count, 0)} records")


def records_of(data: Buffer, position: int, header: Header) -> Iterator[Record]:
    body = body_of(data, position, header)
    stamped = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    for span in spans(body, header.record_count):
        yield Record(
            header.base_offset + span.offset_delta,
            header.base_timestamp + span.timestamp_delta if stamped is None else stamped,
            None if span.key_bytes < 0 else bytes(body[span.key_at : span.key_at + span.key_bytes]),
            None if span.value_bytes < 0 else bytes(body[span.value_at : span.value_at + span.value_bytes]),
            headers_of(body, span.headers_at, span.end),
        )


def headers_of(body: Buffer, position: int, end: int) -> tuple[RecordHeader, ...]:
    """The headers of a record: from their count to the end of the record."""
    try:
        return _decode_headers(body, position, end)
    except (IndexError, ValueError):
        raise CorruptMessage("the headers of a record are cut off") from None


def _decode_headers(body: Buffer, position: int, end: int) -> tuple[RecordHeader, ...]:
    count, position = varint.decode_int(body, position)
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
        raise CorruptMessage(f"{end - position} bytes after the headers of a record")
    return tuple(headers)


def _sized(body: Buffer, position: int, end: int) -> tuple[bytes | None, int]:
    size, position = varint.decode_int(body, position)
    if size < 0:
        return None, position
    if position + size > end:
        raise CorruptMessage("a record header is longer than its record")
    return bytes(body[position : position + size]), position + size
