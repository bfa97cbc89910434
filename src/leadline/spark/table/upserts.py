"""Rows by key: the last record of a key is its row, and a tombstone removes the row.

The last record has the highest offset. When a topic gets more partitions, a key may be in several of them; then the
record with the latest time is the last.
"""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs
import pyarrow.parquet as pq

from leadline.spark.table.table import DataFile, OriginColumns, Table
from leadline.spark.table.write_task import SLOT_FORMATS, as_uri

Place = tuple[int, int, int]  # time, partition, offset


def is_later(place: Place, other: Place) -> bool:
    (time, partition, offset), (other_time, other_partition, other_offset) = place, other
    return offset > other_offset if partition == other_partition else (time, partition) > (other_time, other_partition)


def last_places(batches: Iterable[pa.RecordBatch], columns: OriginColumns) -> dict[bytes | None, Place]:
    """The place of the last record of each key."""
    last: dict[bytes | None, Place] = {}
    for batch in batches:
        times = batch.column(columns.timestamp).cast(pa.int64()).to_pylist()
        places = zip(
            times, batch.column(columns.partition).to_pylist(), batch.column(columns.offset).to_pylist(), strict=True
        )
        for key, place in zip(batch.column(columns.key).to_pylist(), places, strict=True):
            if key not in last or is_later(place, last[key]):
                last[key] = place
    return last


def ids_of(places: Iterable[Place]) -> pa.Array:
    chosen = list(places)
    partitions = pa.array([partition for _, partition, _ in chosen], pa.int32())
    return _ids(partitions, pa.array([offset for _, _, offset in chosen], pa.int64()))


def ids_in(rows: pa.RecordBatch | pa.Table, columns: OriginColumns) -> pa.Array:
    return _ids(rows.column(columns.partition), rows.column(columns.offset))


def _ids(partitions: pa.Array, offsets: pa.Array) -> pa.Array:
    """Partition and offset as one text."""
    return pc.binary_join_element_wise(partitions.cast(pa.string()), offsets.cast(pa.string()), "/")


def last_of_each_key(rows: pa.Table, columns: OriginColumns) -> pa.Table:
    ids = ids_of(last_places(rows.to_batches(), columns).values())
    return rows.filter(pc.is_in(ids_in(rows, columns), ids))


def with_slot(rows: pa.Table, slot: str, partition_by: str, columns: OriginColumns) -> pa.Table:
    """The column that the table is partitioned by."""
    text = pc.strftime(rows[columns.timestamp], SLOT_FORMATS[partition_by])
    return rows.append_column(slot, text.cast(pa.date32()) if partition_by == "day" else text)


def rows_by_key(table: Table, columns: OriginColumns) -> pa.RecordBatchReader:
    """The rows of an append-only table, reduced to the last one of each key."""
    ids = ids_of(last_places(table.columns(columns.names), columns).values())
    reader = table.columns()
    return pa.RecordBatchReader.from_batches(reader.schema, _living(reader, columns, ids))


def _living(batches: Iterable[pa.RecordBatch], columns: OriginColumns, ids: pa.Array) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        last = batch.filter(pc.is_in(ids_in(batch, columns), ids))
        yield last.filter(pc.invert(_is_tombstone(last)))


def _is_tombstone(batch: pa.RecordBatch) -> pa.Array:
    """Whether a row has no value; for a document, whether it has no field."""
    if "value" in batch.schema.names:
        return batch.column("value").is_null()
    empty = pa.array([True] * batch.num_rows, pa.bool_())
    for name in batch.schema.names:
        if not name.startswith("_"):
            empty = pc.and_(empty, batch.column(name).is_null())
    return empty


class PendingRows:
    """Files with rows that are not in the table yet. They are deleted at the end."""

    def __init__(self, directory: str, files: Sequence[DataFile]) -> None:
        self._filesystem, root = pa.fs.FileSystem.from_uri(as_uri(directory))
        self._paths = [f"{root}/{file.path}" for file in files]

    def __enter__(self) -> "PendingRows":
        return self

    def __exit__(self, *_: object) -> None:
        for path in self._paths:
            self._filesystem.delete_file(path)

    def rows(self) -> pa.Table:
        tables = [pq.read_table(path, filesystem=self._filesystem, partitioning=None) for path in self._paths]
        return pa.concat_tables(tables, promote_options="default")
