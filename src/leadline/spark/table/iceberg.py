"""A table in Iceberg's format, through `pyiceberg`.

A path names a table with its own catalog: PATH/catalog.db (SQLite), with all files under PATH. pyiceberg may be
configured for other catalogs; a table in one of them is named CATALOG:NAMESPACE.NAME.

Offsets, batch number and the writer's epoch are in the summary of a snapshot. Snapshots expire, so they are also in a
property of the table, in the same commit. A commit requires that the last snapshot has not changed: it is refused if
another writer committed first.
"""

import json
import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.fs
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.expressions import (
    AlwaysTrue,
    In,
    Reference,
)
from pyiceberg.io.pyarrow import ArrowScan, _dataframe_to_data_files
from pyiceberg.table import Table as Opened
from pyiceberg.table import Transaction
from pyiceberg.transforms import DayTransform, HourTransform, Transform
from sqlalchemy.exc import SQLAlchemyError

from leadline.spark.table.table import (
    DELETED,
    PROPERTY,
    DataFile,
    OffsetSlice,
    OriginColumns,
    TableError,
    TableOrigin,
    TableProgress,
    TableState,
    WriterRefused,
    check_writer,
    one_line,
)

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask

PROGRESS = f"{PROPERTY}progress"
ALONE = {"commit.retry.num-retries": "0"}  # pyiceberg would retry the commit on top of other writers' commits
TRIES = 5  # of a commit, while others compact the table
NAMESPACE = "leadline"
SMALL_BYTES, WHOLE_BYTES = 64 << 20, 256 << 20  # files small enough to compact, and the size that they get


