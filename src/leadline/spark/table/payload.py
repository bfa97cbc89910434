"""The content of a record as columns of a table: its bytes, or the fields of a document.

The format raw has the columns of Spark's Kafka connector. Documents have a column for each field, after the columns

    kafka_key, kafka_partition, kafka_offset, kafka_timestamp, kafka_headers

A record is bad if its value is not a document, if its fields contradict the table's columns, or if a field has a name
that readers reserve. It gets no row, and the cause is returned. Fields without a column are returned as well: the table
must get the columns first. A record without a value (a tombstone) becomes a row without fields.

Pure: columns in, columns out.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from leadline.spark.batches.decode import HEADERS, SPARK_SCHEMA_WITH_HEADERS, spark_columns
from leadline.spark.table.change_events import OP, TRUNCATE, canonical_key, deletes, row_change
from leadline.spark.table.evolution import (
    NOTHING,
    NOTHING_LEFT_OUT,
    Conflict,
    LeftOut,
    additions,
    inferred,
    merged,
    signature,
    storable,
)
from leadline.spark.table.expressions import Path
from leadline.spark.table.field_values import JsonNumber, fit
from leadline.spark.table.masks import with_text_types, with_texts
from leadline.spark.table.table import DELETED, PREFIX, TableState

BESIDE = pa.schema(
    [
        pa.field(f"{PREFIX}key", pa.binary()),
        pa.field(f"{PREFIX}partition", pa.int32()),
        pa.field(f"{PREFIX}offset", pa.int64()),
        pa.field(f"{PREFIX}timestamp", pa.timestamp("us", "UTC")),
        pa.field(f"{PREFIX}headers", HEADERS),
    ]
)
MORE_RESERVED = b"leadline.reserved"  # in the metadata of a schema
BROKEN_RULES = pa.field(f"{PREFIX}broken_rules", pa.list_(pa.string()))  # of tables that mark rows
RESERVED = frozenset({*BESIDE.names, f"{PREFIX}day", f"{PREFIX}hour", DELETED, BROKEN_RULES.name})
# A table with such a column cannot be read: by Iceberg for Spark, or by Delta with its change data feed.
RESERVED_BY_READERS = frozenset(
    "_file _pos _deleted _spec_id _partition _row_id _last_updated_sequence_number _change_type _change_ordinal "
    "_commit_snapshot_id _commit_version _commit_timestamp".split()
)
DEAD_LETTERS = SPARK_SCHEMA_WITH_HEADERS.append(pa.field("cause", pa.string()))

LONGEST, SURELY_64_BITS = 1 << 63, 19  # the first whole number beyond 64 bits; numbers with fewer digits are below it
ODD_NUMBERS = r"NaN|Inf|[:,\[]\s*-0"  # parsers disagree on them; a date such as 2026-01-31 has none
FRAMED, FRAME_BYTES = b"\0", 5  # no JSON starts with this byte
NO_KEY = "no key, but the table is updated by key"
CHANGE_FORMATS = {"debezium": "json", "debezium-avro": "avro"}  # and the format of their envelopes
NEED_REGISTRY = ("avro", "protobuf", "debezium-avro")
QUICK_SCALARS = (pa.bool_(), pa.int32(), pa.int64(), pa.float64(), pa.string())
OUT_OF_RANGE = (pa.ArrowException, ArithmeticError, TypeError, ValueError)

# The fields, and their type as a struct; None: it follows from the values, and an array has elements of several types.
Document = tuple[dict[str, object], pa.DataType | None]
Parser = Callable[[bytes], Document]  # raises Conflict if the bytes are not a document


@dataclass(frozen=True, slots=True)
class ShapedRecords:
    """Records as rows, bad records, and fields without a column."""

    rows: pa.RecordBatch
    deleted: pa.Array  # whether a row is a tombstone
    bad: pa.RecordBatch | None = None  # with a column for the cause
    unknown: pa.DataType = NOTHING  # fields without a column, as a struct; if there are any, the rows are unusable
    left_out: LeftOut = NOTHING_LEFT_OUT

    def with_bad(self, more: pa.RecordBatch, topic: str, partition: int, causes: Sequence[str]) -> "ShapedRecords":
        """Adds decoded records that are bad, each with its cause."""
        dead = _dead(more, topic, partition, causes)
        both = dead if self.bad is None else pa.concat_batches([self.bad, dead])
        return replace(self, bad=both)


def raw(batch: pa.RecordBatch, topic: str, partition: int, _: pa.Schema) -> ShapedRecords:
    return ShapedRecords(spark_columns(batch, topic, partition), batch.column("value").is_null())


def documents(parse: Parser, quick: "Quick | None" = None, *, hides_values: bool = False) -> "Shape":
    """Records whose values are documents. `quick` parses all of them at once, or returns None.

    `hides_values`: the causes of bad records must not show values.
    """

    def shape(batch: pa.RecordBatch, topic: str, partition: int, schema: pa.Schema) -> ShapedRecords:
        reserved = reserved_names(schema)
        fields = pa.schema([field for field in schema if field.name not in reserved])
        if quick is not None and (columns := quick(batch.column("value"), fields)) is not None:
            return ShapedRecords(_row(batch, partition, columns, fields), batch.column("value").is_null())
        return _one_by_one(batch, topic, partition, fields, parse, reserved, hides_values)

    return shape


Shape = Callable[[pa.RecordBatch, str, int, pa.Schema], ShapedRecords]
Quick = Callable[[pa.Array, pa.Schema], "list[pa.Array] | None"]


def record_schema(state: TableState) -> pa.Schema:
    """The schema of a table, and which of its columns are not fields of a record."""
    history = state.origin.history
    return state.schema.with_metadata({MORE_RESERVED: ",".join(history.names).encode()} if history else None)


def reserved_names(schema: pa.Schema) -> frozenset[str]:
    more = (schema.metadata or {}).get(MORE_RESERVED, b"").decode()
    return RESERVED | frozenset(filter(None, more.split(",")))


def extended(schema: pa.Schema, unknown: Iterable[pa.DataType]) -> pa.Schema:
    """The schema of a table (see `record_schema`) with the fields that its records have and it lacks."""
    reserved = reserved_names(schema)
    columns = additions(pa.schema([column for column in schema if column.name not in reserved]), unknown)
    types = {column.name: column for column in columns}
    columns_before = [types.pop(column.name, column) for column in schema]
    return pa.schema([*columns_before, *types.values()], metadata=schema.metadata)


def _row(batch: pa.RecordBatch, partition: int, columns: Sequence[pa.Array], fields: pa.Schema) -> pa.RecordBatch:
    beside = [
        batch.column("key"),
        pa.repeat(pa.scalar(partition, pa.int32()), batch.num_rows),
        batch.column("offset"),
        batch.column("timestamp").cast(pa.timestamp("us", "UTC")),
        batch.column("headers"),
    ]
    return pa.record_batch([*beside, *columns], schema=pa.schema([*BESIDE, *fields]))


def _one_by_one(
    batch: pa.RecordBatch,
    topic: str,
    partition: int,
    fields: pa.Schema,
    parse: Parser,
    reserved: frozenset[str],
    hides_values: bool,
) -> ShapedRecords:
    columns_type: pa.DataType = pa.struct(list(fields))
    checks = _TypeChecks(columns_type, reserved)
    results: list[dict[str, object] | Conflict] = []
    for value in batch.column("value").to_pylist():
        try:
            results.append({} if value is None else checks.fitted(*parse(value)))
        except Conflict as error:
            results.append(error)
    unknown = _beyond(columns_type, checks.merged_type)
    columns = _columns(results, columns_type)
    conflicts = [result for result in results if isinstance(result, Conflict)]
    causes = [conflict.without_values if hides_values else str(conflict) for conflict in conflicts]
    is_bad = pa.array([isinstance(result, Conflict) for result in results], pa.bool_())
    rest, bad = batch.filter(pc.invert(is_bad)), batch.filter(is_bad)
    dead = _dead(bad, topic, partition, causes) if causes else None
    shaped = _row(rest, partition, columns, fields)
    return ShapedRecords(shaped, rest.column("value").is_null(), dead, unknown, LeftOut.of(checks.merged_type))


def _columns(results: "list[dict[str, object] | Conflict]", columns_type: pa.DataType) -> list[pa.Array]:
    """The columns of the documents. A document with a value out of the range of its type is replaced by a Conflict."""
    try:
        return _flat([document for document in results if not isinstance(document, Conflict)], columns_type)
    except OUT_OF_RANGE:
        for n, document in enumerate(results):
            if not isinstance(document, Conflict):
                results[n] = _storable_document(document, columns_type)
        return _flat([document for document in results if not isinstance(document, Conflict)], columns_type)


def _storable_document(document: dict[str, object], columns_type: pa.DataType) -> dict[str, object] | Conflict:
    try:
        _flat([document], columns_type)
        return document
    except OUT_OF_RANGE:
        pass
    try:
        stored, _ = fit(document, columns_type, None)  # such as a whole number beyond 2^53, which a double rounds
        _flat([stored], columns_type)
    except Conflict as error:
        return error
    except OUT_OF_RANGE as error:
        return Conflict(str(error))
    assert isinstance(stored, dict)
    return stored


def _flat(documents: Sequence[dict[str, object]], columns_type: pa.DataType) -> list[pa.Array]:
    return list(pa.array(documents, columns_type).flatten())


class _TypeChecks:
    """Fits documents to the table, by their types where these say enough. Equal objects are checked once."""

    def __init__(self, columns_type: pa.DataType, reserved: frozenset[str]) -> None:
        self._columns_type = self.merged_type = columns_type
        self._reserved = reserved
        self._names = {field.name for field in columns_type}
        # By id(). The types are kept, so that no other object gets the same id. True: all documents of the type fit.
        self._checked: dict[int, tuple[pa.DataType, bool]] = {}

    def fitted(self, document: dict[str, object], kind: pa.DataType | None) -> dict[str, object]:
        """The document, with values for the columns. Conflict if one does not fit."""
        if kind is not None and self._fits(kind):
            return document
        self._check_names(document)
        stored, both = fit(document, self._columns_type, kind)
        if both is not self._columns_type:
            self.merged_type = merged(self.merged_type, both, widen=True)
        assert isinstance(stored, dict)
        return stored

    def _fits(self, kind: pa.DataType) -> bool:
        if id(kind) not in self._checked:
            self._checked[id(kind)] = kind, self._merge(kind)
        return self._checked[id(kind)][1]

    def _merge(self, kind: pa.DataType) -> bool:
        try:
            self._check_names(field.name for field in kind)
            merged(self._columns_type, kind)
            # Whole numbers and doubles may come in any order.
            self.merged_type = merged(self.merged_type, kind, widen=True)
        except Conflict:
            return False
        return True

    def _check_names(self, names: Iterable[str]) -> None:
        for name in names:
            if name.lower() in self._reserved:
                raise Conflict(f"{name} is the name of a column that every table has")
            if name.lower() in RESERVED_BY_READERS and name not in self._names:
                raise Conflict(f"{name} is a name that readers of tables reserve")


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


def _whole_number(text: str) -> int | JsonNumber:
    """A whole number; beyond 64 bits, a double, as in Arrow's parser."""
    if len(text) < SURELY_64_BITS:
        return int(text)
    number = int(text) if len(text) <= SURELY_64_BITS + 1 else LONGEST
    return number if -LONGEST <= number < LONGEST else JsonNumber(text)


