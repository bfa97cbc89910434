"""A replay of dead letters: those that fit the table now become rows, and leave the dead-letter table.

Two commits: the table gets the rows, then the dead-letter table loses them. If the process ends in between, the next
replay finds the rows in the table by partition and offset, and does not add them again.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from leadline.spark.batches.decode import SCHEMA_WITH_HEADERS
from leadline.spark.table.evolution import additions
from leadline.spark.table.payload import DEAD_LETTERS, RESERVED, ShapedRecords, shape_of
from leadline.spark.table.table import DELETED, OriginColumns, Table, TableError, TableState
from leadline.spark.table.upserts import Place, ids_in, ids_of, is_later, last_of_each_key, last_places, with_slot
from leadline.spark.table.write_task import ParquetFiles


@dataclass(frozen=True, slots=True)
class DeadLetterReplay:
    replayed: int  # dead letters that became rows now, or had become rows before
    left: int
    cause: str = ""  # of the first dead letter that remains


def replay(table: Table, dead: Table, registry: str) -> DeadLetterReplay:
    state, letters = table.state(), dead.state()
    if state is None or letters is None:
        return DeadLetterReplay(0, 0)
    if letters.progress.batch > state.progress.batch:
        raise TableError(
            f"a batch of {table.uri} is incomplete: run `leadline pipeline table` first, which completes it"
        )
    state, dead_state = table.take_over(state.origin), dead.take_over(letters.origin)
    before = dead.columns(DEAD_LETTERS.names).read_all()
    shaped, state = _shaped(before, table, state, registry)
    columns = OriginColumns.of(state.origin.format)
    rows = _rows(shaped, columns, table, by_key=state.origin.mode == "upsert")
    if rows is not None:
        _add(rows, table, state, columns)
    bad = [records.bad for records in shaped if records.bad is not None]
    left = pa.Table.from_batches(bad, DEAD_LETTERS)
    if left.num_rows < before.num_rows:
        dead.rewrite(left.to_reader(), dead_state.progress)
    return DeadLetterReplay(
        before.num_rows - left.num_rows, left.num_rows, left["cause"][0].as_py() if left.num_rows else ""
    )


def _shaped(
    letters: pa.Table, table: Table, state: TableState, registry: str
) -> tuple[list[ShapedRecords], TableState]:
    """The shaped records, by partition. They are shaped again after the table gets new columns."""
    shape = shape_of(state.origin.format, registry, by_key=state.origin.mode == "upsert")
    batches = list(_decoded(letters))
    for _ in range(2):
        shaped = [shape(batch, state.origin.topic, partition, state.schema) for partition, batch in batches]
        unknown = [records.unknown for records in shaped if records.unknown.num_fields]
        if not unknown:
            return shaped, state
        columns = pa.schema([column for column in state.schema if column.name not in RESERVED])
        table.add_columns([column for column in additions(columns, unknown) if column not in columns], state.progress)
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


def _rows(shaped: list[ShapedRecords], columns: OriginColumns, table: Table, *, by_key: bool) -> pa.Table | None:
    """The rows that the table lacks; in a table by key, without those that have a newer row."""
    batches = [records.rows.append_column(DELETED, records.deleted) for records in shaped if records.rows.num_rows]
    if not batches:
        return None
    rows = pa.Table.from_batches(batches)
    if by_key:
        rows = last_of_each_key(rows, columns)
        there = last_places(table.columns(columns.names), columns)
        mine = last_places(rows.to_batches(), columns)
        chosen: list[Place] = [place for key, place in mine.items() if key not in there or is_later(place, there[key])]
        rows = rows.filter(pc.is_in(ids_in(rows, columns), ids_of(chosen)))
    else:
        for batch in table.columns([columns.partition, columns.offset]):
            rows = rows.filter(pc.invert(pc.is_in(ids_in(rows, columns), ids_in(batch, columns))))
    return rows if rows.num_rows else None


def _add(rows: pa.Table, table: Table, state: TableState, columns: OriginColumns) -> None:
    progress, slot = state.progress, table.slot(state.origin)
    if state.origin.mode == "upsert":
        rows = with_slot(rows, slot, state.origin.partition_by, columns) if slot else rows
        table.upsert(rows, columns.key, progress, progress)
        return
    with ExitStack() as open_files:
        files = open_files.enter_context(ParquetFiles(table.data_directory, columns, state.origin.partition_by, slot))
        for batch in rows.drop_columns([DELETED]).to_batches():
            files.write(batch)
        table.append(files.finish(), progress, progress)
