"""Single tasks of a merge: what is not read, and what a row without a value means."""

from itertools import count
from pathlib import Path

import pyarrow as pa

from leadline.spark.table.bucketed_files import BucketedFiles
from leadline.spark.table.merge import merge_job
from leadline.spark.table.merge_tasks import FindTask, find, with_deletes
from leadline.spark.table.table import DELETED, UPSERT, OriginColumns
from leadline.spark.table.table_format import TablePlace
from tests.support.keyed_table import ROWS, Change, KeyedTable

COLUMNS = OriginColumns.of("debezium")


def test_files_without_keys_of_the_batch_are_not_read(tmp_path: Path) -> None:
    offsets = count()
    table = KeyedTable(TablePlace("delta", str(tmp_path / "users")), UPSERT)
    for letter in (b"a", b"b", b"c"):
        table.write([Change(next(offsets), letter + b"%d" % n, "c", n) for n in range(5)])
    files = list(enumerate(table.table.live_files()))
    staging = table.table.data_directory.child("staged")
    with BucketedFiles(staging, "batch", COLUMNS, 1) as staged:
        staged.write(pa.RecordBatch.from_pylist([Change(99, b"b1", "u", 99).row], schema=ROWS))
        paths = staged.finish()
    job = merge_job(table.table, table.place.deletes.open(), table.origin, staging, 1)
    matches = find(job, FindTask(files, [], paths))
    assert len(matches.rows.paths) == 1
    assert matches.skipped >= 4  # of six, two for each letter


def test_rows_without_a_value_or_without_a_field_are_deletes() -> None:
    raw = pa.table({"key": [b"a", b"b"], "value": pa.array([b"v", None], pa.binary())})
    assert with_deletes(raw)[DELETED].to_pylist() == [False, True]  # type: ignore[index]
    documents = pa.table({"kafka_key": [b"a", b"b"], "kafka_offset": [1, 2], "n": pa.array([None, 1], pa.int64())})
    assert with_deletes(documents)[DELETED].to_pylist() == [True, False]  # type: ignore[index]
    changes = pa.table({"kafka_key": [b"a", b"b"], "cdc_op": ["d", "u"], "n": [1, 1]})
    assert with_deletes(changes)[DELETED].to_pylist() == [True, False]  # type: ignore[index]
    assert with_deletes(None) is None
