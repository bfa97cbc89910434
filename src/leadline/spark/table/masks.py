"""Masks: columns whose values are not written as they are.

    hash      HMAC-SHA-256 under a key, in hex: equal values stay equal, so that tables can be joined by them
    last4     **** and the last four characters; of four or fewer, **** alone
    redact    [redacted]
    null      null

Null stays null. A path leads through structs and arrays. A masked column holds texts, whatever the records have there
(`null` keeps the type of the column); bytes stay bytes. What cannot be masked is refused, never written as it is.

Pure: columns and documents in, the same out.
"""

import hashlib
import hmac
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from leadline.spark.table.column_types import type_name
from leadline.spark.table.evolution import Conflict
from leadline.spark.table.expressions import BadExpression, Path, index_of, parse_path
from leadline.spark.table.field_values import JsonNumber
from leadline.spark.table.table import TableError

HASH, LAST4, REDACT, NULL = KINDS = ("hash", "last4", "redact", "null")
SHORTEST_KEY = 16  # bytes
KEY_ID_CHARS = 16
REDACTED, HIDDEN = "[redacted]", "****"


@dataclass(frozen=True, slots=True)
class Mask:
    path: Path
    kind: str

    @property
    def name(self) -> str:
        return ".".join(self.path)


def parse_mask(path: str, kind: str) -> Mask:
    if kind not in KINDS:
        raise TableError(f"the mask {path}={kind} is not one of {', '.join(KINDS)}")
    try:
        return Mask(parse_path(path), kind)
    except BadExpression as error:
        raise TableError(f"the mask {path}={kind}: {error}") from None


def key_id(key: bytes) -> str:
    """Names a key without giving it away: tables under two keys cannot be joined."""
    return hmac.digest(key, b"leadline mask key", "sha256").hex()[:KEY_ID_CHARS]


def masked_text(text: str, kind: str, key: bytes) -> str:
    if kind == HASH:
        return hmac.digest(key, text.encode(errors="surrogatepass"), hashlib.sha256).hex()
    if kind == LAST4:
        return HIDDEN + (text[-4:] if len(text) > 4 else "")
    return REDACTED


# Columns


def masked_rows(rows: pa.RecordBatch, masks: Sequence[Mask], key: bytes) -> pa.RecordBatch:
    for mask in masks:
        if (at := index_of(rows.schema, mask.path[0])) is not None:
            column = masked_column(rows.column(at), mask, mask.path[1:], key)
            rows = rows.set_column(at, rows.schema.field(at), column)
    return rows


def masked_column(column: pa.Array, mask: Mask, path: Path, key: bytes) -> pa.Array:
    kind = column.type
    if pa.types.is_list(kind):
        values = masked_column(column.flatten(), mask, path, key)
        lengths = pc.fill_null(pc.list_value_length(column), 0)
        offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths).cast(pa.int32())])
        return pa.ListArray.from_arrays(offsets, values, type=kind, mask=column.is_null())
    if path and pa.types.is_struct(kind):
        at = index_of(kind, path[0])
        if at is None:
            return column
        children = column.flatten()
        children[at] = masked_column(children[at], mask, path[1:], key)
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=column.is_null())
    _check_leaf(kind, mask, path)
    if mask.kind == NULL or pa.types.is_null(kind):
        return pa.nulls(len(column), kind)
    return _masked_texts(column, mask.kind, key)


def _masked_texts(column: pa.Array, kind: str, key: bytes) -> pa.Array:
    """Equal texts are masked once."""
    coded = column.dictionary_encode()
    if pa.types.is_string(column.type):
        masked = [masked_text(text, kind, key) for text in coded.dictionary.to_pylist()]
        return pa.array(masked, pa.string()).take(coded.indices)
    codes = [_masked_bytes(value, kind, key) for value in coded.dictionary.to_pylist()]
    return pa.array(codes, pa.binary()).take(coded.indices)


def _masked_bytes(value: bytes, kind: str, key: bytes) -> bytes:
    """The bytes of a text, masked like the text."""
    if kind == HASH:
        return hmac.digest(key, value, hashlib.sha256).hex().encode()
    return masked_text(value.decode("latin-1"), kind, key).encode("latin-1")


def _check_leaf(kind: pa.DataType, mask: Mask, path: Path) -> None:
    if path and not pa.types.is_null(kind):
        raise TableError(f"{mask.name} cannot be masked: the column above {path[0]} is of type {type_name(kind)}")
    if mask.kind != NULL and not (pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_null(kind)):
        raise TableError(
            f"{mask.name} cannot be masked by {mask.kind}: its column is of type {type_name(kind)}, not string"
        )


def check_schema(schema: pa.Schema, masks: Sequence[Mask]) -> None:
    """TableError if a column of the table cannot hold what a mask makes of its values."""
    for mask in masks:
        kind, path = pa.struct(list(schema)), mask.path
        while path or pa.types.is_list(kind):
            if pa.types.is_list(kind):
                kind = kind.value_type
            elif not pa.types.is_struct(kind):
                break
            elif (at := index_of(kind, path[0])) is None:
                kind, path = pa.null(), ()
            else:
                kind, path = kind[at].type, path[1:]
        _check_leaf(kind, mask, path)


# Documents


def with_texts(document: dict[str, Any], paths: Sequence[Path]) -> dict[str, Any]:
    """The document with texts at these paths. Conflict if a path leads through a value that has no fields."""
    for path in paths:
        document = _at_leaf(document, path, _text, ".".join(path))
    return document


def _at_leaf(value: Any, path: Path, change: Callable[[Any], Any], name: str) -> Any:
    if value is None:
        return None
    if isinstance(value, list):
        return [_at_leaf(element, path, change, name) for element in value]
    if not path:
        return change(value)
    if not isinstance(value, dict):
        text = f"{name} cannot be masked: a value above {path[0]} has no fields"
        raise Conflict(text, text)
    names = [field for field in value if field.lower() == path[0].lower()]
    return value | {field: _at_leaf(value[field], path[1:], change, name) for field in names}


def _text(value: Any) -> str | bytes:
    if isinstance(value, str | bytes):
        return value
    if isinstance(value, JsonNumber):
        return value.text
    if isinstance(value, bool | dict):
        return json.dumps(value, sort_keys=True, default=str)
    return str(value)


@lru_cache(maxsize=1024)
def with_text_types(kind: pa.DataType, paths: tuple[Path, ...]) -> pa.DataType:
    """The type of documents after `with_texts`; the same object for equal types."""
    for path in paths:
        kind = _type_at_leaf(kind, path)
    return kind


def _type_at_leaf(kind: pa.DataType, path: Path) -> pa.DataType:
    if pa.types.is_null(kind) or (not path and (pa.types.is_string(kind) or pa.types.is_binary(kind))):
        return kind
    if pa.types.is_list(kind):
        return pa.list_(_type_at_leaf(kind.value_type, path))
    if not path:
        return pa.string()
    if not pa.types.is_struct(kind):
        return kind
    return pa.struct(
        [
            field.with_type(_type_at_leaf(field.type, path[1:])) if field.name.lower() == path[0].lower() else field
            for field in kind
        ]
    )
