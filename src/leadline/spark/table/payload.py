"""The content of a record as columns of a table: its bytes, or the fields of a document.

The format raw has the columns of Spark's Kafka connector. Documents have a column for each field, after the columns

    _key, _partition, _offset, _timestamp, _headers

A record is bad if its value is not a document, or if its fields contradict the table's columns. It gets no row, and the
cause is returned. Fields without a column are returned as well: the table must get the columns first. A record without
a value (a tombstone) becomes a row without fields.

Pure: columns in, columns out.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from leadline.spark.batches.decode import HEADERS, SPARK_SCHEMA_WITH_HEADERS, spark_columns
from leadline.spark.table.evolution import NOTHING, Conflict, fitted, inferred, merged, signature, storable

BESIDE = pa.schema(
    [
        pa.field("_key", pa.binary()),
        pa.field("_partition", pa.int32()),
        pa.field("_offset", pa.int64()),
        pa.field("_timestamp", pa.timestamp("us", "UTC")),
        pa.field("_headers", HEADERS),
    ]
)
RESERVED = frozenset({*BESIDE.names, "_day", "_hour", "_deleted"})
DEAD_LETTERS = SPARK_SCHEMA_WITH_HEADERS.append(pa.field("cause", pa.string()))

LONGEST, SURELY_64_BITS = 1 << 63, 19  # the first whole number beyond 64 bits; numbers with fewer digits are below it
OUT_OF_RANGE = (pa.ArrowException, ArithmeticError, TypeError, ValueError)

Document = tuple[dict[str, object], pa.DataType]  # the fields, and their type as a struct
Parser = Callable[[bytes], Document]  # raises Conflict if the bytes are not a document


@dataclass(frozen=True, slots=True)
class ShapedRecords:
    """Records as rows, bad records, and fields without a column."""

    rows: pa.RecordBatch
    deleted: pa.Array  # whether a row is a tombstone
    bad: pa.RecordBatch | None = None  # with a column for the cause
    unknown: pa.DataType = NOTHING  # fields without a column, as a struct; if there are any, the rows are unusable

    def with_bad(self, more: pa.RecordBatch, topic: str, partition: int, cause: str) -> "ShapedRecords":
        """Adds decoded records that are bad for one cause."""
        dead = _dead(more, topic, partition, [cause] * more.num_rows)
        both = dead if self.bad is None else pa.concat_batches([self.bad, dead])
        return replace(self, bad=both)


def raw(batch: pa.RecordBatch, topic: str, partition: int, _: pa.Schema) -> ShapedRecords:
    return ShapedRecords(spark_columns(batch, topic, partition), batch.column("value").is_null())


def documents(parse: Parser, quick: "Quick | None" = None) -> "Shape":
    """Records whose values are documents. `quick` parses all of them at once, or returns None."""

    def shape(batch: pa.RecordBatch, topic: str, partition: int, schema: pa.Schema) -> ShapedRecords:
        fields = pa.schema([field for field in schema if field.name not in RESERVED])
        if quick is not None and (columns := quick(batch.column("value"), fields)) is not None:
            return ShapedRecords(_row(batch, partition, columns, fields), batch.column("value").is_null())
        return _one_by_one(batch, topic, partition, fields, parse)

    return shape


Shape = Callable[[pa.RecordBatch, str, int, pa.Schema], ShapedRecords]
Quick = Callable[[pa.Array, pa.Schema], "list[pa.Array] | None"]


def _row(batch: pa.RecordBatch, partition: int, columns: Sequence[pa.Array], fields: pa.Schema) -> pa.RecordBatch:
    beside = [
        batch.column("key"),
        pa.repeat(pa.scalar(partition, pa.int32()), batch.num_rows),
        batch.column("offset"),
        batch.column("timestamp").cast(pa.timestamp("us", "UTC")),
        batch.column("headers"),
    ]
    return pa.record_batch([*beside, *columns], schema=pa.schema([*BESIDE, *fields]))


def _one_by_one(batch: pa.RecordBatch, topic: str, partition: int, fields: pa.Schema, parse: Parser) -> ShapedRecords:
    columns_type: pa.DataType = pa.struct(list(fields))
    fit = _Fit(columns_type)
    results: list[dict[str, object] | Conflict] = []
    for value in batch.column("value").to_pylist():
        try:
            document, kind = ({}, NOTHING) if value is None else parse(value)
            fit.check(kind)
            results.append(document)
        except Conflict as error:
            results.append(error)
    unknown = _beyond(columns_type, fit.merged_type)
    columns = _columns(results, columns_type)
    causes = [str(result) for result in results if isinstance(result, Conflict)]
    is_bad = pa.array([isinstance(result, Conflict) for result in results], pa.bool_())
    rest, bad = batch.filter(pc.invert(is_bad)), batch.filter(is_bad)
    dead = _dead(bad, topic, partition, causes) if causes else None
    return ShapedRecords(_row(rest, partition, columns, fields), rest.column("value").is_null(), dead, unknown)


def _columns(results: "list[dict[str, object] | Conflict]", columns_type: pa.DataType) -> list[pa.Array]:
    """The columns of the documents. A document with a value out of the range of its type is replaced by a Conflict."""
    try:
        return _flat([document for document in results if not isinstance(document, Conflict)], columns_type)
    except OUT_OF_RANGE:
        for n, document in enumerate(results):
            if not isinstance(document, Conflict):
                try:
                    results[n] = stored = fitted(document, columns_type)
                    _flat([stored], columns_type)
                except OUT_OF_RANGE as error:
                    results[n] = Conflict(str(error))
        return _flat([document for document in results if not isinstance(document, Conflict)], columns_type)


def _flat(documents: Sequence[dict[str, object]], columns_type: pa.DataType) -> list[pa.Array]:
    return list(pa.array(documents, columns_type).flatten())


class _Fit:
    """Checks that the types of documents fit the table and each other. Equal objects are checked once."""

    def __init__(self, columns_type: pa.DataType) -> None:
        self._columns_type = self.merged_type = columns_type
        # By id(). The types are kept, so that no other object gets the same id.
        self._checked: dict[int, tuple[pa.DataType, Conflict | None]] = {}

    def check(self, kind: pa.DataType) -> None:
        if id(kind) not in self._checked:
            self._checked[id(kind)] = kind, self._conflict(kind)
        _, conflict = self._checked[id(kind)]
        if conflict is not None:
            raise conflict

    def _conflict(self, kind: pa.DataType) -> Conflict | None:
        try:
            for field in kind:
                if field.name.lower() in RESERVED:
                    raise Conflict(f"{field.name} is the name of a column that every table has")
            merged(self._columns_type, kind)
            self.merged_type = merged(
                self.merged_type, kind, widen=True
            )  # whole numbers and doubles may come in any order
        except Conflict as error:
            return error
        return None


def _beyond(columns_type: pa.DataType, document_type: pa.DataType) -> pa.DataType:
    """The columns of the documents that are new or have new fields. A column that is always null is not new."""
    types = {field.name: field.type for field in columns_type}
    new = []
    for field in document_type:
        kind = storable(field.type)
        if kind is not None and kind != types.get(field.name):
            new.append(pa.field(field.name, kind))
    return pa.struct(new)


def _dead(bad: pa.RecordBatch, topic: str, partition: int, causes: Sequence[str]) -> pa.RecordBatch:
    columns = spark_columns(bad, topic, partition).columns
    return pa.record_batch([*columns, pa.array(causes, pa.string())], schema=DEAD_LETTERS)


# JSON


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number")


def _whole_number(text: str) -> int | float:
    """A whole number; beyond 64 bits, a double, as in Arrow's parser."""
    if len(text) < SURELY_64_BITS:
        return int(text)
    number = int(text) if len(text) <= SURELY_64_BITS + 1 else LONGEST
    return number if -LONGEST <= number < LONGEST else float(text)


