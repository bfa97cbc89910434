"""Of all records with the same key, the last one."""

import pyarrow as pa
import pytest

from leadline.spark.table.table import OriginColumns
from leadline.spark.table.upserts import Place, is_later, last_of_each_key, with_slot

COLUMNS = OriginColumns.of("raw")


@pytest.mark.parametrize(
    ("one", "other", "later"),
    [
        ((5, 0, 10), (9, 0, 9), True),
        ((9, 0, 9), (5, 0, 10), False),
        ((9, 1, 3), (5, 0, 10), True),
        ((5, 1, 30), (9, 0, 10), False),
    ],
)
def test_offsets_decide_within_a_partition_and_times_between_two(one: Place, other: Place, later: bool) -> None:
    assert is_later(one, other) is later


def rows() -> pa.Table:
    return pa.table(
        {
            "key": pa.array([b"a", b"b", b"a", b"a"], pa.binary()),
            "partition": pa.array([0, 0, 0, 1], pa.int32()),
            "offset": pa.array([1, 2, 3, 9], pa.int64()),
            "timestamp": pa.array([0, 0, 86_400_000_000, 5], pa.timestamp("us", "UTC")),
        }
    )


def test_one_row_a_key_is_left() -> None:
    left = last_of_each_key(rows(), COLUMNS)
    assert [(row["key"], row["offset"]) for row in left.to_pylist()] == [(b"b", 2), (b"a", 3)]


def test_the_slot_of_time_is_a_column() -> None:
    days = with_slot(rows(), "day", "day", COLUMNS)["day"].to_pylist()
    assert [str(day) for day in days] == ["1970-01-01", "1970-01-01", "1970-01-02", "1970-01-01"]
    assert with_slot(rows(), "hour", "hour", COLUMNS)["hour"].to_pylist()[0] == "1970-01-01T00"
