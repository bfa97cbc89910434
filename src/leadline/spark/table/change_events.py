"""Changes of rows of a database, as Debezium writes them, as rows of a table.

A value is an envelope: op, before, after, source; in JSON it may be the payload beside its schema.

    op        meaning             fields of the row    in a table by key
    c, r, u   a row is there      those of `after`     the row of its key
    d         a row is deleted    those of `before`    removes the row
    t         truncate            none                 removes all rows that are older

Each row has besides: cdc_op, cdc_source_ms (the time of the change in the database), cdc_source_position (of the change
in the log of the database: source_order.py). Keys of JSON that differ only in their schema, their
spaces or the order of their fields are the same key.
The schema in JSON says what numbers and texts mean:

    Decimal                                    decimal; without a precision, of 38 digits
    Timestamp, MicroTimestamp                  timestamp_ntz
    ZonedTimestamp                             timestamp
    Date                                       date
    int8 to int64; float, double; bytes        long; double; binary

Pure: documents in, documents out.
"""

import base64
import json
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from leadline.spark.table.evolution import NOTHING, Conflict
from leadline.spark.table.source_order import source_position

OP, SOURCE_MS, SOURCE_POSITION = "cdc_op", "cdc_source_ms", "cdc_source_position"
CHANGE_COLUMNS = pa.schema([(OP, pa.string()), (SOURCE_MS, pa.int64()), (SOURCE_POSITION, pa.string())])
WITH_ROW = {"c": "after", "r": "after", "u": "after", "d": "before"}
DELETE, TRUNCATE = "d", "t"
DEFAULT_PRECISION = "38"