class Iceberg:
    def __init__(self, uri: str) -> None:
        self.uri = uri.rstrip("/")
        catalog, _, name = uri.partition(":")
        self._elsewhere = bool(name) and "/" not in uri
        self._identifier = name if self._elsewhere else f"{NAMESPACE}.{Path(self.uri).name}"
        self._catalog_name = catalog

    @property
    def _root(self) -> Path:
        return Path(self.uri).absolute()

    @cached_property
    def _catalog(self) -> Catalog:
        if self._elsewhere:
            return load_catalog(self._catalog_name)
        self._root.mkdir(parents=True, exist_ok=True)
        return SqlCatalog(
            "leadline",
            uri=f"sqlite:///{self._root / 'catalog.db'}",
            warehouse=self._root.as_uri(),
            init_catalog_tables="true",
        )

    @property
    def data_directory(self) -> str:
        return f"{self._table().location()}/data" if self._elsewhere else str(self._root / "data")

    def slot(self, origin: TableOrigin) -> str | None:
        return None

    def _table(self) -> Opened:
        return self._catalog.load_table(self._identifier)

    def state(self) -> TableState | None:
        if not self._elsewhere and not (self._root / "catalog.db").exists():
            return None
        try:
            table = self._table()
        except NoSuchTableError:
            return None
        origin = TableOrigin.of(table.properties)
        if origin is None:
            raise TableError(f"{self.uri} is an Iceberg table that follows no topic: choose another place")
        return TableState(origin, _progress_of(table), _plain(table.schema().as_arrow()))

    def create(self, origin: TableOrigin, schema: pa.Schema, progress: TableProgress) -> None:
        self._catalog.create_namespace_if_not_exists(self._identifier.rpartition(".")[0])
        location = None if self._elsewhere else self._root.as_uri()
        properties = {**origin.properties(), **ALONE, PROGRESS: _text(progress)}
        with self._catalog.create_table_transaction(
            self._identifier, schema, location, properties=properties
        ) as transaction:
            if origin.partition_by != "none":
                transform: Transform[Any, Any] = DayTransform() if origin.partition_by == "day" else HourTransform()
                with transaction.update_spec() as spec:
                    spec.add_field(OriginColumns.of(origin.format).timestamp, transform, origin.partition_by)

    def take_over(self, origin: TableOrigin) -> TableState:
        state = self.state()
        assert state is not None
        after = TableProgress(state.progress.batch, state.progress.offsets, state.progress.epoch + 1)
        self._commit(state.progress, after, _add_nothing(after), {**origin.properties(), **ALONE})
        return TableState(origin, after, state.schema)

    def add_columns(self, fields: Sequence[pa.Field], before: TableProgress) -> None:
        table = self._mine(before)
        with table.update_schema() as update:
            update.union_by_name(pa.schema(fields))

    def append(self, files: Sequence[DataFile], before: TableProgress, after: TableProgress) -> None:
        if not files:
            self._commit(before, after, _add_nothing(after))
            return
        folder = self.data_directory
        base = folder if "://" in folder else Path(folder).as_uri()
        paths = [f"{base}/{file.path}" for file in files]

        def change(transaction: Transaction) -> None:
            transaction.add_files(paths, _summary(after), check_duplicate_files=False)

        self._commit(before, after, change)

    def upsert(self, rows: pa.Table, key: str, before: TableProgress, after: TableProgress) -> None:
        kept = rows.filter(pa.compute.invert(rows[DELETED])).drop_columns([DELETED])

        def change(transaction: Transaction) -> None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # pyiceberg warns if no row has any of the keys
                transaction.delete(In(term=Reference(key), values=set(rows[key].to_pylist())), _summary(after))
            transaction.append(kept, _summary(after))

        self._commit(before, after, change if rows.num_rows else _add_nothing(after))

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
                transaction.commit_transaction()
                return
            except (OSError, SQLAlchemyError) as error:
                raise TableError(f"{self.uri}: {one_line(error)}") from error
            except CommitFailedException as error:
                if not left:
                    raise WriterRefused(f"{self.uri}: others committed at the same time: {error}") from None

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

    def compact(self) -> Mapping[str, int]:
        """Joins small files of the same slot of time, in a single commit."""
        table = self._table()
        small: dict[object, list[FileScanTask]] = defaultdict(list)
        for task in table.scan().plan_files():
            if task.file.file_size_in_bytes < SMALL_BYTES:
                small[task.file.partition].append(task)
        groups = [tasks for tasks in small.values() if len(tasks) > 1]
        removed = added = 0
        with table.transaction() as transaction:
            summary = {PROGRESS: _text(_progress_of(table))}
            with transaction.update_snapshot(snapshot_properties=summary).overwrite() as update:
                for tasks in groups:
                    rows = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue()).to_table(tasks)
                    for file in _dataframe_to_data_files(table.metadata, rows, table.io):
                        update.append_data_file(file)
                        added += 1
                    for task in tasks:
                        update.delete_data_file(task.file)
                        removed += 1
        return {"removed": removed, "added": added}

    def vacuum(self, older_than_hours: int, dry_run: bool) -> list[str]:
        """Removes old snapshots, and files that no remaining snapshot refers to."""
        table = self._table()
        oldest = datetime.now(UTC) - timedelta(hours=older_than_hours)
        if not dry_run:
            table.maintenance.expire_snapshots().older_than(oldest.replace(tzinfo=None)).commit()
            table = self._table()
        referenced = {path.rpartition("/data/")[2] for path in table.inspect.all_files()["file_path"].to_pylist()}
        filesystem, root = pa.fs.FileSystem.from_uri(f"{table.location()}/data")
        infos = filesystem.get_file_info(pa.fs.FileSelector(root, allow_not_found=True, recursive=True))
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


def _filter(where: OffsetSlice) -> str:
    partition, offset = where.columns.partition, where.columns.offset
    return f"{partition} = {where.partition} and {offset} >= {where.first} and {offset} < {where.until}"


def _add_nothing(after: TableProgress) -> Callable[[Transaction], None]:
    """Adds a snapshot without files: a commit that only sets properties would not conflict with another writer's."""

    def change(transaction: Transaction) -> None:
        with transaction.update_snapshot(snapshot_properties=_summary(after)).fast_append():
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
    return pa.schema([pa.field(field.name, _plain_type(field.type)) for field in schema])


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_plain_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _plain_type(field.type)) for field in kind])
    return kind
