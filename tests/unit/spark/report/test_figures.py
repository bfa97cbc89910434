"""What a report tells of a topic, against records that were counted one by one."""

import random
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leadline.errors import CorruptMessage
from leadline.records.batch import HEADER_BYTES, header_at, walk
from leadline.records.build import BatchFields, build
from leadline.records.compression import Codec
from leadline.records.record import Record, RecordHeader
from leadline.spark.report import sketches
from leadline.spark.report.figures import RangeMeasure, TopicFigures, merged
from tests.support.damage import with_right_crc
from tests.support.logs import START_MS, at_offset, marker

EVERYTHING = 1 << 40
COUNT_AT = HEADER_BYTES - 4


def some_log(seed: int, batches: int = 30) -> tuple[bytes, list[Record]]:
    """Batches of all kinds back to back, with gaps, and their records."""
    draw = random.Random(seed)
    data, records, offset = bytearray(), [], 0
    for n in range(batches):
        if draw.random() < 0.1:
            data += at_offset(marker(7, commit=True), offset)
            offset += 1
            continue
        mine = []
        for _ in range(draw.randint(1, 20)):
            offset += draw.choice((0, 0, 0, 3))
            key = draw.choice((None, b"a", b"b", b"%d" % draw.randrange(50)))
            value = draw.choice((None, b"", b"v" * draw.randrange(300)))
            headers = (RecordHeader("h", b"x"),) * draw.choice((0, 2))
            mine.append(Record(offset, START_MS + 400 * n, key, value, headers))
            offset += 1
        data += build(mine, BatchFields(base_offset=mine[0].offset, codec=draw.choice(list(Codec))))
        records += mine
    return bytes(data), records


def measured(data: bytes, first: int = 0, until: int = EVERYTHING, partition: int = 3) -> TopicFigures:
    measuring = RangeMeasure(partition, first, until)
    measuring.add(data)
    return measuring.figures


def payload(record: Record) -> int:
    return len(record.key or b"") + len(record.value or b"")


def test_all_is_counted() -> None:
    data, records = some_log(1)
    figures = measured(data)
    (part,) = figures.parts.values()
    assert (part.batches, part.stored) == (sum(1 for _ in walk(data)), len(data))
    assert (part.records, part.payload) == (len(records), sum(map(payload, records)))
    assert part.keyless == sum(record.key is None for record in records)
    assert part.tombstones == sum(record.value is None for record in records)
    keys = Counter(record.key for record in records if record.key is not None)
    assert {hot_key.key: hot_key.records for hot_key in figures.hot.top(100)} == dict(keys)
    assert figures.last.kept().keys == len(keys)
    assert figures.sizes.total == part.payload
    assert figures.sizes.largest == max(map(payload, records))


def test_every_stored_byte_of_records_is_in_a_slot() -> None:
    data, records = some_log(2)
    (part,) = measured(data).parts.values()
    control = sum(header.size for _, header in walk(data) if header.is_control)
    assert part.slots.bytes.sum() == len(data) - control
    assert part.slots.records.sum() == len(records)
    assert part.slots.ends.max() == records[-1].offset + 1


def test_compression_is_reported_by_codec() -> None:
    records = [Record(n, START_MS, b"key", b"the same again " * 20) for n in range(50)]
    plain = build(records)
    figures = merged(measured(bytes(build(records, BatchFields(codec=codec)))) for codec in Codec)
    for codec in Codec:
        packed = figures.codecs[codec]
        assert (packed.batches, packed.records, packed.unpacked) == (1, 50, len(plain))
        assert packed.stored == header_at(build(records, BatchFields(codec=codec))).size
        assert figures.tried[codec] == len(Codec) * packed.stored
    assert figures.codecs[Codec.ZSTD].ratio > 20


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 1000), st.lists(st.integers(0, 400), max_size=4))
def test_ranges_merged_are_the_whole_wherever_they_are_cut(seed: int, cuts: list[int]) -> None:
    data, _ = some_log(seed)
    edges = [*sorted({0, *cuts}), EVERYTHING]
    parts = merged(measured(data, first, until) for first, until in pairwise(edges))
    whole = measured(data)
    assert (parts.records, parts.stored, parts.batches) == (whole.records, whole.stored, whole.batches)
    assert parts.hot.top(100) == whole.hot.top(100)
    assert parts.last.kept() == whole.last.kept()
    assert parts.sizes.counts.tolist() == whole.sizes.counts.tolist()
    assert parts.codecs == whole.codecs
    one, other = parts.parts[3].slots, whole.parts[3].slots
    assert (one.starts.tolist(), one.bytes.tolist()) == (other.starts.tolist(), other.bytes.tolist())


def test_a_count_of_records_that_is_a_lie_is_an_error() -> None:
    data = bytearray(build([Record(0, START_MS, b"k", b"v")]))
    data[COUNT_AT : COUNT_AT + 4] = (1 << 30).to_bytes(4, "big")
    with pytest.raises(CorruptMessage):
        measured(bytes(with_right_crc(data)))


def test_an_estimate_of_compaction_never_exceeds_the_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sketches, "SAMPLE", 10)
    records = [Record(n, START_MS, b"%d" % n, b"v" * 100) for n in range(100)]
    kept = measured(bytes(build(records))).kept()
    assert not kept.is_exact
    assert kept.keys <= 100


def test_damage_is_an_error() -> None:
    data = bytearray(some_log(3)[0])
    data[100] ^= 1
    with pytest.raises(CorruptMessage, match="offset"):
        measured(bytes(data))
