"""A task of a table's batch: fetch ranges, shape the records, write Parquet files into the table's directory.

The driver gets files and counts only, never records. A file belongs to the table once the driver has committed it. The
files of a task that failed or ran twice are never committed; vacuum removes them.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from leadline.errors import CorruptMessage
from leadline.spark.client.cluster import ClusterClient
from leadline.spark.client.connection import AccessRefused, Unreachable, is_outage
from leadline.spark.client.failures import NoSuchTopic, RequestFailed
from leadline.spark.client.range_fetch import FetchOptions, rows
from leadline.spark.positions import DataLoss
from leadline.spark.ranges import Task
from leadline.spark.table.bucketed_files import BucketedFiles, BucketPaths
from leadline.spark.table.data_directory import DataDirectory
from leadline.spark.table.evolution import NOTHING, merged
from leadline.spark.table.parquet_files import ParquetFiles
from leadline.spark.table.payload import ShapedRecords
from leadline.spark.table.quality import Quality, shape_with
from leadline.spark.table.table import DELETED, DataFile, OriginColumns, TableError

EXPECTED = (RequestFailed, CorruptMessage, DataLoss, NoSuchTopic, OSError, AccessRefused, Unreachable, TableError)


@dataclass(frozen=True, slots=True)
class WriteTask:
    """The settings of all tasks of a batch."""

    properties: Mapping[str, str]  # of the client
    fetch_options: FetchOptions
    format: str
    registry: str  # of schemas, for formats that need one
    columns: OriginColumns
    schema: pa.Schema  # the columns of the table that records fill
    directory: DataDirectory  # of the table's files, or of rows that are to be merged
    dead_directory: DataDirectory
    partition_by: str
    slot: str | None  # the column of the slot of time, if the table has one
    buckets: int = 0  # of keys, for rows that are to be merged; the files mark deletes. 0: rows are appended
    quality: Quality = field(default_factory=Quality)

    @property
    def by_key(self) -> bool:
        return bool(self.buckets)


@dataclass(frozen=True, slots=True)
class TaskOutput:
    """What a task wrote, or why it could not."""

    files: list[DataFile] = field(default_factory=list)
    staged: BucketPaths = field(default_factory=BucketPaths)  # of rows that are to be merged
    dead: list[DataFile] = field(default_factory=list)
    unknown: pa.DataType = NOTHING  # if it has fields, the table must get them, and the task must run again
    records: int = 0
    size: int = 0  # of keys and values
    newest_ms: int = -1  # the latest time of a record
    error: str = ""  # the cause, if the task failed for a reason that is not a bug
    is_outage: bool = False  # of the cluster: a later try may succeed

    @property
    def lacks_columns(self) -> bool:
        return bool(self.unknown.num_fields)


def write_files(job: WriteTask, task: Task) -> TaskOutput:
    try:
        with ClusterClient(job.properties) as cluster, ExitStack() as open_files:
            return _write_files(job, task, cluster, open_files)
    except EXPECTED as error:
        return TaskOutput(error=str(error), is_outage=is_outage(error))


def _write_files(job: WriteTask, task: Task, cluster: ClusterClient, open_files: ExitStack) -> TaskOutput:
    good = open_files.enter_context(ParquetFiles(job.directory, job.columns, job.partition_by, job.slot))
    staged = open_files.enter_context(BucketedFiles(job.directory, "batch", job.columns, job.buckets))
    dead = open_files.enter_context(ParquetFiles(job.dead_directory, OriginColumns.of("raw"), "none", None))
    unknown, records, size, newest_ms = NOTHING, 0, 0, -1
    for batch, shaped in _shaped(job, task, cluster):
        unknown = merged(unknown, shaped.unknown, widen=True)
        records += batch.num_rows
        size += batch.column("key").nbytes + batch.column("value").nbytes
        newest_ms = max(newest_ms, pc.max(batch.column("timestamp").cast(pa.int64())).as_py())
        if not unknown.num_fields:
            if job.by_key:
                staged.write(shaped.rows.append_column(DELETED, shaped.deleted))
            else:
                good.write(shaped.rows)
            if shaped.bad is not None:
                dead.write(shaped.bad)
    if unknown.num_fields:
        return TaskOutput(unknown=unknown)
    return TaskOutput(good.finish(), staged.finish(), dead.finish(), NOTHING, records, size, newest_ms)


def _shaped(job: WriteTask, task: Task, cluster: ClusterClient) -> Iterator[tuple[pa.RecordBatch, ShapedRecords]]:
    shape = shape_with(job.quality, job.format, job.registry, by_key=job.by_key)
    for range_ in task:
        for batch in rows(cluster, range_, job.fetch_options, headers=True):
            yield batch, shape(batch, range_.tp.topic, range_.tp.partition, job.schema)
