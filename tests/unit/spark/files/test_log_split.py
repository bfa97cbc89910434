"""Rows of log files as Arrow batches."""

import pyarrow as pa
import pytest

from leadline.spark.files import log_split
from leadline.spark.files.log_split import fields, in_columns


def test_a_schema_is_read_from_lines_and_commas() -> None:
    assert fields("topic string, partition int32\n    offset int64\n") == [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
    ]


def test_rows_become_batches_of_a_limited_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_split, "ROWS", 2)
    schema = pa.schema(fields("name string, offset int64"))
    batches = list(in_columns(iter([("a", 1), (None, 2), ("c", None)]), schema))
    assert [batch.num_rows for batch in batches] == [2, 1]
    assert [row for batch in batches for row in batch.to_pylist()] == [
        {"name": "a", "offset": 1},
        {"name": None, "offset": 2},
        {"name": "c", "offset": None},
    ]
    assert list(in_columns(iter(()), schema)) == []


def test_a_row_that_does_not_fit_its_schema_is_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        list(in_columns(iter([("a", 1), ("b",)]), pa.schema(fields("name string, offset int64"))))
