"""A replay of dead letters into a table, without a topic."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from leadline.spark.table.dead_letters import DeadLetterReplay, replay
from leadline.spark.table.parquet_files import ParquetFiles
from leadline.spark.table.payload import DEAD_LETTERS
from leadline.spark.table.table import OriginColumns, Table, TableError, TableOrigin, TableProgress
from leadline.spark.table.table_format import open_table

ORIGIN = TableOrigin("orders", "id", "json", "append", "none", "read_committed")
DEAD_ORIGIN = replace(ORIGIN, format="raw")
SCHEMA = pa.schema(
    [
        ("kafka_key", pa.binary()),
        ("kafka_partition", pa.int32()),
        ("kafka_offset", pa.int64()),
        ("kafka_timestamp", pa.timestamp("us", "UTC")),
        ("kafka_headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("n", pa.int64()),
    ]
)
Letter = tuple[int, bytes, bytes]  # offset, key, value


class DeadLetterTables:
    """A table and its dead-letter table, both after one batch."""

    def __init__(self, directory: Path, mode: str = "append") -> None:
        self.table = open_table("delta", str(directory / "orders"))
        self.dead = open_table("delta", str(directory / "dead"))
        self.origin = replace(ORIGIN, mode=mode)
        self.table.create(self.origin, SCHEMA, TableProgress())
        self.dead.create(DEAD_ORIGIN, DEAD_LETTERS, TableProgress())
        self.table.take_over(self.origin)
        self.dead.take_over(DEAD_ORIGIN)

    def add_letters(self, *letters: Letter) -> None:
        rows = [
            {
                "key": key,
                "value": value,
                "topic": "orders",
                "partition": 0,
                "offset": offset,
                "timestamp": offset * 1_000_000,
                "timestampType": 0,
                "headers": [],
                "cause": "before",
            }
            for offset, key, value in letters
        ]
        self._append(self.dead, pa.RecordBatch.from_pylist(rows, schema=DEAD_LETTERS), "raw")

    def add_row(self, offset: int, key: bytes, n: int) -> None:
        row = {
            "kafka_key": key,
            "kafka_partition": 0,
            "kafka_offset": offset,
            "kafka_timestamp": offset * 1_000_000,
            "n": n,
        }
        self._append(self.table, pa.RecordBatch.from_pylist([row], schema=SCHEMA), "json")

    def _append(self, table: Table, batch: pa.RecordBatch, format_: str) -> None:
        state = table.state()
        assert state is not None
        with ParquetFiles(table.data_directory, OriginColumns.of(format_), "none", None) as files:
            files.write(batch)
            table.append(files.finish(), state.progress, replace(state.progress, batch=0))

    def rows(self) -> list[tuple[int, int | None]]:
        """The offset and the field n of each row."""
        rows = self.table.columns(["kafka_offset", "n"]).read_all()
        return sorted(zip(rows["kafka_offset"].to_pylist(), rows["n"].to_pylist(), strict=True))

    def letters(self) -> list[int]:
        return sorted(self.dead.columns(["offset"]).read_all()["offset"].to_pylist())


def test_letters_that_fit_become_rows_and_the_others_stay(tmp_path: Path) -> None:
    tables = DeadLetterTables(tmp_path)
    tables.add_row(0, b"a", 1)
    tables.add_letters((1, b"b", b'{"n": 2}'), (2, b"c", b"no document"))
    outcome = replay(tables.table, tables.dead, "")
    assert (outcome.replayed, outcome.left) == (1, 1)
    assert "JSON" in outcome.cause
    assert (tables.rows(), tables.letters()) == ([(0, 1), (1, 2)], [2])


def test_a_letter_may_add_columns(tmp_path: Path) -> None:
    tables = DeadLetterTables(tmp_path)
    tables.add_row(0, b"a", 1)
    tables.add_letters((1, b"b", b'{"n": 2, "name": "x"}'))
    assert replay(tables.table, tables.dead, "") == DeadLetterReplay(1, 0)
    assert sorted(tables.table.columns(["name"]).read_all()["name"].to_pylist(), key=str) == [None, "x"]


def test_a_replay_after_an_interruption_does_not_add_a_row_twice(tmp_path: Path) -> None:
    tables = DeadLetterTables(tmp_path)
    tables.add_row(1, b"b", 2)  # the interrupted replay committed the row, and not the letters
    tables.add_letters((1, b"b", b'{"n": 2}'), (2, b"c", b'{"n": 3}'))
    assert replay(tables.table, tables.dead, "") == DeadLetterReplay(2, 0)
    assert (tables.rows(), tables.letters()) == ([(1, 2), (2, 3)], [])


def test_in_a_table_by_key_a_letter_does_not_replace_a_newer_row(tmp_path: Path) -> None:
    tables = DeadLetterTables(tmp_path, mode="upsert")
    tables.add_row(5, b"a", 50)
    tables.add_letters((3, b"a", b'{"n": 3}'), (4, b"b", b'{"n": 4}'), (6, b"b", b'{"n": 6}'))
    assert replay(tables.table, tables.dead, "") == DeadLetterReplay(3, 0)
    assert tables.rows() == [(5, 50), (6, 6)]


def test_letters_of_a_batch_that_is_not_in_the_table_are_not_replayed(tmp_path: Path) -> None:
    tables = DeadLetterTables(tmp_path)
    tables.add_letters((0, b"a", b'{"n": 1}'))
    with pytest.raises(TableError, match="run `leadline pipeline table` first"):
        replay(tables.table, tables.dead, "")
    assert tables.letters() == [0]


def test_without_a_table_there_is_nothing_to_replay(tmp_path: Path) -> None:
    absent = open_table("delta", str(tmp_path / "absent"))
    assert replay(absent, absent, "") == DeadLetterReplay(0, 0)
