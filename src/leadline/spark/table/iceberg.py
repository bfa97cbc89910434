"""A table in Iceberg's format, through `pyiceberg`.

A path names a table with its own catalog: PATH/catalog.db (SQLite), with all files under PATH. A table in another
catalog is named CATALOG:NAMESPACE.NAME. Options, or pyiceberg's own configuration, say how to reach that catalog and
the files. A table in an object store needs such a catalog: something must say atomically which version is the newest.

Offsets, batch number and the writer's epoch are in the summary of a snapshot. Snapshots expire, so they are also in a
property of the table, in the same commit. A commit requires that the last snapshot has not changed: it is refused if
another writer committed first.
"""

import json
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.fs as fs
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    NotInstalledError,
    RESTError,
    SignError,
)
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, _dataframe_to_data_files
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.schema import assign_fresh_schema_ids
from pyiceberg.table import Table as Opened
from pyiceberg.table import TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import DayTransform, HourTransform, Transform
from pyiceberg.types import IcebergType
from sqlalchemy.exc import SQLAlchemyError

from leadline.spark.table.catalog_name import CatalogName
from leadline.spark.table.column_types import cast_rows, is_promotion, type_changes
from leadline.spark.table.data_directory import DataDirectory, check_files, local_path
from leadline.spark.table.evolution import Conflict
from leadline.spark.table.live_file import ColumnNames
from leadline.spark.table.position_deletes import RowDelta, data_file_of, delete_file_of
from leadline.spark.table.table import (
    PROPERTY,
    TARGET_BYTES,
    DataFile,
    LiveFile,
    OffsetSlice,
    OriginColumns,
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

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile as IcebergDataFile
    from pyiceberg.table import FileScanTask

PROGRESS = f"{PROPERTY}progress"
ALONE = {"commit.retry.num-retries": "0"}  # pyiceberg would retry the commit on top of other writers' commits
STORE_ERRORS = (OSError, SQLAlchemyError, RESTError, SignError, pa.ArrowException)
CATALOG_ERRORS = (*STORE_ERRORS, ValueError, NotInstalledError, NotImplementedError, NoSuchNamespaceError)
KEPT, AGE_MS = "history.expire.min-snapshots-to-keep", "history.expire.max-snapshot-age-ms"
UPKEEP = {  # properties of Iceberg that bound the metadata of a table with many commits. A user may change them.
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "20",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
    KEPT: "100",
    AGE_MS: "600000",
}
EXPIRED_AT_ONCE = 20  # snapshots, at least: an expiry is a commit as well
TRIES = 5  # of a commit, while others compact the table
COMPACTION_TRIES = 20
NAMESPACE = "leadline"
SMALL_SHARE = 4  # a file is small enough to compact if it is smaller than the target divided by this


class Iceberg:
    def __init__(self, uri: str, options: Mapping[str, str] | None = None) -> None:
        self.uri = uri.rstrip("/")
        self._options = dict(options or {})
        self._name = CatalogName.of(self.uri)
        self._identifier = self._name.identifier if self._name else (NAMESPACE, Path(self.uri).name)

    @cached_property
    def _root(self) -> Path:
        """The directory of a table with its own catalog."""
        path = local_path(self.uri)
        if path is None:
            raise TableError(
                f"{self.uri}: an Iceberg table in an object store needs a catalog, which holds its newest version. "
                "Name the table CATALOG:NAMESPACE.NAME; --table-option uri=... is the address of the catalog"
            )
        return path.absolute()

    @cached_property
    def _catalog(self) -> Catalog:
        if self._name is None:
            self._root.mkdir(parents=True, exist_ok=True)
            return SqlCatalog(
                "leadline",
                uri=f"sqlite:///{self._root / 'catalog.db'}",
                warehouse=f"file://{self._root}",
                init_catalog_tables="true",
            )
        try:
            return load_catalog(self._name.catalog, **self._options)
        except CATALOG_ERRORS as error:
            raise TableError(f"the catalog {self._name.catalog} cannot be opened: {one_line(error)}") from None

    @property
    def options(self) -> Mapping[str, str]:
        return {} if self._name is None else {**self._catalog.properties, **self._options}

    def beside(self, suffix: str) -> "Iceberg":
        return Iceberg(self.uri + suffix if self._name is None else str(self._name.with_suffix(suffix)), self._options)

    @property
    def in_catalog(self) -> bool:
        return self._name is not None

    @property
    def data_directory(self) -> DataDirectory:
        if self._name is None:
            return DataDirectory(str(self._root / "data"))
        table = self._table()
        place = table.properties.get("write.data.path") or f"{table.location()}/data"
        return DataDirectory(place.rstrip("/"), dict(table.io.properties))

    def slot(self, origin: TableOrigin) -> str | None:
        return None

    def _table(self) -> Opened:
        try:
            return self._catalog.load_table(self._identifier)
        except STORE_ERRORS as error:
            raise TableError(f"{self.uri}: {one_line(error)}") from None

    def state(self) -> TableState | None:
        if self._name is None and not (self._root / "catalog.db").exists():
            return None
        try:
            table = self._table()
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        origin = TableOrigin.of(table.properties)
        if origin is None:
            raise TableError(f"{self.uri} is an Iceberg table that follows no topic: choose another place")
        return TableState(origin, _progress_of(table), _plain(table.schema().as_arrow()))

    def create(self, origin: TableOrigin, schema: pa.Schema, progress: TableProgress) -> None:
        fields = assign_fresh_schema_ids(Catalog._convert_schema_if_needed(schema))
        location = f"file://{self._root}" if self._name is None else None
        properties = {**UPKEEP, **origin.properties(), **ALONE, PROGRESS: _text(progress)}
        namespace = self._identifier[:-1]
        try:
            for length in range(len(namespace)):
                self._catalog.create_namespace_if_not_exists(namespace[: length + 1])
            self._catalog.create_table(self._identifier, fields, location, _spec(origin, fields), properties=properties)
        except CATALOG_ERRORS as error:
            raise TableError(f"{self.uri} cannot be created: {one_line(error)}") from None

    def take_over(self, origin: TableOrigin) -> TableState:
        state = self.state()
        assert state is not None
        after = TableProgress(state.progress.batch, state.progress.offsets, state.progress.epoch + 1)
        unset = {name: value for name, value in UPKEEP.items() if name not in self._table().properties}
        self._commit(state.progress, after, _add_nothing(after), {**unset, **origin.properties(), **ALONE})
        return TableState(origin, after, state.schema)

    def add_columns(self, fields: Sequence[pa.Field], before: TableProgress) -> None:
        table = self._mine(before)
        with table.update_schema() as update:
            update.union_by_name(pa.schema(fields))

    def widen_columns(self, fields: Sequence[pa.Field], before: TableProgress) -> None:
        """Changes the schema only, if Iceberg has such a change of types; else it rewrites the files, too."""
        new = {field.name: field for field in fields}
        columns = {field.name: field.type for field in _plain(self._table().schema().as_arrow())}
        changes = [change for name, field in new.items() for change in type_changes(columns[name], field.type, (name,))]
        by_schema = all(is_promotion(change.before, change.after) for change in changes)

        def change_types(transaction: Transaction) -> None:
            with transaction.update_schema(allow_incompatible_changes=not by_schema) as update:
                for change in changes:
                    update.update_column(change.path, _iceberg_type(change.after))

        def change(transaction: Transaction) -> None:
            if by_schema:
                change_types(transaction)
                _add_nothing(before)(transaction)
                return
            rows = self.columns().read_all()
            rows = rows.cast(pa.schema([_plain_field(field) for field in rows.schema]))
            schema = pa.schema([new.get(field.name, field) for field in rows.schema])
            batches = [cast_rows(batch, schema) for batch in rows.to_batches()]
            transaction.delete(AlwaysTrue())
            change_types(transaction)
            transaction.append(pa.Table.from_batches(batches, schema), _summary(before))

        try:
            self._commit(before, before, change)
        except Conflict as error:
            raise TableError(f"{self.uri}: {error}") from None

    def rename_columns(self, names: Mapping[str, str], before: TableProgress) -> None:
        """Changes the schema only: the mapping of names finds the columns in files that have the old ones."""
        with self._mine(before).update_schema() as update:
            for name, new_name in names.items():
                update.rename_column(name, new_name)

    def append(self, files: Sequence[DataFile], before: TableProgress, after: TableProgress) -> None:
        if not files:
            self._commit(before, after, _add_nothing(after))
            return
        directory = self.data_directory
        check_files(directory, files)
        paths = [directory.uri_of(file.path) for file in files]

        def change(transaction: Transaction) -> None:
            transaction.add_files(paths, _summary(after), check_duplicate_files=False)

        self._commit(before, after, change)

    @property
    def has_position_deletes(self) -> bool:
        return True

    def column_names(self) -> ColumnNames:
        table = self._table()
        mapping = table.name_mapping()
        names: dict[str, list[str]] = {column.name: [column.name] for column in table.schema().fields}
        ids = {column.name: column.field_id for column in table.schema().fields}
        for column in mapping.root if mapping is not None else ():
            for name in (name for name, number in ids.items() if number == column.field_id):
                names[name] += column.names
        return ColumnNames(ids, names)

    def live_files(self) -> list[LiveFile]:
        return [_live_file(task) for task in self._table().scan().plan_files()]

    def merge(self, merge: TableMerge, before: TableProgress, after: TableProgress) -> None:
        directory = self.data_directory
        check_files(directory, merge.new_files)
        summary = {**_summary(after), **{f"{PROPERTY}{name}": str(count) for name, count in merge.notes.items()}}

        def change(transaction: Transaction) -> None:
            tasks = list(transaction._table.scan().plan_files())
            check_versions(self.uri, merge, [_live_file(task) for task in tasks])
            current = {task.file.file_path: task.file for task in tasks}
            _map_names(transaction)
            update = RowDelta(transaction, summary)
            with update:
                for file in merge.added:
                    update.append_data_file(data_file_of(transaction, directory.uri_of(file.path)))
                for removal in merge.removals:
                    data_file, positions = current[removal.file.path], removal.positions
                    if positions is None:
                        update.delete_data_file(data_file)
                        continue
                    path = directory.uri_of(positions.path)
                    update.delete_rows(delete_file_of(data_file, path, positions.size, positions.rows))
                    for path in removal.file.deletes:
                        update.replace_deletes(path)

        self._commit(before, after, change if merge.new_files or merge.removals else _add_nothing(after, summary))

    def rewrite(self, rows: pa.RecordBatchReader, before: TableProgress) -> None:
        self._commit(before, before, lambda transaction: transaction.overwrite(rows.read_all()), tries=1)

    def _commit(
        self,
        before: TableProgress,
        after: TableProgress,
        change: Callable[[Transaction], None],
        properties: Mapping[str, str] | None = None,
        tries: int = TRIES,
    ) -> None:
        """Commits on the newest version, unless another writer took over; retries if others committed first."""
        for left in reversed(range(tries)):
            transaction = self._mine(before).transaction()
            transaction.set_properties({**(properties or {}), PROGRESS: _text(after)})
            try:
                change(transaction)
                table = transaction.commit_transaction()
                self._expire(table)
                return
            except CommitFailedException as error:
                if not left:
                    raise WriterRefused(f"{self.uri}: others committed at the same time: {error}") from None
            except STORE_ERRORS as error:
                raise TableError(f"{self.uri}: {one_line(error)}") from error

    def _expire(self, table: Opened) -> None:
        """Removes old snapshots, by the properties of the table, and the metadata that only they refer to."""
        expired = _expired(table.metadata, time.time_ns() // 1_000_000)
        if len(expired) < EXPIRED_AT_ONCE:
            return
        unneeded = {snapshot.manifest_list for snapshot in expired}
        unneeded |= {manifest.manifest_path for snapshot in expired for manifest in snapshot.manifests(table.io)}
        try:
            table.maintenance.expire_snapshots().by_ids([snapshot.snapshot_id for snapshot in expired]).commit()
        except CommitFailedException:
            return  # others committed first; a later commit finds them again
        for snapshot in self._table().metadata.snapshots:
            unneeded.discard(snapshot.manifest_list)
            unneeded -= {manifest.manifest_path for manifest in snapshot.manifests(table.io)}
        for path in unneeded:
            with suppress(OSError):
                table.io.delete(path)

    def _mine(self, before: TableProgress) -> Opened:
        table = self._table()
        progress = _progress_of(table)
        check_writer(self.uri, progress.epoch, progress.batch, before)
        return table

    # Readers and upkeep

    def columns(self, names: Sequence[str] | None = None, where: OffsetSlice | None = None) -> pa.RecordBatchReader:
        chosen = ("*",) if names is None else tuple(names)
        rows = "true" if where is None else _filter(where)
        return self._table().scan(rows, chosen).to_arrow_batch_reader()

    def file_sizes(self) -> list[int]:
        return [task.file.file_size_in_bytes for task in self._table().scan().plan_files()]

    def compact(self, target_bytes: int = TARGET_BYTES) -> Mapping[str, int]:
        """Joins small files of the same slot of time, and rewrites files with deleted rows, in a single commit.

        The rows are read and written once. If a writer commits in the meantime, only the commit is repeated, with those
        files that are still in the table unchanged.
        """
        table = self._table()
        rewrites = [self._rewritten(table, tasks) for tasks in _small_groups(table, target_bytes)]
        for left in reversed(range(COMPACTION_TRIES)):
            newest = self._table()
            current = {_version_of(task) for task in newest.scan().plan_files()}
            valid = [(old, new) for old, new in rewrites if all(_version_of(task) in current for task in old)]
            if not valid:
                return {"removed": 0, "added": 0}
            try:
                self._replace(newest, valid)
            except CommitFailedException:
                if not left:
                    raise WriterRefused(f"{self.uri}: others committed during {COMPACTION_TRIES} tries") from None
            except STORE_ERRORS as error:
                raise TableError(f"{self.uri}: {one_line(error)}") from error
            else:
                removed, added = (sum(map(len, files)) for files in zip(*valid, strict=True))
                return {"removed": removed, "added": added}
        raise AssertionError("the last try returns or raises")

    def _rewritten(
        self, table: Opened, tasks: "list[FileScanTask]"
    ) -> "tuple[list[FileScanTask], list[IcebergDataFile]]":
        rows = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue()).to_table(tasks)
        files = list(_dataframe_to_data_files(table.metadata, rows, table.io))
        for file in files:
            if len(table.io.new_input(file.file_path)) != file.file_size_in_bytes:
                raise TableError(
                    f"{file.file_path} does not have the {file.file_size_in_bytes} bytes that were written"
                )
        return tasks, files

    def _replace(self, table: Opened, rewrites: "Sequence[tuple[list[FileScanTask], list[IcebergDataFile]]]") -> None:
        summary = {PROGRESS: _text(_progress_of(table))}
        with table.transaction() as transaction, RowDelta(transaction, summary) as update:
            for tasks, files in rewrites:
                for file in files:
                    update.append_data_file(file)
                for task in tasks:
                    update.delete_data_file(task.file)

    def vacuum(self, older_than_hours: int, dry_run: bool) -> list[str]:
        """Removes old snapshots, and files that no remaining snapshot refers to."""
        table = self._table()
        oldest = datetime.now(UTC) - timedelta(hours=older_than_hours)
        if not dry_run:
            table.maintenance.expire_snapshots().older_than(oldest.replace(tzinfo=None)).commit()
            table = self._table()
        referenced = {path.rpartition("/data/")[2] for path in table.inspect.all_files()["file_path"].to_pylist()}
        filesystem, root = self.data_directory.open()
        infos = filesystem.get_file_info(fs.FileSelector(root, allow_not_found=True, recursive=True))
        orphans = [
            info.path
            for info in infos
            if info.is_file
            and info.path.rpartition("/data/")[2] not in referenced
            and info.mtime_ns / 1e9 < oldest.timestamp()
        ]
        for path in [] if dry_run else orphans:
            filesystem.delete_file(path)
        return orphans


def _expired(metadata: TableMetadata, now_ms: int) -> list[Snapshot]:
    """The snapshots beyond those that the table's properties keep. Heads of branches and tags stay."""
    kept, age_ms = int(metadata.properties.get(KEPT, 1)), int(metadata.properties.get(AGE_MS, 5 * 86_400_000))
    heads = {ref.snapshot_id for ref in metadata.refs.values()}
    in_order = sorted(metadata.snapshots, key=lambda snapshot: snapshot.sequence_number or 0)
    old = in_order[: max(len(in_order) - kept, 0)]
    return [one for one in old if one.snapshot_id not in heads and one.timestamp_ms < now_ms - age_ms]


def _small_groups(table: Opened, target_bytes: int) -> "list[list[FileScanTask]]":
    """Files that lost rows, and small files of one slot of time, not larger together than a file should get.

    A small file alone stays as it is.
    """
    groups: dict[object, list[list[FileScanTask]]] = defaultdict(lambda: [[]])
    for task in table.scan().plan_files():
        if task.delete_files or task.file.file_size_in_bytes * SMALL_SHARE < target_bytes:
            of_slot = groups[task.file.partition]
            if sum(other.file.file_size_in_bytes for other in of_slot[-1]) >= target_bytes:
                of_slot.append([])
            of_slot[-1].append(task)
    groups_of_tasks = [tasks for of_slot in groups.values() for tasks in of_slot]
    return [tasks for tasks in groups_of_tasks if len(tasks) > 1 or any(task.delete_files for task in tasks)]


def _version_of(task: "FileScanTask") -> tuple[str, frozenset[str]]:
    """A file, and the files that mark its deleted rows."""
    return task.file.file_path, frozenset(file.file_path for file in task.delete_files)


def _filter(where: OffsetSlice) -> str:
    partition, offset = where.columns.partition, where.columns.offset
    return f"{partition} = {where.partition} and {offset} >= {where.first} and {offset} < {where.until}"


def _spec(origin: TableOrigin, fields: IcebergSchema) -> PartitionSpec:
    if origin.partition_by == "none":
        return UNPARTITIONED_PARTITION_SPEC
    source = fields.find_field(OriginColumns.of(origin.format).timestamp)
    transform: Transform[Any, Any] = DayTransform() if origin.partition_by == "day" else HourTransform()
    return PartitionSpec(PartitionField(source.field_id, 1000, transform, f"{source.name}_{origin.partition_by}"))


def _live_file(task: "FileScanTask") -> LiveFile:
    path, deletes = _version_of(task)
    return LiveFile(path, path, task.file.file_size_in_bytes, deletes=tuple(sorted(deletes)))


def _map_names(transaction: Transaction) -> None:
    """Files without field ids need a mapping of names."""
    if transaction.table_metadata.name_mapping() is None:
        mapping = transaction.table_metadata.schema().name_mapping.model_dump_json()
        transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})


