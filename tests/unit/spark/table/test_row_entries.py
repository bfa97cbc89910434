"""Rows as changes of their keys, and validity as columns."""

import pyarrow as pa

from leadline.spark.table.row_entries import MOMENT, entries_of, with_validity
from leadline.spark.table.source_order import NO_ORDER, Place
from leadline.spark.table.table import DELETED, HistoryColumns, OriginColumns
from tests.support.keyed_table import ROWS, Change

CHANGES, RAW = OriginColumns.of("debezium"), OriginColumns.of("raw")


def test_a_change_has_its_place_its_position_and_its_time() -> None:
    rows = pa.Table.from_pylist([Change(3, b"a", "d", 7).row, Change(4, b"a", None).row], schema=ROWS)
    delete, tombstone = entries_of(rows, CHANGES, None, are_new=True)
    assert (delete.at, delete.place, delete.order.numbers) == (0, Place(3_000_000, 0, 3), (7,))
    assert (delete.op, delete.is_delete, delete.is_tombstone, delete.start_us) == ("d", True, False, 7000)
    assert (tombstone.order, tombstone.is_delete, tombstone.is_tombstone) == (NO_ORDER, True, True)
    assert tombstone.start_us == 4_000_000
    assert [entry.is_tombstone for entry in entries_of(rows, CHANGES, None)] == [False, False]


def test_records_that_are_no_changes_have_the_order_of_the_topic() -> None:
    rows = pa.table(
        {
            "key": [b"a"],
            "partition": [1],
            "offset": [5],
            "timestamp": pa.array([2], pa.timestamp("ms", "UTC")),
            DELETED: [True],
        }
    )
    (entry,) = entries_of(rows, RAW, None, are_new=True)
    assert (entry.place, entry.order, entry.is_delete, entry.is_tombstone) == (Place(2000, 1, 5), NO_ORDER, True, False)


def test_validity_is_written_and_read_again() -> None:
    history = HistoryColumns("since", "until", "now")
    rows = pa.Table.from_pylist([Change(n, b"a", "u", n).row for n in range(2)], schema=ROWS)
    valid = with_validity(rows, history, [(0, 1000), (1000, None)])
    assert valid["now"].to_pylist() == [False, True]
    assert valid.schema.field("until").type == MOMENT
    assert [entry.end_us for entry in entries_of(valid, CHANGES, history)] == [1000, None]
    again = with_validity(valid, history, [(0, 1000), (1000, 5000)])
    assert again["now"].to_pylist() == [False, False]
    assert again.column_names == valid.column_names
