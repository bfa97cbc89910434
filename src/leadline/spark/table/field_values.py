"""Values of documents, fitted to the types of columns.

A value fits the column of its own type. Besides, these values fit:

    whole number                 double, float, decimal; int within 32 bits
    number, text of a number     decimal, unless a digit would be lost
    text                         date, timestamp (with a zone), timestamp_ntz (without one), as ISO 8601 has them;
                                 binary, as base64
    object                       map

A value that does not fit is reported with its path: `items[3].price: 'abc' is not a decimal(18,2)`.

Pure: values in, values out.
"""

import base64
import binascii
import re
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any

import pyarrow as pa

from leadline.spark.table.column_types import type_name
from leadline.spark.table.evolution import Conflict, check_name, inferred_at

PLAIN_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
LARGEST_FLOAT = 3.4028235677973366e38  # half a step beyond the largest one, which is rounded down to it
SHOWN_CHARS = 40
EXACT = Context(prec=100, traps=[Inexact, InvalidOperation])
HINTS = {
    pa.timestamp("us", "UTC"): ": its text is like 2026-01-31T12:00:00+01:00",
    pa.timestamp("us"): ": its text is like 2026-01-31T12:00:00",
}


def fit(value: Any, column: pa.DataType, schema_type: pa.DataType | None, at: str = "") -> tuple[Any, pa.DataType]:
    """The value for the column, and the type of the column with the fields that the value adds to it.

    `schema_type`: the type of the value, if its schema says so.
    """
    if value is None or (schema_type is not None and schema_type.equals(column)):
        return value, column
    if pa.types.is_null(column):
        return value, inferred_at(value, at) if schema_type is None else schema_type
    if pa.types.is_struct(column):
        return _fit_struct(value, column, schema_type, at)
    if pa.types.is_list(column):
        return _fit_list(value, column, schema_type, at)
    if pa.types.is_map(column):
        return _fit_map(value, column, at)
    try:
        return _scalar(value, column), column
    except (ValueError, ArithmeticError, pa.ArrowException):
        raise mismatch(value, column, at) from None


def mismatch(value: Any, column: pa.DataType, at: str) -> Conflict:
    text = value.text if isinstance(value, JsonNumber) else repr(value)
    text = text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}..."
    name = type_name(column)
    reason = f"is not {'an' if name[0] in 'aei' else 'a'} {name}{HINTS.get(column, '')}"
    return Conflict(f"{at}: {text} {reason}", f"{at}: the value {reason}")


def _fit_struct(value: Any, column: pa.DataType, schema_type: pa.DataType | None, at: str) -> tuple[Any, pa.DataType]:
    if not isinstance(value, dict):
        raise mismatch(value, column, at)
    types = {field.name: field.type for field in column}
    schema_types = (
        {field.name: field.type for field in schema_type}
        if schema_type is not None and pa.types.is_struct(schema_type)
        else {}
    )
    spellings = {name.lower(): name for name in types}
    stored, changed = {}, False
    for name, member in value.items():
        path = f"{at}.{name}" if at else name
        if name not in types:
            check_name(name, path, spellings)
            spellings[name.lower()] = name
        before = types.get(name, pa.null())
        stored[name], types[name] = fit(member, before, schema_types.get(name), path)
        changed |= types[name] is not before
    return stored, pa.struct(list(types.items())) if changed else column


def _fit_list(value: Any, column: pa.DataType, schema_type: pa.DataType | None, at: str) -> tuple[Any, pa.DataType]:
    if not isinstance(value, list):
        raise mismatch(value, column, at)
    element_type = column.value_type
    element_schema = schema_type.value_type if schema_type is not None and pa.types.is_list(schema_type) else None
    elements = []
    for index, element in enumerate(value):
        stored, element_type = fit(element, element_type, element_schema, f"{at}[{index}]")
        elements.append(stored)
    return elements, column if element_type is column.value_type else pa.list_(element_type)


def _fit_map(value: Any, column: pa.DataType, at: str) -> tuple[Any, pa.DataType]:
    if isinstance(value, list) and all(isinstance(entry, dict) and entry.keys() == {"key", "value"} for entry in value):
        value = {str(entry["key"]): entry["value"] for entry in value}  # as Protobuf has its maps
    if not isinstance(value, dict):
        raise mismatch(value, column, at)
    value_type, entries = column.item_type, {}
    for key, member in value.items():
        entries[key], value_type = fit(member, value_type, None, f"{at}[{key!r}]")
    if value_type is not column.item_type:
        return entries, pa.map_(column.key_type, value_type)
    return entries, column


def _scalar(value: Any, kind: pa.DataType) -> Any:
    """ValueError, ArithmeticError or ArrowException if the value does not fit."""
    if pa.types.is_boolean(kind) and isinstance(value, bool):
        return value
    if pa.types.is_string(kind) and isinstance(value, str):
        return value
    if pa.types.is_binary(kind):
        return _binary(value)
    if pa.types.is_temporal(kind):
        return _temporal(value, kind)
    if pa.types.is_decimal(kind):
        return _decimal(value, kind)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _number(value, kind)
    raise ValueError


def _number(value: int | float, kind: pa.DataType) -> int | float:
    if pa.types.is_integer(kind) and isinstance(value, int):
        if value.bit_length() < kind.bit_width or value == -(1 << (kind.bit_width - 1)):
            return value
    elif pa.types.is_float64(kind) or (pa.types.is_float32(kind) and abs(value) < LARGEST_FLOAT):
        return float(value)
    raise ValueError


def _decimal(value: Any, kind: pa.DataType) -> Decimal:
    if isinstance(value, bool):
        raise ValueError
    text = value.text if isinstance(value, JsonNumber) else str(value)
    if not PLAIN_NUMBER.fullmatch(text):
        raise ValueError
    scaled = Decimal(text).quantize(Decimal(1).scaleb(-kind.scale), context=EXACT)
    if len(scaled.as_tuple().digits) > kind.precision and scaled:
        raise ValueError
    return scaled


def _temporal(value: Any, kind: pa.DataType) -> Any:
    if isinstance(value, str):
        moment = pa.scalar(value, pa.string()).cast(kind)
        moment.as_py()  # raises beyond the years 1 to 9999, which many readers do not have
        return moment.value
    own = pa.scalar(value).type
    if pa.types.is_timestamp(own) and pa.types.is_timestamp(kind) and (own.tz is None) == (kind.tz is None):
        return value
    if pa.types.is_date(own) and pa.types.is_date(kind):
        return value
    raise ValueError


def _binary(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise ValueError
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error:
        raise ValueError from None


class JsonNumber(float):
    """A number of JSON, with the digits that it was written with."""

    text: str

    def __new__(cls, text: str) -> "JsonNumber":
        number = super().__new__(cls, text)
        number.text = text
        return number
