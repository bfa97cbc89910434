"""What a table promises its writer, in each of its homes: commits are all or nothing, and the writer is one."""

import threading
from pathlib import Path

import pyarrow as pa
import pytest

from leadline.spark.table.table import (
    DELETED,
    DataFile,
    OffsetSlice,
    OriginColumns,
    Table,
    TableError,
    TableOrigin,
    TableProgress,
    TableState,
    WriterRefused,
    check_origin,
)
from leadline.spark.table.table_format import TABLE_FORMATS, open_table
from leadline.spark.table.write_task import ParquetFiles

COLUMNS = OriginColumns.of("raw")
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
    ]
)
ORIGIN = TableOrigin("orders", "id", "raw", "append", "day", "read_committed")
DAY_US = 86_400_000_000


def rows(*offsets: int, partition: int = 0, value: bytes = b"v") -> pa.RecordBatch:
    count = len(offsets)
    return pa.record_batch(
        [
            pa.array([b"k%d" % offset for offset in offsets], pa.binary()),
            pa.array([value] * count, pa.binary()),
            pa.array([partition] * count, pa.int32()),
            pa.array(offsets, pa.int64()),
            pa.array([offset * DAY_US // 2 for offset in offsets], pa.timestamp("us", "UTC")),
        ],
        schema=SCHEMA,
    )


def written(table: Table, batch: pa.RecordBatch) -> list[DataFile]:
    with ParquetFiles(table.data_directory, COLUMNS, "day", table.slot(ORIGIN)) as files:
        files.write(batch)
        return files.finish()


def offsets_in(table: Table, where: OffsetSlice | None = None) -> list[int]:
    return sorted(table.columns(["offset"], where).read_all()["offset"].to_pylist())


@pytest.fixture(params=TABLE_FORMATS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    return open_table(request.param, str(tmp_path / "orders"))


@pytest.fixture
def state(table: Table) -> TableState:
    assert table.state() is None
    table.create(ORIGIN, SCHEMA, TableProgress())
    return table.take_over(ORIGIN)


def test_files_offsets_and_batch_are_one_commit(table: Table, state: TableState) -> None:
    progress = state.progress
    for batch in range(12):  # Delta writes a checkpoint on the way
        after = progress.after({0: batch + 1, 3: 7})
        table.append(written(table, rows(batch)), progress, after)
        progress = after
    committed = table.state()
    assert committed is not None
    assert committed.progress == TableProgress(11, {0: 12, 3: 7}, 1)
    assert committed.origin == ORIGIN
    assert offsets_in(table) == list(range(12))


def test_a_batch_without_rows_moves_the_offsets(table: Table, state: TableState) -> None:
    table.append([], state.progress, state.progress.after({0: 5}))
    committed = table.state()
    assert committed is not None
    assert committed.progress == TableProgress(0, {0: 5}, 1)


def test_a_writer_that_was_overtaken_is_refused(table: Table, state: TableState) -> None:
    files = written(table, rows(1))
    newer = table.take_over(ORIGIN)
    assert newer.progress.epoch == 2
    with pytest.raises(WriterRefused, match="has another writer now"):
        table.append(files, state.progress, state.progress.after({0: 2}))
    assert offsets_in(table) == []
    table.append(files, newer.progress, newer.progress.after({0: 2}))
    assert offsets_in(table) == [1]


def test_a_batch_is_not_committed_twice(table: Table, state: TableState) -> None:
    after = state.progress.after({0: 2})
    table.append(written(table, rows(1)), state.progress, after)
    with pytest.raises(WriterRefused, match="is at batch 0, not at -1"):
        table.append(written(table, rows(1)), state.progress, after)
    assert offsets_in(table) == [1]


def test_of_two_that_commit_at_the_same_time_one_is_refused(table: Table, state: TableState) -> None:
    start, outcomes = threading.Barrier(2), list[str]()
    files = [written(table, rows(n)) for n in range(2)]

    def commit(n: int) -> None:
        mine = open_table("delta" if type(table).__name__ == "Delta" else "iceberg", table.uri)
        start.wait()
        try:
            mine.append(files[n], state.progress, state.progress.after({0: n + 1}))
            outcomes.append("done")
        except WriterRefused:
            outcomes.append("refused")

    threads = [threading.Thread(target=commit, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["done", "refused"]
    assert len(offsets_in(table)) == 1


def test_a_slice_is_read_by_partition_and_offset(table: Table, state: TableState) -> None:
    files = written(table, rows(1, 2, 3, 4)) + written(table, rows(2, 3, partition=1))
    table.append(files, state.progress, state.progress.after({0: 5}))
    assert offsets_in(table, OffsetSlice(COLUMNS, 0, 2, 4)) == [2, 3]
    assert offsets_in(table, OffsetSlice(COLUMNS, 1, 0, 3)) == [2]


def test_columns_are_added_and_older_rows_have_null_there(table: Table, state: TableState) -> None:
    first = state.progress.after({0: 1})
    table.append(written(table, rows(0)), state.progress, first)
    table.add_columns([pa.field("x", pa.struct([("a", pa.int64())]))], first)
    table.add_columns([pa.field("x", pa.struct([("a", pa.int64()), ("b", pa.string())]))], first)
    more = rows(1).append_column(
        "x", pa.array([{"a": 1, "b": "c"}], pa.struct([("a", pa.int64()), ("b", pa.string())]))
    )
    table.append(written(table, more), first, first.after({0: 2}))
    stored = table.columns(["offset", "x"]).read_all().sort_by("offset")
    assert stored["x"].to_pylist() == [None, {"a": 1, "b": "c"}]


def with_day(batch: pa.Table, table: Table) -> pa.Table:
    if table.slot(ORIGIN) is None:
        return batch
    return batch.append_column("day", batch["timestamp"].cast(pa.timestamp("us")).cast(pa.date32(), safe=False))


def test_rows_take_the_place_of_those_with_their_key(table: Table, state: TableState) -> None:
    first = state.progress.after({0: 3})
    table.append(written(table, rows(0, 1, 2)), state.progress, first)
    new = pa.Table.from_batches([rows(1, 2, 9, value=b"new")]).append_column(DELETED, pa.array([False, True, False]))
    table.upsert(with_day(new, table), "key", first, first.after({0: 10}))
    values = {row["offset"]: row["value"] for row in table.columns(["offset", "value"]).read_all().to_pylist()}
    assert values == {0: b"v", 1: b"new", 9: b"new"}
    assert (now := table.state()) is not None
    assert now.progress == first.after({0: 10})


def test_a_table_can_be_rewritten(table: Table, state: TableState) -> None:
    first = state.progress.after({0: 3})
    table.append(written(table, rows(0, 1, 2)), state.progress, first)
    kept = table.columns().read_all()
    table.rewrite(kept.filter(pa.compute.equal(kept["offset"], 1)).to_reader(), first)
    assert offsets_in(table) == [1]
    assert (now := table.state()) is not None
    assert now.progress == first


def test_compaction_and_vacuum_keep_rows_and_progress(table: Table, state: TableState) -> None:
    progress = state.progress
    for batch in range(4):
        after = progress.after({0: batch + 1})
        table.append(written(table, rows(batch)), progress, after)
        progress = after
    orphan = written(table, rows(99))[0]
    done = table.compact()
    assert done["removed"] > done["added"]
    assert table.vacuum(1, dry_run=False) == []
    gone = table.vacuum(0, dry_run=False)
    assert any(path.endswith(Path(orphan.path).name) for path in gone)
    assert offsets_in(table) == [0, 1, 2, 3]
    table.append(written(table, rows(4)), progress, progress.after({0: 5}))
    assert offsets_in(table) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("topic", "users", "follows the topic orders, not users"),
        ("topic_id", "other", "was deleted and created again"),
        ("format", "json", "was created with --format raw, not json"),
        ("partition_by", "hour", "was created with --partition-by day, not hour"),
    ],
)
def test_a_table_of_something_else_is_refused(name: str, value: str, message: str) -> None:
    other = TableOrigin(**{**{field: getattr(ORIGIN, field) for field in ORIGIN.__dataclass_fields__}, name: value})
    with pytest.raises(TableError, match=message):
        check_origin(ORIGIN, other, "/data/orders")


def test_a_table_that_follows_no_topic_is_refused(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    DeltaTable.create(tmp_path / "theirs", SCHEMA)
    with pytest.raises(TableError, match="follows no topic"):
        open_table("delta", str(tmp_path / "theirs")).state()
