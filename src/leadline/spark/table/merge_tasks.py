"""Tasks that merge a batch into a table by key. No row passes through the driver: tasks leave files to each other.

    1. stage    tasks of the batch (write_task.py) write their rows, by buckets of keys
    2. find     each takes some files of the table, and writes the rows whose keys are in the batch, by buckets
    3. merge    each takes a bucket, decides for every key (key_history.py), and writes new rows, the positions of those
                that the table must lose, and the deletes that are to be remembered
    4. remove   each takes some of the files that lose rows, and writes their deleted positions, or the rows that remain

Files of the steps between are in a directory of their own, which is deleted at the end. A file of the table is skipped,
row group by row group, if no key of the batch is between its lowest and its highest key.
"""

import uuid
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as fs
import pyarrow.parquet as pq

from leadline.spark.table.bucketed_files import BucketedFiles, BucketPaths
from leadline.spark.table.change_events import OP, SOURCE_MS, SOURCE_POSITION, TRUNCATE, deletes
from leadline.spark.table.data_directory import DataDirectory, make_directory
from leadline.spark.table.key_history import KeyChange, KeyEntries, Version, merged
from leadline.spark.table.live_file import PATH, POSITION, POSITION_DELETES, ColumnNames, LiveRows, Positions
from leadline.spark.table.parquet_files import ParquetFiles, flush_to_disk
from leadline.spark.table.payload import RESERVED
from leadline.spark.table.remembered_deletes import DELETES, DELETES_COLUMNS
from leadline.spark.table.row_entries import entries_of, with_validity
from leadline.spark.table.table import DELETED, DataFile, HistoryColumns, LiveFile, OriginColumns, Removal

FILE, AT = "_file", "_pos"  # of a row of the table: the number of its file in this merge, its position there
REMOVED = pa.schema([(FILE, pa.int32()), (AT, pa.int64())])
BESIDE_ROWS = RESERVED | {FILE, AT}


@dataclass(frozen=True, slots=True)
class MergeJob:
    """The settings of all tasks of a merge."""

    mode: str  # upsert or scd2
    columns: OriginColumns
    history: HistoryColumns | None
    buckets: int
    staging: DataDirectory
    directory: DataDirectory  # of the table's files
    deletes_directory: DataDirectory
    partition_by: str
    slot: str | None
    names: ColumnNames
    deletes_names: ColumnNames
    has_position_deletes: bool


def _staged(job: MergeJob, paths: Sequence[str], names: Sequence[str] | None = None) -> pa.Table | None:
    """The rows of these files; None: there are no files."""
    filesystem, root = job.staging.open()
    tables = [
        pq.read_table(f"{root}/{path}", columns=names, filesystem=filesystem, partitioning=None) for path in paths
    ]
    return pa.concat_tables(tables, promote_options="permissive") if tables else None


# 2. Find


@dataclass(frozen=True, slots=True)
class FindTask:
    files: Sequence[tuple[int, LiveFile]]  # of the table, with their numbers
    deletes: Sequence[LiveFile]  # of the deletes that are remembered
    staged: BucketPaths  # the rows of the batch
    all_rows: bool = False  # not only those of the batch's keys


@dataclass(frozen=True, slots=True)
class KeyMatches:
    rows: BucketPaths
    deletes: BucketPaths
    skipped: int = 0  # row groups, by their bounds


def find(job: MergeJob, task: FindTask) -> KeyMatches:
    keys = _BatchKeys(job, task)
    names = None if job.history or task.all_rows else _names(job)
    skipped = 0
    with (
        BucketedFiles(job.staging, "rows", job.columns, job.buckets) as rows,
        BucketedFiles(job.staging, "deletes", DELETES_COLUMNS, job.buckets) as deletes,
    ):
        for number, file in task.files:
            with LiveRows(file, job.directory.options, job.names) as live:
                skipped += _find_in(live, keys, job.columns.key, names, number, rows)
        for file in task.deletes:
            with LiveRows(file, job.deletes_directory.options, job.deletes_names) as live:
                skipped += _find_in(live, keys, DELETES_COLUMNS.key, None, 0, deletes)
        return KeyMatches(rows.finish(), deletes.finish(), skipped)


