"""Parquet files of a task: one for each slot of time, with the ranges of their offsets."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from leadline.spark.table.data_directory import DataDirectory
from leadline.spark.table.parquet_files import ParquetFiles
from leadline.spark.table.table import OriginColumns

COLUMNS = OriginColumns.of("json")
DAY_US = 86_400_000_000
SCHEMA = pa.schema(
    [("kafka_partition", pa.int32()), ("kafka_offset", pa.int64()), ("kafka_timestamp", pa.timestamp("us", "UTC"))]
)


def files_in(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*.parquet"))


def test_rows_of_an_hour_are_in_a_file_of_that_hour(tmp_path: Path) -> None:
    rows = [{"kafka_partition": 0, "kafka_offset": n, "kafka_timestamp": n * DAY_US // 48} for n in range(4)]
    with ParquetFiles(DataDirectory(str(tmp_path)), COLUMNS, "hour", "kafka_hour") as files:
        files.write(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))
        first, second = files.finish()
    assert first.slot == {"kafka_hour": "1970-01-01T00"}
    assert second.path.startswith("kafka_hour=1970-01-01T01/")
    assert (first.lowest["kafka_offset"], first.highest["kafka_offset"], second.rows) == (0, 1, 2)
    assert pq.read_table(tmp_path / second.path, partitioning=None)["kafka_offset"].to_pylist() == [2, 3]
    assert second.size == (tmp_path / second.path).stat().st_size


def test_an_empty_batch_creates_no_file(tmp_path: Path) -> None:
    with ParquetFiles(DataDirectory(str(tmp_path)), COLUMNS, "day", "day") as files:
        files.write(pa.RecordBatch.from_pylist([], schema=SCHEMA))
        assert files.finish() == []
    assert files_in(tmp_path) == []
