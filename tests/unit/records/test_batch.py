"""The batch header: its fields, what a broker changes in place, and what it refuses."""

import pytest

from leadline.errors import CorruptMessage, UnsupportedForMessageFormat
from leadline.records.batch import (
    CRC_AT,
    HEADER_BYTES,
    assign,
    check_frame,
    codec_of,
    crc_of,
    header_at,
    sequence_after,
    set_times,
    stamp_append_time,
    walk,
)
from leadline.records.build import BatchFields, build
from leadline.records.compression import Codec
from leadline.records.record import Record, records_of
from tests.support.logs import START_MS, batch, records


def test_a_header_holds_what_the_batch_was_built_with() -> None:
    fields = BatchFields(
        base_offset=40,
        leader_epoch=3,
        codec=Codec.ZSTD,
        producer_id=9,
        producer_epoch=2,
        base_sequence=7,
        transactional=True,
    )
    data = build([Record(40 + n, START_MS + n, b"k", b"v") for n in range(3)], fields)
    header = header_at(data)
    assert (header.base_offset, header.last_offset, header.record_count) == (40, 42, 3)
    assert (header.leader_epoch, header.magic, header.size) == (3, 2, len(data))
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (9, 2, 7, 9)
    assert (header.base_timestamp, header.max_timestamp) == (START_MS, START_MS + 2)
    assert (header.codec, header.is_transactional, header.is_control) == (Codec.ZSTD, True, False)
    assert header.has_producer_id
    assert header.delete_horizon_ms is None
    assert header.crc == crc_of(data, 0, len(data))


def test_a_batch_without_a_producer_has_no_sequence() -> None:
    header = header_at(batch())
    assert not header.has_producer_id
    assert header.last_sequence == -1


def test_assigning_offset_and_epoch_leaves_crc_and_records_alone() -> None:
    data = batch(3)
    before = bytes(data)
    assign(data, 0, 1_000_000_007, 5)
    header = header_at(data)
    assert (header.base_offset, header.leader_epoch) == (1_000_000_007, 5)
    assert data[16:] == before[16:]
    assert crc_of(data, 0, len(data)) == header.crc


def test_log_append_time_counts_for_all_records_and_renews_the_crc() -> None:
    data = bytearray(b"front") + batch(3)
    before = header_at(data, 5)
    stamp_append_time(data, 5, before.size, START_MS + 99)
    header = header_at(data, 5)
    assert header.is_log_append_time
    assert header.max_timestamp == START_MS + 99
    assert header.crc != before.crc
    assert header.crc == crc_of(data, 5, header.size)
    assert {record.timestamp for record in records_of(data, 5, header)} == {START_MS + 99}


def test_taking_the_mark_off_makes_the_producers_times_count_again() -> None:
    data = batch(2)
    stamp_append_time(data, 0, len(data), START_MS + 99)
    set_times(data, len(data), START_MS + 1)
    header = header_at(data)
    assert not header.is_log_append_time
    assert header.crc == crc_of(data, 0, len(data))
    assert [record.timestamp for record in records_of(data, 0, header)] == [START_MS, START_MS + 1]


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_formats_are_refused_by_name(magic: int) -> None:
    with pytest.raises(UnsupportedForMessageFormat, match=f"message format {magic}.*stores format 2"):
        check_frame(100, magic)


@pytest.mark.parametrize(
    ("length", "magic", "reason"), [(100, 3, "magic 3"), (100, -1, "magic -1"), (48, 2, "length 48")]
)
def test_what_cannot_be_a_batch_is_corrupt(length: int, magic: int, reason: str) -> None:
    with pytest.raises(CorruptMessage, match=reason):
        check_frame(length, magic)


def test_an_unknown_codec_is_corrupt() -> None:
    with pytest.raises(CorruptMessage, match="codec 7"):
        codec_of(7)


@pytest.mark.parametrize(
    ("sequence", "count", "expected"), [(0, 1, 1), (2**31 - 1, 1, 0), (2**31 - 2, 3, 1), (5, 0, 5)]
)
def test_sequences_start_over_behind_the_largest(sequence: int, count: int, expected: int) -> None:
    assert sequence_after(sequence, count) == expected


@pytest.mark.parametrize("cut", [1, HEADER_BYTES, 80])
def test_walking_leaves_out_what_is_cut_off(cut: int) -> None:
    first, second = batch(1), batch(2)
    data = bytes(first + second)
    assert [position for position, _ in walk(data)] == [0, len(first)]
    assert [position for position, _ in walk(data[:-cut])] == [0]


def test_a_changed_byte_changes_the_crc() -> None:
    data = build(records(2))
    stored = header_at(data).crc
    for position in (21, 40, HEADER_BYTES, len(data) - 1):
        damaged = bytearray(data)
        damaged[position] ^= 1
        assert crc_of(damaged, 0, len(damaged)) != stored
    assert int.from_bytes(data[CRC_AT : CRC_AT + 4], "big") == stored
