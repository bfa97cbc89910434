"""The walk over records, in Python: the reference for compiled_walker.c, and its replacement where that is not built.

The format of a record is in `record.py`. Lengths, counts and offset deltas are numbers of 32 bits in up to five bytes,
timestamp deltas have 64 bits in up to ten, as in Kafka. Bits beyond that are ignored.
    the lengths of a record agree with each other, down to those of its headers
    the records are as many as their batch says, and fill it

`_record` decides what a record is. `_plain_row` is quick about usual records and leaves all others to it.

Pure: bytes in, numbers out.
"""

from array import array
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from struct import Struct

from leadline.errors import CorruptMessage
from leadline.model import NO_TIMESTAMP, Buffer
from leadline.records import varint
from leadline.records.batch import HEADER_BYTES, MAGIC, MIN_LENGTH, crc_of, header_at
from leadline.records.varint import INT_BYTES, LONG_BYTES
from leadline.wire.primitives import read_unsigned

DIGEST_BYTES = 16
LONG_MAX = (1 << 63) - 1
ROW = Struct("9q")
KEPT = Struct("4q")  # of a record that compaction keeps: timestamp delta, offset delta, and the fields `rest_at`, `end`

Row = tuple[int, int, int, int, int, int, int, int, int]
Summary = tuple[int, int, int, int]
Table = dict[bytes, int]  # the last offset of each key


def check(data: Buffer, start: int, end: int, count: int, base_timestamp: int) -> Summary:
    """Checks the records of a batch for a leader. CorruptMessage if a batch may not hold them.

    The largest timestamp, or -1. The smallest one but -1, or LONG_MAX. How many records have no key. The number of the
    first one whose offset delta is not its number, or -1.
    """
    try:
        return _summary(_plain_rows(data, start, end, count), base_timestamp)
    except (IndexError, ValueError):
        return check_chunks((memoryview(data)[start:end],), count, base_timestamp)


def check_chunks(chunks: Iterable[Buffer], count: int, base_timestamp: int) -> Summary:
    """As `check`, of records that come in chunks. No more than one chunk is held."""
    reader = _Reader(chunks)
    summary = _summary((_record(reader, number) for number in range(count)), base_timestamp)
    if reader.has_more():
        raise CorruptMessage(f"there are bytes behind the last of {max(count, 0)} records")
    return summary


def rows(data: Buffer, start: int, end: int, count: int, number: int) -> bytes:
    """A row of nine numbers for each record, the fields of `Span`. Bytes after them are not read.

    `number`: of the first one in its batch, for errors.
    """
    packed, reader = bytearray(), None
    for n in range(number, number + count):
        try:
            row = _plain_row(data, start, end)
        except (IndexError, ValueError):
            reader = _Reader((memoryview(data)[start:end],), start)
            row = _record(reader, n)
        packed += ROW.pack(*row)
        start = row[8]
    return bytes(packed)


# Compaction


def learn_keys(table: Table, body: Buffer, count: int, base_offset: int, start: int, most: int) -> tuple[int, bool]:
    """Note the offset of each record with a key, from the offset `start` on, while the table has less than `most` keys.

    Returns the last offset that was noted, or -1, and whether the table filled up.
    """
    last = -1
    for _, offset_delta, _, key_at, key_bytes, *_ in _all_rows(body, count):
        if key_bytes >= 0 and base_offset + offset_delta >= start:
            if len(table) >= most:
                return last, True
            table[_digest(body, key_at, key_bytes)] = last = base_offset + offset_delta
    return last, False


def retained(
    table: Table, body: Buffer, count: int, base_offset: int, map_end: int, keep_tombstones: bool
) -> tuple[bytes, int, int, int, int]:
    """The records that compaction keeps: those past `map_end`, and the last of each key.

    `KEPT` of each, how many they are, how many records were dropped because they have no key, how many of the kept ones
    are tombstones, and the largest timestamp delta among the kept ones.
    """
    kept, keyless, tombstones, newest = bytearray(), 0, 0, 0
    for timestamp_delta, offset_delta, rest_at, key_at, key_bytes, _, value_bytes, _, end in _all_rows(body, count):
        offset = base_offset + offset_delta
        if offset <= map_end:
            if key_bytes < 0:
                keyless += 1
                continue
            if value_bytes < 0 and not keep_tombstones:
                continue
            if offset < table.get(_digest(body, key_at, key_bytes), -1):
                continue
        newest = max(newest, timestamp_delta) if kept else timestamp_delta
        kept += KEPT.pack(timestamp_delta, offset_delta, rest_at, end)
        tombstones += value_bytes < 0
    return bytes(kept), len(kept) // KEPT.size, keyless, tombstones, newest


