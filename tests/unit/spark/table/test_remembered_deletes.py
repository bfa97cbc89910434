"""The table of deletes beside a table by key."""

from itertools import count
from pathlib import Path

import pytest

from leadline.spark.table.remembered_deletes import DELETES, deletes_origin
from leadline.spark.table.table import HISTORY, UPSERT
from leadline.spark.table.table_format import TABLE_FORMATS, TablePlace
from tests.support.keyed_table import Change, KeyedTable


@pytest.mark.parametrize("kind", TABLE_FORMATS)
def test_deletes_are_beside_the_table_with_their_positions(tmp_path: Path, kind: str) -> None:
    offsets = count()
    table = KeyedTable(TablePlace(kind, str(tmp_path / "users")), UPSERT)
    table.write([Change(next(offsets), key, "c", n) for n, key in enumerate((b"a", b"b", b"c"))])
    assert table.place.deletes.open().state() is None
    table.write([Change(next(offsets), b"a", "d", 5), Change(next(offsets), b"b", None), Change(9, None, "t", 7)])
    beside = table.place.deletes.open()
    rows = beside.columns().read_all().to_pylist()
    assert {(row["kafka_key"], row["cdc_op"], row["cdc_source_position"]) for row in rows} == {(None, "t", "7")}
    table.write([Change(10, b"a", "d", 8), Change(11, b"b", "c", 9), Change(12, b"b", None)])
    rows = beside.columns().read_all().to_pylist()
    assert {(row["kafka_key"], row["cdc_op"], row["cdc_source_position"]) for row in rows} == {
        (None, "t", "7"),
        (b"a", "d", "8"),
        (b"b", None, "9"),
    }


def test_it_follows_the_same_topic_and_is_appended_to(tmp_path: Path) -> None:
    table = KeyedTable(TablePlace("delta", str(tmp_path / "users")), HISTORY)
    origin = deletes_origin(table.origin)
    assert (origin.topic, origin.topic_id, origin.mode, origin.history) == ("users", "id", "append", None)
    assert DELETES.names[0] == "kafka_key"
