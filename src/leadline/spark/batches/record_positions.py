"""The positions of all records, keys, values and headers in the bodies of many batches, as columns.

Format of a record: records/record.py. A record starts with its length, which gives the position of the next. The code
computes the positions of the k-th records of all batches together, then those of the next. If there are few batches, it
goes record by record. Everything else is computed on whole columns. The first two bytes of a varint give its value
through a table; this covers nearly all varints. For a longer varint, eight bytes are read as one number, and its
seven-bit groups up to the first byte without a top bit are joined.

`by_records` parses the other bodies record by record. It accepts rare records (long varints, many headers) and refuses
damaged ones. Where the walk over records is compiled (records/walker.py), it fills the same columns.
    a position lies within its record, a record within the body of its batch, and the records fill the body

Pure: bytes in, columns out.
"""

from array import array
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from leadline.errors import CorruptMessage
from leadline.model import Buffer
from leadline.records import varint
from leadline.records.python_walker import Row
from leadline.records.record import rows_of
from leadline.records.walker import compiled_walker

Longs = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

LEAST_RECORD_BYTES, LEAST_HEADER_BYTES = 7, 2
FEW_BATCHES = 12  # with fewer batches, single steps cost less than one step over a column
INT_BYTES, LONG_BYTES = 4, 8  # of varints that are not rare
MANY_HEADERS = 100  # with more headers in one record, `by_records` costs less than a step over all records for each


@dataclass(frozen=True, slots=True)
class RecordBytes:
    """The decompressed bodies of batches, in one buffer."""

    data: Buffer
    starts: Longs  # of the bodies, ascending
    ends: Longs
    counts: Longs  # of records in each body

    def holding(self, position: int) -> int:
        """The number of the body in which a position lies."""
        return int(np.searchsorted(self.starts, position, side="right")) - 1


@dataclass(frozen=True, slots=True)
class RecordPositions:
    """A row for each record, in order."""

    timestamp_delta: Longs
    offset_delta: Longs
    key_at: Longs
    key_bytes: Longs  # negative: null
    value_at: Longs
    value_bytes: Longs  # negative: null
    headers_at: Longs  # the position of the count of headers
    end: Longs

    def only(self, rows: Bools) -> "RecordPositions":
        return RecordPositions(*(getattr(self, column.name)[rows] for column in fields(self)))


@dataclass(frozen=True, slots=True)
class HeaderPositions:
    """A row for each header of all records, in order."""

    counts: Longs  # by record
    key_at: Longs
    key_bytes: Longs
    value_at: Longs
    value_bytes: Longs  # negative: null


class WrongBody(CorruptMessage):
    """A body does not consist of records."""

    def __init__(self, body: int, reason: str) -> None:
        super().__init__(reason)
        self.body = body


def record_positions(bodies: RecordBytes) -> RecordPositions:
    """The positions of all records. WrongBody if lengths contradict each other."""
    if (bodies.counts < 0).any() or (bodies.counts * LEAST_RECORD_BYTES > bodies.ends - bodies.starts).any():
        return by_records(bodies)  # it raises the reason
    fast = by_columns if compiled_walker is None else by_compiled_walk
    return fast(bodies) or by_records(bodies)


def by_compiled_walk(bodies: RecordBytes) -> RecordPositions | None:
    """None if a record is wrong."""
    columns = np.empty((len(fields(RecordPositions)), int(bodies.counts.sum())), np.int64)
    if not compiled_walker.fill(bodies.data, bodies.starts, bodies.ends, bodies.counts, columns):
        return None
    return RecordPositions(*columns)


# Whole columns


class _WrongEnd(Exception):
    """A body does not end where its last record does."""


def by_columns(bodies: RecordBytes) -> RecordPositions | None:
    """None if a record is rare or wrong."""
    view = _View(bodies.data)
    try:
        starts = _starts(view, bodies)
        length, at = view.varints(starts)
        end = at + length
        timestamp_delta, at = view.varints(at + 1, LONG_BYTES)
        offset_delta, at = view.varints(at)
        key_bytes, key_at = view.varints(at)
        value_bytes, value_at = view.varints(key_at + np.maximum(key_bytes, 0))
    except (IndexError, _WrongEnd):
        return None
    headers_at = value_at + np.maximum(value_bytes, 0)
    if view.too_long or not (headers_at < end).all():
        return None
    rows = RecordPositions(timestamp_delta, offset_delta, key_at, key_bytes, value_at, value_bytes, headers_at, end)
    return None if header_positions(bodies.data, rows) is None else rows


