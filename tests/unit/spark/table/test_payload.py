"""Records as rows of tables, and those that do not fit."""

import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leadline.spark.table.payload import (
    BESIDE,
    RESERVED_BY_READERS,
    ShapedRecords,
    documents,
    parse_json,
    quick_json,
    shape_of,
)
from tests.support.decoded import decoded

FIELDS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("price", pa.float64())])


def as_json(batch: pa.RecordBatch, fields: pa.Schema = FIELDS) -> ShapedRecords:
    return shape_of("json", "", by_key=False)(batch, "t", 3, pa.schema([*BESIDE, *fields]))


def test_raw_rows_have_the_columns_of_sparks_connector() -> None:
    rows = shape_of("raw", "", by_key=False)(decoded(b"v", None), "t", 3, pa.schema([])).rows
    assert rows.to_pylist()[0] | {"timestamp": None} == {
        "key": b"k",
        "value": b"v",
        "topic": "t",
        "partition": 3,
        "offset": 100,
        "timestamp": None,
        "timestampType": 0,
        "headers": None,  # as the connector has it for records without any
    }


def test_documents_have_a_column_for_each_field() -> None:
    shaped = as_json(decoded(b'{"id": 1, "name": "a", "price": 2}', b'{"price": 1.5}'))
    assert shaped.bad is None
    rows = [
        (row["kafka_partition"], row["kafka_offset"], row["id"], row["name"], row["price"])
        for row in shaped.rows.to_pylist()
    ]
    assert rows == [(3, 100, 1, "a", 2.0), (3, 101, None, None, 1.5)]


def test_no_reader_reserves_the_names_of_our_columns() -> None:
    """Iceberg and Delta reserve these, ClickHouse, BigQuery and Spark names that start with _, and Trino with $."""
    assert RESERVED_BY_READERS.isdisjoint(BESIDE.names)
    assert not any(name.startswith(("_", "$")) for name in BESIDE.names)


@pytest.mark.parametrize(
    ("value", "cause"),
    [
        (b"nonsense", "no JSON"),
        (b"", "no JSON"),
        (b"\xff", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[1]", "not a JSON object, but a list"),
        (b'{"id": "x"}', "id: 'x' is not a long"),
        (b'{"id": 1.5}', "id: 1.5 is not a long"),
        (b'{"price": NaN}', "NaN is not a JSON number"),
        (b'{"kafka_offset": 1}', "kafka_offset is the name of a column that every table has"),
        (b'{"_partition": 1}', "_partition is a name that readers of tables reserve"),
        (b'{"id": 1}{"id": 2}', "no JSON"),
    ],
)
def test_a_bad_record_is_reported_with_its_cause_and_the_others_stay(value: bytes, cause: str) -> None:
    shaped = as_json(decoded(b'{"id": 1}', value, b'{"id": 3}'))
    assert shaped.rows.column("kafka_offset").to_pylist() == [100, 102]
    assert shaped.bad is not None
    (bad,) = shaped.bad.to_pylist()
    assert (bad["offset"], bad["value"]) == (101, value)
    assert cause in bad["cause"]


def test_fields_without_a_column_are_reported() -> None:
    shaped = as_json(decoded(b'{"id": 1, "tags": ["a"], "n": 1}', b'{"n": 1.5}', b'{"empty": [], "none": null}'))
    assert shaped.unknown == pa.struct([("tags", pa.list_(pa.string())), ("n", pa.float64())])


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (b"9223372036854775807", pa.int64()),
        (b"-9223372036854775808", pa.int64()),
        (b"9223372036854775808", pa.float64()),
        (b"-9223372036854775809", pa.float64()),
        (b"1" + b"0" * 5000, pa.float64()),
    ],
)
def test_whole_numbers_beyond_64_bits_are_numbers_like_others(text: bytes, kind: pa.DataType) -> None:
    shaped = as_json(decoded(b'{"n": %s}' % text))
    assert shaped.unknown == pa.struct([("n", kind)])
    fields = pa.schema([("n", kind)])
    quick = quick_json(decoded(b'{"n": %s}' % text).column("value"), fields)
    slow = as_json(decoded(b'{"n": %s}' % text, None), fields)
    assert slow.bad is None
    assert quick is None or quick[0].to_pylist() == slow.rows.column("n").to_pylist()[:1]


@pytest.mark.parametrize("beside", [b"0.0", b"null"])
def test_a_whole_number_beyond_53_bits_is_rounded_in_a_list_of_doubles(beside: bytes) -> None:
    value = b'{"n": [9007199254740993, %s]}' % beside
    fields = pa.schema([("n", pa.list_(pa.float64()))])
    quick = quick_json(decoded(value).column("value"), fields)
    slow = as_json(decoded(value, None), fields)
    assert slow.bad is None
    assert slow.rows.column("n").to_pylist()[0] == [9007199254740992.0, json.loads(beside)]
    assert quick is not None
    assert quick[0].to_pylist() == slow.rows.column("n").to_pylist()[:1]


def test_documents_with_dates_are_parsed_at_once() -> None:
    fields = pa.schema([("at", pa.timestamp("us", "UTC")), ("on", pa.string())])
    quick = quick_json(decoded(b'{"at": "2026-01-02T03:04:05Z", "on": "2026-01-02"}').column("value"), fields)
    assert quick is not None
    assert [str(column[0]) for column in quick] == ["2026-01-02 03:04:05+00:00", "2026-01-02"]
    numbers = pa.schema([("n", pa.float64()), ("all", pa.list_(pa.float64()))])
    for odd in (b'{"n": -0}', b'{"n":-0.0}', b'{"all": [1, -0]}', b'{"all": [-0]}', b'{"n":\n-0}'):
        assert quick_json(decoded(odd).column("value"), numbers) is None
        assert quick_json(decoded(odd.replace(b"-0", b"-1")).column("value"), numbers) is not None


