"""Merges a batch into a table by key: plans the tasks of merge_tasks.py, and gathers what one commit makes of them.

The driver sees names of files and counts. Its memory does not grow with the rows of the table or of the batch.
"""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import Any, TypeVar

from leadline.spark.table.bucketed_files import BucketPaths
from leadline.spark.table.data_directory import DataDirectory
from leadline.spark.table.live_file import ColumnNames
from leadline.spark.table.merge_tasks import (
    FindTask,
    KeyMatches,
    MergedBucket,
    MergeJob,
    MergeTask,
    RemoveTask,
    find,
    merge_bucket,
    remove,
)
from leadline.spark.table.table import DataFile, LiveFile, OriginColumns, Removal, Table, TableMerge, TableOrigin

STAGING = "_by_key"  # the directory of files that are not part of a table
BUCKET_BYTES = 8 << 20  # of a batch
TABLE_BUCKET_BYTES = 512 << 20  # of a table: a truncate looks at all of its rows
MAX_BUCKETS = 64

T = TypeVar("T")
Run = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]  # runs tasks


@dataclass(frozen=True, slots=True)
class PreparedMerge:
    merge: TableMerge
    remembered: list[DataFile]  # files of deletes
    late: int
    repeated: int


def bucket_count(batch_bytes: float, table_bytes: int, parallelism: int) -> int:
    needed = max(int(batch_bytes // BUCKET_BYTES), table_bytes // TABLE_BUCKET_BYTES) + 1
    return 1 if needed == 1 else min(max(needed, parallelism), MAX_BUCKETS)


def staging_directory(table: Table) -> DataDirectory:
    return table.data_directory.child(f"{STAGING}/{uuid.uuid4()}")


def delete_directory(directory: DataDirectory) -> None:
    """Also if it is not there."""
    filesystem, path = directory.open()
    if filesystem.get_file_info(path).type.name == "Directory":
        filesystem.delete_dir(path)


def merge_job(table: Table, deletes: Table, origin: TableOrigin, staging: DataDirectory, buckets: int) -> MergeJob:
    return MergeJob(
        origin.mode,
        OriginColumns.of(origin.format),
        origin.history,
        buckets,
        staging,
        table.data_directory,
        deletes.data_directory,
        origin.partition_by,
        table.slot(origin),
        table.column_names(),
        ColumnNames() if deletes.state() is None else deletes.column_names(),
        table.has_position_deletes,
    )


def prepare(
    run: Run,
    job: MergeJob,
    files: Sequence[LiveFile],
    deletes: Sequence[LiveFile],
    staged: BucketPaths | None,
    width: int,
) -> PreparedMerge:
    """`files`: of the table; `deletes`: of those that are remembered; `staged`: the rows of the batch.

    Without a batch, a table that has a row for each record becomes one by key.
    """
    renews, staged = staged is None, staged or BucketPaths()
    matches = _matches(run, job, FindTask(list(enumerate(files)), deletes, staged, renews), width)
    rows = BucketPaths.joined(part.rows for part in matches)
    remembered = BucketPaths.joined(part.deletes for part in matches)
    concerned = {0} | {bucket for part in (staged, rows) for bucket in part.by_bucket if bucket < job.buckets}
    tasks = [MergeTask(bucket, staged, rows, remembered, renews) for bucket in sorted(concerned)]
    buckets: list[MergedBucket] = run(partial(merge_bucket, job), tasks) if staged.paths or renews else []
    removals = _removals(run, job, files, buckets, width)
    late, repeated = sum(one.late for one in buckets), sum(one.repeated for one in buckets)
    merge = TableMerge(
        [file for one in buckets for file in one.added],
        removals,
        frozenset(file.version for file in files),
        {"late": late, "repeated": repeated},
    )
    return PreparedMerge(merge, [file for one in buckets for file in one.remembered], late, repeated)


def _matches(run: Run, job: MergeJob, whole: FindTask, width: int) -> list[KeyMatches]:
    if not (whole.staged.paths or whole.all_rows) or not (whole.files or whole.deletes):
        return []
    files = shared(whole.files, width, lambda one: one[1].size)
    deletes = shared(whole.deletes, width, lambda file: file.size)
    shares = zip_longest(files, deletes, fillvalue=())
    return run(partial(find, job), [replace(whole, files=share, deletes=others) for share, others in shares])


def _removals(
    run: Run, job: MergeJob, files: Sequence[LiveFile], buckets: Sequence[MergedBucket], width: int
) -> list[Removal]:
    touched = sorted({number for one in buckets for number in one.touched})
    if not touched:
        return []
    paths = [path for one in buckets for path in one.removed]
    shares = shared([(number, files[number]) for number in touched], width, lambda one: one[1].size)
    parts = run(partial(remove, job), [RemoveTask(share, paths) for share in shares])
    return [removal for part in parts for removal in part]


def shared(items: Sequence[T], width: int, size_of: Callable[[T], int]) -> list[list[T]]:
    """The items in at most `width` shares of about the same size."""
    shares: list[list[T]] = [[] for _ in range(min(width, len(items)))]
    sizes = [0] * len(shares)
    for item in sorted(items, key=size_of, reverse=True):
        least = sizes.index(min(sizes))
        shares[least].append(item)
        sizes[least] += size_of(item)
    return shares