def joined(body: Buffer, kept: Buffer, shift: int, is_stamped: bool) -> bytes:
    """The kept records as the body of a batch. `shift` is added to their timestamp deltas; it is all of them if the
    broker stamped the batch.
    """
    out = bytearray()
    for timestamp_delta, offset_delta, rest_at, end in KEPT.iter_unpack(kept):
        delta = to_long(shift if is_stamped else timestamp_delta + shift)
        front = b"\0" + varint.encode(delta) + varint.encode(offset_delta)
        out += varint.encode(len(front) + end - rest_at)
        out += front
        out += body[rest_at:end]
    return bytes(out)


# Batches in a row


def whole_batches(data: Buffer) -> tuple[int, bool]:
    """Where the whole batches at the front end, and whether they end at a batch with a wrong CRC."""
    at, size = 0, len(data)
    while at + HEADER_BYTES <= size:
        header = header_at(data, at)
        behind = at + header.size
        if header.magic != MAGIC or header.length < MIN_LENGTH or behind > size:
            break
        if crc_of(data, at, header.size) != header.crc:
            return at, True
        at = behind
    return at, False


def learn_plain(table: Table, data: Buffer, at: int, start: int, most: int) -> tuple[int, int, bool]:
    """`learn_keys` for the batches from a position on, as far as they are plain: no codec, no transaction.

    Where the first other batch is, the last offset that is noted now, or -1, and whether there was no room.
    Here it leaves all batches to the caller, who takes them one by one.
    """
    return at, -1, False


def clean_plain(
    table: Table, data: Buffer, at: int, map_end: int, now_ms: int, horizon_ms: int, most_bytes: int
) -> tuple[int, bytes, int, int, int, int, int, int]:
    """Compact the plain batches from a position on, until the result has more than `most_bytes`.

    `horizon_ms`: the delete horizon that tombstones get. An emptied batch of a producer is not plain: the caller
    decides whether its header stays.
    Returns the position of the first other batch; the result; its last offset, its largest timestamp and the last
    offset of that batch, or -1; and how many records were read, kept, and dropped because they have no key.
    Here it leaves all batches to the caller, which takes them one by one.
    """
    return at, b"", -1, NO_TIMESTAMP, -1, 0, 0, 0


def clean_packed(
    table: Table, batch: Buffer, body: Buffer, map_end: int, now_ms: int, horizon_ms: int
) -> tuple[bytes, bool, int, int, int, int, int] | None:
    """As `clean_plain`, of one batch that is compressed: `body` is what it holds. None if it is not plain otherwise.

    What is left, with an uncompressed body; True instead of that if it is the batch as it is; and the same numbers.
    Here it leaves all batches to the caller.
    """
    return None


def scan_usual(data: Buffer, state: "array[int]", producers: "array[int]", ignore_crc: bool) -> tuple[bytes, bytes]:
    """The part of recovery's scan that most batches need: see `log.segment_scan`. The new entries of both indexes.

    Here it leaves all batches to the caller, who takes them one by one.
    """
    return b"", b""


# Keys


def _digest(body: Buffer, at: int, size: int) -> bytes:
    """Short keys stand for themselves: they are shorter than any digest. Collisions cannot be forced."""
    key = bytes(body[at : at + size])
    return key if size < DIGEST_BYTES else blake2b(key, digest_size=DIGEST_BYTES).digest()


def _all_rows(body: Buffer, count: int) -> Iterator[Row]:
    at, end = 0, len(body)
    for number in range(count):
        try:
            row = _plain_row(body, at, end)
        except (IndexError, ValueError):
            row = _record(_Reader((memoryview(body)[at:],), at), number)
        yield row
        at = row[8]
    if at != end:
        raise CorruptMessage(f"there are bytes behind the last of {max(count, 0)} records")


# Summaries


def _summary(records: Iterable[Row], base_timestamp: int) -> Summary:
    newest, oldest, keyless, misplaced = NO_TIMESTAMP, LONG_MAX, 0, -1
    for number, row in enumerate(records):
        timestamp = base_timestamp + row[0]
        if not -LONG_MAX <= timestamp <= LONG_MAX:
            timestamp = to_long(timestamp)
        if timestamp > newest:
            newest = timestamp
        if timestamp < oldest and timestamp != NO_TIMESTAMP:
            oldest = timestamp
        if row[4] < 0:
            keyless += 1
        if row[1] != number and misplaced < 0:
            misplaced = number
    return newest, oldest, keyless, misplaced