def _add_nothing(after: TableProgress, summary: Mapping[str, str] | None = None) -> Callable[[Transaction], None]:
    """Adds a snapshot without files: a commit that only sets properties would not conflict with another writer's."""

    def change(transaction: Transaction) -> None:
        with transaction.update_snapshot(snapshot_properties=dict(summary or _summary(after))).fast_append():
            pass

    return change


def _summary(progress: TableProgress) -> dict[str, str]:
    return {PROGRESS: _text(progress)}


def _text(progress: TableProgress) -> str:
    return json.dumps({"batch": progress.batch, "offsets": dict(progress.offsets), "epoch": progress.epoch})


def _progress_of(table: Opened) -> TableProgress:
    fields = json.loads(table.properties[PROGRESS])
    return TableProgress(fields["batch"], {int(n): offset for n, offset in fields["offsets"].items()}, fields["epoch"])


def _plain(schema: pa.Schema) -> pa.Schema:
    """The type without field ids, with the types of the written files."""
    return pa.schema([_plain_field(field) for field in schema])


def _plain_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _plain_type(field.type))


def _iceberg_type(kind: pa.DataType) -> IcebergType:
    return Catalog._convert_schema_if_needed(pa.schema([("column", kind)])).fields[0].field_type


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_plain_type(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_plain_type(kind.key_type), _plain_type(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _plain_type(field.type)) for field in kind])
    return kind
