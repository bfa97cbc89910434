"""The columns of a table, derived from the values of its records: types are inferred, compared and merged.

Records only add columns, and fields of structs in them. Types change by a declaration alone (column_types.py). Null
fits everywhere. Which other values fit a column of another type is in field_values.py.

Pure: types in, types out.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial, reduce
from typing import Any

import pyarrow as pa

UNFIT_FOR_NAMES = frozenset(" ,;{}()\n\t=")  # Delta and Parquet refuse these characters
NOTHING = pa.struct([])


class Conflict(Exception):
    """A value does not fit into the table. The text names the value and the reason."""

    def __init__(self, text: str, without_values: str = "the record does not fit the table") -> None:
        super().__init__(text)
        self.without_values = without_values  # the reason, for tables that mask values


# The type of a JSON value: a Python type; of an array "array" and that of each kind of element;
# of an object "object" and name and that of each field.
Signature = type | tuple[str, tuple[Any, ...]]
SCALARS = {type(None): pa.null(), bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}


def signature(value: Any) -> Signature:
    kind = type(value)
    if isinstance(value, float):
        return float  # also the subclass that keeps the digits
    if kind is dict:
        return "object", tuple((name, signature(member)) for name, member in value.items())
    if kind is list:
        return "array", tuple(dict.fromkeys(map(signature, value)))
    return kind


@lru_cache(maxsize=4096)
def inferred(kind: Signature) -> pa.DataType:
    """The type of all values with a signature. Conflict if there is none."""
    if isinstance(kind, type):
        return SCALARS[kind]
    what, parts = kind
    if what == "array":
        return pa.list_(reduce(partial(merged, widen=True), map(inferred, parts), pa.null()))
    return pa.struct([pa.field(name, inferred(part)) for name, part in parts])


def inferred_at(value: Any, at: str) -> pa.DataType:
    """The type of a value. Conflict, with the path of the first element that contradicts the others, if it has none."""
    if isinstance(value, dict):
        return pa.struct([pa.field(name, inferred_at(member, f"{at}.{name}")) for name, member in value.items()])
    if not isinstance(value, list):
        return inferred(signature(value))
    kind = pa.null()
    for index, element in enumerate(value):
        path = f"{at}[{index}]"
        kind = merged(kind, inferred_at(element, path), widen=True, at=path)
    return pa.list_(kind)


def merged(column: pa.DataType, value: pa.DataType, *, widen: bool = False, at: str = "") -> pa.DataType:
    """The type that holds both; `column` itself if `value` fits. `widen`: whole numbers may become doubles."""
    if column.equals(value) or pa.types.is_null(value):
        return column
    if pa.types.is_null(column):
        return value
    if pa.types.is_struct(column) and pa.types.is_struct(value):
        return _merged_structs(column, value, widen, at)
    if pa.types.is_list(column) and pa.types.is_list(value):
        inner = merged(column.value_type, value.value_type, widen=widen, at=f"{at}[]")
        return column if inner.equals(column.value_type) else pa.list_(inner)
    if pa.types.is_map(column) and pa.types.is_map(value):
        inner = merged(column.item_type, value.item_type, widen=widen, at=f"{at}[]")
        return column if inner.equals(column.item_type) else pa.map_(column.key_type, inner)
    if pa.types.is_float64(column) and pa.types.is_int64(value):
        return column
    if widen and pa.types.is_int64(column) and pa.types.is_float64(value):
        return value
    raise Conflict(f"{at or 'the value'} is {value}, where the table has {column}")


def _merged_structs(column: pa.StructType, value: pa.StructType, widen: bool, at: str) -> pa.DataType:
    types = {field.name: field.type for field in column}
    spellings = {name.lower(): name for name in types}
    changed = False
    for field in value:
        path = f"{at}.{field.name}" if at else field.name
        if field.name in types:
            merged_type = merged(types[field.name], field.type, widen=widen, at=path)
            changed |= merged_type is not types[field.name]
        else:
            check_name(field.name, path, spellings)
            merged_type, changed = field.type, True
            spellings[field.name.lower()] = field.name
        types[field.name] = merged_type
    return pa.struct([pa.field(name, kind) for name, kind in types.items()]) if changed else column


def check_name(name: str, path: str, spellings: Mapping[str, str]) -> None:
    if not name or not UNFIT_FOR_NAMES.isdisjoint(name):
        raise Conflict(f"{path!r} cannot name a column: it is empty or contains one of space , ; {{ }} ( ) =")
    if (other := spellings.get(name.lower())) is not None:
        raise Conflict(f"{path} differs from {other} by upper and lower case only")


def storable(kind: pa.DataType) -> pa.DataType | None:
    """The type without parts that are always null or empty, which a table cannot hold. None: no part remains."""
    if pa.types.is_null(kind):
        return None
    if pa.types.is_list(kind):
        inner = storable(kind.value_type)
        return None if inner is None else pa.list_(inner)
    if pa.types.is_map(kind):
        inner = storable(kind.item_type)
        return None if inner is None else pa.map_(kind.key_type, inner)
    if pa.types.is_struct(kind):
        types = [(field.name, storable(field.type)) for field in kind]
        fields = [pa.field(name, part) for name, part in types if part is not None]
        return pa.struct(fields) if fields else None
    return kind


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What rows lack of their records, as no type follows from it. A column that changes later may concern it."""

    nulls: frozenset[str] = frozenset()  # fields that are always null: they fit any type, but not another spelling
    empties: frozenset[str] = frozenset()  # fields with empty arrays or objects, or with objects whose fields are null

    @classmethod
    def of(cls, record_type: pa.DataType) -> "LeftOut":
        nulls = frozenset(field.name for field in record_type if pa.types.is_null(field.type))
        return cls(nulls, frozenset(field.name for field in record_type if _has_null(field.type)) - nulls)

    def __or__(self, other: "LeftOut") -> "LeftOut":
        return LeftOut(self.nulls | other.nulls, self.empties | other.empties)

    def is_concerned(self, columns: Iterable[str]) -> bool:
        """Whether a task with these new or changed columns from the start could have made other rows."""
        empties = {name.lower() for name in self.empties}
        return any(
            column.lower() in empties or any(name != column and name.lower() == column.lower() for name in self.nulls)
            for column in columns
        )


