"""Where the parts of all records lie within the bodies of many batches, found for all of them at once.

Format of a record: records/record.py. Its length leads from one record to the next, so the k-th record of all batches
is found together, then the next; where batches are few, one record after the other. All else is done on whole columns.
A varint is looked up by its first two bytes, which are enough for nearly all of them; of a longer one, eight bytes
are one number, of which it is the seven-bit groups up to the first byte without its top bit.

Other bodies are parsed record by record (`by_records`), which tells rare records (varints of nine and ten bytes) from
damaged ones. `native` builds compiled code for the same columns.
    all positions lie within their record, all records within their batch's body, and each body is used up

Pure: bytes in, columns out.
"""

from array import array
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from leadline.errors import CorruptMessage
from leadline.model import Buffer
from leadline.records import varint
from leadline.records.record import Span, spans

try:
    from leadline.spark.batches import native_positions
except ImportError:  # not built: see native.py
    native_positions = None  # type: ignore[assignment]

Longs = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

LEAST_RECORD_BYTES, LEAST_HEADER_BYTES = 7, 2
FEW_BATCHES = 12  # below, a step over all of them costs more than as many steps one by one
MANY_HEADERS = 100  # of one record; above, they are not worth a step each over all records


@dataclass(frozen=True, slots=True)
class RecordBytes:
    """The records of batches, as far as they need no decompression any more."""

    data: Buffer
    starts: Longs  # of each body, ascending
    ends: Longs
    counts: Longs  # of records in each

    def holding(self, position: int) -> int:
        """The number of the body in which a position lies."""
        return int(np.searchsorted(self.starts, position, side="right")) - 1


@dataclass(frozen=True, slots=True)
class RecordPositions:
    """A row for each record, in their order."""

    timestamp_delta: Longs
    offset_delta: Longs
    key_at: Longs
    key_bytes: Longs  # negative: null
    value_at: Longs
    value_bytes: Longs  # negative: null
    headers_at: Longs  # where their count stands
    end: Longs

    def only(self, rows: Bools) -> "RecordPositions":
        return RecordPositions(*(getattr(self, column.name)[rows] for column in fields(self)))


@dataclass(frozen=True, slots=True)
class HeaderPositions:
    """A row for each header of a record, in their order."""

    counts: Longs  # by record
    key_at: Longs
    key_bytes: Longs
    value_at: Longs
    value_bytes: Longs  # negative: null


class WrongBody(CorruptMessage):
    """One of the bodies is not made of records."""

    def __init__(self, body: int, reason: str) -> None:
        super().__init__(reason)
        self.body = body


def record_positions(bodies: RecordBytes) -> RecordPositions:
    """WrongBody where lengths contradict each other."""
    if (bodies.counts < 0).any() or (bodies.counts * LEAST_RECORD_BYTES > bodies.ends - bodies.starts).any():
        return by_records(bodies)  # it raises the reason
    fast = by_columns if native_positions is None else by_native_code
    return fast(bodies) or by_records(bodies)


def by_native_code(bodies: RecordBytes) -> RecordPositions | None:
    """As `plain`, where it was built."""
    columns = np.empty((len(fields(RecordPositions)), int(bodies.counts.sum())), np.int64)
    if not native_positions.fill(bodies.data, bodies.starts, bodies.ends, bodies.counts, columns):
        return None
    return RecordPositions(*columns)


# By columns


class _WrongEnd(Exception):
    """A body does not end where its last record does."""


def by_columns(bodies: RecordBytes) -> RecordPositions | None:
    """None if any of the records is unusual, or wrong."""
    view = _View(bodies.data)
    try:
        starts = _starts(view, bodies)
        length, at = view.varints(starts)
        end = at + length
        timestamp_delta, at = view.varints(at + 1)
        offset_delta, at = view.varints(at)
        key_bytes, key_at = view.varints(at)
        value_bytes, value_at = view.varints(key_at + np.maximum(key_bytes, 0))
    except (IndexError, _WrongEnd):
        return None
    headers_at = value_at + np.maximum(value_bytes, 0)
    if view.too_long or not (headers_at < end).all():
        return None
    return RecordPositions(timestamp_delta, offset_delta, key_at, key_bytes, value_at, value_bytes, headers_at, end)


def _starts(view: "_View", bodies: RecordBytes) -> Longs:
    """Where each record begins: the k-th ones of all batches, then the next, until only few batches have any left."""
    order = np.argsort(-bodies.counts, kind="stable")
    counts, ends, at = bodies.counts[order], bodies.ends[order], bodies.starts[order]
    rows = (np.cumsum(bodies.counts) - bodies.counts)[order]
    starts = np.empty(int(counts.sum()), np.int64)
    steps = int(counts[FEW_BATCHES - 1]) if len(counts) >= FEW_BATCHES else 0
    for left in np.searchsorted(-counts, -np.arange(steps), side="left").tolist():
        here = at[:left]
        starts[rows[:left]] = here
        rows[:left] += 1
        here += view.steps(here)
    for n in np.flatnonzero(counts > steps).tolist():
        row, count = int(rows[n]), int(counts[n]) - steps
        rest, at[n] = _record_starts(view, int(at[n]), int(ends[n]), count)
        starts[row : row + count] = rest
    if not np.array_equal(at, ends):
        raise _WrongEnd
    return starts


