"""Iceberg tables whose files have deleted rows."""

from itertools import count
from pathlib import Path

from leadline.spark.table.table import UPSERT
from leadline.spark.table.table_format import TablePlace
from tests.support.keyed_table import Change, KeyedTable

_offsets = count()


def change(key: bytes, op: str, position: int) -> Change:
    return Change(next(_offsets), key, op, position)


def test_a_file_that_lost_rows_again_and_again_has_one_delete_file(tmp_path: Path) -> None:
    table = KeyedTable(TablePlace("iceberg", str(tmp_path / "users")), UPSERT)
    table.write([change(b"%d" % n, "c", n) for n in range(20)])
    for n in range(6):
        table.write([change(b"%d" % n, "d", 100 + n)])
    assert table.values() == {b"%d" % n: n for n in range(6, 20)}
    assert max(len(file.deletes) for file in table.table.live_files()) == 1
    table.table.compact()
    assert [file.deletes for file in table.table.live_files()] == [()]
    assert table.values() == {b"%d" % n: n for n in range(6, 20)}
    table.write([change(b"7", "u", 200)])
    assert table.values() == {b"%d" % n: n for n in range(6, 20)} | {b"7": 200}
    for first in (6, 13):
        table.write([change(b"%d" % n, "d", 300 + n) for n in range(first, first + 7)])
    assert table.values() == {}
    assert table.table.live_files() == []


def test_vacuum_keeps_the_files_of_deleted_positions(tmp_path: Path) -> None:
    table = KeyedTable(TablePlace("iceberg", str(tmp_path / "users")), UPSERT)
    table.write([change(b"a", "c", 1), change(b"b", "c", 2), change(b"c", "c", 3)])
    table.write([change(b"a", "d", 4), change(b"b", "u", 5)])
    table.table.vacuum(0, dry_run=False)
    assert table.values() == {b"b": 5, b"c": 3}
