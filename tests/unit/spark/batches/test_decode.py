"""Batches become columns: what is handed out, what is left out, and what is refused."""

from collections.abc import Callable, Sequence

import pyarrow as pa
import pytest

from leadline.errors import CorruptMessage, UnsupportedForMessageFormat
from leadline.log.txn_index import AbortedTxn
from leadline.records.batch import HEADER_BYTES, header_at
from leadline.records.build import BatchFields, build, empty
from leadline.records.compression import Codec
from leadline.records.record import Record, RecordHeader
from leadline.spark.batches import decode as decoding
from leadline.spark.batches import record_positions
from leadline.spark.batches.decode import END_UNKNOWN, RecordFilter, decode, pieces, spark_columns
from tests.support.damage import with_right_crc
from tests.support.logs import START_MS, at_offset, batch, marker

ALL = RecordFilter(0, 1 << 62)
ALL_WITH_HEADERS = RecordFilter(0, 1 << 62, headers=True)


@pytest.fixture(autouse=True, params=["numpy", "compiled"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that follows holds for both."""
    compiled = request.getfixturevalue("compiled_walker") if request.param == "compiled" else None
    monkeypatch.setattr(record_positions, "compiled_walker", compiled)


def offsets(data: bytes | bytearray, record_filter: RecordFilter = ALL) -> list[int]:
    decoded: list[int] = decode(data, record_filter).column("offset").to_pylist()
    return decoded


def log_of(*batches: bytearray) -> bytes:
    """One behind the other, as a leader would number them."""
    out, offset = bytearray(), 0
    for written in batches:
        out += at_offset(written, offset)
        offset += header_at(written).last_offset_delta + 1
    return bytes(out)


@pytest.mark.parametrize("codec", Codec)
def test_records_of_every_codec_come_out_as_they_went_in(codec: Codec) -> None:
    data = log_of(*(batch(n, codec=codec) for n in range(1, 20)))
    decoded = decode(data, ALL)
    assert decoded.schema == decoding.SCHEMA
    assert decoded.column("offset").to_pylist() == list(range(190))
    assert decoded.column("key").to_pylist() == [f"k{n}".encode() for count in range(1, 20) for n in range(count)]
    assert set(decoded.column("value").to_pylist()) == {b"v" * 10}
    assert decoded.column("timestamp").cast(pa.int64())[-1].as_py() == START_MS + 18
    assert set(decoded.column("timestamp_type").to_pylist()) == {0}


def test_null_is_not_empty() -> None:
    records = [Record(0, 0, None, b""), Record(1, 0, b"", None), Record(2, 0, b"k", b"v"), Record(3, 0, None, None)]
    decoded = decode(build(records), ALL)
    assert decoded.column("key").to_pylist() == [None, b"", b"k", None]
    assert decoded.column("value").to_pylist() == [b"", None, b"v", None]


def test_only_what_is_wanted_comes_out() -> None:
    data = log_of(batch(10), batch(10), batch(10))
    assert offsets(data, RecordFilter(5, 22)) == list(range(5, 22))
    assert offsets(data, RecordFilter(30, 40)) == []
    assert offsets(data, RecordFilter(7, 7)) == []


def test_nothing_gives_columns_without_rows() -> None:
    assert decode(b"", ALL_WITH_HEADERS).schema == decoding.SCHEMA_WITH_HEADERS
    assert decode(b"", ALL).num_rows == 0


def test_a_last_batch_that_is_cut_off_is_left_out() -> None:
    data = log_of(batch(3), batch(3))
    assert offsets(data[:-1]) == [0, 1, 2]
    assert offsets(data[: len(data) // 2 + 5]) == [0, 1, 2]


def test_what_compaction_left_keeps_its_offsets() -> None:
    gaps = build([Record(12, 5, b"a", None), Record(17, 6, b"b", b"")], BatchFields(base_offset=10, last_offset=19))
    nothing = empty(header_at(at_offset(batch(5), 20)))
    assert offsets(bytes(gaps + nothing + at_offset(batch(2), 25))) == [12, 17, 25, 26]


def test_the_time_of_the_append_counts_for_all_records_of_its_batch() -> None:
    records = [Record(n, 100 + n, None, b"") for n in range(3)]
    decoded = decode(log_of(build(records), build(records, BatchFields(append_time_ms=777))), ALL)
    assert decoded.column("timestamp").cast(pa.int64()).to_pylist() == [100, 101, 102, 777, 777, 777]
    assert decoded.column("timestamp_type").to_pylist() == [0, 0, 0, 1, 1, 1]


def headers_of(data: bytes | bytearray) -> list[list[tuple[str, bytes | None]]]:
    rows = decode(data, ALL_WITH_HEADERS).column("headers").to_pylist()
    return [[(header["key"], header["value"]) for header in row] for row in rows]


def test_headers_come_out_where_they_are_wanted() -> None:
    record_headers = [(), (RecordHeader("a", b"1"), RecordHeader("", None)), (), (RecordHeader("é", b""),)]
    data = build([Record(n, 0, None, b"v", headers) for n, headers in enumerate(record_headers)])
    assert headers_of(data) == [[tuple(header) for header in headers] for headers in record_headers]
    assert decode(data, ALL).schema == decoding.SCHEMA


@pytest.mark.parametrize("count", [99, 101, 5000])
def test_many_headers_of_one_record(count: int) -> None:
    record_headers = tuple(RecordHeader(f"h{n}", b"x" * n) for n in range(count))
    assert headers_of(build([Record(0, 0, None, None, record_headers)]))[0] == [
        tuple(header) for header in record_headers
    ]


def test_a_header_whose_name_is_not_utf8_is_replaced_as_elsewhere() -> None:
    data = build([Record(0, 0, None, None, (RecordHeader("ab", b""),))])
    at = data.index(b"ab")
    data[at] = 0xFF
    assert headers_of(with_right_crc(data)) == [[("\ufffdb", b"")]]


# Transactions


def transactions() -> bytes:
    """Producer 1 aborts and then commits, producer 2 commits meanwhile: offsets 0-11."""
    of_one, of_two = (batch(2, producer_id=n, transactional=True) for n in (1, 2))
    plain = batch(1)
    return log_of(
        of_one, of_two, marker(2, commit=True), marker(1, commit=False), of_one, marker(1, commit=True), plain, of_one
    )


@pytest.mark.parametrize("last", [5, END_UNKNOWN])
def test_records_of_aborted_transactions_are_left_out(last: int) -> None:
    record_filter = RecordFilter(0, 100, aborted=(AbortedTxn(1, 0, last, 0),))
    assert offsets(transactions(), record_filter) == [2, 3, 6, 7, 9, 10, 11]


def test_control_batches_are_always_left_out() -> None:
    assert offsets(transactions()) == [0, 1, 2, 3, 6, 7, 9, 10, 11]
    assert offsets(transactions(), RecordFilter(0, 100, aborted=())) == [0, 1, 2, 3, 6, 7, 9, 10, 11]


def test_an_aborted_transaction_whose_marker_is_not_here_covers_the_rest() -> None:
    record_filter = RecordFilter(0, 100, aborted=(AbortedTxn(1, 10, END_UNKNOWN, 0), AbortedTxn(2, 50, 60, 0)))
    assert offsets(transactions(), record_filter) == [0, 1, 2, 3, 6, 7, 9]


# Damage


def test_a_wrong_checksum_names_offset_and_position() -> None:
    data = bytearray(log_of(batch(3), batch(3)))
    second = len(data) // 2
    data[-3] ^= 1
    with pytest.raises(CorruptMessage, match=f"offset 3 at byte {second}: its CRC"):
        decode(data, ALL)
    assert offsets(data, RecordFilter(0, 3)) == [0, 1, 2]


@pytest.mark.parametrize("magic", [0, 1])
def test_formats_from_before_kafka_0_11_are_refused_by_name(magic: int) -> None:
    data = bytearray(log_of(batch(3), batch(3)))
    data[len(data) // 2 + 16] = magic
    with pytest.raises(UnsupportedForMessageFormat, match=f"at byte {len(data) // 2}, .* message format {magic}"):
        decode(data, ALL)


def test_what_is_no_batch_is_named_by_its_position() -> None:
    data = log_of(batch(3)) + b"\x07" * 100
    with pytest.raises(CorruptMessage, match=f"at byte {len(data) - 100}, after offset 2"):
        decode(data, ALL)


def changed(change: Callable[[bytearray], None], count: int = 3) -> bytes:
    """A sound batch, and one that was changed before its checksum was taken."""
    wrong = at_offset(batch(count), 3)
    change(wrong)
    return bytes(batch(3) + with_right_crc(wrong))


def put(at: int, value: bytes) -> Callable[[bytearray], None]:
    def change(data: bytearray) -> None:
        data[at : at + len(value)] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(put(57, b"\xff\xff\xff\xff"), id="a negative count of records"),
        pytest.param(put(57, b"\x7f\xff\xff\xff"), id="more records than bytes"),
        pytest.param(put(57, b"\0\0\0\2"), id="bytes behind the last record"),
        pytest.param(put(23, b"\0\0\0\1"), id="an offset behind the last one"),
        pytest.param(put(HEADER_BYTES + 3, b"\1"), id="an offset before the first one"),
        pytest.param(put(HEADER_BYTES, b"\x7f"), id="a record of negative length"),
        pytest.param(put(HEADER_BYTES, b"\xfe\xff\xff\xff\x7f"), id="a record of 34 GB"),
        pytest.param(put(HEADER_BYTES + 4, b"\xfe\x7f"), id="a key beyond its record"),
        pytest.param(put(HEADER_BYTES + 7, b"\xfe\xff\xff\xff\x7f"), id="a value of 34 GB"),
        pytest.param(put(HEADER_BYTES + 1, b"\xff" * 11), id="a varint without an end"),
        pytest.param(put(21, b"\0\7"), id="an unknown codec"),
        pytest.param(put(21, b"\0\4"), id="not what its codec writes"),
    ],
)
def test_a_batch_that_contradicts_itself_is_refused_by_its_position(change: Callable[[bytearray], None]) -> None:
    with pytest.raises(CorruptMessage, match=f"the batch of offset 3 at byte {len(batch(3))}: "):
        decode(changed(change), ALL)


@pytest.mark.parametrize("at", [0, 23])
def test_offsets_that_cannot_be_are_refused(at: int) -> None:
    with pytest.raises(CorruptMessage, match=r"it holds the offsets"):
        decode(changed(put(at, b"\xff\xff\xff\xf0")), ALL)


def test_headers_beyond_their_record_are_refused() -> None:
    data = build([Record(0, 0, None, b"", (RecordHeader("abc", b"x"),))])
    data[data.index(b"abc") - 1] = 0x7E
    with pytest.raises(CorruptMessage, match="offset 0 at byte 0: "):
        decode(with_right_crc(data), ALL_WITH_HEADERS)


def test_rare_but_right_varints_are_read() -> None:
    records = [Record(0, -(1 << 61), None, b"x"), Record(1, 1 << 61, None, b"y"), Record(2, 0, None, b"z")]
    decoded = decode(build(records), ALL)
    assert decoded.column("timestamp").cast(pa.int64()).to_pylist() == [-(1 << 61), 1 << 61, 0]
    assert decoded.column("value").to_pylist() == [b"x", b"y", b"z"]


# Shapes of input


@pytest.mark.parametrize("counts", [[1] * 50, [2000], [500, 1, 3000], [1, 400] * 10, [7] * 11 + [90]])
@pytest.mark.parametrize("size", [0, 50, 9000])
def test_few_large_batches_and_many_small_ones_are_read_alike(counts: Sequence[int], size: int) -> None:
    counts = [count // (1 + size // 100) or 1 for count in counts]
    decoded = decode(log_of(*(batch(count, size=size) for count in counts)), ALL)
    assert decoded.column("offset").to_pylist() == list(range(sum(counts)))
    assert set(decoded.column("value").to_pylist()) == {b"v" * size}


def test_what_is_packed_well_comes_out_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "PIECE_BYTES", 10_000)
    data = log_of(*(batch(10, size=900, codec=Codec.ZSTD) for _ in range(4)))
    assert [piece.num_rows for piece in pieces(data, ALL)] == [20, 20]
    assert offsets(data) == list(range(40))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_batch_of_very_many_records_comes_out_in_pieces(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "PIECE_RECORDS", 30)
    data = log_of(batch(10), batch(75, codec=codec), batch(10))
    decoded = list(pieces(data, ALL_WITH_HEADERS))
    assert [piece.num_rows for piece in decoded] == [40, 30, 25]
    assert [offset for piece in decoded for offset in piece.column("offset").to_pylist()] == list(range(95))
    wrong = bytearray(batch(75))
    wrong[HEADER_BYTES] ^= 2
    with pytest.raises(CorruptMessage, match="the batch of offset 0 at byte 0: "):
        decode(with_right_crc(wrong), ALL_WITH_HEADERS)


def test_the_columns_of_sparks_connector() -> None:
    decoded = spark_columns(decode(batch(2), ALL_WITH_HEADERS), "orders", 7)
    assert decoded.schema == decoding.SPARK_SCHEMA_WITH_HEADERS
    row = decoded.to_pylist()[1]
    assert (row["topic"], row["partition"], row["offset"], row["timestampType"]) == ("orders", 7, 1, 0)
    assert row["timestamp"].timestamp() * 1000 == START_MS + 1


@pytest.mark.parametrize("timestamp", [-1, -(1 << 63), (1 << 63) - 1])
def test_a_time_beyond_sparks_range_is_the_last_of_the_range(timestamp: int) -> None:
    decoded = spark_columns(decode(build([Record(0, timestamp, None, None)]), ALL), "t", 0)
    (us,) = decoded.column("timestamp").cast(pa.int64()).to_pylist()
    assert us == max(min(timestamp, decoding.LAST_MS), -decoding.LAST_MS) * 1000
