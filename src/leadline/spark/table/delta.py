"""A table in Delta's format, through `deltalake`.

Offsets, batch number and the writer's epoch are `txn` actions, which stay in the table when its history is deleted:

    leadline:offset:<partition>   the next offset
    leadline:batch                the number of the last batch
    leadline:writer               the epoch of the writer

Two concurrent commits with a `txn` action of the same name conflict, and one of them fails. Every commit of a writer
names its epoch, so a writer whose table was taken over cannot commit.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction

from leadline.spark.table.table import (
    DELETED,
    NO_BATCH,
    DataFile,
    OffsetSlice,
    TableError,
    TableOrigin,
    TableProgress,
    TableState,
    WriterRefused,
    check_writer,
    one_line,
)

CHECKPOINT_EVERY = 20  # commits
TRIES = 5  # of a commit, while others compact the table
WRITER, BATCH, OFFSET = "leadline:writer", "leadline:batch", "leadline:offset:"
PARTITIONS = "leadline:partitions"
SLOTS = {"day": pa.date32(), "hour": pa.string()}


class Delta:
    """A Delta table. It reads the newest version before each commit: other processes may compact the table."""

    def __init__(self, uri: str) -> None:
        self.uri = uri.rstrip("/")

    @cached_property
    def _local(self) -> Path | None:
        return None if "://" in self.uri else Path(self.uri)

    @property
    def data_directory(self) -> str:
        return self.uri

    def slot(self, origin: TableOrigin) -> str | None:
        if origin.partition_by == "none":
            return None
        return origin.partition_by if origin.format == "raw" else f"_{origin.partition_by}"

    def state(self) -> TableState | None:
        if not DeltaTable.is_deltatable(self.uri):
            return None
        return self._state_of(DeltaTable(self.uri))

    def _state_of(self, table: DeltaTable) -> TableState:
        origin = TableOrigin.of(table.metadata().configuration)
        if origin is None:
            raise TableError(f"{self.uri} is a Delta table that follows no topic: choose another place")
        schema = pa.schema(table.schema().to_arrow())
        return TableState(origin, self._progress_of(table), schema)

    def _progress_of(self, table: DeltaTable) -> TableProgress:
        offsets = {n: _noted(table, f"{OFFSET}{n}", -1) for n in range(_noted(table, PARTITIONS, 0))}
        return TableProgress(
            _noted(table, BATCH, NO_BATCH),
            {partition: offset for partition, offset in offsets.items() if offset >= 0},
            _noted(table, WRITER, 0),
        )

    def create(self, origin: TableOrigin, schema: pa.Schema, progress: TableProgress) -> None:
        if slot := self.slot(origin):
            schema = schema.append(pa.field(slot, SLOTS[origin.partition_by]))
        DeltaTable.create(
            self.uri,
            schema,
            partition_by=[slot] if slot else None,
            configuration=origin.properties() | {"delta.checkpointInterval": str(CHECKPOINT_EVERY)},
            commit_properties=_properties(progress),
            raise_if_key_not_exists=False,
        )

    def take_over(self, origin: TableOrigin) -> TableState:
        state = self._state_of(DeltaTable(self.uri))
        if state.origin != origin:
            DeltaTable(self.uri).alter.set_table_properties(origin.properties(), raise_if_not_exists=False)
        after = replace(state.progress, epoch=state.progress.epoch + 1)
        self._commit(state.progress, after)
        return TableState(origin, after, state.schema)

    def add_columns(self, fields: Sequence[pa.Field], before: TableProgress) -> None:
        self._guarded(before, lambda table: table.alter.add_columns(Schema.from_arrow(pa.schema(fields)).fields))

    def append(self, files: Sequence[DataFile], before: TableProgress, after: TableProgress) -> None:
        self._commit(before, after, [self._action(file) for file in files])

    def _action(self, file: DataFile) -> AddAction:
        stats = {"numRecords": file.rows, "minValues": dict(file.lowest), "maxValues": dict(file.highest)}
        return AddAction(file.path, file.size, dict(file.slot), 0, True, json.dumps(stats))

    def _commit(self, before: TableProgress, after: TableProgress, actions: Sequence[AddAction] = ()) -> None:
        def commit(table: DeltaTable) -> None:
            table.create_write_transaction(
                list(actions),
                "append",
                table.schema(),
                table.metadata().partition_columns or None,
                commit_properties=_properties(after),
            )

        self._guarded(before, commit)

    def upsert(self, rows: pa.Table, key: str, before: TableProgress, after: TableProgress) -> None:
        columns = {f"`{name}`": f"s.`{name}`" for name in rows.column_names if name != DELETED}
        deleted = f"s.`{DELETED}`"

        def commit(table: DeltaTable) -> None:
            merger = table.merge(
                rows, f"t.`{key}` = s.`{key}`", source_alias="s", target_alias="t", commit_properties=_properties(after)
            )
            merger = merger.when_matched_delete(deleted).when_matched_update(columns)
            merger.when_not_matched_insert(columns, f"not {deleted}").execute()

        if rows.num_rows:
            self._guarded(before, commit)
        else:
            self._commit(before, after)

    def rewrite(self, rows: pa.RecordBatchReader, before: TableProgress) -> None:
        def commit(table: DeltaTable) -> None:
            write_deltalake(table, rows, mode="overwrite", commit_properties=_properties(before))

        self._guarded(before, commit, tries=1)  # the rows can be read once

    def _guarded(self, before: TableProgress, commit: Callable[[DeltaTable], object], tries: int = TRIES) -> None:
        """Commits on the newest version, unless another writer took over; retries if others committed first."""
        for left in reversed(range(tries)):
            table = self._mine(before)
            try:
                commit(table)
                break
            except CommitFailedError as error:
                if not left:
                    raise WriterRefused(f"{self.uri}: others committed at the same time: {error}") from None
            except (OSError, DeltaError) as error:
                raise TableError(f"{self.uri}: {one_line(error)}") from error
        if self._local is not None:
            flush_newest(self._local / "_delta_log")

    def _mine(self, before: TableProgress) -> DeltaTable:
        """The newest version. WriterRefused if another writer made it."""
        table = DeltaTable(self.uri)
        check_writer(self.uri, _noted(table, WRITER, 0), _noted(table, BATCH, NO_BATCH), before)
        return table

    # Readers and upkeep

    def columns(self, names: Sequence[str] | None = None, where: OffsetSlice | None = None) -> pa.RecordBatchReader:
        dataset = DeltaTable(self.uri).to_pyarrow_dataset()
        chosen = None if names is None else list(names)
        return dataset.scanner(columns=chosen, filter=None if where is None else _filter(where)).to_reader()

    def compact(self) -> Mapping[str, int]:
        done = DeltaTable(self.uri).optimize.compact()
        return {"removed": int(done["numFilesRemoved"]), "added": int(done["numFilesAdded"])}

    def vacuum(self, older_than_hours: int, dry_run: bool) -> list[str]:
        table = DeltaTable(self.uri)
        return table.vacuum(older_than_hours, dry_run=dry_run, enforce_retention_duration=False, full=True)


def _noted(table: DeltaTable, name: str, default: int) -> int:
    version = table.transaction_version(name)
    return default if version is None else version


def _filter(where: OffsetSlice) -> pc.Expression:
    offset = pc.field(where.columns.offset)
    in_range = (offset >= where.first) & (offset < where.until)
    return (pc.field(where.columns.partition) == where.partition) & in_range


def _properties(progress: TableProgress) -> CommitProperties:
    numbers = {
        WRITER: progress.epoch,
        BATCH: progress.batch,
        PARTITIONS: max(progress.offsets, default=-1) + 1,
        **{f"{OFFSET}{partition}": offset for partition, offset in progress.offsets.items()},
    }
    summary = {"leadline.batch": str(progress.batch), "leadline.offsets": json.dumps(dict(progress.offsets))}
    return CommitProperties(summary, app_transactions=[Transaction(name, number) for name, number in numbers.items()])


def flush_newest(folder: Path) -> None:
    """The newest commit survives a power failure."""
    for path in (max(folder.glob("*.json"), default=folder), folder):
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
