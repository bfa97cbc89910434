"""Rows between two steps of a merge, by buckets of keys."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from leadline.spark.table.bucketed_files import BucketedFiles, BucketPaths, buckets_of
from leadline.spark.table.data_directory import DataDirectory
from leadline.spark.table.table import OriginColumns

COLUMNS = OriginColumns.of("raw")
SCHEMA = pa.schema([("key", pa.binary()), ("partition", pa.int32()), ("offset", pa.int64())])


def rows(*keys: bytes | None) -> pa.RecordBatch:
    made = [{"key": key, "partition": 0, "offset": offset} for offset, key in enumerate(keys)]
    return pa.RecordBatch.from_pylist(made, schema=SCHEMA)


def test_all_rows_of_a_key_are_in_the_files_of_its_bucket(tmp_path: Path) -> None:
    keys = [b"%d" % (n % 20) for n in range(60)]
    with BucketedFiles(DataDirectory(str(tmp_path)), "batch", COLUMNS, 4) as files:
        files.write(rows(*keys[:30]))
        files.write(rows(*keys[30:], None))
        staged = files.finish()
    assert sorted(staged.by_bucket) == [0, 1, 2, 3, 4]
    stored = {bucket: pq.read_table(tmp_path / path)["key"] for bucket, (path,) in staged.by_bucket.items()}
    assert stored.pop(4).to_pylist() == [None]
    for bucket, column in stored.items():
        assert set(buckets_of(column, 4).tolist()) == {bucket}
    assert sum(len(column) for column in stored.values()) == 60


def test_paths_of_several_tasks_are_joined_by_bucket() -> None:
    joined = BucketPaths.joined([BucketPaths({0: ["a"], 1: ["b"]}), BucketPaths(), BucketPaths({1: ["c"]})])
    assert (joined.of(0), joined.of(1), joined.of(2)) == (["a"], ["b", "c"], ())
    assert joined.paths == ["a", "b", "c"]
