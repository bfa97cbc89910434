"""Columns that a user declares, in tables of both formats: without a topic, and without Spark."""

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from leadline.spark.table.column_types import type_name
from leadline.spark.table.dead_letters import replay
from leadline.spark.table.declared_columns import column_types, declare, schema_file
from leadline.spark.table.parquet_files import ParquetFiles
from leadline.spark.table.payload import BESIDE, DEAD_LETTERS, RESERVED, shape_of
from leadline.spark.table.table import OriginColumns, Table, TableError, TableOrigin, TableProgress
from leadline.spark.table.table_format import TABLE_FORMATS, open_table
from tests.support.decoded import decoded

ORIGIN = TableOrigin("orders", "id", "json", "append", "day", "read_committed")


class DeclaredTable:
    """A table, and records that are written to it as a task would write them."""

    def __init__(self, kind: str, path: Path) -> None:
        self.table = open_table(kind, str(path / "orders"))
        self.dead = open_table(kind, str(path / "dead"))
        for table, origin, schema in ((self.table, ORIGIN, BESIDE), (self.dead, self.dead_origin, DEAD_LETTERS)):
            table.create(origin, schema, TableProgress())
        self.state = self.table.take_over(ORIGIN)
        self.dead_progress = self.dead.take_over(self.dead_origin).progress
        self.offset = 0

    @property
    def dead_origin(self) -> TableOrigin:
        return replace(ORIGIN, format="raw", partition_by="none")

    def declare(self, **columns: str) -> None:
        self.state = declare(self.table, self.state, column_types(columns))

    def write(self, *values: bytes) -> None:
        batch = decoded(*values, first=self.offset)
        self.offset += len(values)
        shaped = shape_of("json", "", by_key=False)(batch, "orders", 0, self.state.schema)
        assert shaped.unknown.num_fields == 0
        after = self.state.progress.after({0: self.offset})
        if shaped.bad is not None:
            self._append(self.dead, shaped.bad, self.dead_origin, self.dead_progress, after)
            self.dead_progress = replace(after, epoch=self.dead_progress.epoch)
        self._append(self.table, shaped.rows, ORIGIN, self.state.progress, after)
        self.state = replace(self.state, progress=after)

    def _append(
        self, table: Table, rows: pa.RecordBatch, origin: TableOrigin, before: TableProgress, after: TableProgress
    ) -> None:
        columns = OriginColumns.of(origin.format)
        with ParquetFiles(table.data_directory, columns, origin.partition_by, table.slot(origin)) as files:
            files.write(rows)
            table.append(files.finish(), before, replace(after, epoch=before.epoch))

    def rows(self) -> list[dict[str, Any]]:
        rows = sorted(self.table.columns().read_all().to_pylist(), key=lambda row: row["kafka_offset"])
        return [{name: value for name, value in row.items() if name not in RESERVED} for row in rows]

    def types(self) -> dict[str, str]:
        state = self.table.state()
        assert state is not None
        return {field.name: type_name(field.type) for field in state.schema if field.name not in RESERVED}


@pytest.fixture(params=TABLE_FORMATS)
def declared(request: pytest.FixtureRequest, tmp_path: Path) -> DeclaredTable:
    return DeclaredTable(request.param, tmp_path)


def test_a_table_has_the_columns_that_are_declared(declared: DeclaredTable) -> None:
    types = {
        "price": "decimal(18,2)",
        "paid": "timestamp",
        "local": "timestamp_ntz",
        "day": "date",
        "tags": "map<string,array<int>>",
        "grid": "array<array<float>>",
        "who": "struct<id:int,photo:binary>",
    }
    declared.declare(**types)
    assert declared.types() == types
    declared.write(
        b'{"price": "1.5", "paid": "2026-01-31T12:00:00+01:00", "local": "2026-01-31T12:00:00", "day": "2026-01-31", '
        b'"tags": {"a": [1]}, "grid": [[1.5], []], "who": {"id": 7, "photo": "AAE="}}',
        b'{"who": {"id": 8}}',
    )
    first, second = declared.rows()
    assert (first["price"], first["paid"].hour, first["local"].hour) == (Decimal("1.50"), 11, 12)
    assert (str(first["day"]), first["tags"], first["grid"]) == ("2026-01-31", [("a", [1])], [[1.5], []])
    assert first["who"] == {"id": 7, "photo": b"\0\1"}
    assert (second["price"], second["who"]) == (None, {"id": 8, "photo": None})