def _starts(view: "_View", bodies: RecordBytes) -> Longs:
    """The start of each record: of the k-th records of all batches, then of the next, until few batches remain."""
    order = np.argsort(-bodies.counts, kind="stable")
    counts, ends, at = bodies.counts[order], bodies.ends[order], bodies.starts[order]
    rows = (np.cumsum(bodies.counts) - bodies.counts)[order]
    starts = np.empty(int(counts.sum()), np.int64)
    steps = int(counts[FEW_BATCHES - 1]) if len(counts) >= FEW_BATCHES else 0
    for left in np.searchsorted(-counts, -np.arange(steps), side="left").tolist():
        positions = at[:left]
        starts[rows[:left]] = positions
        rows[:left] += 1
        positions += view.steps(positions)
    for n in np.flatnonzero(counts > steps).tolist():
        row, count = int(rows[n]), int(counts[n]) - steps
        rest, at[n] = _record_starts(view, int(at[n]), int(ends[n]), count)
        starts[row : row + count] = rest
    if not np.array_equal(at, ends):
        raise _WrongEnd
    return starts


def _record_starts(view: "_View", at: int, end: int, count: int) -> tuple[list[int], int]:
    """The starts of `count` records, and the end of the last one.

    It reads lengths of one or two bytes, which nearly all are, without a call.
    """
    data, starts = view.data, list[int]()
    for _ in range(count):
        if at >= end:
            raise _WrongEnd
        starts.append(at)
        low, high = data[at], data[at + 1]
        if low < 0x80:
            at += 1 + (low >> 1)
        elif high < 0x80:
            at += 2 + ((high << 6) | ((low & 0x7F) >> 1))
        else:
            at += int(view.steps(np.array([at]))[0])
    return starts, at


# Indexed by the first two bytes of a varint, as a little-endian number: its value, and its length (0: more than two).
_PAIRS = np.arange(1 << 16)
_UNSIGNED = np.where(_PAIRS & 0x80, (_PAIRS >> 8) << 7 | (_PAIRS & 0x7F), _PAIRS & 0x7F)
_SIZE = np.where(_PAIRS & 0x80, np.where(_PAIRS & 0x8000, 0, 2), 1)
_VALUE = (_UNSIGNED >> 1) ^ -(_UNSIGNED & 1)
_STEP = np.where(_SIZE > 0, np.maximum(_VALUE, 0) + _SIZE, 0)  # over a length and what it counts

_TOPS = np.uint64(0x8080_8080_8080_8080)
_GROUPS = tuple(
    tuple(map(np.uint64, group))
    for group in (
        (0x007F_007F_007F_007F, 0x7F00_7F00_7F00_7F00, 1),
        (0x0000_3FFF_0000_3FFF, 0x3FFF_0000_3FFF_0000, 2),
        (0x0000_0000_0FFF_FFFF, 0x0FFF_FFFF_0000_0000, 4),
    )
)


