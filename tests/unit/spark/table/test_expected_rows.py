"""The rows that a table by key must have, of the records of a topic."""

import json

import pyarrow as pa
import pytest

from leadline.spark.table.change_events import CHANGE_COLUMNS
from leadline.spark.table.expected_rows import spans_by_key, truncates, with_spans
from leadline.spark.table.payload import BESIDE, ShapedRecords, shape_of
from leadline.spark.table.table import HistoryColumns, OriginColumns
from tests.support.decoded import decoded

COLUMNS = OriginColumns.of("debezium")
SCHEMA = pa.schema([*BESIDE, *CHANGE_COLUMNS, ("id", pa.int64())])


def event(op: str, position: int) -> bytes:
    row = {"id": position}
    return json.dumps({"op": op, "before": row, "after": row, "source": {"ts_ms": position, "lsn": position}}).encode()


def shaped(*events: tuple[bytes | None, bytes | None]) -> list[ShapedRecords]:
    """Keys and values. Offsets begin at 100."""
    batch = decoded(*(value for _, value in events), keys=[key for key, _ in events])
    return [shape_of("debezium", "", by_key=False)(batch, "t", 0, SCHEMA)]


RECORDS = shaped((b"a", event("c", 10)), (b"a", event("u", 30)), (b"a", event("u", 20)), (b"b", event("c", 5)))


@pytest.mark.parametrize(
    ("mode", "offsets"),
    [
        ("upsert", {101: (30_000, None), 103: (5_000, None)}),
        ("scd2", {100: (10_000, 20_000), 102: (20_000, 30_000), 101: (30_000, None), 103: (5_000, None)}),
    ],
)
def test_rows_follow_from_the_order_of_the_database(mode: str, offsets: dict[int, tuple[int, int | None]]) -> None:
    assert spans_by_key(mode, RECORDS, COLUMNS, set(), []) == offsets


def test_dead_letters_are_no_changes() -> None:
    assert sorted(spans_by_key("upsert", RECORDS, COLUMNS, {101, 103}, [])) == [102]


def test_truncates_of_other_partitions_count() -> None:
    (truncated,) = truncates(shaped((None, event("t", 25)), (b"a", event("c", 1))), COLUMNS, set())
    assert sorted(spans_by_key("upsert", RECORDS, COLUMNS, set(), [truncated])) == [101]
    assert spans_by_key("scd2", RECORDS, COLUMNS, set(), [truncated])[102] == (20_000, 25_000)


def test_rows_get_their_validity() -> None:
    spans = spans_by_key("scd2", RECORDS, COLUMNS, set(), [])
    rows = with_spans(RECORDS[0].rows, COLUMNS, HistoryColumns(), spans)
    assert rows.column("is_current").to_pylist() == [False, True, False, True]
    assert with_spans(RECORDS[0].rows, COLUMNS, None, {101: (0, None)}).column("id").to_pylist() == [30]
    assert with_spans(RECORDS[0].rows, COLUMNS, HistoryColumns(), {}).num_rows == 0
