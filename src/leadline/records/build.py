"""Building batches: from records, under another codec, and from what compaction left of one.

Pure: no file, no clock.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

from leadline.model import NO_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP, Buffer, Offset
from leadline.records import varint, walker
from leadline.records.batch import (
    CONTROL,
    DELETE_HORIZON,
    HEADER,
    HEADER_BYTES,
    LENGTH_END,
    LOG_APPEND_TIME,
    MAGIC,
    OFFSET_LENGTH_EPOCH,
    TRANSACTIONAL,
    Header,
    put_crc,
)
from leadline.records.compression import Codec, compress
from leadline.records.python_walker import KEPT
from leadline.records.record import Record, RecordHeader, body_of, spans


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFields:
    """The fields of a batch that hold for all its records."""

    base_offset: Offset = 0
    leader_epoch: int = NO_EPOCH
    codec: Codec = Codec.NONE
    level: int | None = None
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE
    transactional: bool = False
    control: bool = False
    append_time_ms: int | None = None  # set: log append time
    delete_horizon_ms: int | None = None
    last_offset: Offset | None = None  # unset: that of the last record

    @classmethod
    def of(cls, header: Header, delete_horizon_ms: int | None) -> "BatchFields":
        """The fields of an existing batch, for writing it again with a delete horizon or none."""
        return cls(
            base_offset=header.base_offset,
            leader_epoch=header.leader_epoch,
            codec=header.codec,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            transactional=header.is_transactional,
            control=header.is_control,
            append_time_ms=header.max_timestamp if header.is_log_append_time else None,
            delete_horizon_ms=delete_horizon_ms,
            last_offset=header.last_offset,
        )

    @property
    def attributes(self) -> int:
        return (
            self.codec
            | (LOG_APPEND_TIME if self.append_time_ms is not None else 0)
            | (TRANSACTIONAL if self.transactional else 0)
            | (CONTROL if self.control else 0)
            | (DELETE_HORIZON if self.delete_horizon_ms is not None else 0)
        )


class RetainedRecords(NamedTuple):
    """The records of a batch that compaction keeps, as `walker.retained` returns them."""

    kept: bytes  # where they are
    record_count: int
    keyless: int  # dropped, since they have no key
    tombstones: int
    newest_delta: int  # the largest timestamp delta

    @property
    def first_timestamp_delta(self) -> int:
        return cast(int, KEPT.unpack_from(self.kept)[0])

    @property
    def last_offset_delta(self) -> int:
        return cast(int, KEPT.unpack_from(self.kept, len(self.kept) - KEPT.size)[1])


def build(records: Sequence[Record], fields: BatchFields | None = None) -> bytearray:
    """A batch of records whose offsets are at or above the base offset, ascending."""
    fields = fields or BatchFields()
    if not records:
        raise ValueError("a batch has at least one record")
    base_timestamp = _base_timestamp(fields, records[0].timestamp)
    body = bytearray()
    for record in records:
        rest = _sized(record.key) + _sized(record.value) + _encode_headers(record.headers)
        _put(body, record.timestamp - base_timestamp, record.offset - fields.base_offset, rest)
    newest = max(record.timestamp for record in records)
    return _finish(body, len(records), records[-1].offset, base_timestamp, newest, fields)


def build_at(timestamp: int, entries: Iterable[tuple[bytes, bytes | None]], fields: BatchFields) -> bytearray:
    """As `build`, of keys and values that are all of one moment, without headers: what a coordinator writes."""
    body, count, encode = bytearray(), 0, varint.encode
    for key, value in entries:
        rest = encode(-1) if value is None else encode(len(value)) + value
        record = b"\0\0" + encode(count) + encode(len(key)) + key + rest + b"\0"
        body += encode(len(record)) + record
        count += 1
    if not count:
        raise ValueError("a batch has at least one record")
    return _finish(body, count, fields.base_offset + count - 1, timestamp, timestamp, fields)


def build_of(body: bytearray, count: int, base_timestamp: int, newest: int, fields: BatchFields) -> bytearray:
    """As `build`, of records that are encoded already, with offset deltas from 0 on."""
    return _finish(body, count, fields.base_offset + count - 1, base_timestamp, newest, fields)


def rebuild(body: Buffer, records: RetainedRecords, header: Header, fields: BatchFields) -> bytearray:
    """A batch with only the kept ones of its records, as compaction leaves it; offsets stay."""
    is_stamped, old_base = header.is_log_append_time, header.base_timestamp
    first = header.max_timestamp if is_stamped else old_base + records.first_timestamp_delta
    base_timestamp = _base_timestamp(fields, first)
    shift = (header.max_timestamp if is_stamped else old_base) - base_timestamp
    out = walker.joined(body, records.kept, shift, is_stamped)
    last, newest = header.base_offset + records.last_offset_delta, old_base + records.newest_delta
    return _finish(out, records.record_count, last, base_timestamp, newest, fields)


def compressed(batch: bytes, codec: Codec) -> bytearray:
    """The same batch with a compressed body. Its attributes name the codec already."""
    out = bytearray(batch[:HEADER_BYTES])
    out += compress(codec, memoryview(batch)[HEADER_BYTES:])
    base_offset, _, leader_epoch = OFFSET_LENGTH_EPOCH.unpack_from(out)
    OFFSET_LENGTH_EPOCH.pack_into(out, 0, base_offset, len(out) - LENGTH_END, leader_epoch)
    put_crc(out, 0, len(out))
    return out


def recompressed(
    data: Buffer, position: int, header: Header, codec: Codec, level: int | None, *, renumber: bool = False
) -> bytearray:
    """The same batch under another codec. `renumber`: its records get offset deltas from 0 on."""
    body = body_of(data, position, header)
    records = spans(body, header.record_count)
    if renumber:
        renumbered = bytearray()
        for n, span in enumerate(records):
            _put(renumbered, span.timestamp_delta, n, body[span.rest_at : span.end])
        body = renumbered
    else:
        for _ in records:  # a body without records is not worth compressing
            pass
    packed = compress(codec, body, level)
    attributes = header.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL) | codec
    return _frame(header._replace(attributes=attributes), packed)


def empty(header: Header) -> bytearray:
    """The header of a batch all of whose records are gone; it keeps a producer's last sequence known."""
    dropped_bits = header.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL)
    return _frame(header._replace(attributes=dropped_bits, base_timestamp=NO_TIMESTAMP, record_count=0), b"")


