"""Changes of a database, as Debezium writes them, as rows."""

import base64
import io
import json
from decimal import Decimal
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest

from leadline.spark.table.change_events import CHANGE_COLUMNS, canonical_key, row_change
from leadline.spark.table.column_types import parse_type, type_name
from leadline.spark.table.evolution import Conflict
from leadline.spark.table.payload import BESIDE, ShapedRecords, shape_of
from tests.support.decoded import decoded

COLUMNS = pa.schema([*BESIDE, *CHANGE_COLUMNS, ("id", pa.int64()), ("name", pa.string())])


def shaped(*values: bytes | None, keys: list[bytes | None] | None = None, by_key: bool = False) -> ShapedRecords:
    return shape_of("debezium", "", by_key=by_key)(decoded(*values, keys=keys), "t", 0, COLUMNS)


def event(op: str, before: object = None, after: object = None, **source: object) -> bytes:
    return json.dumps({"op": op, "before": before, "after": after, "source": {"ts_ms": 5, **source}}).encode()


def test_a_change_is_the_row_after_it_and_a_delete_the_row_before() -> None:
    ada, bob = {"id": 1, "name": "ada"}, {"id": 1, "name": "bob"}
    records = shaped(event("c", None, ada), event("r", None, ada), event("u", ada, bob), event("d", bob), None)
    assert records.bad is None
    assert records.unknown.num_fields == 0
    rows = [(row["cdc_op"], row["id"], row["name"], row["cdc_source_ms"]) for row in records.rows.to_pylist()]
    assert rows == [("c", 1, "ada", 5), ("r", 1, "ada", 5), ("u", 1, "bob", 5), ("d", 1, "bob", 5), (None,) * 4]
    assert records.deleted.to_pylist() == [False, False, False, True, True]


def test_a_truncate_needs_no_key_in_a_table_by_key() -> None:
    assert shaped(event("t")).rows.column("cdc_op").to_pylist() == ["t"]
    values = [event("t"), event("c", None, {"id": 1}), event("c", None, {"id": 2})]
    by_key = shaped(*values, keys=[None, b"1", None], by_key=True)
    assert by_key.rows.column("cdc_op").to_pylist() == ["c", "t"]
    assert by_key.bad is not None
    assert by_key.bad.column("offset").to_pylist() == [102]
    assert by_key.bad.column("cause").to_pylist() == ["no key, but the table is updated by key"]


@pytest.mark.parametrize(
    ("value", "cause"),
    [
        (b"{}", "its op is None"),
        (b'{"op": "m"}', "its op is 'm'"),
        (b'{"op": ["c"]}', "its op is"),
        (b'{"schema": {}, "payload": null}', "its op is None"),
        (b'{"op": "u", "before": {"id": 1}}', "op u without the row in 'after'"),
        (b'{"op": "d", "before": null}', "op d without the row in 'before'"),
        (event("c", None, {"cdc_op": 1}), "cdc_op is the name of a column that every table of changes has"),
        (event("c", None, {"id": "x"}), "id: 'x' is not a long"),
        (b'{"schema": {"fields": []}, "payload": {"op": "c", "after": {}}}', "'after' does not fit its schema"),
        (b'{"op": "c", "after": {"id": 1}, "source": 3}', "source is not an object"),
        (event("c", None, {"id": 1}).replace(b'"ts_ms": 5', b'"ts_ms": "x"'), "cdc_source_ms: 'x' is not a long"),
    ],
)
def test_what_is_no_change_is_bad_with_its_cause(value: bytes, cause: str) -> None:
    records = shaped(value, event("c", None, {"id": 2}))
    assert records.rows.column("id").to_pylist() == [2]
    assert records.bad is not None
    assert cause in records.bad.column("cause")[0].as_py()


def test_new_columns_of_the_database_are_reported() -> None:
    assert shaped(event("u", None, {"id": 1, "mail": "a@b"})).unknown == pa.struct([("mail", pa.string())])


def test_a_key_has_one_spelling() -> None:
    spellings = [b'{"b":1,"a":"x"}', b'{"a": "x", "b": 1}', b'{"schema": {"v": 2}, "payload": {"b": 1, "a": "x"}}']
    assert {canonical_key(key) for key in spellings} == {b'{"a":"x","b":1}'}
    for other in (None, b"", b"7", b'"text"', b"\xff", b"[" * 100_000):
        assert canonical_key(other) == other


def field(name: str, kind: str, meaning: str = "", **more: object) -> dict[str, object]:
    return {"field": name, "type": kind, "optional": True, **({"name": meaning} if meaning else {}), **more}