NOTHING_LEFT_OUT = LeftOut()


def _has_null(kind: pa.DataType) -> bool:
    if pa.types.is_list(kind):
        return _has_null(kind.value_type)
    if pa.types.is_map(kind):
        return _has_null(kind.item_type)
    if pa.types.is_struct(kind):
        return not kind.num_fields or any(_has_null(field.type) for field in kind)
    return bool(pa.types.is_null(kind))


def includes(column: pa.DataType, part: pa.DataType) -> bool:
    """Whether a column with fields that a file may lack, and no other difference, has the type of the file's."""
    if pa.types.is_struct(column) and pa.types.is_struct(part):
        types = {field.name: field.type for field in column}
        return all(field.name in types and includes(types[field.name], field.type) for field in part)
    if pa.types.is_list(column) and pa.types.is_list(part):
        return includes(column.value_type, part.value_type)
    if pa.types.is_map(column) and pa.types.is_map(part):
        return includes(column.item_type, part.item_type)
    return bool(column.equals(part))


def additions(schema: pa.Schema, record_types: Iterable[pa.DataType]) -> pa.DataType:
    """The columns of a table with the new fields of several records. Of contradicting fields, the first wins."""
    columns: pa.DataType = pa.struct(list(schema))
    for struct in record_types:
        for field in struct:
            try:
                columns = merged(columns, pa.struct([field]), widen=True)
            except Conflict:
                continue  # its record becomes a dead letter once the table has the other type
    return columns
