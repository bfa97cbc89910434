"""The figures of a topic, gathered from the bytes of its batches in one pass, by many tasks.

Each task measures its ranges; the figures of all tasks are merged. A batch counts in the range that holds its last
offset, so ranges may start and end within a batch. There are two sizes:
    stored   bytes in the log; for a record, its share of the bytes of its batch
    payload  the key and the value of a record
Control batches count as stored and hold no records. Records of aborted transactions count like all others.

Pure: bytes in, figures out.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from leadline.model import Buffer, Offset
from leadline.records.batch import CODEC_MASK, CONTROL, HEADER_BYTES, Header, codec_of, walk
from leadline.records.compression import Codec, compress
from leadline.records.record import body_of
from leadline.spark.batches.decode import RecordFilter, pieces
from leadline.spark.batches.record_positions import Longs
from leadline.spark.report.sketches import CompactionEstimate, Histogram, HotKeys, KeyColumn, KeySample
from leadline.spark.report.traffic import TimeSlots

TRIED_BYTES = 512 << 10  # the sample of a range, on which all codecs are tried
TRIED_AT_ONCE = 8  # the most batches of one fetch in the sample
EVERY_OFFSET = RecordFilter(0, (1 << 63) - 1)


@dataclass(slots=True)
class PartitionFigures:
    """One partition, or a range of it."""

    batches: int = 0
    records: int = 0
    stored: int = 0
    payload: int = 0
    keyless: int = 0  # records without a key
    tombstones: int = 0  # records without a value
    slots: TimeSlots = field(default_factory=TimeSlots)

    def merge(self, other: "PartitionFigures") -> None:
        self.batches += other.batches
        self.records += other.records
        self.stored += other.stored
        self.payload += other.payload
        self.keyless += other.keyless
        self.tombstones += other.tombstones
        self.slots.merge(other.slots)


@dataclass(slots=True)
class CodecFigures:
    """Batches of one codec."""

    batches: int = 0
    records: int = 0
    stored: int = 0
    unpacked: int = 0  # their size without compression

    def add(self, batches: int, records: int, stored: int, unpacked: int) -> None:
        self.batches += batches
        self.records += records
        self.stored += stored
        self.unpacked += unpacked

    @property
    def ratio(self) -> float:
        return self.unpacked / self.stored if self.stored else 1.0


@dataclass(slots=True)
class TopicFigures:
    """The figures of a topic, or of some ranges of it."""

    parts: dict[int, PartitionFigures] = field(default_factory=dict)
    sizes: Histogram = field(default_factory=Histogram)  # of payloads
    hot: HotKeys = field(default_factory=HotKeys)
    last: KeySample = field(default_factory=KeySample)
    codecs: dict[Codec, CodecFigures] = field(default_factory=dict)
    tried: dict[Codec, int] = field(default_factory=dict)  # what the batches of the sample would take with each codec
    tried_stored: int = 0  # and their current size

    def merge(self, other: "TopicFigures") -> None:
        for partition, part in other.parts.items():
            self.part(partition).merge(part)
        self.sizes.merge(other.sizes)
        self.hot.merge(other.hot)
        self.last.merge(other.last)
        for codec, packed in other.codecs.items():
            self.packed(codec).add(packed.batches, packed.records, packed.stored, packed.unpacked)
        for codec, size in other.tried.items():
            self.tried[codec] = self.tried.get(codec, 0) + size
        self.tried_stored += other.tried_stored

    def part(self, partition: int) -> PartitionFigures:
        return self.parts.setdefault(partition, PartitionFigures())

    def packed(self, codec: Codec) -> CodecFigures:
        return self.codecs.setdefault(codec, CodecFigures())

    def kept(self) -> CompactionEstimate:
        """What compaction would keep. An estimate never exceeds the topic's own figures."""
        estimate, keyed = self.last.kept(), self.records - sum(part.keyless for part in self.parts.values())
        return replace(estimate, keys=min(estimate.keys, keyed), bytes=min(estimate.bytes, self.stored))

    @property
    def records(self) -> int:
        return sum(part.records for part in self.parts.values())

    @property
    def stored(self) -> int:
        return sum(part.stored for part in self.parts.values())

    @property
    def batches(self) -> int:
        return sum(part.batches for part in self.parts.values())


