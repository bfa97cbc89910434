"""Three ways to where the parts of records lie, held against each other on any bytes."""

from contextlib import suppress
from dataclasses import fields
from types import ModuleType

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leadline.errors import CorruptMessage, UnsupportedForMessageFormat
from leadline.records import varint
from leadline.records.batch import HEADER_BYTES, header_at, walk
from leadline.records.build import BatchFields, build
from leadline.records.compression import Codec
from leadline.records.record import Record, RecordHeader, records_of
from leadline.spark.batches import record_positions
from leadline.spark.batches.decode import SLACK, RecordFilter, decode
from leadline.spark.batches.record_positions import RecordBytes, RecordPositions, WrongBody
from tests.support.damage import with_right_crc

quick = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

sized = st.none() | st.binary(max_size=20) | st.binary(min_size=60, max_size=200)
header_lists = st.lists(st.builds(RecordHeader, st.text(max_size=5), sized), max_size=3).map(tuple)
times = st.integers(0, 200) | st.integers(-(2**62), 2**62 - 1)


@pytest.fixture(params=["numpy", "compiled"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: ModuleType | None = request.getfixturevalue("compiled_walker") if request.param == "compiled" else None
    monkeypatch.setattr(record_positions, "compiled_walker", compiled)


@st.composite
def batches(draw: st.DrawFn) -> bytearray:
    parts = draw(st.lists(st.tuples(times, sized, sized, header_lists), min_size=1, max_size=4))
    base = draw(st.integers(0, 1000))
    records = [Record(base + 2 * n, *part) for n, part in enumerate(parts)]
    append_time_ms = draw(st.none() | st.just(5))
    codec = draw(st.sampled_from([Codec.NONE, Codec.NONE, Codec.LZ4, Codec.GZIP]))
    return build(records, BatchFields(base_offset=base, codec=codec, append_time_ms=append_time_ms))


def wrapped(number: int) -> int:
    """As a Java long."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def one_by_one(data: bytes) -> list[tuple[object, ...]]:
    records: list[tuple[object, ...]] = []
    for position, header in walk(data):
        if header.base_offset < 0 or header.last_offset_delta < 0 or header.record_count < 0:
            raise CorruptMessage("impossible numbers")
        if header.is_control:
            continue
        for record in records_of(data, position, header):
            if not 0 <= record.offset - header.base_offset <= header.last_offset_delta:
                raise CorruptMessage("an offset outside of its batch")
            records.append((*record._replace(timestamp=wrapped(record.timestamp)), int(header.is_log_append_time)))
    return records


def by_columns(data: bytes) -> list[tuple[object, ...]]:
    batch = decode(data, RecordFilter(0, (1 << 63) - 1, headers=True))
    return [
        (
            row["offset"],
            timestamp,
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"]),
            row["timestamp_type"],
        )
        for row, timestamp in zip(
            batch.drop_columns(["timestamp"]).to_pylist(),
            batch.column("timestamp").view("int64").to_pylist(),
            strict=True,
        )
    ]


@given(st.lists(batches(), max_size=30))
@quick
def test_columns_hold_what_reading_record_by_record_finds(way: None, given_batches: list[bytearray]) -> None:
    data = b"".join(given_batches)
    assert by_columns(data) == one_by_one(data)


@given(st.lists(batches(), min_size=1, max_size=14), st.data())
@settings(quick, max_examples=150)
def test_damage_below_a_right_checksum_is_found_or_harmless_in_both(
    way: None, given_batches: list[bytearray], draws: st.DataObject
) -> None:
    wrong = draws.draw(st.sampled_from(given_batches))
    for _ in range(draws.draw(st.integers(1, 3))):
        at = draws.draw(st.sampled_from(range(21, len(wrong))))
        wrong[at] = draws.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF]) | st.integers(0, 255))
    with_right_crc(wrong)
    data = b"".join(given_batches)
    try:
        expected = one_by_one(data)
    except CorruptMessage:
        with pytest.raises(CorruptMessage, match=r"the batch of offset -?\d+ at byte \d+: "):
            by_columns(data)
    else:
        assert by_columns(data) == expected


@given(st.binary(max_size=300))
@quick
def test_any_bytes_give_columns_or_an_error_for_the_client(way: None, data: bytes) -> None:
    head = bytearray(build([Record(0, 0, None, None)]))[:HEADER_BYTES]
    for body in (data, head + data):
        with suppress(CorruptMessage, UnsupportedForMessageFormat):
            decode(body, RecordFilter(0, 100, headers=True))


def columns_of(positions: RecordPositions) -> list[list[int]]:
    return [getattr(positions, field.name).tolist() for field in fields(positions)]


@given(st.lists(st.tuples(st.binary(max_size=40), st.integers(0, 5)), min_size=1, max_size=15))
@settings(quick, max_examples=150)
def test_whatever_a_fast_way_takes_for_plain_is_what_the_exact_one_finds(
    compiled_walker: ModuleType, given_bodies: list[tuple[bytes, int]]
) -> None:
    """Records of random bytes: nearly all contradict themselves, in all ways there are."""
    framed = [b"".join([varint.encode(len(body)) + body] * count) for body, count in given_bodies]
    ends = np.cumsum([len(body) for body in framed])
    begins = ends - [len(body) for body in framed]
    bodies = RecordBytes(b"".join((*framed, SLACK)), begins, ends, np.array([count for _, count in given_bodies]))
    out = np.empty((8, int(bodies.counts.sum())), np.int64)
    plain = record_positions.by_columns(bodies)
    compiled = RecordPositions(*out) if compiled_walker.fill(bodies.data, begins, ends, bodies.counts, out) else None
    try:
        exact = record_positions.by_records(bodies)
    except WrongBody:
        assert plain is None
        assert compiled is None
        return
    for fast in filter(None, (plain, compiled)):
        for row, (column, expected) in enumerate(zip(columns_of(fast), columns_of(exact), strict=True)):
            assert column == expected or row in (2, 3, 4, 5)  # where nothing lies does not matter
        for at in ("key", "value"):
            assert extents(fast, at) == extents(exact, at)


def extents(positions: RecordPositions, part: str) -> list[tuple[int, int] | None]:
    at, size = getattr(positions, f"{part}_at").tolist(), getattr(positions, f"{part}_bytes").tolist()
    return [None if size < 0 else (at, size) for at, size in zip(at, size, strict=True)]


def test_headers_are_read_record_by_record_where_they_are_many() -> None:
    many = tuple(RecordHeader("h", None) for _ in range(record_positions.MANY_HEADERS + 1))
    data = build([Record(0, 0, None, None, many)])
    header = header_at(data)
    body = np.array([HEADER_BYTES]), np.array([header.size]), np.array([1])
    bodies = RecordBytes(bytes(data), *body)
    assert record_positions.by_columns(bodies) is None
    assert record_positions.header_positions(bytes(data), record_positions.by_records(bodies)) is None