def to_long(number: int) -> int:
    """As a number of 64 bits, in which sums of timestamps may overflow."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


# Record by record, byte by byte


class _Reader:
    """Reads numbers from chunks, within a record."""

    def __init__(self, chunks: Iterable[Buffer], position: int = 0) -> None:
        self._chunks, self._chunk, self._at = iter(chunks), memoryview(b""), 0
        self.position = position  # of the next byte, all chunks counted
        self.number = self.length = 0  # of the record
        self.left = LONG_MAX  # bytes of the record that are not read yet

    def has_more(self) -> bool:
        while self._at == len(self._chunk):
            chunk = next(self._chunks, None)
            if chunk is None:
                return False
            self._chunk, self._at = memoryview(chunk), 0
        return True

    def byte(self) -> int:
        self.within(1)
        if not self.has_more():
            raise CorruptMessage(f"the records end within record {self.number}")
        byte = self._chunk[self._at]
        self._at += 1
        self.position += 1
        self.left -= 1
        return byte

    def skip(self, count: int) -> None:
        self.within(count)
        self.left -= max(count, 0)
        self.position += max(count, 0)
        while count > 0:
            if not self.has_more():
                raise CorruptMessage(f"the records end within record {self.number}")
            step = min(count, len(self._chunk) - self._at)
            self._at += step
            count -= step

    def within(self, count: int) -> None:
        if count > self.left:
            raise CorruptMessage(f"record {self.number} has a length of {self.length}, but its parts have another")

    def number_of(self, most: int) -> int:
        if (byte := self.byte()) < 0x80:
            return (byte >> 1) ^ -(byte & 1)
        data = [byte]  # the number may be spread over two chunks
        while data[-1] > 0x7F:
            if len(data) == most:
                raise CorruptMessage(f"record {self.number} has a number of too many bytes")
            data.append(self.byte())
        return (varint.decode_int if most == INT_BYTES else varint.decode)(bytes(data), 0)[0]


def _record(reader: _Reader, number: int) -> Row:
    reader.number, reader.left = number, LONG_MAX
    reader.length = length = reader.number_of(INT_BYTES)
    if length < 0:
        raise CorruptMessage(f"record {number} has a length of {length}")
    reader.left = length
    reader.byte()  # attributes, unused
    timestamp_delta = reader.number_of(LONG_BYTES)
    offset_delta, rest_at = reader.number_of(INT_BYTES), reader.position
    key_bytes, key_at = reader.number_of(INT_BYTES), reader.position
    reader.skip(key_bytes)
    value_bytes, value_at = reader.number_of(INT_BYTES), reader.position
    reader.skip(value_bytes)
    headers_at = reader.position
    _skip_headers(reader)
    if reader.left:
        reader.within(reader.left + 1)
    return (
        timestamp_delta, offset_delta, rest_at, key_at, key_bytes, value_at, value_bytes, headers_at, reader.position
    )  # fmt: skip


def _skip_headers(reader: _Reader) -> None:
    count = reader.number_of(INT_BYTES)
    if not 0 <= count <= reader.left:
        raise CorruptMessage(f"record {reader.number} of {reader.length} bytes has {count} headers")
    for _ in range(count):
        size = reader.number_of(INT_BYTES)
        if size < 0:
            raise CorruptMessage(f"record {reader.number} has a header without a key")
        reader.skip(size)
        reader.skip(reader.number_of(INT_BYTES))


# Usual records: IndexError or ValueError for any other


def _plain_rows(data: Buffer, start: int, end: int, count: int) -> list[Row]:
    plain = []
    for _ in range(count):
        row = _plain_row(data, start, end)
        plain.append(row)
        start = row[8]
    if start != end:
        raise ValueError
    return plain


def _plain_row(data: Buffer, at: int, limit: int) -> Row:
    """Numbers of one byte, which nearly all are, are read without a call."""
    size, at = data[at], at + 1
    if size > 0x7F:
        size, at = read_unsigned(data, at - 1, 4)
    end = at + (size >> 1)
    if size & 1 or end > limit:
        raise ValueError
    timestamp, at = data[at + 1], at + 2
    if timestamp > 0x7F:
        timestamp, at = read_unsigned(data, at - 1, 9)
    offset, rest_at = data[at], at + 1
    if offset > 0x7F:
        offset, rest_at = read_unsigned(data, at, 4)
    size, key_at = data[rest_at], rest_at + 1
    if size > 0x7F:
        size, key_at = read_unsigned(data, rest_at, 4)
    if size & 1:
        key_bytes, at = ~(size >> 1), key_at
    else:
        key_bytes = size >> 1
        at = key_at + key_bytes
    size, value_at = data[at], at + 1
    if size > 0x7F:
        size, value_at = read_unsigned(data, at, 4)
    if size & 1:
        value_bytes, headers_at = ~(size >> 1), value_at
    else:
        value_bytes = size >> 1
        headers_at = value_at + value_bytes
    if (headers_at + 1 if data[headers_at] == 0 else _after_headers(data, headers_at)) != end:
        raise ValueError
    return (
        (timestamp >> 1) ^ -(timestamp & 1), (offset >> 1) ^ -(offset & 1),
        rest_at, key_at, key_bytes, value_at, value_bytes, headers_at, end,
    )  # fmt: skip


def _after_headers(data: Buffer, at: int) -> int:
    count, at = read_unsigned(data, at, 4)
    if count & 1:
        raise ValueError
    for _ in range(count >> 1):
        size, at = read_unsigned(data, at, 4)
        if size & 1:
            raise ValueError
        size, at = read_unsigned(data, at + (size >> 1), 4)
        at += 0 if size & 1 else size >> 1
    return at