def merged(parts: Iterable[TopicFigures]) -> TopicFigures:
    whole = TopicFigures()
    for figures in parts:
        whole.merge(figures)
    return whole


class RangeMeasure:
    """Measures one range."""

    def __init__(self, partition: int, first: Offset, until: Offset) -> None:
        self.partition, self.first, self.until = partition, first, until
        self.figures = TopicFigures()
        self._to_try = TRIED_BYTES

    def add(self, data: Buffer) -> None:
        """Whole batches, in order, and perhaps some outside the range. CorruptMessage if one is damaged."""
        ours = [(at, header) for at, header in walk(data) if self.first <= header.last_offset < self.until]
        part = self.figures.part(self.partition)
        part.batches += len(ours)
        part.stored += sum(header.size for _, header in ours)
        with_records = [(at, header) for at, header in ours if not header.attributes & CONTROL]
        if not with_records:
            return
        self._add_records(data, with_records)
        for at, header in with_records[:: -(-len(with_records) // TRIED_AT_ONCE)]:
            self._try_codecs(data, at, header)

    def _add_records(self, data: Buffer, ours: list[tuple[int, Header]]) -> None:
        at, end = ours[0][0], ours[-1][0] + ours[-1][1].size
        headers = [header for _, header in ours]
        for rows in pieces(data[at:end], EVERY_OFFSET):
            self._add_rows(rows, _shares(headers, _longs(rows.column("offset"))))
        for at, header in ours:
            packed = self.figures.packed(codec_of(header.attributes))
            packed.add(1, header.record_count, header.size, _unpacked(data, at, header))

    def _add_rows(self, rows: pa.RecordBatch, stored: Longs) -> None:
        part, figures = self.figures.part(self.partition), self.figures
        key, value, offsets = rows.column("key"), rows.column("value"), _longs(rows.column("offset"))
        payload = _lengths(key) + _lengths(value)
        keys, is_tombstone = KeyColumn.of(key), value.is_null().to_numpy(zero_copy_only=False)
        part.records += rows.num_rows
        part.payload += int(payload.sum())
        part.keyless += key.null_count
        part.tombstones += value.null_count
        part.slots.add(_longs(rows.column("timestamp")), stored, offsets)
        figures.sizes.add(payload)
        figures.hot.add(self.partition, keys, stored)
        figures.last.add(self.partition, keys, offsets, stored, is_tombstone)

    def _try_codecs(self, data: Buffer, at: int, header: Header) -> None:
        """Tries all codecs on the batches until the sample is large enough."""
        if self._to_try <= 0:
            return
        whole = body_of(data, at, header)
        body = whole[:TRIED_BYTES]
        self._to_try -= len(body)
        self.figures.tried_stored += HEADER_BYTES + (header.size - HEADER_BYTES) * len(body) // max(len(whole), 1)
        for codec in Codec:
            size = HEADER_BYTES + len(body if codec is Codec.NONE else compress(codec, body))
            self.figures.tried[codec] = self.figures.tried.get(codec, 0) + size


def _unpacked(data: Buffer, at: int, header: Header) -> int:
    if not header.attributes & CODEC_MASK:
        return header.size
    return HEADER_BYTES + len(body_of(data, at, header))


def _shares(headers: Sequence[Header], offsets: Longs) -> Longs:
    """The stored bytes of each record: an equal share of its batch. The first record gets the remainder."""
    bases, counts, stored = (
        np.fromiter((getattr(header, name) for header in headers), np.int64)
        for name in ("base_offset", "record_count", "size")
    )
    batch = np.searchsorted(bases, offsets, side="right") - 1
    share, left = np.divmod(stored, np.maximum(counts, 1))
    is_first = np.append(True, batch[1:] != batch[:-1])[: len(batch)]
    return share[batch] + np.where(is_first, left[batch], 0)


def _longs(column: pa.Array) -> Longs:
    longs: Longs = column.view(pa.int64()).to_numpy()
    return longs


def _lengths(column: pa.Array) -> Longs:
    lengths: Longs = pc.fill_null(pc.binary_length(column), 0).to_numpy().astype(np.int64)
    return lengths
