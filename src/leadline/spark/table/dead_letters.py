"""A replay of dead letters: those that fit the table now become rows, and leave the dead-letter table.

Two commits: the table gets the rows, then the dead-letter table loses them. If the process ends in between, the next
replay finds the rows in the table by partition and offset, and does not add them again.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from leadline.spark.batches.decode import SCHEMA_WITH_HEADERS
from leadline.spark.table.bucketed_files import BucketedFiles
from leadline.spark.table.declared_columns import ColumnTypes, declare, with_columns
from leadline.spark.table.merge import delete_directory, merge_job, prepare, staging_directory
from leadline.spark.table.parquet_files import ParquetFiles
from leadline.spark.table.payload import DEAD_LETTERS, ShapedRecords, extended, record_schema
from leadline.spark.table.quality import Quality, check_quality, is_withheld, shape_with
from leadline.spark.table.remembered_deletes import DELETES, deletes_origin
from leadline.spark.table.table import (
    DELETED,
    OriginColumns,
    Table,
    TableError,
    TableProgress,
    TableState,
    check_column_names,
    check_masks,
)
from leadline.spark.table.table_format import DELETES as DELETES_SUFFIX

NONE_DECLARED: ColumnTypes = MappingProxyType({})
ANY = Quality()


@dataclass(frozen=True, slots=True)
class DeadLetterReplay:
    replayed: int  # dead letters that became rows now, or had become rows before
    left: int
    cause: str = ""  # of the first dead letter that remains


def replay(
    table: Table, dead: Table, registry: str, columns: ColumnTypes = NONE_DECLARED, quality: Quality = ANY
) -> DeadLetterReplay:
    """`columns`: those that the user declares; the table gets them first. Letters without their value are left."""
    state, letters = table.state(), dead.state()
    if state is None or letters is None:
        return DeadLetterReplay(0, 0)
    check_column_names(state, table.uri)
    check_quality(quality, state.origin.format, state.origin.mode)
    check_masks(state.origin, quality.masks_text, table.uri)
    remembered = table.beside(DELETES_SUFFIX).state() if state.origin.is_by_key else None
    if any(beside.progress.batch > state.progress.batch for beside in (letters, remembered) if beside is not None):
        raise TableError(
            f"a batch of {table.uri} is incomplete: run `leadline pipeline table` first, which completes it"
        )
    state, dead_state = table.take_over(state.origin), dead.take_over(letters.origin)
    state = with_columns(table, declare(table, state, columns), quality.columns)
    before = dead.columns(DEAD_LETTERS.names).read_all()
    withheld = is_withheld(before)
    shaped, state = _shaped(before.filter(pc.invert(withheld)), table, state, registry, quality)
    places = OriginColumns.of(state.origin.format)
    if state.origin.is_by_key:
        _merge(shaped, table, state, places)
    elif (rows := _missing(shaped, places, table)) is not None:
        _append(rows, table, state, places)
    bad = [records.bad for records in shaped if records.bad is not None]
    left = pa.concat_tables([before.filter(withheld).cast(DEAD_LETTERS), pa.Table.from_batches(bad, DEAD_LETTERS)])
    if left.num_rows < before.num_rows:
        dead.rewrite(left.to_reader(), dead_state.progress)
    return DeadLetterReplay(
        before.num_rows - left.num_rows, left.num_rows, left["cause"][0].as_py() if left.num_rows else ""
    )


def _shaped(
    letters: pa.Table, table: Table, state: TableState, registry: str, quality: Quality
) -> tuple[list[ShapedRecords], TableState]:
    """The shaped records, by partition. They are shaped again after the table gets new columns."""
    shape = shape_with(quality, state.origin.format, registry, by_key=state.origin.is_by_key)
    batches = list(_decoded(letters))
    for _ in range(2):
        schema = record_schema(state)
        shaped = [shape(batch, state.origin.topic, partition, schema) for partition, batch in batches]
        unknown = [records.unknown for records in shaped if records.unknown.num_fields]
        if not unknown:
            return shaped, state
        table.add_columns([column for column in extended(schema, unknown) if column not in schema], state.progress)
        newest = table.state()
        assert newest is not None
        state = newest
    raise TableError(f"{table.uri}: its columns cannot hold some fields of the dead letters: {unknown[0]}")


def _decoded(letters: pa.Table) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Dead letters as decoded records, as if they came from the topic."""
    for partition in pc.unique(letters["partition"]).to_pylist():
        rows = letters.filter(pc.equal(letters["partition"], partition)).combine_chunks()
        columns = {
            "offset": rows["offset"],
            "timestamp": rows["timestamp"].cast(pa.timestamp("ms", "UTC")),
            "timestamp_type": rows["timestampType"],
            "key": rows["key"].cast(pa.binary()),
            "value": rows["value"].cast(pa.binary()),
            "headers": rows["headers"].cast(SCHEMA_WITH_HEADERS.field("headers").type),
        }
        for batch in pa.table(columns).cast(SCHEMA_WITH_HEADERS).to_batches():
            yield partition, batch


def _missing(shaped: list[ShapedRecords], columns: OriginColumns, table: Table) -> pa.Table | None:
    """The rows that the table lacks."""
    batches = [records.rows for records in shaped if records.rows.num_rows]
    if not batches:
        return None
    rows = pa.Table.from_batches(batches)
    for batch in table.columns([columns.partition, columns.offset]):
        rows = rows.filter(pc.invert(pc.is_in(_ids(rows, columns), _ids(batch, columns))))
    return rows if rows.num_rows else None


def _ids(rows: pa.RecordBatch | pa.Table, columns: OriginColumns) -> pa.Array:
    """Partition and offset as one text."""
    partitions, offsets = rows.column(columns.partition), rows.column(columns.offset)
    return pc.binary_join_element_wise(partitions.cast(pa.string()), offsets.cast(pa.string()), "/")


def _append(rows: pa.Table, table: Table, state: TableState, columns: OriginColumns) -> None:
    slot = table.slot(state.origin)
    with ParquetFiles(table.data_directory, columns, state.origin.partition_by, slot) as files:
        for batch in rows.to_batches():
            files.write(batch)
        table.append(files.finish(), state.progress, state.progress)


def _merge(shaped: list[ShapedRecords], table: Table, state: TableState, columns: OriginColumns) -> None:
    """In a table by key, a dead letter takes its place among the changes of its key."""
    deletes, origin = table.beside(DELETES_SUFFIX), deletes_origin(state.origin)
    if deletes.in_catalog and deletes.state() is None:  # the catalog decides where it is
        deletes.create(origin, DELETES, TableProgress())
    remembered = None if deletes.state() is None else deletes.take_over(origin)
    staging = staging_directory(table)
    try:
        with BucketedFiles(staging, "batch", columns, buckets=1) as files:
            for records in shaped:
                files.write(records.rows.append_column(DELETED, records.deleted))
            staged = files.finish()
        if not staged.paths:
            return
        job = merge_job(table, deletes, state.origin, staging, buckets=1)
        old_deletes = [] if remembered is None else deletes.live_files()
        prepared = prepare(_run_here, job, table.live_files(), old_deletes, staged, width=1)
        if prepared.remembered:
            if remembered is None:
                deletes.create(origin, DELETES, TableProgress())
                remembered = deletes.take_over(origin)
            deletes.append(prepared.remembered, remembered.progress, remembered.progress)
        table.merge(prepared.merge, state.progress, state.progress)
    finally:
        delete_directory(staging)


def _run_here(work: Callable[[Any], Any], tasks: Sequence[Any]) -> list[Any]:
    return [work(task) for task in tasks]