def test_the_schema_says_what_numbers_and_texts_mean() -> None:
    money = field(
        "price",
        "bytes",
        "org.apache.kafka.connect.data.Decimal",
        parameters={"scale": "2", "connect.decimal.precision": "12"},
    )
    fields = [
        field("id", "int32"),
        money,
        field("at", "int64", "io.debezium.time.MicroTimestamp"),
        field("ms", "int64", "io.debezium.time.Timestamp"),
        field("zoned", "string", "io.debezium.time.ZonedTimestamp"),
        field("day", "int32", "io.debezium.time.Date"),
        field("raw", "bytes"),
        field("tags", "array", items={"type": "string"}),
        field("extra", "map", keys={"type": "string"}, values={"type": "double"}),
    ]
    row = {
        "id": 1,
        "price": base64.b64encode((-12345).to_bytes(2, "big", signed=True)).decode(),
        "at": 1_000_000,
        "ms": 2000,
        "zoned": "2026-01-31T12:00:00+01:00",
        "day": 3,
        "raw": "AAE=",
        "tags": ["a"],
        "extra": {"x": 1},
    }
    schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]}
    envelope = {"schema": schema, "payload": {"op": "c", "after": row, "source": {}}}
    document, kind = row_change(envelope, None)
    assert kind is not None
    assert type_name(kind) == (
        "struct<id:long,price:decimal(12,2),at:timestamp_ntz,ms:timestamp_ntz,zoned:timestamp,day:date,raw:binary,"
        "tags:array<string>,extra:map<string,double>,cdc_op:string,cdc_source_ms:long,cdc_source_position:string>"
    )
    assert row_change(envelope, None)[1] is kind
    (stored,) = pa.array([document], kind).to_pylist()
    assert (stored["price"], stored["raw"], stored["extra"]) == (Decimal("-123.45"), b"\0\1", [("x", 1.0)])
    assert [str(stored[name]) for name in ("at", "ms", "zoned", "day")] == [
        "1970-01-01 00:00:01",
        "1970-01-01 00:00:02",
        "2026-01-31 11:00:00+00:00",
        "1970-01-04",
    ]


def test_a_value_that_contradicts_its_schema_is_bad() -> None:
    fields = [field("price", "bytes", "org.apache.kafka.connect.data.Decimal", parameters={"scale": "2"})]
    schema = {"fields": [{"field": "after", "type": "struct", "fields": fields}]}
    with pytest.raises(Conflict, match="'after' does not fit its schema"):
        row_change({"schema": schema, "payload": {"op": "c", "after": {"price": "!"}}}, None)


def test_a_time_beyond_the_years_of_readers_is_bad() -> None:
    fields = [field("at", "int64", "io.debezium.time.MicroTimestamp")]
    schema = {"fields": [{"field": "after", "type": "struct", "fields": fields}]}
    infinity = {"schema": schema, "payload": {"op": "c", "after": {"at": 9223371331200000000}}}
    with pytest.raises(Conflict, match="'after' does not fit its schema"):
        row_change(infinity, None)


def test_changes_in_avro_have_the_types_of_their_schema(tmp_path: Path) -> None:
    row = {"type": "record", "name": "Value", "fields": [{"name": "id", "type": "long"}, {"name": "n", "type": "int"}]}
    source = {"type": "record", "name": "Source", "fields": [{"name": "lsn", "type": ["null", "long"]}]}
    fields = [
        {"name": "before", "type": ["null", row]},
        {"name": "after", "type": ["null", "Value"]},
        {"name": "source", "type": source},
        {"name": "op", "type": "string"},
    ]
    schema = {"type": "record", "name": "Envelope", "fields": fields}
    (tmp_path / "7.avsc").write_text(json.dumps(schema))
    out = io.BytesIO()
    envelope = {"op": "d", "before": {"id": 4, "n": 5}, "after": None, "source": {"lsn": 9}}
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), envelope)
    value = b"\0" + (7).to_bytes(4, "big") + out.getvalue()
    columns = pa.schema([*BESIDE, *CHANGE_COLUMNS, ("id", pa.int64()), ("n", parse_type("int"))])
    records = shape_of("debezium-avro", str(tmp_path), by_key=True)(decoded(value), "t", 0, columns)
    assert records.bad is None
    (stored,) = records.rows.to_pylist()
    assert (stored["id"], stored["n"], stored["cdc_op"], stored["cdc_source_position"]) == (4, 5, "d", "9")
    assert records.deleted.to_pylist() == [True]