class _View:
    """Bytes with access from any position. IndexError for a varint that starts at the last byte or after it."""

    def __init__(self, data: Buffer) -> None:
        self.data = data
        self._last_eight = len(data) - 8
        self._pairs = np.ndarray((len(data) - 1,), "<u2", data, strides=(1,))
        self._eights = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))
        self.too_long = False  # whether it met a varint that is too long, or rare

    def varints(self, at: Longs, most_bytes: int = INT_BYTES) -> tuple[Longs, Longs]:
        """The numbers at these positions, and the positions after them."""
        pairs = self._pairs[at]
        size, value = _SIZE.take(pairs), _VALUE.take(pairs)
        if not size.all():
            longer = np.flatnonzero(size == 0)
            value[longer], size[longer] = self._long_varints(at[longer])
            self.too_long |= bool((size > most_bytes).any())
        return value, at + size

    def steps(self, at: Longs) -> Longs:
        """The distances to the next records."""
        steps: Longs = _STEP.take(self._pairs[at])
        if not steps.all():
            longer = np.flatnonzero(steps == 0)
            value, size = self._long_varints(at[longer])
            self.too_long |= bool((size > INT_BYTES).any())
            steps[longer] = np.maximum(value, 0) + size
        return steps

    def _long_varints(self, at: Longs) -> tuple[Longs, Longs]:
        inside = np.minimum(at, self._last_eight)
        eight = self._eights[inside] >> ((at - inside) * 8).astype(np.uint64)
        last = ~eight & _TOPS
        last &= -last  # the lowest top bit that is not set
        self.too_long |= not last.all()
        eight &= (last - np.uint64(1)) & ~_TOPS
        for low, high, by in _GROUPS:
            eight = eight & low | (eight & high) >> by
        value = (eight >> np.uint64(1)).astype(np.int64) ^ -((eight & np.uint64(1)).astype(np.int64))
        size = np.frexp(last.astype(np.float64))[1].astype(np.int64) // 8
        return value, size


def header_positions(data: Buffer, rows: RecordPositions) -> HeaderPositions | None:
    """None if a header is rare or wrong."""
    view = _View(data)
    try:
        counts, at = _header_counts(view, rows)
        room = rows.end - at
        if (counts < 0).any() or (counts * LEAST_HEADER_BYTES > room).any() or counts.max(initial=0) > MANY_HEADERS:
            return None
        firsts = np.cumsum(counts) - counts
        parts = np.zeros((4, int(counts.sum())), np.int64)
        for k in range(int(counts.max(initial=0))):
            having_kth = np.flatnonzero(counts > k)
            key_bytes, key_at = view.varints(at[having_kth])
            value_bytes, value_at = view.varints(key_at + np.maximum(key_bytes, 0))
            parts[:, firsts[having_kth] + k] = key_at, key_bytes, value_at, value_bytes
            at[having_kth] = value_at + np.maximum(value_bytes, 0)
    except IndexError:
        return None
    if view.too_long or (parts[1] < 0).any() or not np.array_equal(at, rows.end):
        return None
    return HeaderPositions(counts, *parts)


def _header_counts(view: _View, rows: RecordPositions) -> tuple[Longs, Longs]:
    """The count of each record, and the position after it. For nearly all records it is a single zero byte."""
    counts, at = np.zeros(len(rows.end), np.int64), rows.headers_at + 1
    some = np.flatnonzero(np.frombuffer(view.data, np.uint8)[rows.headers_at])
    if len(some):
        counts[some], at[some] = view.varints(rows.headers_at[some])
    return counts, at


# Record by record


def skip(data: Buffer, position: int, count: int) -> int:
    """The position after `count` records; the end of the data if the lengths do not lead there."""
    try:
        for _ in range(count):
            length, position = varint.decode_int(data, position)
            position += max(length, 0)
    except (IndexError, ValueError):
        return len(data)
    return min(position, len(data))


def by_records(bodies: RecordBytes) -> RecordPositions:
    numbers = array("q")
    ranges = zip(bodies.starts.tolist(), bodies.ends.tolist(), bodies.counts.tolist(), strict=True)
    for number, (start, end, count) in enumerate(ranges):
        if count < 0:
            raise WrongBody(number, f"its header has {count} records")
        try:
            for row in rows_of(memoryview(bodies.data)[start:end], count):
                numbers.extend(_shifted(row, start))
        except CorruptMessage as error:
            raise WrongBody(number, str(error)) from error
    columns = np.array(numbers, np.int64).reshape(-1, len(fields(RecordPositions))).T
    return RecordPositions(*map(np.ascontiguousarray, columns))


def _shifted(row: Row, start: int) -> tuple[int, ...]:
    """The columns of a record whose body starts there."""
    timestamp_delta, offset_delta, _, key_at, key_bytes, value_at, value_bytes, headers_at, end = row
    return (
        timestamp_delta,
        offset_delta,
        start + key_at,
        key_bytes,
        start + value_at,
        value_bytes,
        start + headers_at,
        start + end,
    )