def _record_starts(view: "_View", at: int, end: int, count: int) -> tuple[list[int], int]:
    """Where each of so many records begins, and where the last one ends.

    Lengths of one or two bytes, which nearly all are, are read here, without a call.
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


# What the first two bytes of a varint, as a little-endian number, say: its value and how many bytes it takes (0: more).
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
    """Bytes, to be looked at from any position on. IndexError for a varint after the last but one."""

    def __init__(self, data: Buffer) -> None:
        self.data = data
        self._last_eight = len(data) - 8
        self._pairs = np.ndarray((len(data) - 1,), "<u2", data, strides=(1,))
        self._eights = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))
        self.too_long = False  # whether there was a varint of more than eight bytes

    def varints(self, at: Longs) -> tuple[Longs, Longs]:
        """The numbers at these positions, and the positions after them."""
        pairs = self._pairs[at]
        size, value = _SIZE.take(pairs), _VALUE.take(pairs)
        if not size.all():
            longer = np.flatnonzero(size == 0)
            value[longer], size[longer] = self._long_varints(at[longer])
        return value, at + size

    def steps(self, at: Longs) -> Longs:
        """How far it is to the next record."""
        steps: Longs = _STEP.take(self._pairs[at])
        if not steps.all():
            longer = np.flatnonzero(steps == 0)
            value, size = self._long_varints(at[longer])
            steps[longer] = np.maximum(value, 0) + size
        return steps

    def _long_varints(self, at: Longs) -> tuple[Longs, Longs]:
        inside = np.minimum(at, self._last_eight)
        eight = self._eights[inside] >> ((at - inside) * 8).astype(np.uint64)
        last = ~eight & _TOPS
        last &= -last  # the lowest of the top bits that are not set
        self.too_long |= not last.all()
        eight &= (last - np.uint64(1)) & ~_TOPS
        for low, high, by in _GROUPS:
            eight = eight & low | (eight & high) >> by
        value = (eight >> np.uint64(1)).astype(np.int64) ^ -((eight & np.uint64(1)).astype(np.int64))
        size = np.frexp(last.astype(np.float64))[1].astype(np.int64) // 8
        return value, size


def header_positions(data: Buffer, rows: RecordPositions) -> HeaderPositions | None:
    """None if any of the headers is unusual, or wrong."""
    view = _View(data)
    try:
        counts, at = _header_counts(view, rows)
        room = rows.end - at
        if (counts < 0).any() or (counts * LEAST_HEADER_BYTES > room).any() or counts.max(initial=0) > MANY_HEADERS:
            return None
        firsts = np.cumsum(counts) - counts
        parts = np.zeros((4, int(counts.sum())), np.int64)
        for k in range(int(counts.max(initial=0))):
            here = np.flatnonzero(counts > k)
            key_bytes, key_at = view.varints(at[here])
            value_bytes, value_at = view.varints(key_at + np.maximum(key_bytes, 0))
            parts[:, firsts[here] + k] = key_at, key_bytes, value_at, value_bytes
            at[here] = value_at + np.maximum(value_bytes, 0)
    except IndexError:
        return None
    if view.too_long or (parts[1] < 0).any() or not np.array_equal(at, rows.end):
        return None
    return HeaderPositions(counts, *parts)


def _header_counts(view: _View, rows: RecordPositions) -> tuple[Longs, Longs]:
    """Of each record, and the positions after them: for nearly all, a single byte of zero, perhaps the very last."""
    counts, at = np.zeros(len(rows.end), np.int64), rows.headers_at + 1
    some = np.flatnonzero(np.frombuffer(view.data, np.uint8)[rows.headers_at])
    if len(some):
        counts[some], at[some] = view.varints(rows.headers_at[some])
    return counts, at


# Record by record


def skip(data: Buffer, position: int, count: int) -> int:
    """Where the record begins that so many others lie before; the end, if lengths do not lead there."""
    try:
        for _ in range(count):
            length, position = varint.decode(data, position)
            position += max(length, 0)
    except (IndexError, ValueError):
        return len(data)
    return min(position, len(data))


def by_records(bodies: RecordBytes) -> RecordPositions:
    numbers = array("q")
    ranges = zip(bodies.starts.tolist(), bodies.ends.tolist(), bodies.counts.tolist(), strict=True)
    for number, (begin, end, count) in enumerate(ranges):
        if count < 0:
            raise WrongBody(number, f"it says that it holds {count} records")
        try:
            for span in spans(memoryview(bodies.data)[begin:end], count):
                numbers.extend(_row(span, begin))
        except CorruptMessage as error:
            raise WrongBody(number, str(error)) from error
    columns = np.array(numbers, np.int64).reshape(-1, len(fields(RecordPositions))).T
    return RecordPositions(*map(np.ascontiguousarray, columns))


def _row(span: Span, begin: int) -> tuple[int, ...]:
    key, value = span.key or (span.key_at, span.key_at - 1), span.value or (span.headers_at, span.headers_at - 1)
    return (
        span.timestamp_delta,
        span.offset_delta,
        begin + key[0],
        key[1] - key[0],
        begin + value[0],
        value[1] - value[0],
        begin + span.headers_at,
        begin + span.end,
    )
