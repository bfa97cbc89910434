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
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from leadline.spark.table.column_types import cast_rows
from leadline.spark.table.data_directory import DataDirectory, check_files, delta_options, local_path
from leadline.spark.table.live_file import ColumnNames
from leadline.spark.table.table import (
    NO_BATCH,
    PREFIX,
    TARGET_BYTES,
    DataFile,
    LiveFile,
    OffsetSlice,
    TableError,
    TableMerge,
    TableOrigin,
    TableProgress,
    TableState,
    WriterRefused,
    check_versions,
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

    def __init__(self, uri: str, options: Mapping[str, str] | None = None) -> None:
        self.uri = str(local_path(uri) or uri).rstrip("/")
        self.options: Mapping[str, str] = dict(options or {})
        self._storage = delta_options(self.options)

    def _table(self) -> DeltaTable:
        try:
            return DeltaTable(self.uri, storage_options=self._storage)
        except (OSError, DeltaError) as error:
            raise TableError(f"{self.uri}: {one_line(error)}") from None

    @cached_property
    def _local(self) -> Path | None:
        return local_path(self.uri)

    def beside(self, suffix: str) -> "Delta":
        return Delta(self.uri + suffix, self.options)

    @property
    def in_catalog(self) -> bool:
        return False

    @property
    def data_directory(self) -> DataDirectory:
        return DataDirectory(self.uri, self.options)

    def slot(self, origin: TableOrigin) -> str | None:
        if origin.partition_by == "none":
            return None
        return origin.partition_by if origin.format == "raw" else PREFIX + origin.partition_by

    def state(self) -> TableState | None:
        try:
            if not DeltaTable.is_deltatable(self.uri, self._storage):
                return None
            return self._state_of(self._table())
        except (OSError, DeltaError) as error:
            raise TableError(f"{self.uri}: {one_line(error)}") from None

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
            storage_options=self._storage,
        )

    def take_over(self, origin: TableOrigin) -> TableState:
        state = self._state_of(self._table())
        if state.origin != origin:
            self._table().alter.set_table_properties(origin.properties(), raise_if_not_exists=False)
        after = replace(state.progress, epoch=state.progress.epoch + 1)
        self._commit(state.progress, after)
        return TableState(origin, after, state.schema)

    def add_columns(self, fields: Sequence[pa.Field], before: TableProgress) -> None:
        self._guarded(before, lambda table: table.alter.add_columns(Schema.from_arrow(pa.schema(fields)).fields))

    def widen_columns(self, fields: Sequence[pa.Field], before: TableProgress) -> None:
        """Rewrites the files: `deltalake` does not have Delta's type widening."""
        new = {field.name: field for field in fields}
        self._rewrite_as(lambda schema: pa.schema([new.get(field.name, field) for field in schema]), cast_rows, before)

    def rename_columns(self, names: Mapping[str, str], before: TableProgress) -> None:
        """Rewrites the files: without a mapping of names, which few writers support, a Delta table cannot rename."""

        def renamed(schema: pa.Schema) -> pa.Schema:
            return pa.schema([field.with_name(names.get(field.name, field.name)) for field in schema])

        def rows(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
            return pa.RecordBatch.from_arrays(batch.columns, schema=schema)

        self._rewrite_as(renamed, rows, before, names)

    def _rewrite_as(
        self,
        changed: Callable[[pa.Schema], pa.Schema],
        converted: Callable[[pa.RecordBatch, pa.Schema], pa.RecordBatch],
        before: TableProgress,
        names: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Replaces all rows by the same rows in another schema, as a stream."""
        table = self._mine(before)
        rows = table.to_pyarrow_dataset().scanner().to_reader()
        schema = changed(rows.schema)
        slots = [names.get(name, name) for name in table.metadata().partition_columns]

        def commit(newest: DeltaTable) -> None:
            write_deltalake(
                newest,
                pa.RecordBatchReader.from_batches(schema, (converted(batch, schema) for batch in rows)),
                mode="overwrite",
                schema_mode="overwrite",
                partition_by=slots or None,
                configuration=newest.metadata().configuration,
                commit_properties=_properties(before),
            )

        self._guarded(before, commit, tries=1)  # the rows can be read once

    def append(self, files: Sequence[DataFile], before: TableProgress, after: TableProgress) -> None:
        check_files(self.data_directory, files)
        self._commit(before, after, [self._action(file) for file in files])

    def _action(self, file: DataFile) -> AddAction:
        stats = {"numRecords": file.rows, "minValues": dict(file.lowest), "maxValues": dict(file.highest)}
        return AddAction(file.path, file.size, dict(file.slot), 0, True, json.dumps(stats))

    def _commit(
        self,
        before: TableProgress,
        after: TableProgress,
        actions: Sequence[AddAction | RemoveAction] = (),
        notes: Mapping[str, int] = MappingProxyType({}),
        check: Callable[[DeltaTable], None] = lambda _: None,
    ) -> None:
        def commit(table: DeltaTable) -> None:
            check(table)
            table.create_write_transaction(
                list(actions),
                "append",
                table.schema(),
                table.metadata().partition_columns or None,
                commit_properties=_properties(after, notes),
            )

        self._guarded(before, commit)

    @property
    def has_position_deletes(self) -> bool:
        """`deltalake` has no deletion vectors in its commits, and refuses tables with them as datasets."""
        return False

    def column_names(self) -> ColumnNames:
        return ColumnNames()

    def live_files(self) -> list[LiveFile]:
        return self._live_files_of(self._table())

    def _live_files_of(self, table: DeltaTable) -> list[LiveFile]:
        actions = pa.table(table.get_add_actions(flatten=True))
        slots = table.metadata().partition_columns
        columns = [actions[name].to_pylist() for name in ("path", "size_bytes")]
        values = [[_slot_text(value) for value in actions[f"partition.{name}"].to_pylist()] for name in slots]
        files = []
        for path, size, *of_slots in zip(*columns, *values, strict=True):
            files.append(LiveFile(f"{self.uri}/{path}", path, size, dict(zip(slots, of_slots, strict=True))))
        return files

    def merge(self, merge: TableMerge, before: TableProgress, after: TableProgress) -> None:
        check_files(self.data_directory, merge.new_files)
        now_ms = time.time_ns() // 1_000_000
        removed = [
            RemoveAction(one.file.path, True, now_ms, one.file.size, dict(one.file.slot)) for one in merge.removals
        ]
        added = [self._action(file) for file in merge.new_files]

        def check(table: DeltaTable) -> None:
            check_versions(self.uri, merge, self._live_files_of(table))

        self._commit(before, after, [*added, *removed], merge.notes, check)

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
        table = self._table()
        check_writer(self.uri, _noted(table, WRITER, 0), _noted(table, BATCH, NO_BATCH), before)
        return table

    # Readers and upkeep

    def columns(self, names: Sequence[str] | None = None, where: OffsetSlice | None = None) -> pa.RecordBatchReader:
        dataset = self._table().to_pyarrow_dataset()
        chosen = None if names is None else list(names)
        return dataset.scanner(columns=chosen, filter=None if where is None else _filter(where)).to_reader()

    def file_sizes(self) -> list[int]:
        try:
            sizes: list[int] = pa.table(self._table().get_add_actions())["size_bytes"].to_pylist()
        except (OSError, DeltaError) as error:
            raise TableError(f"{self.uri}: {one_line(error)}") from None
        return sizes

    def compact(self, target_bytes: int = TARGET_BYTES) -> Mapping[str, int]:
        for left in reversed(range(TRIES)):
            try:
                done = self._table().optimize.compact(target_size=target_bytes)
            except CommitFailedError as error:
                if not left:
                    raise WriterRefused(f"{self.uri}: others committed at the same time: {one_line(error)}") from None
            except (OSError, DeltaError) as error:
                raise TableError(f"{self.uri}: {one_line(error)}") from error
            else:
                return {"removed": int(done["numFilesRemoved"]), "added": int(done["numFilesAdded"])}
        raise AssertionError("the last try returns or raises")

    def vacuum(self, older_than_hours: int, dry_run: bool) -> list[str]:
        try:
            table = self._table()
            return table.vacuum(older_than_hours, dry_run=dry_run, enforce_retention_duration=False, full=True)
        except (OSError, DeltaError) as error:
            raise TableError(f"{self.uri}: {one_line(error)}") from None


def _noted(table: DeltaTable, name: str, default: int) -> int:
    version = table.transaction_version(name)
    return default if version is None else version


def _filter(where: OffsetSlice) -> pc.Expression:
    offset = pc.field(where.columns.offset)
    in_range = (offset >= where.first) & (offset < where.until)
    return (pc.field(where.columns.partition) == where.partition) & in_range


def _slot_text(value: object) -> str | None:
    return None if value is None else str(value)


def _properties(progress: TableProgress, notes: Mapping[str, int] = MappingProxyType({})) -> CommitProperties:
    numbers = {
        WRITER: progress.epoch,
        BATCH: progress.batch,
        PARTITIONS: max(progress.offsets, default=-1) + 1,
        **{f"{OFFSET}{partition}": offset for partition, offset in progress.offsets.items()},
    }
    summary = {"leadline.batch": str(progress.batch), "leadline.offsets": json.dumps(dict(progress.offsets))}
    summary |= {f"leadline.{name}": str(count) for name, count in notes.items()}
    return CommitProperties(summary, app_transactions=[Transaction(name, number) for name, number in numbers.items()])


def flush_newest(folder: Path) -> None:
    """The newest commit survives a power failure."""
    for path in (max(folder.glob("*.json"), default=folder), folder):
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
