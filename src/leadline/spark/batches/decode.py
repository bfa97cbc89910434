"""Record batches become Arrow batches. All readers of the pipeline use it, for bytes of files and of brokers.

    offset          int64
    timestamp       timestamp[ms], UTC
    timestamp_type  int32, as in Kafka: 0 the producer's time, 1 the time of the append
    key, value      binary, either may be null
    headers         list<struct<key: string, value: binary>>, only on request

The input is a sequence of whole batches. An incomplete batch at the end is ignored, and so are control batches. The
caller may pass aborted transactions; their records are then omitted.
    the checksum of a batch is verified before its content is used
    any input gives either columns or an error that names offset and position
    memory holds the input, decompressed batches of PIECE_BYTES and one more, and the columns of PIECE_RECORDS records

Pure: bytes in, columns out.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from leadline.errors import CorruptMessage, RecordListTooLarge, WireError
from leadline.log.txn_index import AbortedTxn
from leadline.model import Buffer, Offset, ProducerId
from leadline.records.batch import (
    CODEC_MASK,
    CONTROL,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Header,
    crc_of,
    walk,
)
from leadline.records.control import ControlType, read_end_marker
from leadline.records.record import body_of, headers_of
from leadline.spark.batches.record_positions import (
    Longs,
    RecordBytes,
    RecordPositions,
    WrongBody,
    header_positions,
    record_positions,
    skip,
)

END_UNKNOWN: Offset = (1 << 63) - 1  # the last offset of an aborted transaction whose marker is in the data
PIECE_BYTES = 8 << 20  # decompressed bytes that become one Arrow batch
PIECE_RECORDS = 1_000_000  # the most records of one Arrow batch
MAX_BYTES = (1 << 31) - 1  # of one column
SLACK = bytes(8)  # after joined bodies, so that eight bytes can be read at each position
TIMESTAMP = pa.timestamp("ms", "UTC")

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
COLUMNS = [
    pa.field("offset", pa.int64(), nullable=False),
    pa.field("timestamp", TIMESTAMP, nullable=False),
    pa.field("timestamp_type", pa.int32(), nullable=False),
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
]
SCHEMA = pa.schema(COLUMNS)
SCHEMA_WITH_HEADERS = pa.schema([*COLUMNS, pa.field("headers", HEADERS)])


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """The records that a reader requests."""

    first: Offset
    until: Offset  # exclusive
    headers: bool = False
    aborted: tuple[AbortedTxn, ...] | None = None  # None: read_uncommitted, all records

    @property
    def schema(self) -> pa.Schema:
        return SCHEMA_WITH_HEADERS if self.headers else SCHEMA


class WrongBatch(CorruptMessage):
    """A damaged batch, with its position in the data."""

    def __init__(self, position: int, header: Header, reason: str) -> None:
        super().__init__(f"the batch of offset {header.base_offset} at byte {position}: {reason}")
        self.position, self.offset, self.reason = position, header.base_offset, reason


def decode(data: Buffer, filter_: RecordFilter) -> pa.RecordBatch:
    """All records at once. For data that may decompress to more than memory holds, use `pieces`."""
    batches = list(pieces(data, filter_))
    if len(batches) == 1:
        return batches[0]
    size = sum(piece.nbytes for piece in batches)
    if size > MAX_BYTES:
        raise RecordListTooLarge(f"{len(data)} bytes of batches hold {size}, more than {MAX_BYTES}: read fewer at once")
    return pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], filter_.schema)


def pieces(data: Buffer, filter_: RecordFilter) -> Iterator[pa.RecordBatch]:
    """The records in order, up to a damaged batch."""
    piece = _Piece(data)
    for position, header in _chosen(data, filter_):
        for body in _bodies(data, position, header):
            piece.add(position, header, body)
            if piece.size >= PIECE_BYTES or piece.records >= PIECE_RECORDS:
                yield piece.columns(filter_)
                piece = _Piece(data)
    if piece.headers:
        yield piece.columns(filter_)


# Choosing batches


def _chosen(data: Buffer, filter_: RecordFilter) -> Iterator[tuple[int, Header]]:
    """The batches with records that pass the filter. Skipped batches are not checked."""
    void = _AbortedRanges(data, filter_.aborted) if filter_.aborted else None
    for position, header in _walk(data):
        if header.last_offset_delta < 0 or header.base_offset < 0:
            raise WrongBatch(position, header, f"it holds the offsets {header.base_offset} to {header.last_offset}")
        if header.last_offset < filter_.first or header.base_offset >= filter_.until or header.attributes & CONTROL:
            continue
        if void is None or not void.holds(header):
            yield position, header


def _walk(data: Buffer) -> Iterator[tuple[int, Header]]:
    end, last = 0, -1
    try:
        for position, header in walk(data):
            yield position, header
            end, last = position + header.size, header.last_offset
    except WireError as error:
        raise type(error)(f"at byte {end}, after offset {last}: {error}") from error


class _AbortedRanges:
    """The offset ranges of aborted transactions, by producer. Ranges of one producer do not overlap."""

    def __init__(self, data: Buffer, aborted: Iterable[AbortedTxn]) -> None:
        self._ranges: dict[ProducerId, list[tuple[Offset, Offset]]] = {}
        markers: dict[ProducerId, list[Offset]] | None = None
        for txn in sorted(aborted, key=lambda txn: txn.first_offset):
            last = txn.last_offset
            if last == END_UNKNOWN:
                markers = _abort_markers(data) if markers is None else markers
                ends = markers.get(txn.producer_id, [])
                n = bisect_left(ends, txn.first_offset)
                last = ends[n] if n < len(ends) else END_UNKNOWN
            self._ranges.setdefault(txn.producer_id, []).append((txn.first_offset, last))

    def holds(self, header: Header) -> bool:
        ranges = self._ranges.get(header.producer_id)
        if ranges is None or not header.attributes & TRANSACTIONAL:
            return False
        n = bisect_right(ranges, header.base_offset, key=itemgetter(0))
        return n > 0 and header.base_offset <= ranges[n - 1][1]


def _abort_markers(data: Buffer) -> dict[ProducerId, list[Offset]]:
    markers: dict[ProducerId, list[Offset]] = {}
    for position, header in _walk(data):
        if header.attributes & CONTROL:
            _check_crc(data, position, header)
            marker = read_end_marker(data, position, header)
            if marker is not None and marker.type is ControlType.ABORT:
                markers.setdefault(header.producer_id, []).append(header.base_offset)
    return markers


def _check_crc(data: Buffer, position: int, header: Header) -> None:
    crc = crc_of(data, position, header.size)
    if crc != header.crc:
        raise WrongBatch(position, header, f"its CRC is {crc}, but its header has {header.crc}")


# Decoding batches


class _BatchBody(NamedTuple):
    """Records of a batch: all of them, or PIECE_RECORDS of a larger batch."""

    records: Buffer
    record_count: int
    at: int  # their position in the data; meaningless if they were decompressed


def _bodies(data: Buffer, position: int, header: Header) -> Iterator[_BatchBody]:
    _check_crc(data, position, header)
    try:
        body = body_of(data, position, header)
    except CorruptMessage as error:
        raise WrongBatch(position, header, str(error)) from error
    at, left = 0, header.record_count
    while left > PIECE_RECORDS:
        end = skip(body, at, PIECE_RECORDS)
        yield _BatchBody(body[at:end], PIECE_RECORDS, position + HEADER_BYTES + at)
        at, left = end, left - PIECE_RECORDS
    yield _BatchBody(body[at:], left, position + HEADER_BYTES + at)


class _Piece:
    """Batches that become one Arrow batch."""

    def __init__(self, data: Buffer) -> None:
        self._data = data
        self._bodies: list[_BatchBody] = []
        self._positions: list[int] = []  # of the batches
        self.headers: list[Header] = []
        self.size = self.records = 0

    def add(self, position: int, header: Header, body: _BatchBody) -> None:
        self._bodies.append(body)
        self._positions.append(position)
        self.headers.append(header)
        self.size += len(body.records)
        self.records += body.record_count

    def columns(self, filter_: RecordFilter) -> pa.RecordBatch:
        bodies = self._joined()
        try:
            return _columns(self.headers, bodies, record_positions(bodies), filter_)
        except WrongBody as error:
            raise WrongBatch(self._positions[error.body], self.headers[error.body], str(error)) from error

    def _joined(self) -> RecordBytes:
        """The bodies in one buffer: the input itself if no batch was compressed."""
        counts = _longs(body.record_count for body in self._bodies)
        sizes = _longs(len(body.records) for body in self._bodies)
        if any(header.attributes & CODEC_MASK for header in self.headers):
            ends = np.cumsum(sizes)
            return RecordBytes(b"".join((*(body.records for body in self._bodies), SLACK)), ends - sizes, ends, counts)
        starts = _longs(body.at for body in self._bodies)
        return RecordBytes(self._data, starts, starts + sizes, counts)


def _columns(
    headers: Sequence[Header], bodies: RecordBytes, parts: RecordPositions, filter_: RecordFilter
) -> pa.RecordBatch:
    def by_row(values: Iterable[int]) -> Longs:
        return np.repeat(_longs(values), bodies.counts)

    _check_deltas(bodies, parts, by_row(header.last_offset_delta for header in headers))
    offset = by_row(header.base_offset for header in headers)
    offset += parts.offset_delta
    timestamp = by_row(header.base_timestamp for header in headers)
    timestamp += parts.timestamp_delta
    timestamp_type = np.zeros(len(offset), np.int32)
    if any(header.attributes & LOG_APPEND_TIME for header in headers):
        timestamp_type = by_row(header.is_log_append_time for header in headers).astype(np.int32)
        timestamp = np.where(timestamp_type, by_row(header.max_timestamp for header in headers), timestamp)
    if not all(filter_.first <= header.base_offset and header.last_offset < filter_.until for header in headers):
        kept = (offset >= filter_.first) & (offset < filter_.until)
        offset, timestamp, timestamp_type, parts = offset[kept], timestamp[kept], timestamp_type[kept], parts.only(kept)
    columns = [
        pa.array(offset),
        pa.array(timestamp).view(TIMESTAMP),
        pa.array(timestamp_type),
        _binary(bodies.data, parts.key_at, parts.key_bytes),
        _binary(bodies.data, parts.value_at, parts.value_bytes),
    ]
    if filter_.headers:
        columns.append(_headers(bodies, parts))
    return pa.record_batch(columns, schema=filter_.schema)


def _check_deltas(bodies: RecordBytes, parts: RecordPositions, last_delta: Longs) -> None:
    """Offset deltas lie between 0 and the last one of their batch. As unsigned numbers, negative ones exceed it too."""
    outside = parts.offset_delta.view(np.uint64) > last_delta.view(np.uint64)
    if outside.any():
        row = int(outside.argmax())
        reason = f"a record of offset delta {parts.offset_delta[row]}, but {last_delta[row]} is the last"
        raise WrongBody(bodies.holding(int(parts.headers_at[row])), reason)


def _longs(values: Iterable[int]) -> Longs:
    return np.fromiter(values, np.int64)


def _binary(data: Buffer, at: Longs, sizes: Longs) -> pa.Array:
    """A binary column, cut out of the data. The values are in the same order there, with other bytes between them."""
    count, is_null = len(at), sizes < 0
    if is_null.all():
        return pa.nulls(count, pa.binary())
    bounds = np.empty(2 * count, np.int32)
    bounds[::2] = at
    bounds[1::2] = at + np.maximum(sizes, 0)
    with_gaps = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)])
    cut = with_gaps.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))
    if not is_null.any():
        return cut
    valid = pa.py_buffer(np.packbits(~is_null, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), count, [valid, *cut.buffers()[1:]])


def _headers(bodies: RecordBytes, parts: RecordPositions) -> pa.Array:
    data, positions = bodies.data, header_positions(bodies.data, parts)
    if positions is None:
        return pa.array(list(_headers_one_by_one(bodies, parts)), HEADERS)
    keys = _binary(data, positions.key_at, positions.key_bytes)
    try:
        keys = keys.cast(pa.string())
    except pa.ArrowInvalid:  # not UTF-8
        keys = pa.array([key.decode("utf-8", "replace") for key in keys.to_pylist()], pa.string())
    values = _binary(data, positions.value_at, positions.value_bytes)
    both = pa.StructArray.from_arrays([keys, values], fields=list(HEADERS.value_type))
    ends = np.concatenate(([0], np.cumsum(positions.counts))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), both, HEADERS)


def _headers_one_by_one(bodies: RecordBytes, parts: RecordPositions) -> Iterator[list[Mapping[str, object]]]:
    for at, end in zip(parts.headers_at.tolist(), parts.end.tolist(), strict=True):
        try:
            yield [header._asdict() for header in headers_of(bodies.data, at, end)]
        except CorruptMessage as error:
            raise WrongBody(bodies.holding(at), str(error)) from error


# The columns of Spark's own connector

MICROSECONDS = pa.timestamp("us", "UTC")
LAST_MS = ((1 << 63) - 1) // 1000
SPARK_COLUMNS = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", MICROSECONDS),
    pa.field("timestampType", pa.int32()),
]
SPARK_SCHEMA = pa.schema(SPARK_COLUMNS)
SPARK_SCHEMA_WITH_HEADERS = pa.schema([*SPARK_COLUMNS, pa.field("headers", HEADERS)])


def spark_columns(batch: pa.RecordBatch, topic: str, partition: int) -> pa.RecordBatch:
    """The columns of Spark's own Kafka connector."""
    count = batch.num_rows
    columns = [
        batch.column("key"),
        batch.column("value"),
        pa.repeat(pa.scalar(topic), count),
        pa.repeat(pa.scalar(partition, pa.int32()), count),
        batch.column("offset"),
        _microseconds(batch.column("timestamp")),
        batch.column("timestamp_type"),
    ]
    if "headers" not in batch.schema.names:
        return pa.record_batch(columns, schema=SPARK_SCHEMA)
    return pa.record_batch([*columns, _null_if_none(batch.column("headers"))], schema=SPARK_SCHEMA_WITH_HEADERS)


def _null_if_none(headers: pa.Array) -> pa.Array:
    """The connector has null instead of an empty list of headers."""
    offsets = headers.offsets.to_numpy()
    mask = pa.array(np.diff(offsets) == 0)
    return pa.ListArray.from_arrays(pa.array(offsets), headers.values, type=HEADERS, mask=mask)


def _microseconds(times: pa.Array) -> pa.Array:
    """Microseconds. A time out of range becomes the first or last value of the range."""
    ms = np.clip(times.view(pa.int64()).to_numpy(), -LAST_MS, LAST_MS)
    return pa.array(ms * 1000).view(MICROSECONDS)
