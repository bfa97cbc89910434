"""Batches become message sets: what is left out, what is cut off, what fills up, and where zstd ends it."""

import struct

import pytest

from leadline.errors import UnsupportedCompressionType
from leadline.records.batch import assign
from leadline.records.build import BatchFields, build
from leadline.records.compression import Codec, decompress
from leadline.records.control import ControlType, EndMarker, end_marker
from leadline.records.down_conversion import GROUP_BYTES, message_set
from leadline.records.message_set import MessageEntry, entries, inner_entries
from leadline.records.record import Record, RecordHeader
from tests.support.logs import START_MS, batch

MANY = 1 << 20


def at(offset: int, data: bytearray) -> bytes:
    assign(data, 0, offset, 0)
    return bytes(data)


def converted(*batches: bytes, magic: int = 1, first: int = 0, length: int | None = None) -> bytes:
    size = sum(map(len, batches)) if length is None else length
    return bytes(message_set(batches, magic, first, size))


def offsets(data: bytes) -> list[int]:
    return [one.offset for one in entries(data)]


def inner_of(wrapper: MessageEntry) -> list[MessageEntry]:
    _, packed = wrapper.content()
    assert packed is not None
    return list(inner_entries([decompress(Codec(wrapper.codec_id), packed)]))


@pytest.mark.parametrize("magic", [0, 1])
def test_records_without_a_codec_become_messages_from_the_requested_offset_on(magic: int) -> None:
    data = converted(at(5, batch(3)), at(8, batch(2)), magic=magic, first=6, length=MANY)
    messages = [one for one in entries(data) if one.offset >= 0]
    assert [(one.offset, one.magic, one.timestamp) for one in messages] == [
        (offset, magic, START_MS + n if magic else -1) for offset, n in ((6, 1), (7, 2), (8, 0), (9, 1))
    ]
    assert all(one.is_valid for one in messages)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_a_compressed_batch_becomes_one_wrapper_with_all_records(codec: Codec) -> None:
    for magic in (0, 1):
        (wrapper,) = entries(converted(at(5, batch(3, codec=codec)), magic=magic, first=7, length=0))
        assert (wrapper.offset, wrapper.codec_id, wrapper.has_key) == (7, codec, False)
        assert wrapper.timestamp == (START_MS + 2 if magic else -1)
        if magic or codec is not Codec.LZ4:
            assert [one.offset for one in inner_of(wrapper)] == ([0, 1, 2] if magic else [5, 6, 7])


def test_log_append_time_holds_for_the_wrapper_and_all_messages() -> None:
    for codec in (Codec.NONE, Codec.GZIP):
        fields = BatchFields(codec=codec, append_time_ms=77)
        data = converted(at(0, build([Record(n, n, b"k", b"v") for n in range(2)], fields)), length=0)
        messages = list(entries(data))
        if codec:
            messages += inner_of(messages[0])
        assert {(one.timestamp, one.is_log_append_time) for one in messages} == {(77, True)}


def test_headers_and_control_batches_are_left_out() -> None:
    marker = end_marker(EndMarker(ControlType.COMMIT, 0, START_MS), 7, 0)
    headed = build([Record(0, START_MS, b"k", b"v", (RecordHeader("a", b"b"),))])
    data = converted(at(0, bytearray(marker)), at(1, headed), at(2, bytearray(marker)), at(3, batch()), length=0)
    (one,) = entries(data)
    assert (one.offset, [bytes(part or b"") for part in one.content()]) == (1, [b"k", b"v"])
    assert offsets(converted(at(0, bytearray(marker)), at(1, headed), at(3, batch()), length=90)) == [1, 3]


def test_a_set_is_as_long_as_what_was_read_or_as_its_first_messages() -> None:
    one, other = at(0, batch(2)), at(2, batch(2))
    first = converted(one, length=0)
    assert offsets(first) == [0, 1]
    for length in range(len(first), 2 * len(first) + 200):
        data = converted(one, other, length=length)
        assert len(data) == length
        assert offsets(data) == [0, 1, 2, 3][: 2 + min(2, (length - len(first)) // (len(first) // 2))]


@pytest.mark.parametrize("missing", [1, 11, 12, 60, 61, 500, GROUP_BYTES - 1, GROUP_BYTES, 2 * GROUP_BYTES + 100])
def test_what_is_missing_is_filled_with_a_message_that_is_too_long(missing: int) -> None:
    first = converted(at(0, batch()), length=0)
    rest = converted(at(0, batch()), length=len(first) + missing)[len(first) :]
    assert len(rest) == missing
    if missing >= 12:
        offset, length = struct.unpack_from(">qi", rest)
        assert (offset, length) == (-1, max(missing + 1, 61))
        assert length + 12 > missing


def test_without_messages_there_is_the_beginning_of_one_that_is_too_long() -> None:
    marker = at(0, bytearray(end_marker(EndMarker(ControlType.ABORT, 0, START_MS), 7, 0)))
    assert converted(marker) == struct.pack(">qi", -1, 61)
    assert converted() == b""


def test_zstd_is_refused_at_the_start_and_ends_a_set_before_its_group() -> None:
    plain, packed = at(0, batch()), at(1, batch(codec=Codec.ZSTD))
    with pytest.raises(UnsupportedCompressionType):
        converted(packed, plain)
    assert offsets(converted(plain, packed)) == [0]
    assert offsets(converted(plain, at(1, batch()), at(2, batch(codec=Codec.ZSTD)), length=MANY)) == [0]
    large = at(1, batch(size=GROUP_BYTES))
    assert offsets(converted(plain, large, at(2, batch(codec=Codec.ZSTD)), length=MANY)) == [0, 1]