CONNECT_TYPES = {
    **dict.fromkeys(("int8", "int16", "int32", "int64"), pa.int64()),
    **dict.fromkeys(("float", "float32", "double", "float64"), pa.float64()),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
NTZ, DATE = pa.timestamp("us"), pa.date32()
MEANINGS: dict[str, tuple[pa.DataType, Callable[[Any], Any]]] = {
    "org.apache.kafka.connect.data.Timestamp": (NTZ, lambda ms: ms * 1000),
    "io.debezium.time.Timestamp": (NTZ, lambda ms: ms * 1000),
    "io.debezium.time.MicroTimestamp": (NTZ, lambda us: us),
    "org.apache.kafka.connect.data.Date": (DATE, lambda days: days),
    "io.debezium.time.Date": (DATE, lambda days: days),
    "io.debezium.time.ZonedTimestamp": (
        pa.timestamp("us", "UTC"),
        lambda text: pa.scalar(text, pa.string()).cast(pa.timestamp("us", "UTC")).value,
    ),
}
DECIMAL = "org.apache.kafka.connect.data.Decimal"

Fields = dict[str, Any]


def row_change(envelope: Fields, kind: pa.DataType | None) -> tuple[Fields, pa.DataType | None]:
    """The fields of the row, and their type. `kind`: the type of the envelope; None if it follows from the values."""
    schema = None
    if envelope.keys() == {"schema", "payload"}:
        schema, envelope, kind = envelope["schema"], envelope["payload"], None
    op = envelope.get("op") if isinstance(envelope, dict) else None
    if not isinstance(op, str):
        op = None
    fields: Fields = {}
    row_type: pa.DataType | None = NOTHING
    if op in WITH_ROW:
        fields, row_type = _row(envelope, WITH_ROW[op], schema, kind)
    elif op != TRUNCATE:
        raise Conflict(f"not a change of a row, as Debezium writes it: its op is {op!r}, not c, r, u, d or t")
    if taken := fields.keys() & set(CHANGE_COLUMNS.names):
        raise Conflict(f"{min(taken)} is the name of a column that every table of changes has")
    source = envelope.get("source") or {}
    if not isinstance(source, dict):
        raise Conflict("not a change of a row, as Debezium writes it: its source is not an object")
    ms = source.get("ts_ms", envelope.get("ts_ms"))
    changed = {OP: op, SOURCE_MS: ms, SOURCE_POSITION: source_position(source)}
    return {**fields, **changed}, None if row_type is None else _with_change_columns(row_type)


def _row(envelope: Fields, name: str, schema: Any, kind: pa.DataType | None) -> tuple[Fields, pa.DataType | None]:
    fields = envelope.get(name)
    if not isinstance(fields, dict):
        raise Conflict(f"op {envelope['op']} without the row in {name!r}")
    if schema is not None:
        return _by_schema(fields, schema, name)
    if kind is None or kind.get_field_index(name) < 0:
        return fields, None
    return fields, kind.field(name).type


def _by_schema(fields: Fields, schema: Any, name: str) -> tuple[Fields, pa.DataType]:
    try:
        row_schema = next(field for field in schema["fields"] if field["field"] == name)
        return _converted(fields, row_schema), _connect_type(json.dumps(row_schema))
    except (LookupError, TypeError, ValueError, ArithmeticError, StopIteration, pa.ArrowException) as error:
        raise Conflict(f"{name!r} does not fit its schema: {error or type(error).__name__}") from None


@lru_cache(maxsize=1024)
def _with_change_columns(row_type: pa.DataType) -> pa.DataType:
    """The same object for equal types: a caller may compare them by identity."""
    return pa.struct([*row_type, *CHANGE_COLUMNS])


# Schemas of Kafka Connect


@lru_cache(maxsize=1024)
def _connect_type(text: str) -> pa.DataType:
    return connect_type(json.loads(text))


def connect_type(schema: Fields) -> pa.DataType:
    name, kind = schema.get("name"), schema["type"]
    if name == DECIMAL:
        parameters = schema["parameters"]
        precision = parameters.get("connect.decimal.precision", DEFAULT_PRECISION)
        return pa.decimal128(int(precision), int(parameters["scale"]))
    if name in MEANINGS:
        return MEANINGS[name][0]
    if kind == "struct":
        return pa.struct([pa.field(field["field"], connect_type(field)) for field in schema["fields"]])
    if kind == "array":
        return pa.list_(connect_type(schema["items"]))
    if kind == "map":
        return pa.map_(pa.string(), connect_type(schema["values"]))
    return CONNECT_TYPES[kind]


def _converted(value: Any, schema: Fields) -> Any:
    if value is None:
        return None
    name, kind = schema.get("name"), schema["type"]
    if name == DECIMAL:
        unscaled = int.from_bytes(base64.b64decode(value, validate=True), "big", signed=True)
        return Decimal(unscaled).scaleb(-int(schema["parameters"]["scale"]))
    if name in MEANINGS:
        meant, convert = MEANINGS[name]
        converted = convert(value)
        pa.scalar(converted, meant).as_py()  # raises beyond the years 1 to 9999, which many readers do not have
        return converted
    if kind == "struct":
        return {field["field"]: _converted(value.get(field["field"]), field) for field in schema["fields"]}
    if kind == "array":
        return [_converted(element, schema["items"]) for element in value]
    if kind == "map":
        return {key: _converted(member, schema["values"]) for key, member in value.items()}
    return base64.b64decode(value, validate=True) if kind == "bytes" else value


# Keys and deletes


def canonical_key(key: bytes | None) -> bytes | None:
    """A key of JSON without its schema, in one spelling. Other keys stay unchanged."""
    try:
        document = None if key is None else json.loads(key)
    except (ValueError, RecursionError):
        return key
    if not isinstance(document, dict):
        return key
    if document.keys() == {"schema", "payload"}:
        document = document["payload"]
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def deletes(rows: pa.RecordBatch) -> pa.Array:
    """Whether a row is a delete; in a table without changes, none is."""
    if OP not in rows.schema.names:
        return pa.array([False] * rows.num_rows, pa.bool_())
    return pc.fill_null(pc.equal(rows.column(OP), DELETE), False)
