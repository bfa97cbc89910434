"""A task of a table's batch: fetch ranges, shape the records, write Parquet files into the table's directory.

The driver gets files and counts only, never records. A file belongs to the table once the driver has committed it. The
files of a task that failed or ran twice are never committed; vacuum removes them.

Records are read once, also those of a new table: a task adds the columns that the table lacks to those that it writes,
and reports them. The driver adds them to the table before it commits the files. A task must run again if what it wrote
is not what a task with all columns from the start would have written:
    a column gets another type on the way: whole numbers, and later others
    a column appears or gets another type, and rows before it lack an empty array or object, or spell a name otherwise
    tasks gave a column different types, and the other one stays
"""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from leadline.errors import CorruptMessage
from leadline.model import TopicPartition
from leadline.spark.client.cluster import ClusterClient
from leadline.spark.client.connection import AccessRefused, Unreachable, is_outage
from leadline.spark.client.failures import NoSuchTopic, RequestFailed
from leadline.spark.client.range_fetch import FetchOptions, rows
from leadline.spark.positions import DataLoss
from leadline.spark.ranges import Task
from leadline.spark.table.bucketed_files import BucketedFiles, BucketPaths
from leadline.spark.table.data_directory import DataDirectory
from leadline.spark.table.evolution import NOTHING, NOTHING_LEFT_OUT, LeftOut, includes
from leadline.spark.table.parquet_files import ParquetFiles
from leadline.spark.table.payload import ShapedRecords, extended
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
    unknown: pa.DataType = NOTHING  # fields that the table must get
    left_out: LeftOut = NOTHING_LEFT_OUT  # of the rows: if columns concern it that others add, the task must run again
    is_written: bool = True  # False: the task must run again, after the table has got the fields
    records: int = 0
    size: int = 0  # of keys and values
    newest_ms: int = -1  # the latest time of a record
    error: str = ""  # the cause, if the task failed for a reason that is not a bug
    is_outage: bool = False  # of the cluster: a later try may succeed

    @property
    def lacks_columns(self) -> bool:
        return bool(self.unknown.num_fields)

    def is_kept(self, before: pa.Schema, after: pa.Schema) -> bool:
        """Whether the files are those of a table that had one schema when the task ran, and has the other one now."""
        if not self.is_written:
            return False
        then, now = ({column.name: column.type for column in schema} for schema in (before, after))
        then |= {column.name: column.type for column in self.unknown}
        is_included = all(column.name in now and includes(now[column.name], column.type) for column in self.unknown)
        return is_included and not self.left_out.is_concerned(name for name in now if now[name] != then.get(name))


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
    columns = TaskColumns(job)
    records, size, newest_ms = 0, 0, -1
    for range_ in task:
        for batch in rows(cluster, range_, job.fetch_options, headers=True):
            shaped = columns.shape(batch, range_.tp)
            records += batch.num_rows
            size += batch.column("key").nbytes + batch.column("value").nbytes
            newest_ms = max(newest_ms, pc.max(batch.column("timestamp").cast(pa.int64())).as_py())
            if shaped is None:
                continue
            if job.by_key:
                staged.write(shaped.rows.append_column(DELETED, shaped.deleted))
            else:
                good.write(shaped.rows)
            if shaped.bad is not None:
                dead.write(shaped.bad)
    if columns.are_late:
        return TaskOutput(unknown=columns.unknown, is_written=False)
    return TaskOutput(
        good.finish(),
        staged.finish(),
        dead.finish(),
        columns.unknown,
        columns.left_out,
        records=records,
        size=size,
        newest_ms=newest_ms,
    )


class TaskColumns:
    """The columns that a task writes: those of the table, and those that its records have beyond them."""

    def __init__(self, job: WriteTask) -> None:
        self._job, self._schema = job, job.schema
        self._shape = shape_with(job.quality, job.format, job.registry, by_key=job.by_key)
        self.left_out = NOTHING_LEFT_OUT
        self.are_late = False  # True: rows were written without them, so that the task must run again

    @property
    def unknown(self) -> pa.DataType:
        """Those that the table lacks, or has with fewer fields."""
        return pa.struct([column for column in self._schema if column not in self._job.schema])

    def shape(self, batch: pa.RecordBatch, tp: TopicPartition) -> ShapedRecords | None:
        """The rows of some records. None: the task must run again, and only has to look for more columns."""
        if not self.are_late:
            shaped = self._shape(batch, *tp, self._schema)
            if shaped.unknown.num_fields:
                self._add(shaped.unknown)
                shaped = self._shape(batch, *tp, self._schema)
            if shaped.bad is not None and self._schema is not self._job.schema:
                self._widen(batch.filter(pc.is_in(batch.column("offset"), shaped.bad.column("offset"))), tp)
            self.left_out |= shaped.left_out
            return None if self.are_late else shaped
        self._add(self._shape(batch, *tp, self._job.schema).unknown)
        return None

    def _add(self, unknown: pa.DataType) -> None:
        before, self._schema = self._schema, extended(self._schema, [unknown])
        self.are_late |= self.left_out.is_concerned(column.name for column in self._schema if column not in before)

    def _widen(self, bad: pa.RecordBatch, tp: TopicPartition) -> None:
        """Records do not fit a column that only the task has, as with whole numbers before others."""
        wider = extended(self._schema, [self._shape(bad, *tp, self._job.schema).unknown])
        self.are_late |= wider != self._schema
        self._schema = wider
