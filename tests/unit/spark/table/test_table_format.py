"""What a table promises its writer, in each of its homes: commits are all or nothing, and the writer is one."""

import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from leadline.spark.table.iceberg import AGE_MS, KEPT, UPKEEP
from leadline.spark.table.parquet_files import ParquetFiles
from leadline.spark.table.payload import BESIDE
from leadline.spark.table.table import (
    DataFile,
    OffsetSlice,
    OriginColumns,
    Table,
    TableError,
    TableOrigin,
    TableProgress,
    TableState,
    WriterRefused,
    check_column_names,
    check_origin,
    renamed_columns,
)
from leadline.spark.table.table_format import TABLE_FORMATS, TablePlace, open_table
from tests.support.iceberg_server import iceberg_server
from tests.support.object_store import BUCKET, s3_server
from tests.support.rest_catalog import rest_catalog

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


def sql_catalog(folder: Path) -> dict[str, str]:
    """The options of a catalog in SQLite."""
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": (folder / "warehouse").as_uri()}


@pytest.fixture(scope="module")
def iceberg_rest(tmp_path_factory: pytest.TempPathFactory, is_long: bool) -> Iterator[str]:
    """The address of a REST catalog of Iceberg's own."""
    if not is_long:
        pytest.skip("starts Iceberg's own REST catalog: runs with --long")
    with iceberg_server(tmp_path_factory.mktemp("rest")) as uri:
        yield uri


