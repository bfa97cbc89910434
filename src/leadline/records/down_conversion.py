"""Down-conversion: record batches become a message set of format 0 or 1, for a consumer that reads no other.

As Kafka does it, byte for byte:
    without a codec each record becomes a message, with one all records of a batch become one wrapper
    records below the requested offset are left out where there is no codec
    control batches are left out; headers, producer ids and sequence numbers are dropped
    zstd is not for these formats: a set ends before the batches that are converted together with one of zstd

A set is as long as what was read of the log, or as its first messages if these take more. What is too long is cut
off. What is too short is filled up with the beginning of a message that is longer than the set: consumers ignore both.

Pure: no file, no clock. The batches are passed in as they are read.
"""

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final

from leadline.errors import UnsupportedCompressionType
from leadline.model import NO_TIMESTAMP, Buffer, Offset
from leadline.records.batch import HEADER_BYTES, Header, header_at
from leadline.records.compression import Codec
from leadline.records.message_set import ENTRY, MessageFields, put_message, put_wrapper
from leadline.records.python_walker import to_long
from leadline.records.record import body_of, spans

GROUP_BYTES: Final = 128 * 1024  # of batches that are converted together
_OVERFLOW: Final = Struct(">qi")  # offset -1, and a length beyond the set


def message_set(batches: Iterable[Buffer], magic: int, first_offset: Offset, length: int) -> bytearray:
    """The message set of whole batches that were read as a slice of `length` bytes.

    UnsupportedCompressionType if the first of them that has messages is packed with zstd.
    """
    remaining, first, is_empty = iter(batches), bytearray(), True
    for batch in remaining:
        is_empty = False
        put_messages(first, batch, magic, first_offset)
        if first:
            break
    if not first:
        return first if is_empty else _filled(first, ENTRY.size)
    out, size = first, max(length, len(first))
    for group in _groups(remaining):
        if len(out) >= size:
            break
        end = len(out)
        try:
            for batch in group:
                put_messages(out, batch, magic, first_offset)
        except UnsupportedCompressionType:
            del out[end:]
            break
    del out[size:]
    return _filled(out, size)


def _groups(batches: Iterator[Buffer]) -> Iterator[list[Buffer]]:
    group, size = list[Buffer](), 0
    for batch in batches:
        if group and size + len(batch) > GROUP_BYTES:
            yield group
            group, size = [], 0
        group.append(batch)
        size += len(batch)
    if group:
        yield group


def _filled(out: bytearray, size: int) -> bytearray:
    while (missing := size - len(out)) > 0:
        piece = _OVERFLOW.pack(-1, max(missing + 1, HEADER_BYTES)).ljust(min(missing, GROUP_BYTES), b"\0")
        out += piece[:missing]
    return out


def put_messages(out: bytearray, batch: Buffer, magic: int, first_offset: Offset) -> None:
    """Append the messages of one batch to `out`: none if nothing is left of it."""
    header = header_at(batch)
    if header.is_control:
        return
    codec = header.codec
    if codec is Codec.ZSTD:
        raise UnsupportedCompressionType(f"the batch at offset {header.base_offset} is packed with zstd")
    fields = MessageFields(magic, header.max_timestamp if header.is_log_append_time else None)
    if codec is Codec.NONE:
        for offset, timestamp, key, value in _records(batch, header):
            if offset >= first_offset:
                put_message(out, offset, timestamp, key, value, fields)
        return
    inner, base, newest, last = bytearray(), -1, NO_TIMESTAMP, -1
    for last, timestamp, key, value in _records(batch, header):
        if base < 0:
            base = last
        newest = max(newest, timestamp)
        put_message(inner, last - base if magic else last, timestamp, key, value, fields)
    if inner:
        put_wrapper(out, last, newest, inner, fields, codec)


def _records(batch: Buffer, header: Header) -> Iterator[tuple[Offset, int, Buffer | None, Buffer | None]]:
    """Offset, timestamp, key and value of each record."""
    body = body_of(batch, 0, header)
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    for span in spans(body, header.record_count):
        yield (
            base_offset + span.offset_delta,
            to_long(base_timestamp + span.timestamp_delta),
            None if span.key_bytes < 0 else body[span.key_at : span.key_at + span.key_bytes],
            None if span.value_bytes < 0 else body[span.value_at : span.value_at + span.value_bytes],
        )