def test_json_of_a_schema_registry_is_json_after_the_id() -> None:
    framed = [b"\0\0\0\0\7" + document for document in (b'{"id": 1}', b'{"id": 2}')]
    quick = quick_json(decoded(*framed).column("value"), FIELDS)
    assert quick is not None
    assert quick[0].to_pylist() == [1, 2]
    mixed = as_json(decoded(*framed, b'{"id": 3}', b"\0\0\0", None))
    assert mixed.rows.column("id").to_pylist() == [1, 2, 3, None]
    assert mixed.bad is not None
    assert mixed.bad.column("offset").to_pylist() == [103]


def test_a_tombstone_is_a_row_without_fields() -> None:
    shaped = as_json(decoded(b'{"id": 1}', None))
    assert shaped.rows.column("id").to_pylist() == [1, None]
    assert shaped.deleted.to_pylist() == [False, True]


def test_a_table_by_key_takes_no_record_without_one() -> None:
    shape = shape_of("raw", "", by_key=True)
    shaped = shape(decoded(b"a", b"b", keys=[None, b"k"]), "t", 0, pa.schema([]))
    assert shaped.rows.column("offset").to_pylist() == [101]
    assert shaped.bad is not None
    assert shaped.bad.column("offset").to_pylist() == [100]


NESTED = pa.schema(
    [
        *FIELDS,
        ("cost", pa.decimal128(8, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("on", pa.date32()),
        ("tags", pa.list_(pa.string())),
        ("who", pa.struct([("x", pa.int64())])),
        ("ok", pa.bool_()),
    ]
)
ODD = rb"""
{"id":1} | {"id": | 1} | {"id":1}{"id":2} | | {"id":"} | {"a":{} | {} | {"id":1,"id":2} | {"price":NaN} | {"id":-0}
{"price":-Infinity} | {"price":1e999} | {"name":"\ud800"} | {"name":1} | {"name":NaN} | {"id":1.0} | {"id":1e2}
{"price":99999999999999999999} | {"price":9007199254740993} | {"who":{"x":9007199254740993}}
{"id":99999999999999999999} | {"price":-0.0} | {"who":{"x":1,"y":2}} | {"who":[]} | {"tags":[1]} | {"tags":[null]}
{"ok":0} | {"name":"\u0000"} | {"price":01} | {"price":"1"} | {"id":true} | {"ok":"true"} | {"id":1,} | {"id":1}//
{"cost":1.230} | {"cost":1.234} | {"cost":"1."} | {"cost":" 1"} | {"cost":"1_0"} | {"cost":1e3} | {"cost":"+.5"}
{"cost":""} | {"cost":"-0"} | {"cost":"NaN"} | {"cost":"0x1"} | {"cost":999999.99} | {"cost":9999999} | {"cost":1e-3}
{"cost":0e-9} | {"at":"2026-01-31T12:00:00Z"} | {"at":"2026-01-31T12:00+0100"} | {"at":"2026-01-31 12:00"}
{"at":"2026-01-31"} | {"on":"2026-01-31"} | {"on":"2026-02-31"} | {"on":"0000-01-01"}
{"at":"2026-01-31T12:00:00.1234567Z"} | {"cost":1e99999} | {"id":/**/1} | {'id':1} | {"price":.5} | {"price":1.}
"""
ODD_BYTES = [b"\n", b' {"id":1}\n', b'{"id":\n1}', b'{"name":"\x00"}', b'{"name":"\xc3"}', b'{"name":"a\nb"}']
PIECES = st.sampled_from([*(piece.strip() for piece in ODD.replace(b"\n", b"|").split(b"|")), *ODD_BYTES])
SOMETHING = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3)
)
DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "id": st.integers(-(2**63), 2**63 - 1) | SOMETHING,
        "name": st.text(max_size=5) | SOMETHING,
        "price": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**70), 2**70) | SOMETHING,
        "tags": st.lists(st.text(max_size=2), max_size=2) | SOMETHING,
        "who": st.fixed_dictionaries({}, optional={"x": st.integers(-5, 5)}) | SOMETHING,
        "ok": st.booleans() | SOMETHING,
        "cost": st.decimals(-(10**7), 10**7, places=3).map(str) | st.integers(-(10**7), 10**7) | SOMETHING,
        "at": st.datetimes(timezones=st.timezones()).map(str) | SOMETHING,
        "on": st.dates().map(str) | st.datetimes().map(str) | SOMETHING,
    },
)


@settings(max_examples=300)
@given(st.lists(PIECES | DOCUMENTS.map(lambda document: json.dumps(document).encode()), min_size=1, max_size=4))
def test_the_quick_way_gives_what_one_by_one_gives_or_gives_up(values: list[bytes]) -> None:
    batch = decoded(*values)
    if (quick := quick_json(batch.column("value"), NESTED)) is None:
        return
    slow = documents(parse_json)(batch, "t", 3, NESTED)
    assert slow.bad is None
    assert [column.to_pylist() for column in quick] == [slow.rows.column(name).to_pylist() for name in NESTED.names]


@given(st.lists(PIECES | st.binary(max_size=20), min_size=1, max_size=4))
def test_no_value_brings_it_down(values: list[bytes]) -> None:
    shaped = as_json(decoded(*values))
    assert shaped.rows.num_rows + (shaped.bad.num_rows if shaped.bad is not None else 0) == len(values)