def _names(job: MergeJob) -> list[str]:
    """The columns by which rows are compared."""
    return [*job.columns.names, OP, SOURCE_MS, SOURCE_POSITION]


def _find_in(
    live: LiveRows, keys: "_BatchKeys", key: str, names: Sequence[str] | None, number: int, into: BucketedFiles
) -> int:
    """Writes the rows of a file that the batch concerns. Returns the number of row groups that it did not read."""
    skipped = 0
    deleted = live.deleted()
    for row_group, first in live.row_groups:
        if not keys.may_be_between(live.bounds(row_group, key)):
            skipped += 1
            continue
        matching = keys.among(live.read(row_group, [key])[key])
        positions = np.setdiff1d(np.flatnonzero(matching) + first, deleted, assume_unique=True)
        if len(positions):
            rows = live.read(row_group, names).take(pa.array(positions - first))
            rows = rows.append_column(FILE, pa.repeat(pa.scalar(number, pa.int32()), rows.num_rows))
            for batch in rows.append_column(AT, pa.array(positions, pa.int64())).combine_chunks().to_batches():
                into.write(batch)
    return skipped


class _BatchKeys:
    """The keys of a batch. A truncate concerns all keys, and what has no key concerns all batches."""

    def __init__(self, job: MergeJob, task: FindTask) -> None:
        self._are_all = task.all_rows or bool(task.staged.of(job.buckets))
        paths = [path for bucket in range(job.buckets) for path in task.staged.of(bucket)]
        table = _staged(job, paths, [job.columns.key])
        self._keys = pa.array([], pa.binary()) if table is None else pc.unique(table[job.columns.key])
        self._sorted: list[bytes] = sorted(self._keys.to_pylist())

    def may_be_between(self, bounds: tuple[object, object] | None) -> bool:
        if self._are_all or bounds is None:
            return True
        lowest, highest = bounds
        assert isinstance(lowest, bytes)
        assert isinstance(highest, bytes)
        at = bisect_left(self._sorted, lowest)
        return at < len(self._sorted) and self._sorted[at] <= highest

    def among(self, keys: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
        if self._are_all:
            return np.ones(len(keys), np.bool_)
        matching = pc.or_(pc.is_in(keys.cast(pa.binary()), self._keys), keys.is_null())
        return np.asarray(matching.to_numpy(zero_copy_only=False), np.bool_)


# 3. Merge


@dataclass(frozen=True, slots=True)
class MergeTask:
    bucket: int
    staged: BucketPaths
    rows: BucketPaths  # of the table
    deletes: BucketPaths  # that are remembered
    renews: bool = False  # the rows of the table are those of the batch: it had a row for each record before


@dataclass(frozen=True, slots=True)
class MergedBucket:
    added: list[DataFile]
    remembered: list[DataFile]
    removed: list[str]  # files with the positions of rows that the table must lose
    touched: list[int]  # the numbers of the files that they are in
    late: int
    repeated: int


class _Rows:
    """Rows and their entries, by key."""

    def __init__(self, rows: pa.Table | None, columns: OriginColumns, job: MergeJob, *, are_new: bool = False) -> None:
        self.rows = rows
        self.by_key: dict[bytes | None, list[KeyChange]] = {}
        if rows is not None:
            keys = rows[columns.key].to_pylist()
            for key, entry in zip(keys, entries_of(rows, columns, job.history, are_new=are_new), strict=True):
                self.by_key.setdefault(key, []).append(entry)

    def of(self, key: bytes) -> list[KeyChange]:
        return self.by_key.get(key, [])

    def take(self, entries: Sequence[KeyChange]) -> pa.Table | None:
        if self.rows is None or not entries:
            return None
        return self.rows.take(pa.array([entry.at for entry in entries], pa.int64()))


def merge_bucket(job: MergeJob, task: MergeTask) -> MergedBucket:
    existing = _Rows(_staged(job, task.rows.of(task.bucket)), job.columns, job)
    staged = with_deletes(existing.rows) if task.renews else _staged(job, task.staged.of(task.bucket))
    new = _Rows(staged, job.columns, job, are_new=True)
    deletes = _Rows(_as_deletes(_staged(job, task.deletes.of(task.bucket))), DELETES_COLUMNS, job)
    keyless = _staged(job, (task.rows if task.renews else task.staged).of(job.buckets))
    truncated = _as_deletes(_truncates(keyless))
    truncates = _all_entries(truncated, job.columns, job)
    truncates += _all_entries(_as_deletes(_staged(job, task.deletes.of(job.buckets))), DELETES_COLUMNS, job)
    versions: list[Version] = []
    removed: list[KeyChange] = []
    remembered: list[KeyChange] = []
    late = repeated = 0
    for key in new.by_key.keys() | existing.by_key.keys():
        assert key is not None
        entries = KeyEntries(new.of(key), existing.of(key), deletes.of(key), truncates)
        if not (entries.rows or entries.deletes or truncates) and len(entries.new) == 1:
            (entry,) = entries.new
            if not entry.is_delete:
                versions.append(Version(entry, is_new=True))
                continue
        plan = merged(job.mode, entries)
        versions += plan.added
        removed += plan.removed
        remembered += plan.remembered
        late += plan.late
        repeated += plan.repeated
    added = _added(job, new, existing, versions)
    letters = [_remembered(job, new, remembered)]
    if task.bucket == 0 and truncated is not None:
        letters.append(_deletes_of(truncated, job.columns))
    losing = [existing.take(removed), keyless if task.bucket == 0 and task.renews else None]
    paths, touched = _write_removed(job, _joined(losing))
    return MergedBucket(
        _write(job.directory, job.columns, job.partition_by, job.slot, added),
        _write(job.deletes_directory, DELETES_COLUMNS, "none", None, _joined(letters)),
        paths,
        touched,
        late,
        repeated,
    )


def _all_entries(rows: pa.Table | None, columns: OriginColumns, job: MergeJob) -> list[KeyChange]:
    return [] if rows is None else list(entries_of(rows, columns, job.history))


def _truncates(rows: pa.Table | None) -> pa.Table | None:
    if rows is None or OP not in rows.column_names:
        return None
    return rows.filter(pc.fill_null(pc.equal(rows[OP], TRUNCATE), False))


def _as_deletes(rows: pa.Table | None) -> pa.Table | None:
    """All that is remembered is a delete, be it a tombstone or a truncate."""
    if rows is None:
        return None
    kept = rows.drop_columns([DELETED]) if DELETED in rows.column_names else rows
    return kept.append_column(DELETED, pa.array([True] * rows.num_rows, pa.bool_()))


def with_deletes(rows: pa.Table | None) -> pa.Table | None:
    """Rows of a table that has one for each record. A delete has no value, no field, or is a change of that kind."""
    if rows is None:
        return None
    deleted = deletes(rows)
    names = (
        ["value"] if "value" in rows.column_names else [name for name in rows.column_names if name not in BESIDE_ROWS]
    )
    empty = pa.array([True] * rows.num_rows, pa.bool_())
    for name in names:
        empty = pc.and_(empty, rows[name].is_null())
    return rows.append_column(DELETED, pc.or_(empty, deleted))


def _added(job: MergeJob, new: _Rows, existing: _Rows, versions: Sequence[Version]) -> pa.Table | None:
    """The rows that the table gets, by key: then the bounds of their row groups say much."""
    fresh, old = [one for one in versions if one.is_new], [one for one in versions if not one.is_new]
    parts = [
        _valid(job, rows.take([one.entry for one in some]), some) for rows, some in ((new, fresh), (existing, old))
    ]
    rows = _joined(parts)
    if rows is None:
        return None
    return rows.drop_columns([name for name in (DELETED, FILE, AT) if name in rows.column_names]).sort_by(
        job.columns.key
    )


def _valid(job: MergeJob, rows: pa.Table | None, versions: Sequence[Version]) -> pa.Table | None:
    if rows is None or job.history is None:
        return rows
    return with_validity(rows, job.history, [(one.entry.start_us, one.end_us) for one in versions])


def _remembered(job: MergeJob, new: _Rows, entries: Sequence[KeyChange]) -> pa.Table | None:
    rows = new.take(entries)
    if rows is None:
        return None
    letters = _deletes_of(rows, job.columns)
    positions = pa.array([entry.position for entry in entries], pa.string())  # a tombstone has one by now
    return letters.set_column(letters.schema.get_field_index(SOURCE_POSITION), SOURCE_POSITION, positions)


def _deletes_of(rows: pa.Table, columns: OriginColumns) -> pa.Table:
    names = {**dict(zip(DELETES_COLUMNS.names, columns.names, strict=True)), OP: OP}
    names |= {SOURCE_MS: SOURCE_MS, SOURCE_POSITION: SOURCE_POSITION}
    arrays = [
        rows[names[column.name]].cast(column.type)
        if names[column.name] in rows.column_names
        else pa.nulls(rows.num_rows, column.type)
        for column in DELETES
    ]
    return pa.table(arrays, schema=DELETES)


def _joined(tables: Iterable[pa.Table | None]) -> pa.Table | None:
    parts = [table for table in tables if table is not None and table.num_rows]
    return pa.concat_tables(parts, promote_options="permissive") if parts else None


def _write(
    directory: DataDirectory, columns: OriginColumns, partition_by: str, slot: str | None, rows: pa.Table | None
) -> list[DataFile]:
    if rows is None:
        return []
    with ParquetFiles(directory, columns, partition_by, slot) as files:
        for batch in rows.combine_chunks().to_batches():
            files.write(batch)
        return files.finish()


def _write_removed(job: MergeJob, rows: pa.Table | None) -> tuple[list[str], list[int]]:
    if rows is None:
        return [], []
    filesystem, root = job.staging.open()
    path = f"removed-{uuid.uuid4()}.parquet"
    pq.write_table(rows.select(REMOVED.names).cast(REMOVED), f"{root}/{path}", filesystem=filesystem)
    return [path], pc.unique(rows[FILE]).to_pylist()


# 4. Remove


@dataclass(frozen=True, slots=True)
class RemoveTask:
    files: Sequence[tuple[int, LiveFile]]
    removed: Sequence[str]


def remove(job: MergeJob, task: RemoveTask) -> list[Removal]:
    numbers = pa.array([number for number, _ in task.files], pa.int32())
    tables = [_staged(job, [path]) for path in task.removed]
    rows = pa.concat_tables([table.filter(pc.is_in(table[FILE], numbers)) for table in tables if table is not None])
    removals = []
    for number, file in task.files:
        positions = rows.filter(pc.equal(rows[FILE], number))[AT].to_numpy()
        with LiveRows(file, job.directory.options, job.names) as live:
            deleted = np.union1d(live.deleted(), positions)
            if len(deleted) == live.rows:
                removals.append(Removal(file))
            elif job.has_position_deletes:
                removals.append(Removal(file, positions=_write_positions(job, file, deleted)))
            else:
                removals.append(Removal(file, tuple(_rewrite(job, live, deleted))))
    return removals


def _rewrite(job: MergeJob, live: LiveRows, deleted: Positions) -> list[DataFile]:
    with ParquetFiles(job.directory, job.columns, job.partition_by, job.slot) as files:
        for row_group, first in live.row_groups:
            rows = live.read(row_group)
            stays = np.ones(rows.num_rows, np.bool_)
            stays[deleted[(deleted >= first) & (deleted < first + rows.num_rows)] - first] = False
            for batch in rows.filter(pa.array(stays)).to_batches():
                files.write(batch)
        return files.finish()


def _write_positions(job: MergeJob, file: LiveFile, deleted: Positions) -> DataFile:
    filesystem, root = job.directory.open()
    make_directory(filesystem, root)
    path = f"deletes-{uuid.uuid4()}.parquet"
    columns = {PATH: pa.repeat(file.uri, len(deleted)), POSITION: pa.array(deleted, pa.int64())}
    rows = pa.table([columns[PATH], columns[POSITION]], schema=POSITION_DELETES)
    pq.write_table(rows, f"{root}/{path}", filesystem=filesystem, use_dictionary=[PATH])
    if isinstance(filesystem, fs.LocalFileSystem):
        flush_to_disk(Path(root, path))
    return DataFile(path, filesystem.get_file_info(f"{root}/{path}").size, len(deleted), {}, {}, {})