def test_a_wider_column_keeps_its_rows_and_takes_what_did_not_fit(declared: DeclaredTable) -> None:
    declared.declare(n="int", price="decimal(4,2)", deep="array<struct<x:float,y:string>>", total="long", other="long")
    declared.write(
        b'{"n": 1, "price": 12.5, "deep": [{"x": 1.5}], "total": 3, "other": 4}',
        b'{"n": 3000000000}',
        b'{"price": 100}',
        b'{"deep": [{"x": 1e300}]}',
        b'{"total": 1.5}',
        b'{"other": 0.25}',
    )
    assert len(declared.rows()) == 1
    declared.declare(n="long", price="decimal(9,2)", deep="array<struct<x:double,z:date>>")
    declared.declare(total="double", other="decimal(30,3)")
    assert declared.types() == {
        "n": "long",
        "price": "decimal(9,2)",
        "deep": "array<struct<x:double,y:string,z:date>>",
        "total": "double",
        "other": "decimal(30,3)",
    }
    done = replay(declared.table, declared.dead, "")
    assert (done.replayed, done.left) == (5, 0)
    rows = declared.rows()
    assert rows[0] == {
        "n": 1,
        "price": Decimal("12.50"),
        "deep": [{"x": 1.5, "y": None, "z": None}],
        "total": 3.0,
        "other": Decimal("4.000"),
    }
    assert (rows[1]["n"], rows[2]["price"], rows[4]["total"]) == (3_000_000_000, Decimal("100.00"), 1.5)
    assert (rows[3]["deep"][0]["x"], rows[5]["other"]) == (1e300, Decimal("0.250"))
    assert declared.dead.columns().read_all().num_rows == 0


def test_a_replay_declares_columns_itself(declared: DeclaredTable) -> None:
    declared.declare(n="int")
    declared.write(b'{"n": 1}', b'{"n": 3000000000}')
    done = replay(declared.table, declared.dead, "", column_types({"n": "long"}))
    assert (done.replayed, done.left) == (1, 0)
    assert [row["n"] for row in declared.rows()] == [1, 3_000_000_000]


def test_a_column_with_a_value_that_does_not_fit_stays_as_it_is(declared: DeclaredTable) -> None:
    declared.declare(n="long")
    declared.write(b'{"n": 100}')
    with pytest.raises(TableError, match="does not fit"):
        declared.declare(n="decimal(4,2)")
    with pytest.raises(TableError, match="n is long in the table and cannot become string"):
        declared.declare(n="string")
    assert declared.types() == {"n": "long"}
    assert [row["n"] for row in declared.rows()] == [100]


def test_wider_columns_are_one_commit_of_the_writer(declared: DeclaredTable) -> None:
    declared.declare(n="int")
    before = declared.state
    declared.table.take_over(ORIGIN)
    with pytest.raises(TableError, match="has another writer now"):
        declare(declared.table, before, column_types({"n": "long"}))
    assert declared.types() == {"n": "int"}


def test_a_schema_file_has_a_column_in_each_line(tmp_path: Path) -> None:
    file = tmp_path / "orders.schema"
    file.write_text("# orders\nprice = decimal(18,2)  # in francs\n\ntags=map<string,int>\n")
    assert {name: type_name(kind) for name, kind in schema_file(file).items()} == {
        "price": "decimal(18,2)",
        "tags": "map<string,int>",
    }
    file.write_text("price decimal(18,2)\n")
    with pytest.raises(TableError, match=r"orders.schema:1: 'price decimal\(18,2\)' is not NAME=TYPE"):
        schema_file(file)
    with pytest.raises(TableError, match="No such file"):
        schema_file(tmp_path / "none")


def test_a_schema_of_avro_declares_columns_too(tmp_path: Path) -> None:
    file = tmp_path / "orders.avsc"
    tags = '{"name": "tags", "type": {"type": "map", "values": "long"}}'
    file.write_text(f'{{"type": "record", "name": "r", "fields": [{{"name": "id", "type": "long"}}, {tags}]}}')
    assert {name: type_name(kind) for name, kind in schema_file(file).items()} == {
        "id": "long",
        "tags": "map<string,long>",
    }


@pytest.mark.parametrize("name", ["kafka_offset", "_Partition", "a b", ""])
def test_names_that_a_table_cannot_have_are_refused(name: str) -> None:
    with pytest.raises(TableError, match=r"cannot be declared|cannot name a column"):
        column_types({name: "int"})
