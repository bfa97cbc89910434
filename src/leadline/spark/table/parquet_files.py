"""Parquet files that a task writes into a directory, one for each slot of time, flushed to the disk.

Rows with other columns than the rows before them begin a new file.
"""

import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as fs
import pyarrow.parquet as pq

from leadline.spark.table.data_directory import DataDirectory, make_directory
from leadline.spark.table.table import DataFile, OriginColumns

SLOT_FORMATS = {"day": "%Y-%m-%d", "hour": "%Y-%m-%dT%H"}
ROW_GROUP_BYTES = 64 << 20


class ParquetFiles:
    """The files of one task."""

    def __init__(self, directory: DataDirectory, columns: OriginColumns, partition_by: str, slot: str | None) -> None:
        self._filesystem, self._root = directory.open()
        self._columns, self._partition_by, self._slot = columns, partition_by, slot
        self._open: dict[str, _File] = {}
        self._finished: list[DataFile] = []

    def __enter__(self) -> "ParquetFiles":
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._open.values():
            file.close()

    def write(self, batch: pa.RecordBatch) -> None:
        for slot, part in self._by_slot(batch):
            if part.num_rows:
                file = self._open.get(slot)
                if file is None or file.schema != part.schema:
                    if file is not None:
                        self._finished.append(file.finish())
                    file = self._open[slot] = self._create(slot, part.schema)
                file.write(part)

    def _by_slot(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self._partition_by == "none":
            yield "", batch
            return
        slots = pc.strftime(batch.column(self._columns.timestamp), SLOT_FORMATS[self._partition_by])
        for slot in pc.unique(slots).to_pylist():
            yield slot, batch.filter(pc.equal(slots, slot))

    def _create(self, slot: str, schema: pa.Schema) -> "_File":
        folder = f"{self._slot or self._partition_by}={slot}/" if slot else ""
        make_directory(self._filesystem, f"{self._root}/{folder}")
        values = {self._slot: slot} if self._slot and slot else {}
        path = f"{folder}part-{uuid.uuid4()}.parquet"
        return _File(self._filesystem, self._root, path, schema, self._columns, values)

    def finish(self) -> list[DataFile]:
        return [*self._finished, *(file.finish() for file in self._open.values())]


class _File:
    def __init__(
        self,
        filesystem: fs.FileSystem,
        root: str,
        path: str,
        schema: pa.Schema,
        columns: OriginColumns,
        slot: Mapping[str, str],
    ) -> None:
        self.schema = schema
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
        if isinstance(self._filesystem, fs.LocalFileSystem):
            flush_to_disk(Path(self._whole))
        size = self._filesystem.get_file_info(self._whole).size
        return DataFile(self._path, size, self._rows, self._slot, self._lowest, self._highest)

    def close(self) -> None:
        self._writer.close()
        self._sink.close()


def flush_to_disk(path: Path) -> None:
    """Flushes the file and its directory entry, so that they survive a power failure."""
    for target in (path, path.parent):
        fd = os.open(target, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
