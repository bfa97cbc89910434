"""The types of columns: their names, and the changes that keep every value.

Names are those of Spark's SQL:

    boolean  int  long  float  double  decimal(PRECISION,SCALE)  string  binary  date
    timestamp        a moment: its text has a zone          timestamp_ntz    a date and time of day without a zone
    array<TYPE>  map<string,TYPE>  struct<NAME:TYPE,...>

Changes of a type, at any depth:

    by the schema alone in Iceberg     int to long, float to double, decimal to one with more digits before the point
    by a rewrite of the rows           these in Delta (`deltalake` has no type widening), and whole numbers to double
                                       or decimal in both

Pure: text and types in, types out.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa

from leadline.spark.table.evolution import Conflict, check_name

SCALAR_TYPES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
ALIASES = {"bool": "boolean", "integer": "int", "bigint": "long", "real": "float"}
NAMES = {kind: name for name, kind in SCALAR_TYPES.items()}
TOKEN = re.compile(r"\s*(`[^`]+`|[^\s<>(),:`]+|[<>(),:])")
MAX_PRECISION = 38


class TypeChange(NamedTuple):
    path: tuple[str, ...]  # Iceberg's names: `element` for the elements of a list, `value` for the values of a map
    before: pa.DataType
    after: pa.DataType


# Names


def parse_type(text: str) -> pa.DataType:
    """The type of a name. Conflict if there is no such type."""
    tokens = _Tokens(text)
    kind = _type(tokens)
    tokens.expect("")
    return kind


class _Tokens:
    def __init__(self, text: str) -> None:
        self.text = text.strip()
        if re.sub(TOKEN, "", self.text):
            raise Conflict(f"{self.text!r} is not the name of a type")
        self._all = TOKEN.findall(self.text)
        self._next = 0

    def take(self) -> str:
        """The next token; empty at the end."""
        self._next += 1
        return self._all[self._next - 1] if self._next <= len(self._all) else ""

    def expect(self, *tokens: str) -> str:
        if (token := self.take()) not in tokens:
            raise Conflict(f"{self.text!r} is not the name of a type: {token or 'its end'!r} is in the wrong place")
        return token


def _type(tokens: _Tokens) -> pa.DataType:
    name = tokens.take().lower()
    name = ALIASES.get(name, name)
    if name in SCALAR_TYPES:
        return SCALAR_TYPES[name]
    if name == "decimal":
        return _decimal(tokens)
    if name == "array":
        tokens.expect("<")
        element = _type(tokens)
        tokens.expect(">")
        return pa.list_(element)
    if name == "map":
        tokens.expect("<")
        tokens.expect("string")
        tokens.expect(",")
        value = _type(tokens)
        tokens.expect(">")
        return pa.map_(pa.string(), value)
    if name == "struct":
        return _struct(tokens)
    raise Conflict(
        f"there is no type {name!r}: use {', '.join(SCALAR_TYPES)}, decimal(P,S), array<>, map<> or struct<>"
    )


def _decimal(tokens: _Tokens) -> pa.DataType:
    tokens.expect("(")
    precision, scale = tokens.take(), "0"
    if tokens.expect(",", ")") == ",":
        scale = tokens.take()
        tokens.expect(")")
    if not (precision.isdigit() and scale.isdigit() and 1 <= int(precision) <= MAX_PRECISION):
        raise Conflict(f"decimal({precision},{scale}): the precision is a number from 1 to {MAX_PRECISION}")
    if int(scale) > int(precision):
        raise Conflict(f"decimal({precision},{scale}): the scale is not more than the precision")
    return pa.decimal128(int(precision), int(scale))


def _struct(tokens: _Tokens) -> pa.DataType:
    fields: dict[str, pa.DataType] = {}
    spellings: dict[str, str] = {}
    tokens.expect("<")
    while True:
        name = tokens.take().strip("`")
        check_name(name, name, spellings)
        spellings[name.lower()] = name
        tokens.expect(":")
        fields[name] = _type(tokens)
        if tokens.expect(",", ">") == ">":
            return pa.struct(list(fields.items()))


def type_name(kind: pa.DataType) -> str:
    if kind in NAMES:
        return NAMES[kind]
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"array<{type_name(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{type_name(kind.key_type)},{type_name(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{field.name}:{type_name(field.type)}' for field in kind)}>"
    return str(kind)


# Changes


def widened(column: pa.DataType, declared: pa.DataType, at: str) -> pa.DataType:
    """The type of a column after a declaration. It keeps fields that the declaration lacks, and types that are wider.

    Conflict if some value of the column would be lost.
    """
    if column.equals(declared):
        return column
    if pa.types.is_struct(column) and pa.types.is_struct(declared):
        return pa.struct(list(_widened_fields(_types(column), _types(declared), f"{at}.").items()))
    if pa.types.is_list(column) and pa.types.is_list(declared):
        return pa.list_(widened(column.value_type, declared.value_type, f"{at}[]"))
    if pa.types.is_map(column) and pa.types.is_map(declared):
        return pa.map_(column.key_type, widened(column.item_type, declared.item_type, f"{at}[]"))
    if _keeps_values(column, declared):
        return declared
    if _keeps_values(declared, column):
        return column
    raise Conflict(
        f"{at} is {type_name(column)} in the table and cannot become {type_name(declared)}, which does not hold all of "
        "its values"
    )


def _types(struct: pa.DataType) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in struct}


def _widened_fields(
    columns: Mapping[str, pa.DataType], declared: Mapping[str, pa.DataType], at: str = ""
) -> dict[str, pa.DataType]:
    types = dict(columns)
    spellings = {name.lower(): name for name in types}
    for name, kind in declared.items():
        if name in types:
            types[name] = widened(types[name], kind, f"{at}{name}")
        else:
            check_name(name, f"{at}{name}", spellings)
            types[name] = kind
            spellings[name.lower()] = name
    return types


def widened_columns(columns: Mapping[str, pa.DataType], declared: Mapping[str, pa.DataType]) -> dict[str, pa.DataType]:
    return _widened_fields(columns, declared)


def _keeps_values(before: pa.DataType, after: pa.DataType) -> bool:
    """A double rounds whole numbers beyond 2^53, as it does all numbers of JSON. The rows show if a decimal fits."""
    if before in (pa.int32(), pa.int64()) and (after.equals(pa.float64()) or pa.types.is_decimal(after)):
        return True
    return is_promotion(before, after)


def is_promotion(before: pa.DataType, after: pa.DataType) -> bool:
    """Whether Iceberg changes the type without touching a file."""
    if pa.types.is_decimal(before) and pa.types.is_decimal(after):
        return bool(before.scale == after.scale and before.precision <= after.precision)
    return (before, after) in ((pa.int32(), pa.int64()), (pa.float32(), pa.float64()))


def type_changes(before: pa.DataType, after: pa.DataType, path: tuple[str, ...] = ()) -> Iterator[TypeChange]:
    """The changes from a type to the one that it was widened to. New fields are not changes."""
    if pa.types.is_struct(before):
        types = _types(after)
        for field in before:
            yield from type_changes(field.type, types[field.name], (*path, field.name))
    elif pa.types.is_list(before):
        yield from type_changes(before.value_type, after.value_type, (*path, "element"))
    elif pa.types.is_map(before):
        yield from type_changes(before.item_type, after.item_type, (*path, "value"))
    elif not before.equals(after):
        yield TypeChange(path, before, after)


def cast_rows(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows with widened columns. Conflict if a value does not fit."""
    try:
        columns = [_cast(batch.column(field.name), field.type) for field in schema]
        return pa.record_batch(columns, schema=schema)
    except pa.ArrowException as error:
        raise Conflict(str(error)) from None


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type.equals(kind):
        return column
    return column.cast(_with_widest_decimals(kind), safe=False).cast(kind)  # Arrow casts no long to a narrow decimal


def _with_widest_decimals(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_decimal(kind):
        return pa.decimal128(MAX_PRECISION, kind.scale)
    if pa.types.is_list(kind):
        return pa.list_(_with_widest_decimals(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _with_widest_decimals(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _with_widest_decimals(field.type)) for field in kind])
    return kind