def _base_timestamp(fields: BatchFields, first: int) -> int:
    return first if fields.delete_horizon_ms is None else fields.delete_horizon_ms


def _put(body: bytearray, timestamp_delta: int, offset_delta: int, rest: Buffer) -> None:
    front = b"\0" + varint.encode(timestamp_delta) + varint.encode(offset_delta)
    body += varint.encode(len(front) + len(rest))
    body += front
    body += rest


def _sized(data: bytes | None) -> bytes:
    return varint.encode(-1) if data is None else varint.encode(len(data)) + data


def _encode_headers(headers: Sequence[RecordHeader]) -> bytes:
    if not headers:
        return b"\0"
    parts = [_sized(key.encode()) + _sized(value) for key, value in headers]
    return varint.encode(len(parts)) + b"".join(parts)


def _finish(
    body: bytes | bytearray, count: int, last: Offset, base_timestamp: int, newest: int, fields: BatchFields
) -> bytearray:
    last = last if fields.last_offset is None else fields.last_offset
    header = Header(
        fields.base_offset,
        0,
        fields.leader_epoch,
        MAGIC,
        0,
        fields.attributes,
        last - fields.base_offset,
        base_timestamp,
        newest if fields.append_time_ms is None else fields.append_time_ms,
        fields.producer_id,
        fields.producer_epoch,
        fields.base_sequence,
        count,
    )
    packed = body if fields.codec is Codec.NONE else compress(fields.codec, body, fields.level)
    return _frame(header, packed)


def _frame(header: Header, body: Buffer) -> bytearray:
    """Header and body with the length and the CRC put right."""
    header = header._replace(length=HEADER_BYTES - LENGTH_END + len(body))
    out = bytearray(HEADER.pack(*header))
    out += body
    put_crc(out, 0, len(out))
    return out