@pytest.fixture(params=[*TABLE_FORMATS, "sql catalog", "rest catalog", "iceberg's rest catalog"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TablePlace]:
    if request.param in TABLE_FORMATS:
        yield TablePlace(request.param, str(tmp_path / "my orders"))
    elif request.param == "sql catalog":
        yield TablePlace("iceberg", "prod:sales.eu.orders", sql_catalog(tmp_path))
    elif request.param == "iceberg's rest catalog":
        uri = request.getfixturevalue("iceberg_rest")
        yield TablePlace("iceberg", f"prod:{tmp_path.name}.eu.`my orders`", {"type": "rest", "uri": uri})
    else:
        with rest_catalog(SqlCatalog("behind", **sql_catalog(tmp_path))) as uri:
            yield TablePlace("iceberg", "prod:sales.`my orders`", {"type": "rest", "uri": uri})


@pytest.fixture
def table(place: TablePlace) -> Table:
    return place.open()


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


def test_of_two_that_commit_at_the_same_time_one_is_refused(place: TablePlace, table: Table, state: TableState) -> None:
    start, outcomes = threading.Barrier(2), list[str]()
    files = [written(table, rows(n)) for n in range(2)]

    def commit(n: int) -> None:
        mine = place.open()
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


def test_a_commit_names_no_file_that_is_not_there(table: Table, state: TableState) -> None:
    files = written(table, rows(1, 5))
    assert len(files) == 2
    filesystem, root = table.data_directory.open()
    filesystem.delete_file(f"{root}/{files[1].path}")
    with pytest.raises(TableError, match=rf"1 of 2 files are not in .*, such as {files[1].path}"):
        table.append(files, state.progress, state.progress.after({0: 6}))
    assert (offsets_in(table), table.state()) == ([], state)


def test_a_commit_names_no_file_of_another_size(table: Table, state: TableState) -> None:
    (file,) = written(table, rows(1))
    with pytest.raises(TableError, match=rf"has {file.size} bytes, and its task wrote {file.size + 1}"):
        table.append([replace(file, size=file.size + 1)], state.progress, state.progress.after({0: 2}))
    assert (offsets_in(table), table.state()) == ([], state)


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


OLD = ("_key", "_partition", "_offset", "_timestamp", "_headers")


def old_rows(*offsets: int) -> pa.RecordBatch:
    """Rows of documents as tables had them when they were made with names that Iceberg reserves."""
    schema = pa.schema([*(field.with_name(name) for name, field in zip(OLD, BESIDE, strict=True)), ("n", pa.int64())])
    rows = [{"_key": b"k", "_partition": 0, "_offset": n, "_timestamp": n * DAY_US, "n": n} for n in offsets]
    return pa.RecordBatch.from_pylist(rows, schema=schema)


def test_a_table_with_reserved_names_gets_new_ones_and_keeps_its_rows(place: TablePlace, table: Table) -> None:
    origin, old, is_delta = replace(ORIGIN, format="json"), old_rows(1, 2), place.kind == "delta"
    columns, slot = OriginColumns(*OLD[:4]), "_day" if is_delta else None
    with pytest.MonkeyPatch.context() as patch:  # as it was before
        patch.setattr("leadline.spark.table.table.PREFIX", "_")
        patch.setattr("leadline.spark.table.delta.PREFIX", "_")
        table.create(origin, old.schema, TableProgress())
    first = table.take_over(origin).progress
    with ParquetFiles(table.data_directory, columns, "day", slot) as files:
        files.write(old)
        table.append(files.finish(), first, second := first.after({0: 3}))
    before = table.state()
    assert before is not None
    with pytest.raises(TableError, match="run `leadline pipeline table` first, which renames them"):
        check_column_names(before, table.uri)

    table.rename_columns(renamed_columns(before), second)
    after = place.open().state()
    assert after is not None
    assert (after.origin, after.progress, renamed_columns(after)) == (origin, second, {})
    new = pa.record_batch(old_rows(3).columns, schema=pa.schema([*BESIDE, ("n", pa.int64())]))
    with ParquetFiles(table.data_directory, OriginColumns.of("json"), "day", table.slot(origin)) as files:
        files.write(new)
        table.append(files.finish(), second, second.after({0: 4}))
    stored = place.open().columns(["kafka_offset", "kafka_partition", "n"]).read_all().sort_by("n").to_pylist()
    assert [(row["kafka_offset"], row["kafka_partition"], row["n"]) for row in stored] == [
        (1, 0, 1),
        (2, 0, 2),
        (3, 0, 3),
    ]
    assert not any(name.startswith("_") for name in place.open().columns().schema.names)


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


def test_a_compaction_beside_a_writer_repeats_its_commit(
    place: TablePlace, table: Table, state: TableState, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress, rivals = state.progress, [4, 5]

    def append(offset: int) -> None:
        nonlocal progress
        after = progress.after({0: offset + 1})
        table.append(written(table, rows(offset)), progress, after)
        progress = after

    for offset in range(4):
        append(offset)
    compacting = place.open()
    name = "_table" if place.kind == "delta" else "_replace"
    step = getattr(type(compacting), name)

    def step_beside_the_writer(self: Table, *args: object) -> object:
        """The writer commits between the read and the commit of the compaction, twice."""
        result = step(self, *args) if place.kind == "delta" else None
        if self is compacting and rivals:
            append(rivals.pop(0))
        return result if place.kind == "delta" else step(self, *args)

    monkeypatch.setattr(type(compacting), name, step_beside_the_writer)
    done = compacting.compact()
    assert done["removed"] > done["added"]
    newest = table.state()
    assert newest is not None
    assert newest.progress == progress
    assert offsets_in(table) == list(range(progress.offsets[0]))


def test_the_metadata_of_an_iceberg_table_stays_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leadline.spark.table.iceberg.EXPIRED_AT_ONCE", 5)
    for name, value in ((KEPT, "5"), (AGE_MS, "-1"), ("commit.manifest.min-count-to-merge", "5")):
        monkeypatch.setitem(UPKEEP, name, value)
    table = open_table("iceberg", str(tmp_path / "orders"))
    table.create(ORIGIN, SCHEMA, TableProgress())
    progress = table.take_over(ORIGIN).progress
    for batch in range(40):
        after = progress.after({0: batch + 1})
        table.append(written(table, rows(batch)), progress, after)
        progress = after
    assert offsets_in(open_table("iceberg", str(tmp_path / "orders"))) == list(range(40))
    kinds = [path.name.partition("-")[0] for path in (tmp_path / "orders" / "metadata").iterdir()]
    lists, versions = kinds.count("snap"), len(list((tmp_path / "orders" / "metadata").glob("*.json")))
    assert lists <= 11
    assert versions <= 12
    assert len(kinds) - lists - versions <= 20


@pytest.fixture(scope="module")
def s3() -> Iterator[Mapping[str, str]]:
    with s3_server() as options:
        yield options


@pytest.mark.parametrize("kind", TABLE_FORMATS)
def test_a_table_in_an_object_store_keeps_the_same_promises(tmp_path: Path, s3: Mapping[str, str], kind: str) -> None:
    place = TablePlace("delta", f"s3a://{BUCKET}/my orders", s3)
    if kind == "iceberg":
        place = TablePlace(kind, "prod:sales.orders", {**sql_catalog(tmp_path), **s3, "warehouse": f"s3a://{BUCKET}"})
    table = place.open()
    table.create(ORIGIN, SCHEMA, TableProgress())
    first = table.take_over(ORIGIN).progress
    second, orphan = first.after({0: 6}), written(table, rows(8))
    table.append(written(table, rows(1, 5)), first, second)
    with pytest.raises(WriterRefused, match="is at batch 0, not at -1"):
        table.append(orphan, first, second)
    with pytest.raises(TableError, match="1 of 1 files are not in"):
        table.append([replace(orphan[0], path="nowhere.parquet")], second, second.after({0: 9}))
    table.append(written(table, rows(0, 2)), second, second.after({0: 7}))
    assert table.compact()["removed"] > 0
    assert any(path.endswith(Path(orphan[0].path).name) for path in table.vacuum(0, dry_run=False))
    assert offsets_in(place.open(), OffsetSlice(COLUMNS, 0, 1, 6)) == [1, 2, 5]
    assert list(tmp_path.glob("s3*")) == []


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


def test_an_iceberg_table_in_an_object_store_needs_a_catalog() -> None:
    with pytest.raises(TableError, match="s3://bucket/orders: an Iceberg table in an object store needs a catalog"):
        open_table("iceberg", "s3://bucket/orders").state()


def test_a_catalog_that_is_not_there_is_reported_in_one_line(tmp_path: Path) -> None:
    options = {"type": "rest", "uri": "http://127.0.0.1:1"}
    with pytest.raises(TableError, match=r"the catalog prod cannot be opened: .*127\.0\.0\.1"):
        open_table("iceberg", "prod:sales.orders", options).state()


def test_the_dead_letters_of_a_table_in_a_catalog_are_beside_it(tmp_path: Path) -> None:
    dead = TablePlace("iceberg", "prod:sales.`my orders`", sql_catalog(tmp_path)).dead_letters
    assert dead.uri == "prod:sales.`my orders_dead_letters`"
    assert dead.open().state() is None


def test_a_table_that_follows_no_topic_is_refused(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    DeltaTable.create(tmp_path / "theirs", SCHEMA)
    with pytest.raises(TableError, match="follows no topic"):
        open_table("delta", str(tmp_path / "theirs")).state()
