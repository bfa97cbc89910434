"""A table by key without a topic and without Spark: changes are staged and merged as a writer does it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from leadline.spark.table.bucketed_files import BucketedFiles
from leadline.spark.table.change_events import CHANGE_COLUMNS, DELETE
from leadline.spark.table.merge import PreparedMerge, delete_directory, merge_job, prepare, staging_directory
from leadline.spark.table.parquet_files import ParquetFiles
from leadline.spark.table.payload import BESIDE
from leadline.spark.table.remembered_deletes import DELETES, deletes_origin
from leadline.spark.table.table import (
    DELETED,
    HISTORY,
    UPSERT,
    OriginColumns,
    Table,
    TableOrigin,
    TableProgress,
)
from leadline.spark.table.table_format import TablePlace

ROWS = pa.schema([*BESIDE, *CHANGE_COLUMNS, ("n", pa.int64()), (DELETED, pa.bool_())])
BUCKETS = 2


@dataclass(frozen=True, slots=True)
class Change:
    offset: int
    key: bytes | None
    op: str | None  # None: a tombstone
    position: int | None = None

    @property
    def row(self) -> dict[str, object]:
        return {
            "kafka_key": self.key,
            "kafka_partition": 0,
            "kafka_offset": self.offset,
            "kafka_timestamp": self.offset * 1_000_000,
            "kafka_headers": [{"key": "source", "value": b"test"}],
            "cdc_op": self.op,
            "cdc_source_ms": self.position,
            "cdc_source_position": None if self.position is None else str(self.position),
            "n": self.position,
            DELETED: self.op in (None, DELETE),
        }


class Interrupted(BaseException):
    """As if the process were gone."""


class KeyedTable:
    """A table and its remembered deletes. `cut` is called before each commit."""

    def __init__(self, place: TablePlace, mode: str, partition_by: str = "none") -> None:
        history = "valid_from,valid_to,is_current" if mode == HISTORY else ""
        self.origin = TableOrigin("users", "id", "debezium", mode, partition_by, "read_committed", history)
        self.place = place
        self.cut: Callable[[], None] = lambda: None
        self.late = self.repeated = 0
        schema = pa.schema([field for field in ROWS if field.name != DELETED])
        columns = self.origin.history
        place.open().create(
            self.origin, schema if columns is None else pa.schema([*schema, *columns.fields]), TableProgress()
        )

    @property
    def table(self) -> Table:
        return self.place.open()

    def write(self, changes: Sequence[Change]) -> PreparedMerge:
        """One batch, by a new writer. Its offsets end behind the last of these changes."""
        state = self.table.take_over(self.origin)
        after = state.progress.after({0: changes[-1].offset + 1 if changes else 0})
        rows = pa.Table.from_pylist([change.row for change in changes], schema=ROWS)
        prepared = merge_rows(self.place, self.origin, rows, after, self.cut)
        self.late += prepared.late
        self.repeated += prepared.repeated
        return prepared

    def append(self, changes: Sequence[Change]) -> None:
        """A row for each change."""
        table, columns = self.table, OriginColumns.of(self.origin.format)
        progress = table.take_over(self.origin).progress
        with ParquetFiles(table.data_directory, columns, "none", None) as files:
            rows = pa.RecordBatch.from_pylist([change.row for change in changes], schema=ROWS)
            files.write(rows.drop_columns([DELETED]))
            table.append(files.finish(), progress, progress.after({0: changes[-1].offset + 1}))

    def renew(self) -> PreparedMerge:
        """The table had a row for each change, and is one by key now."""
        before = self.table.take_over(self.origin).progress
        self.origin = replace(self.origin, mode=UPSERT)
        prepared = merge_rows(self.place, self.origin, None, before)
        self.table.take_over(self.origin)
        return prepared

    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.table.columns().read_all().to_pylist()
        return rows

    def values(self) -> dict[bytes, int]:
        rows = self.rows()
        assert len({row["kafka_key"] for row in rows}) == len(rows)
        return {row["kafka_key"]: row["n"] for row in rows}

    def validity(self) -> list[tuple[bytes, int, int, int | None, bool]]:
        """Key, n, and when a row is valid, in milliseconds."""

        def ms(moment: Any) -> int | None:
            return None if moment is None else round(moment.timestamp() * 1000)

        rows = [
            (row["kafka_key"], row["n"], ms(row["valid_from"]), ms(row["valid_to"]), row["is_current"])
            for row in self.rows()
        ]
        return sorted(rows, key=str)  # type: ignore[arg-type]


def run_here(work: Callable[[Any], Any], tasks: Sequence[Any]) -> list[Any]:
    return [work(task) for task in tasks]


def merge_rows(
    place: TablePlace,
    origin: TableOrigin,
    rows: pa.Table | None,
    after: TableProgress,
    cut: Callable[[], None] = lambda: None,
) -> PreparedMerge:
    """Merges rows with the column DELETED into a table. `cut` is called before each commit.

    Without rows, a table with a row for each change becomes one by key.
    """
    table, deletes, columns = place.open(), place.deletes.open(), OriginColumns.of(origin.format)
    remembered = None if deletes.state() is None else deletes.take_over(deletes_origin(origin))
    staging = staging_directory(table)
    try:
        with BucketedFiles(staging, "batch", columns, BUCKETS) as files:
            for batch in [] if rows is None else rows.to_batches():
                files.write(batch)
            staged = None if rows is None else files.finish()
        job = merge_job(table, deletes, origin, staging, BUCKETS)
        old_deletes = [] if remembered is None else deletes.live_files()
        prepared = prepare(run_here, job, table.live_files(), old_deletes, staged, width=2)
        if prepared.remembered and (remembered is None or remembered.progress.batch < after.batch):
            if remembered is None:
                deletes.create(deletes_origin(origin), DELETES, TableProgress())
                remembered = deletes.take_over(deletes_origin(origin))
            cut()
            deletes.append(prepared.remembered, remembered.progress, replace(after, epoch=remembered.progress.epoch))
        cut()
        state = table.state()
        assert state is not None
        table.merge(prepared.merge, state.progress, after)
        return prepared
    finally:
        delete_directory(staging)
