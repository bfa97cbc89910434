"""Batches built from records, under another codec, and from what compaction left of them."""

import pytest

from leadline.errors import CorruptMessage
from leadline.model import NO_TIMESTAMP
from leadline.records.batch import HEADER_BYTES, crc_of, header_at
from leadline.records.build import BatchFields, RetainedRecords, build, empty, rebuild, recompressed
from leadline.records.compression import Codec
from leadline.records.python_walker import KEPT
from leadline.records.record import Record, body_of, records_of, spans
from tests.support.logs import START_MS, batch, records


def test_a_batch_has_at_least_one_record() -> None:
    with pytest.raises(ValueError, match="at least one"):
        build([])


def test_the_largest_timestamp_need_not_be_the_last() -> None:
    data = build(
        [Record(0, START_MS, b"k", b"v"), Record(1, START_MS + 50, b"k", b"v"), Record(2, START_MS - 50, b"k", b"v")]
    )
    header = header_at(data)
    assert (header.base_timestamp, header.max_timestamp) == (START_MS, START_MS + 50)
    assert [record.timestamp - START_MS for record in records_of(data, 0, header)] == [0, 50, -50]


@pytest.mark.parametrize("codec", Codec)
def test_under_another_codec_the_records_are_the_same(codec: Codec) -> None:
    data = batch(5, size=200, producer_id=3, sequence=8)
    changed = recompressed(data, 0, header_at(data), codec, None)
    header = header_at(changed)
    assert header.codec is codec
    assert header.crc == crc_of(changed, 0, len(changed))
    assert (header.producer_id, header.base_sequence, header.record_count) == (3, 8, 5)
    assert list(records_of(changed, 0, header)) == list(records_of(data, 0, header_at(data)))


def test_what_is_not_made_of_records_is_not_recompressed() -> None:
    data = batch(2)
    data[HEADER_BYTES] = 0x7F
    with pytest.raises(CorruptMessage):
        recompressed(data, 0, header_at(data), Codec.LZ4, None)


@pytest.mark.parametrize("horizon", [None, START_MS + 1000])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_compaction_keeps_offsets_and_times_of_what_stays(codec: Codec, horizon: int | None) -> None:
    data = build(records(5), BatchFields(base_offset=0, codec=codec, producer_id=4, producer_epoch=1, base_sequence=2))
    header = header_at(data)
    body = body_of(data, 0, header)
    kept = [span for span in spans(body, 5) if span.offset_delta in (1, 3)]
    rows = [KEPT.pack(span.timestamp_delta, span.offset_delta, span.rest_at, span.end) for span in kept]
    newest = max(span.timestamp_delta for span in kept)
    retained = RetainedRecords(b"".join(rows), len(kept), keyless=0, tombstones=0, newest_delta=newest)
    changed = rebuild(body, retained, header, BatchFields.of(header, horizon))
    new_header = header_at(changed)
    assert list(records_of(changed, 0, new_header)) == [records(5)[1], records(5)[3]]
    assert (new_header.last_offset, new_header.record_count, new_header.last_sequence) == (4, 2, header.last_sequence)
    assert new_header.delete_horizon_ms == horizon
    assert new_header.crc == crc_of(changed, 0, len(changed))


def test_an_emptied_batch_keeps_the_last_sequence() -> None:
    header = header_at(batch(4, producer_id=4, sequence=6, codec=Codec.GZIP, transactional=True))
    new_header = header_at(empty(header))
    assert (new_header.size, new_header.record_count, new_header.base_timestamp) == (HEADER_BYTES, 0, NO_TIMESTAMP)
    assert (new_header.producer_id, new_header.last_sequence, new_header.last_offset) == (4, 9, 3)
    assert new_header.codec is Codec.NONE
    assert new_header.is_transactional