def parse_json(value: bytes) -> Document:
    try:
        document = json.loads(value, parse_int=_whole_number, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise Conflict(f"no JSON: {error}") from None
    if not isinstance(document, dict):
        raise Conflict(f"no JSON object, but a {type(document).__name__}")
    try:
        if b"\\u" in value:
            json.dumps(document, ensure_ascii=False).encode()
        return document, inferred(signature(document))
    except UnicodeEncodeError:
        raise Conflict("half of a surrogate pair, which is no character") from None
    except RecursionError:
        raise Conflict("nested too deep") from None


def quick_json(values: pa.Array, fields: pa.Schema) -> list[pa.Array] | None:
    """Parses all values at once. None unless each value is one object with only these fields, in their types.

    Each value starts with { and ends with }, so no object spans two values. If there are as many objects as values,
    each value is one object.
    """
    if not len(fields) or not len(values) or values.null_count or not _all_objects(values):
        return None
    if pc.any(pc.match_substring_regex(values, r"NaN|Inf|-0")).as_py():  # parsers disagree on such numbers
        return None
    options = pa.json.ParseOptions(explicit_schema=fields, unexpected_field_behavior="error", newlines_in_values=True)
    joined = b"\n".join(values.to_pylist())
    try:
        parsed = pa.json.read_json(
            pa.BufferReader(joined), pa.json.ReadOptions(use_threads=False, block_size=max(len(joined), 1)), options
        )
    except pa.ArrowInvalid:
        return None
    if parsed.num_rows != len(values):
        return None
    return [parsed.column(name).combine_chunks() for name in fields.names]


def _all_objects(values: pa.Array) -> bool:
    text = values.cast(pa.string(), safe=False)
    return bool(pc.all(pc.match_substring_regex(text, r"(?s)^\{.*\}$")).as_py())


# Formats


@lru_cache(maxsize=8)
def shape_of(format: str, registry: str, *, by_key: bool) -> Shape:
    """How a task shapes its records. `registry`: the source of schemas, for formats that need one."""
    if format == "raw":
        shape: Shape = raw
    elif format == "json":
        shape = documents(parse_json, quick_json)
    else:
        from leadline.spark.table.registry import parser_of

        shape = documents(parser_of(format, registry))
    return _with_keys(shape) if by_key else shape


def _with_keys(shape: Shape) -> Shape:
    """Records without a key are bad."""

    def checked(batch: pa.RecordBatch, topic: str, partition: int, schema: pa.Schema) -> ShapedRecords:
        if not batch.column("key").null_count:
            return shape(batch, topic, partition, schema)
        has_key = batch.column("key").is_valid()
        shaped = shape(batch.filter(has_key), topic, partition, schema)
        keyless = batch.filter(pc.invert(has_key))
        return shaped.with_bad(keyless, topic, partition, "no key, and the table is to be updated by key")

    return checked
