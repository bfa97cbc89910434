"""Batches that are merged into tables by key, in both formats: rows, files, deletes, history."""

from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path

import pytest

from leadline.spark.table.merge import bucket_count, shared
from leadline.spark.table.remembered_deletes import DELETES, deletes_origin
from leadline.spark.table.table import HISTORY, UPSERT, FilesChanged, TableError, TableProgress
from leadline.spark.table.table_format import TABLE_FORMATS, TablePlace
from tests.support.keyed_table import Change, Interrupted, KeyedTable
from tests.support.object_store import BUCKET, s3_server

_offsets = count()


@pytest.fixture(params=TABLE_FORMATS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> TablePlace:
    return TablePlace(request.param, str(tmp_path / "my users"))


def change(key: bytes | None, op: str | None, position: int | None = None) -> Change:
    return Change(next(_offsets), key, op, position)


@pytest.mark.parametrize("partition_by", ["none", "day", "hour"])
def test_rows_are_inserted_replaced_and_deleted(place: TablePlace, partition_by: str) -> None:
    table = KeyedTable(place, UPSERT, partition_by)
    table.write([change(b"a", "c", 1), change(b"b", "c", 2), change(b"c", "r", 3)])
    table.write([change(b"a", "u", 4), change(b"b", "d", 5), change(b"d", "c", 6)])
    assert table.values() == {b"a": 4, b"c": 3, b"d": 6}
    table.write([change(b"d", "u", 7), change(b"d", "u", 8)])
    assert table.values() == {b"a": 4, b"c": 3, b"d": 8}
    assert (table.late, table.repeated) == (0, 0)


def test_the_newest_change_of_the_database_wins_whenever_it_comes(place: TablePlace) -> None:
    table = KeyedTable(place, UPSERT)
    table.write([change(b"a", "u", 9), change(b"a", "u", 3), change(b"b", "d", 5)])
    table.write([change(b"a", "u", 4), change(b"b", "u", 4), change(b"a", "u", 9)])
    assert table.values() == {b"a": 9}
    assert (table.late, table.repeated) == (3, 1)
    table.write([change(b"c", "d", 5)])
    table.place.deletes.open().compact()
    table.write([change(b"b", "c", 6), change(b"c", "u", 4)])
    assert table.values() == {b"a": 9, b"b": 6}
    assert table.late == 4


def test_a_truncate_removes_what_is_older_also_if_that_comes_later(place: TablePlace) -> None:
    table = KeyedTable(place, UPSERT)
    table.write([change(b"a", "c", 1), change(b"b", "c", 2), change(b"c", "c", 7)])
    table.write([change(b"d", "c", 3), change(None, "t", 5), change(b"e", "c", 6)])
    assert table.values() == {b"c": 7, b"e": 6}
    table.write([change(b"f", "c", 4), change(b"g", "c", 8)])
    assert table.values() == {b"c": 7, b"e": 6, b"g": 8}
    assert table.late == 1


def test_history_has_one_open_row_for_each_key_that_is_there(place: TablePlace) -> None:
    table = KeyedTable(place, HISTORY)
    table.write([change(b"a", "c", 10), change(b"b", "c", 20)])
    table.write([change(b"a", "u", 30), change(b"b", "d", 40)])
    assert table.validity() == [
        (b"a", 10, 10, 30, False),
        (b"a", 30, 30, None, True),
        (b"b", 20, 20, 40, False),
    ]
    table.write([change(b"a", "u", 25), change(b"b", "c", 50), change(b"b", "u", 30), change(b"a", "u", 30)])
    assert table.validity() == [
        (b"a", 10, 10, 25, False),
        (b"a", 25, 25, 30, False),
        (b"a", 30, 30, None, True),
        (b"b", 20, 20, 30, False),
        (b"b", 30, 30, 40, False),
        (b"b", 50, 50, None, True),
    ]
    assert (table.late, table.repeated) == (2, 1)
    table.write([change(None, "t", 60)])
    assert [row[4] for row in table.validity()] == [False] * 6
    assert table.validity()[2] == (b"a", 30, 30, 60, False)


def test_versions_in_files_that_others_wrote_are_closed(place: TablePlace) -> None:
    table = KeyedTable(place, HISTORY)
    for n, key in enumerate((b"a", b"b", b"c")):
        table.write([change(key, "c", n)])
    _compact(table)
    table.write([change(b"a", "u", 30), change(b"b", "d", 40)])
    assert table.validity() == [
        (b"a", 0, 0, 30, False),
        (b"a", 30, 30, None, True),
        (b"b", 1, 1, 40, False),
        (b"c", 2, 2, None, True),
    ]
    assert {len(row["kafka_headers"]) for row in table.rows()} == {1}


def test_a_batch_that_is_interrupted_between_its_commits_comes_again(place: TablePlace) -> None:
    table = KeyedTable(place, UPSERT)
    table.write([change(b"a", "c", 1), change(b"b", "c", 2)])
    batch = [change(b"a", "d", 3), change(b"a", None), change(b"b", "u", 4)]
    for at in (1, 2):
        steps = count(1)

        def cut(at: int = at, steps: "count[int]" = steps) -> None:
            if next(steps) == at:
                raise Interrupted

        table.cut = cut
        with pytest.raises(Interrupted):
            table.write(batch)
        assert table.values() == {b"a": 1, b"b": 2}
    table.cut = lambda: None
    table.write(batch)
    assert table.values() == {b"b": 4}
    assert table.place.deletes.open().columns().read_all().num_rows == 1
    assert (table.late, table.repeated) == (0, 0)


def test_a_small_batch_leaves_other_files_alone(place: TablePlace) -> None:
    table = KeyedTable(place, UPSERT)
    table.write([change(b"a%03d" % n, "c", n) for n in range(500)])
    table.write([change(b"b%03d" % n, "c", n) for n in range(500)])
    before = {file.path: file for file in table.table.live_files()}
    table.write([change(b"b007", "u", 1000)])
    after = {file.path: file for file in table.table.live_files()}
    assert len([path for path in before if before[path] == after.get(path)]) >= 3  # of four, two for each bucket
    if place.kind == "iceberg":
        assert before.keys() < after.keys()
    assert table.values()[b"b007"] == 1000
    assert len(table.values()) == 1000


def test_the_summary_of_the_commit_counts_late_and_repeated_changes(place: TablePlace) -> None:
    table = KeyedTable(place, UPSERT)
    table.write([change(b"a", "u", 9), change(b"a", "u", 3), change(b"a", "u", 9), change(b"a", "u", 8)])
    if place.kind == "delta":
        from deltalake import DeltaTable

        summary = DeltaTable(place.uri).history(1)[0]
    else:
        snapshot = table.table._table().current_snapshot()  # type: ignore[attr-defined]
        summary = snapshot.summary.additional_properties
    assert (summary["leadline.late"], summary["leadline.repeated"]) == ("2", "1")


def test_a_table_with_a_row_for_each_change_becomes_one_by_key(place: TablePlace) -> None:
    table = KeyedTable(place, "append")
    changes = [
        change(b"a", "c", 1),
        change(b"b", "c", 9),
        change(b"b", "u", 3),
        change(b"c", "c", 6),
        change(b"c", "d", 7),
    ]
    changes += [change(None, "t", 2), change(None, "u", 8), change(b"d", "c", 5), change(b"d", None)]
    table.append(changes)
    prepared = table.renew()
    assert table.values() == {b"b": 9}
    assert {file.deletes for file in table.table.live_files()} == {()}
    assert sum(file.rows for file in prepared.remembered) == 3
    table.write([change(b"c", "u", 6), change(b"a", "u", 2), change(b"d", "u", 4), change(b"e", "c", 10)])
    assert table.values() == {b"b": 9, b"e": 10}


def test_a_merge_for_files_that_are_gone_is_refused(place: TablePlace) -> None:
    table = KeyedTable(place, UPSERT)
    for n in range(3):
        table.write([change(b"%d" % n, "c", n)])
    table.cut = lambda: _compact(table)
    with pytest.raises(FilesChanged, match="changed by others, such as a compaction"):
        table.write([change(b"1", "u", 10)])
    table.cut = lambda: None
    table.write([change(b"1", "u", 10)])
    assert table.values() == {b"0": 0, b"1": 10, b"2": 2}


def _compact(table: KeyedTable) -> None:
    assert table.table.compact()["removed"]


def test_a_file_of_a_merge_that_is_not_there_is_not_committed(place: TablePlace) -> None:
    table = KeyedTable(place, UPSERT)
    table.cut = lambda: _lose_files(Path(place.uri))
    with pytest.raises(TableError, match="nothing was committed"):
        table.write([change(b"1", "u", 10)])
    assert table.values() == {}


def _lose_files(directory: Path) -> None:
    for path in directory.rglob("part-*.parquet"):
        path.unlink()


@pytest.fixture(scope="module")
def s3() -> Iterator[Mapping[str, str]]:
    with s3_server() as options:
        yield options


@pytest.mark.parametrize("kind", TABLE_FORMATS)
def test_a_table_in_an_object_store_is_merged(tmp_path: Path, s3: Mapping[str, str], kind: str) -> None:
    place = TablePlace("delta", f"s3://{BUCKET}/my users", s3)
    if kind == "iceberg":
        catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"s3://{BUCKET}"}
        place = TablePlace(kind, "prod:shop.users", {**catalog, **s3})
    table = KeyedTable(place, UPSERT)
    if table.table.in_catalog:
        place.deletes.open().create(deletes_origin(table.origin), DELETES, TableProgress())
    table.write([change(b"%d" % n, "c", n) for n in range(6)])
    table.write([change(b"1", "u", 10), change(b"2", "d", 11)])
    table.write([change(b"2", "u", 9), change(b"3", "d", 12)])
    assert table.values() == {b"0": 0, b"1": 10, b"4": 4, b"5": 5}
    assert table.late == 1


def test_small_batches_have_one_bucket_and_large_ones_as_many_as_they_need() -> None:
    assert bucket_count(1000, 1000, 8) == 1
    assert bucket_count(9 << 20, 0, 8) == 8
    assert bucket_count(0, 600 << 20, 1) == 2
    assert bucket_count(1 << 40, 0, 8) == 64


def test_files_are_shared_by_their_sizes() -> None:
    assert shared([5, 1, 1, 1, 1, 1], 2, lambda size: size) == [[5], [1, 1, 1, 1, 1]]
    assert shared([], 4, lambda size: size) == []
