"""A task of a table's batch: fetch ranges, shape the records, write Parquet files into the table's directory.

The driver gets files and counts only, never records. A file belongs to the table once the driver has committed it. The
files of a task that failed or ran twice are never committed; vacuum removes them.
"""

import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs
import pyarrow.parquet as pq

from leadline.errors import CorruptMessage
from leadline.spark.client.cluster import ClusterClient
from leadline.spark.client.connection import AccessRefused, Unreachable
from leadline.spark.client.failures import NoSuchTopic, RequestFailed
from leadline.spark.client.range_fetch import FetchOptions, rows
from leadline.spark.positions import DataLoss
from leadline.spark.ranges import Task
from leadline.spark.table.evolution import NOTHING, merged
from leadline.spark.table.payload import ShapedRecords, shape_of
from leadline.spark.table.table import DELETED, DataFile, OriginColumns

EXPECTED = (RequestFailed, CorruptMessage, DataLoss, NoSuchTopic, OSError, AccessRefused, Unreachable)
SLOT_FORMATS = {"day": "%Y-%m-%d", "hour": "%Y-%m-%dT%H"}
ROW_GROUP_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class WriteTask:
    """The settings of all tasks of a batch."""

    properties: Mapping[str, str]  # of the client
    fetch_options: FetchOptions
    format: str
    registry: str  # of schemas, for formats that need one
    columns: OriginColumns
    schema: pa.Schema  # the columns of the table that records fill
    directory: str  # of the table's files
    dead_directory: str
    partition_by: str
    slot: str | None  # the column of the slot of time, if the table has one
    by_key: bool  # rows replace others; the files mark tombstones


@dataclass(frozen=True, slots=True)
class TaskOutput:
    """What a task wrote, or why it could not."""

    files: list[DataFile] = field(default_factory=list)
    dead: list[DataFile] = field(default_factory=list)
    unknown: pa.DataType = NOTHING  # if it has fields, the table must get them, and the task must run again
    records: int = 0
    size: int = 0  # of keys and values
    newest_ms: int = -1  # the latest time of a record
    error: str = ""  # the cause, if the task failed for a reason that is not a bug

    @property
    def lacks_columns(self) -> bool:
        return bool(self.unknown.num_fields)


def write_files(job: WriteTask, task: Task) -> TaskOutput:
    try:
        with ClusterClient(job.properties) as cluster, ExitStack() as open_files:
            return _write_files(job, task, cluster, open_files)
    except EXPECTED as error:
        return TaskOutput(error=str(error))


def _write_files(job: WriteTask, task: Task, cluster: ClusterClient, open_files: ExitStack) -> TaskOutput:
    good = open_files.enter_context(ParquetFiles(job.directory, job.columns, job.partition_by, job.slot))
    dead = open_files.enter_context(ParquetFiles(job.dead_directory, OriginColumns.of("raw"), "none", None))
    unknown, records, size, newest_ms = NOTHING, 0, 0, -1
    for batch, shaped in _shaped(job, task, cluster):
        unknown = merged(unknown, shaped.unknown, widen=True)
        records += batch.num_rows
        size += batch.column("key").nbytes + batch.column("value").nbytes
        newest_ms = max(newest_ms, pc.max(batch.column("timestamp").cast(pa.int64())).as_py())
        if not unknown.num_fields:
            good.write(shaped.rows.append_column(DELETED, shaped.deleted) if job.by_key else shaped.rows)
            if shaped.bad is not None:
                dead.write(shaped.bad)
    if unknown.num_fields:
        return TaskOutput(unknown=unknown)
    return TaskOutput(good.finish(), dead.finish(), NOTHING, records, size, newest_ms)


def _shaped(job: WriteTask, task: Task, cluster: ClusterClient) -> Iterator[tuple[pa.RecordBatch, ShapedRecords]]:
    shape = shape_of(job.format, job.registry, by_key=job.by_key)
    for range_ in task:
        for batch in rows(cluster, range_, job.fetch_options, headers=True):
            yield batch, shape(batch, range_.tp.topic, range_.tp.partition, job.schema)


class ParquetFiles:
    """Parquet files of a task, one for each slot of time."""

    def __init__(self, directory: str, columns: OriginColumns, partition_by: str, slot: str | None) -> None:
        self._filesystem, self._root = pa.fs.FileSystem.from_uri(as_uri(directory))
        self._columns, self._partition_by, self._slot = columns, partition_by, slot
        self._open: dict[str, _File] = {}

    def __enter__(self) -> "ParquetFiles":
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._open.values():
            file.close()

    def write(self, batch: pa.RecordBatch) -> None:
        for slot, part in self._by_slot(batch):
            if part.num_rows:
                if slot not in self._open:
                    self._open[slot] = self._create(slot, part.schema)
                self._open[slot].write(part)

    def _by_slot(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self._partition_by == "none":
            yield "", batch
            return
        slots = pc.strftime(batch.column(self._columns.timestamp), SLOT_FORMATS[self._partition_by])
        for slot in pc.unique(slots).to_pylist():
            yield slot, batch.filter(pc.equal(slots, slot))

    def _create(self, slot: str, schema: pa.Schema) -> "_File":
        folder = f"{self._slot or self._partition_by}={slot}/" if slot else ""
        self._filesystem.create_dir(f"{self._root}/{folder}", recursive=True)
        values = {self._slot: slot} if self._slot and slot else {}
        path = f"{folder}part-{uuid.uuid4()}.parquet"
        return _File(self._filesystem, self._root, path, schema, self._columns, values)

    def finish(self) -> list[DataFile]:
        return [file.finish() for file in self._open.values()]


class _File:
    def __init__(
        self,
        filesystem: pa.fs.FileSystem,
        root: str,
        path: str,
        schema: pa.Schema,
        columns: OriginColumns,
        slot: Mapping[str, str],
    ) -> None:
        self._filesystem, self._whole, self._path, self._slot = filesystem, f"{root}/{path}", path, slot
        self._ranged = (columns.partition, columns.offset)
        self._sink = filesystem.open_output_stream(self._whole)
        repetitive = [name for name in ("topic",) if name in schema.names]
        self._writer = pq.ParquetWriter(self._sink, schema, use_dictionary=repetitive or False)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._rows = 0
        self._lowest: dict[str, int] = {}
        self._highest: dict[str, int] = {}

    def write(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        self._rows += batch.num_rows
        for name in self._ranged:
            ends = pc.min_max(batch.column(name)).as_py()
            self._lowest[name] = min(self._lowest.get(name, ends["min"]), ends["min"])
            self._highest[name] = max(self._highest.get(name, ends["max"]), ends["max"])
        if self._waiting_bytes >= ROW_GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting))
            self._waiting, self._waiting_bytes = [], 0

    def finish(self) -> DataFile:
        self._flush()
        self.close()
        if isinstance(self._filesystem, pa.fs.LocalFileSystem):
            flush_to_disk(Path(self._whole))
        size = self._filesystem.get_file_info(self._whole).size
        return DataFile(self._path, size, self._rows, self._slot, self._lowest, self._highest)

    def close(self) -> None:
        self._writer.close()
        self._sink.close()


def as_uri(directory: str) -> str:
    return directory if "://" in directory else Path(directory).absolute().as_uri()


def flush_to_disk(path: Path) -> None:
    """Flushes the file and its directory entry, so that they survive a power failure."""
    for target in (path, path.parent):
        fd = os.open(target, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
