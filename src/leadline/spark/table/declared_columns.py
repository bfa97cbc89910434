"""Columns that a user declares: the table gets them, and existing columns get wider types.

Two commits at most: new columns and fields, then wider types. Each of them can be repeated.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from leadline.spark.table.column_types import parse_type, type_changes, widened_columns
from leadline.spark.table.evolution import Conflict, check_name, merged
from leadline.spark.table.payload import RESERVED, RESERVED_BY_READERS
from leadline.spark.table.table import Table, TableError, TableState

ColumnTypes = Mapping[str, pa.DataType]


def declare(table: Table, state: TableState, declared: ColumnTypes) -> TableState:
    """The state of the table after the change. TableError if a column cannot get its type."""
    if not declared:
        return state
    columns = {field.name: field.type for field in state.schema if field.name not in RESERVED}
    try:
        after = widened_columns(columns, declared)
    except Conflict as error:
        raise TableError(f"{table.uri}: {error}; choose another table") from None
    changed = {name for name, kind in columns.items() if any(type_changes(kind, after[name]))}
    # Columns first get their new fields beside the old types.
    additional = {name: _with_fields(columns[name], kind) if name in changed else kind for name, kind in after.items()}
    if added := [pa.field(name, kind) for name, kind in additional.items() if kind != columns.get(name)]:
        table.add_columns(added, state.progress)
    if changed:
        table.widen_columns([pa.field(name, after[name]) for name in columns if name in changed], state.progress)
    newest = table.state()
    assert newest is not None
    return replace(state, schema=newest.schema)


def with_columns(table: Table, state: TableState, fields: Sequence[pa.Field]) -> TableState:
    """The state of the table after it has these columns, of which it may have some."""
    missing = [field for field in fields if field.name not in state.schema.names]
    if not missing:
        return state
    table.add_columns(missing, state.progress)
    newest = table.state()
    assert newest is not None
    return replace(state, schema=newest.schema)


def _with_fields(column: pa.DataType, after: pa.DataType) -> pa.DataType:
    """The type of a column with the new fields of another type, and its own types otherwise."""
    if pa.types.is_struct(column):
        types = {field.name: field.type for field in column}
        fields = [(field.name, _with_fields(types.get(field.name, field.type), field.type)) for field in after]
        return merged(column, pa.struct(fields))
    if pa.types.is_list(column):
        return pa.list_(_with_fields(column.value_type, after.value_type))
    if pa.types.is_map(column):
        return pa.map_(column.key_type, _with_fields(column.item_type, after.item_type))
    return column


# What a user writes


def column_types(declarations: Mapping[str, str]) -> dict[str, pa.DataType]:
    """The types of columns by name. TableError if a name or a type is wrong."""
    types: dict[str, pa.DataType] = {}
    for name, text in declarations.items():
        try:
            check_name(name, name, {other.lower(): other for other in types})
            types[name] = parse_type(text)
        except Conflict as error:
            raise TableError(f"the column {name}={text}: {error}") from None
    return checked(types)


def checked(types: dict[str, pa.DataType]) -> dict[str, pa.DataType]:
    for name in types:
        if name.lower() in RESERVED | RESERVED_BY_READERS:
            raise TableError(f"{name} cannot be declared: every table has that column, or readers of tables reserve it")
    return types


def schema_file(path: Path) -> dict[str, pa.DataType]:
    """The columns of a file: an Avro schema (.avsc), or lines NAME=TYPE, with comments after #."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise TableError(f"{path}: {error}") from None
    if path.suffix == ".avsc":
        return avro_columns(text, str(path))
    declarations = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line := line.partition("#")[0].strip():
            name, separator, kind = (part.strip() for part in line.partition("="))
            if not separator:
                raise TableError(f"{path}:{number}: {line!r} is not NAME=TYPE")
            declarations[name] = kind
    return column_types(declarations)


def registered_schema(registry: str, subject: str) -> dict[str, pa.DataType]:
    """The columns of the newest Avro schema of a subject."""
    from leadline.spark.table.registry import NoSchema, newest_schema

    try:
        return avro_columns(newest_schema(registry, subject), f"the schema of {subject}")
    except (Conflict, NoSchema) as error:
        raise TableError(str(error)) from None


def avro_columns(text: str, origin: str) -> dict[str, pa.DataType]:
    from leadline.spark.table.registry import avro_record

    try:
        return checked({field.name: field.type for field in avro_record(text, origin)[1]})
    except Conflict as error:
        raise TableError(str(error)) from None
