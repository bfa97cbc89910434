"""Whatever bytes a peer sends in the place of records, they are read as written or refused as corrupt."""

from hypothesis import given, settings
from hypothesis import strategies as st

from leadline.errors import CorruptMessage, UnsupportedForMessageFormat
from leadline.records import varint
from leadline.records.batch import HEADER_BYTES, header_at, walk
from leadline.records.build import BatchFields, build
from leadline.records.compression import Codec
from leadline.records.record import Record, RecordHeader, body_of, records_of, spans

sized = st.none() | st.binary(max_size=30)
headers = st.lists(st.builds(RecordHeader, st.text(max_size=5), sized), max_size=3).map(tuple)


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    parts = draw(st.lists(st.tuples(st.integers(-(2**40), 2**40), sized, sized, headers), min_size=1, max_size=5))
    return [
        Record(n, timestamp, key, value, record_headers)
        for n, (timestamp, key, value, record_headers) in enumerate(parts)
    ]


@given(record_lists(), st.sampled_from(Codec))
@settings(max_examples=100)
def test_records_come_back_as_they_were_written(records: list[Record], codec: Codec) -> None:
    data = build(records, BatchFields(codec=codec))
    assert list(records_of(data, 0, header_at(data))) == records


@given(record_lists(), st.sampled_from([Codec.NONE, Codec.GZIP, Codec.LZ4]), st.data())
@settings(max_examples=300)
def test_damaged_records_raise_nothing_but_corrupt_message(
    records: list[Record], codec: Codec, data: st.DataObject
) -> None:
    batch = build(records, BatchFields(codec=codec))
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(HEADER_BYTES - 4, len(batch) - 1))] = data.draw(st.integers(0, 255))
    try:
        decoded = list(records_of(batch, 0, header_at(batch)))
    except CorruptMessage:
        return
    assert len(decoded) == max(header_at(batch).record_count, 0)


@given(st.binary(max_size=60), st.integers(-1, 5))
@settings(max_examples=300)
def test_any_bytes_are_spans_inside_the_body_or_corrupt(body: bytes, count: int) -> None:
    try:
        record_spans = list(spans(body, count))
    except CorruptMessage:
        return
    assert all(0 <= span.rest_at < span.key_at <= span.headers_at < span.end <= len(body) for span in record_spans)


@given(st.binary(max_size=200))
@settings(max_examples=200)
def test_walking_any_bytes_ends(data: bytes) -> None:
    try:
        for position, header in walk(data):
            assert position + header.size <= len(data)
            body_of(data, position, header)
    except (CorruptMessage, UnsupportedForMessageFormat):
        pass


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_varint_comes_back_as_it_was_written(value: int) -> None:
    encoded = varint.encode(value)
    assert varint.decode(encoded, 0) == (value, len(encoded))
    assert len(encoded) <= 10