def parse_json(value: bytes) -> Document:
    """Also the JSON of clients of a schema registry, which starts with 0 and the id of its schema."""
    if value[:1] == FRAMED:
        value = value[FRAME_BYTES:]
    try:
        document = json.loads(value, parse_int=_whole_number, parse_float=JsonNumber, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise Conflict(f"no JSON: {error}", "no JSON") from None
    if not isinstance(document, dict):
        raise Conflict(f"not a JSON object, but a {type(document).__name__}")
    try:
        if b"\\u" in value:
            json.dumps(document, ensure_ascii=False).encode()
        return document, _type_of(document)
    except UnicodeEncodeError:
        raise Conflict("half of a surrogate pair, which is no character") from None
    except RecursionError:
        raise Conflict("nested too deep") from None


def _type_of(document: dict[str, object]) -> pa.DataType | None:
    try:
        return inferred(signature(document))
    except Conflict:
        return None


def quick_json(values: pa.Array, fields: pa.Schema) -> list[pa.Array] | None:
    """Parses all values at once. None unless each value is one object with only these fields, in their types.

    Arrow parses decimals from numbers and texts. It parses times as texts, and casts them as field_values.py does.

    Each value starts with { and ends with }, so no object spans two values. If there are as many objects as values,
    each value is one object.
    """
    if not len(fields) or not len(values) or values.null_count:
        return None
    if pc.all(pc.starts_with(values, FRAMED)).as_py():
        values = pa.array([value[FRAME_BYTES:] for value in values.to_pylist()], pa.binary())
    if not _all_objects(values):
        return None
    parsed_fields = [field.with_type(pa.string()) if pa.types.is_temporal(field.type) else field for field in fields]
    if not all(_is_quick(field.type) for field in parsed_fields):
        return None
    if pc.any(pc.match_substring_regex(values, ODD_NUMBERS)).as_py():
        return None
    options = pa.json.ParseOptions(
        explicit_schema=pa.schema(parsed_fields), unexpected_field_behavior="error", newlines_in_values=True
    )
    joined = b"\n".join(values.to_pylist())
    try:
        parsed = pa.json.read_json(
            pa.BufferReader(joined), pa.json.ReadOptions(use_threads=False, block_size=max(len(joined), 1)), options
        )
        if parsed.num_rows != len(values):
            return None
        parsed = parsed.select(fields.names).cast(fields)
        for column in parsed.columns:
            if pa.types.is_temporal(column.type) and not _in_years_of_readers(column):
                return None
            if column.type not in QUICK_SCALARS:
                column.validate(full=True)  # Arrow's parser does not count the zeros that it appends to a decimal
    except pa.ArrowInvalid:
        return None
    return [column.combine_chunks() for column in parsed.columns]


def _in_years_of_readers(column: pa.ChunkedArray) -> bool:
    try:
        pc.min_max(column).as_py()  # raises beyond the years 1 to 9999, which many readers do not have
    except (OverflowError, ValueError):
        return False
    return True


def _is_quick(kind: pa.DataType) -> bool:
    """Whether Arrow's parser of JSON makes of a value what `fit` makes of it."""
    if pa.types.is_list(kind):
        return _is_quick(kind.value_type)
    if pa.types.is_struct(kind):
        return all(_is_quick(field.type) for field in kind)
    if pa.types.is_decimal(kind):
        return True
    return kind in QUICK_SCALARS


def _all_objects(values: pa.Array) -> bool:
    text = values.cast(pa.string(), safe=False)
    return bool(pc.all(pc.match_substring_regex(text, r"(?s)^\{.*\}$")).as_py())


# Formats


@lru_cache(maxsize=8)
def shape_of(
    format: str, registry: str, *, by_key: bool, texts: tuple[Path, ...] = (), hides_values: bool = False
) -> Shape:
    """How a task shapes its records. `registry`: the source of schemas, for formats that need one.

    `texts`: the fields that become texts, whatever they are.
    """
    if format == "raw":
        shape: Shape = raw
    elif format in CHANGE_FORMATS:
        parse = _change_parser(_parser_of(CHANGE_FORMATS[format], registry))
        shape = _changes(documents(_text_parser(parse, texts), hides_values=hides_values))
    else:
        parse, quick = _parser_of(format, registry), quick_json if format == "json" else None
        shape = documents(_text_parser(parse, texts), quick, hides_values=hides_values)
    return _with_keys(shape) if by_key else shape


def _text_parser(parse: Parser, texts: tuple[Path, ...]) -> Parser:
    def parse_with_texts(value: bytes) -> Document:
        document, kind = parse(value)
        return with_texts(document, texts), None if kind is None else with_text_types(kind, texts)

    return parse_with_texts if texts else parse


def _parser_of(format: str, registry: str) -> Parser:
    if format == "json":
        return parse_json
    from leadline.spark.table.registry import parser_of

    return parser_of(format, registry)


def _change_parser(parse: Parser) -> Parser:
    def parse_change(value: bytes) -> Document:
        fields, kind = row_change(*parse(value))
        return fields, _type_of(fields) if kind is None else kind

    return parse_change


def _changes(shape: Shape) -> Shape:
    """Rows with keys in one spelling. A delete is marked as a tombstone is."""

    def changed(batch: pa.RecordBatch, topic: str, partition: int, schema: pa.Schema) -> ShapedRecords:
        shaped = shape(batch, topic, partition, schema)
        rows, key = shaped.rows, f"{PREFIX}key"
        keys = pa.array([canonical_key(value) for value in rows.column(key).to_pylist()], pa.binary())
        rows = rows.set_column(rows.schema.get_field_index(key), key, keys)
        return replace(shaped, rows=rows, deleted=pc.or_(shaped.deleted, deletes(rows)))

    return changed


def _truncates(shaped: ShapedRecords) -> pa.RecordBatch:
    rows = shaped.rows
    if OP not in rows.schema.names:
        return rows.slice(0, 0)
    return rows.filter(pc.fill_null(pc.equal(rows.column(OP), TRUNCATE), False))


def _with_keys(shape: Shape) -> Shape:
    """Records without a key are bad, but for truncates."""

    def checked(batch: pa.RecordBatch, topic: str, partition: int, schema: pa.Schema) -> ShapedRecords:
        if not batch.column("key").null_count:
            return shape(batch, topic, partition, schema)
        has_key = batch.column("key").is_valid()
        shaped = shape(batch.filter(has_key), topic, partition, schema)
        keyless = batch.filter(pc.invert(has_key))
        truncated = _truncates(shape(keyless, topic, partition, schema))
        if truncated.num_rows:
            keyless = keyless.filter(pc.invert(pc.is_in(keyless["offset"], truncated[f"{PREFIX}offset"])))
            more = pa.array([True] * truncated.num_rows, pa.bool_())
            rows, deleted = pa.concat_batches([shaped.rows, truncated]), pa.concat_arrays([shaped.deleted, more])
            shaped = replace(shaped, rows=rows, deleted=deleted)
        return shaped.with_bad(keyless, topic, partition, [NO_KEY] * keyless.num_rows) if keyless.num_rows else shaped

    return checked
