"""Rows become record batches, in the tasks that write to topics.

The rows of a partition stay in order. A batch is closed once it holds `batch_bytes`. It then lacks only the fields that
the sender knows: producer id, epoch and sequence, which `signed` adds.

Pure: columns in, bytes out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from struct import Struct

import numpy as np

from leadline.model import NO_EPOCH, Buffer, TopicPartition
from leadline.records import varint
from leadline.records.batch import CRC_AT, FLAGS_AT, TRANSACTIONAL, assign, crc_of
from leadline.records.build import BatchFields, build_of
from leadline.records.compression import Codec
from leadline.spark.batches.partitioning import Ints

PRODUCER_AT = 43
_CRC = Struct(">I")
_PRODUCER = Struct(">qhi")
NO_HEADERS = b"\0"


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Rows of one topic, as lists. `timestamps`: ms."""

    topic: str
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Sequence[dict[str, str | bytes | None]] | None] | None
    timestamps: Sequence[int]
    partitions: Ints


@dataclass(slots=True)
class OpenBatch:
    """The records of a batch that is not full yet."""

    data: bytearray = field(default_factory=bytearray)
    count: int = 0
    base_timestamp: int = 0
    newest: int = 0


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    tp: TopicPartition
    data: bytearray
    count: int


class BatchEncoder:
    """Collects rows and returns full batches."""

    def __init__(self, codec: Codec, batch_bytes: int) -> None:
        self._fields = BatchFields(codec=codec, transactional=True, producer_id=0, producer_epoch=0, base_sequence=0)
        self._batch_bytes = batch_bytes
        self._open: dict[TopicPartition, OpenBatch] = {}

    def add(self, rows: RecordColumns) -> Iterator[EncodedBatch]:
        for partition in np.unique(rows.partitions).tolist():
            which = np.flatnonzero(rows.partitions == partition)
            yield from self._add(TopicPartition(rows.topic, partition), rows, which)

    def _add(self, tp: TopicPartition, rows: RecordColumns, which: Ints) -> Iterator[EncodedBatch]:
        body, encode, limit = self._open.setdefault(tp, OpenBatch()), varint.encode, self._batch_bytes
        keys, values, timestamps, headers = rows.keys, rows.values, rows.timestamps, rows.headers
        for n in which.tolist():
            key, value, timestamp = keys[n], values[n], timestamps[n]
            if not body.count:
                body.base_timestamp = body.newest = timestamp
            front = b"\0" + encode(timestamp - body.base_timestamp) + encode(body.count)
            record = (
                front
                + (b"\1" if key is None else encode(len(key)) + key)
                + (b"\1" if value is None else encode(len(value)) + value)
                + (NO_HEADERS if headers is None else _headers(headers[n]))
            )
            body.data += encode(len(record))
            body.data += record
            body.count += 1
            if timestamp > body.newest:
                body.newest = timestamp
            if len(body.data) >= limit:
                yield self._close(tp)
                body = self._open[tp] = OpenBatch()

    def rest(self) -> Iterator[EncodedBatch]:
        """The batches that are not full, at the end of the rows."""
        for tp in sorted(self._open):
            if self._open[tp].count:
                yield self._close(tp)

    def _close(self, tp: TopicPartition) -> EncodedBatch:
        body = self._open.pop(tp)
        data = build_of(body.data, body.count, body.base_timestamp, body.newest, self._fields)
        return EncodedBatch(tp, data, body.count)


def _headers(headers: Sequence[dict[str, str | bytes | None]] | None) -> bytes:
    if not headers:
        return NO_HEADERS
    parts = [varint.encode(len(headers))]
    for header in headers:
        key, value = header["key"], header["value"]
        if key is None:
            raise ValueError("a header without a key: the column headers is array<struct<key: string, value: binary>>")
        name = key.encode() if isinstance(key, str) else key
        parts += [varint.encode(len(name)), name]
        parts += [b"\1"] if value is None else [varint.encode(len(value)), _bytes(value)]
    return b"".join(parts)


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def signed(data: Buffer, producer_id: int, epoch: int, sequence: int) -> bytearray:
    """The batch with the producer's fields, transactional, with base offset 0."""
    out = bytearray(data)
    assign(out, 0, 0, NO_EPOCH)
    _PRODUCER.pack_into(out, PRODUCER_AT, producer_id, epoch, sequence)
    out[FLAGS_AT] |= TRANSACTIONAL
    _CRC.pack_into(out, CRC_AT, crc_of(out, 0, len(out)))
    return out
