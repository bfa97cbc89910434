"""Records inside a batch: null and empty are different, lengths must agree, nothing but CorruptMessage is raised."""

import pytest

from leadline.errors import CorruptMessage
from leadline.records import varint
from leadline.records.batch import HEADER_BYTES, header_at
from leadline.records.build import BatchFields, build
from leadline.records.compression import Codec
from leadline.records.record import Record, RecordHeader, body_of, records_of, spans
from tests.support.logs import START_MS, batch


@pytest.mark.parametrize("key", [None, b"", b"key"])
@pytest.mark.parametrize("value", [None, b"", b"value"])
def test_null_and_empty_are_kept_apart(key: bytes | None, value: bytes | None) -> None:
    data = build([Record(0, START_MS, key, value)])
    assert list(records_of(data, 0, header_at(data))) == [Record(0, START_MS, key, value)]


def test_headers_keep_their_order_and_may_repeat() -> None:
    headers = (RecordHeader("a", b"1"), RecordHeader("b", None), RecordHeader("a", b""), RecordHeader("ü", b"2"))
    data = build([Record(0, START_MS, None, b"v", headers)])
    (decoded,) = records_of(data, 0, header_at(data))
    assert decoded.headers == headers


def test_a_span_holds_the_positions_of_key_and_value() -> None:
    data = build([Record(0, START_MS, b"key", b"value")])
    body = bytes(body_of(data, 0, header_at(data)))
    (span,) = spans(body, 1)
    assert body[span.key_at : span.key_at + span.key_bytes] == b"key"
    assert body[span.value_at : span.value_at + span.value_bytes] == b"value"
    assert (span.offset_delta, span.timestamp_delta, span.end) == (0, 0, len(body))


def record(*parts: bytes) -> bytes:
    inside = b"\0" + b"".join(parts)
    return varint.encode(len(inside)) + inside


N = varint.encode


@pytest.mark.parametrize(
    ("body", "count", "reason"),
    [
        (record(N(0), N(0), N(-1), N(-1), N(0)) + b"x", 1, "bytes behind the last of 1 records"),
        (record(N(0), N(0), N(-1), N(-1), N(0)), 2, "end within record 1"),
        (record(N(0), N(0), N(-1), N(-1), N(0))[:-1], 1, "end within record 0"),
        (record(N(0), N(0), N(90), b"k", N(-1), N(0)), 1, "its parts have another"),
        (N(-5), 1, "record 0 has a length of -5"),
        (b"\xff" * 11, 1, "a number of too many bytes"),
        (b"", 1, "end within record 0"),
    ],
)
def test_lengths_that_do_not_agree_are_corrupt(body: bytes, count: int, reason: str) -> None:
    with pytest.raises(CorruptMessage, match=reason):
        list(spans(body, count))


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        (N(-1), "-1 headers"),
        (N(9), "9 headers"),
        (N(1) + N(-1) + N(-1), "without a key"),
        (N(1) + N(1) + b"a" + N(5) + b"b", "its parts have another"),
        (N(0) + b"x", "its parts have another"),
        (b"\xff", "its parts have another"),
        (N(1) + N(1) + b"a" + b"\x80", "its parts have another"),
    ],
)
def test_headers_that_do_not_agree_are_corrupt(headers: bytes, reason: str) -> None:
    body = record(N(0), N(0), N(-1), N(-1), headers)
    data = build([Record(0, START_MS, None, None)])[:HEADER_BYTES] + body
    header = header_at(data)._replace(length=len(data) - 12)
    with pytest.raises(CorruptMessage, match=reason):
        list(records_of(data, 0, header))


def test_a_batch_that_cannot_be_decompressed_names_its_offset() -> None:
    data = batch(3, codec=Codec.GZIP)
    data[HEADER_BYTES + 12 :] = b"\xff" * (len(data) - HEADER_BYTES - 12)
    with pytest.raises(CorruptMessage, match="offset 0 cannot be decompressed: gzip"):
        body_of(data, 0, header_at(data))


def test_more_than_the_limit_is_not_decompressed() -> None:
    data = build([Record(0, START_MS, None, bytes(10_000))], BatchFields(codec=Codec.ZSTD))
    with pytest.raises(CorruptMessage, match="limit of 5000 bytes"):
        body_of(data, 0, header_at(data), limit=5000)
