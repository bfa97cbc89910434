"""Tables as Spark's own Delta and Iceberg read them.

Neither has a release that runs on Spark 4.3: Iceberg 1.12 (for Spark 4.1) and Delta 4.4 (for Spark 4.2) fail there with
errors of linkage. So a Spark 4.1 of its own reads the tables: the newest that both have a release for. It takes half a
minute of CPU time, so it runs with --long.
"""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from leadline.spark.table.parquet_files import ParquetFiles
from leadline.spark.table.payload import BESIDE
from leadline.spark.table.table import DELETED, HistoryColumns, OriginColumns, TableOrigin, TableProgress
from leadline.spark.table.table_format import TABLE_FORMATS, TablePlace
from leadline.spark.table.table_writer import schema_of
from tests.conformance.kafka import jars
from tests.support.keyed_table import merge_rows

HERE = Path(__file__).parent
DAY_US = 86_400_000_000
HISTORY = HistoryColumns()
OPENED = "lang lang.invoke lang.reflect io net nio util util.concurrent util.concurrent.atomic".split()
ORIGIN = TableOrigin("orders", "id", "json", "append", "day", "read_committed")
ORIGINS = {
    "documents_by_day": ORIGIN,
    "documents": replace(ORIGIN, partition_by="none"),
    "records_by_hour": replace(ORIGIN, format="raw", partition_by="hour"),
    "documents_by_key": replace(ORIGIN, mode="upsert"),
    "keys_of_one_file": replace(ORIGIN, mode="upsert", partition_by="none"),
    "history_by_key": replace(ORIGIN, mode="scd2", partition_by="none", history_columns=",".join(HISTORY.names)),
}


def rows(origin: TableOrigin, *offsets: int) -> pa.Table:
    columns = OriginColumns.of(origin.format)
    fields = {"topic": "orders", "timestampType": 0, "value": b"v", "headers": [], f"{BESIDE.names[-1]}": []}
    made = [
        {
            columns.key: b"k%d" % (n % 2),
            columns.partition: 0,
            columns.offset: n,
            columns.timestamp: n * DAY_US,
            "where": {"city": "Bern", "at": [46.9, 7.4]},
            **fields,
        }
        for n in offsets
    ]
    place = pa.struct([("city", pa.string()), ("at", pa.list_(pa.float64()))])
    schema = schema_of(origin.format)
    schema = schema if origin.format == "raw" else schema.append(pa.field("where", place))
    return pa.Table.from_pylist([{name: row[name] for name in schema.names} for row in made], schema=schema)


def write(place: TablePlace, origin: TableOrigin) -> None:
    """Two commits. A table by key then has deleted rows in its files; the others are compacted."""
    table, columns = place.open(), OriginColumns.of(origin.format)
    validity = [] if origin.history is None else origin.history.fields
    table.create(origin, pa.schema([*rows(origin).schema, *validity]), TableProgress())
    progress = table.take_over(origin).progress
    for batch in (rows(origin, 0, 1), rows(origin, 2)):
        after = progress.after({0: batch[columns.offset][-1].as_py() + 1})
        if origin.is_by_key:
            merge_rows(place, origin, batch.append_column(DELETED, pa.array([False] * batch.num_rows)), after)
        else:
            with ParquetFiles(table.data_directory, columns, origin.partition_by, table.slot(origin)) as files:
                for part in batch.to_batches():
                    files.write(part)
                table.append(files.finish(), progress, after)
        progress = after
    if not origin.is_by_key:
        table.compact()


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory, is_long: bool) -> dict[tuple[str, str], list[dict[str, object]]]:
    """The rows of all tables, by one Java process."""
    if not is_long:
        pytest.skip("starts a Spark of its own: runs with --long")
    folder = tmp_path_factory.mktemp("tables")
    names = [(kind, name) for kind in TABLE_FORMATS for name in ORIGINS]
    places = []
    for kind, name in names:
        write(TablePlace(kind, f"{folder}/{kind}/{name}"), ORIGINS[name])
        place = f"{folder}/{kind}/{name}"
        if kind == "iceberg":
            place = str(max(Path(place, "metadata").glob("*.metadata.json"), key=lambda path: path.name))
        places += [kind, place]
    libraries = jars.jars_of(HERE / "jvm_readers" / "pom.xml", "spark-table-readers-4.1.3")
    classes = jars.compiled(HERE / "jvm_readers" / "TableReads.java", against=libraries)
    opened = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in OPENED]
    opened += [
        f"--add-opens=java.base/sun.{name}=ALL-UNNAMED"
        for name in ("nio.ch", "nio.cs", "security.action", "util.calendar")
    ]
    quick = ["-Xmx700m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Djdk.reflect.useDirectMethodHandle=false"]
    command = [jars.java(), *quick, *opened, "-cp", f"{libraries}/*:{classes}", "TableReads", *places]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
    lines = [line.removeprefix("TABLE ") for line in done.stdout.splitlines() if line.startswith("TABLE ")]
    return {name: json.loads(f"[{line}]") for name, line in zip(names, lines, strict=True)}


@pytest.mark.parametrize("kind", TABLE_FORMATS)
@pytest.mark.parametrize(
    ("name", "offsets"), [*((name, [0, 1, 2]) for name in ORIGINS if "key" not in name or "history" in name)]
)
def test_spark_selects_all_columns_of_a_table(
    read: dict[tuple[str, str], list[dict[str, object]]], kind: str, name: str, offsets: list[int]
) -> None:
    rows_of_table, columns = read[kind, name], OriginColumns.of(ORIGINS[name].format)
    assert sorted(row[columns.offset] for row in rows_of_table) == offsets  # type: ignore[type-var]
    assert {row[columns.partition] for row in rows_of_table} == {0}
    if name.startswith("documents"):
        assert all(row["where"] == {"city": "Bern", "at": [46.9, 7.4]} for row in rows_of_table)


@pytest.mark.parametrize("kind", TABLE_FORMATS)
@pytest.mark.parametrize("name", ["documents_by_key", "keys_of_one_file"])
def test_spark_sees_the_last_row_of_each_key(
    read: dict[tuple[str, str], list[dict[str, object]]], kind: str, name: str
) -> None:
    assert sorted(row["kafka_offset"] for row in read[kind, name]) == [1, 2]  # type: ignore[type-var]


@pytest.mark.parametrize("kind", TABLE_FORMATS)
def test_spark_sees_which_rows_are_current(read: dict[tuple[str, str], list[dict[str, object]]], kind: str) -> None:
    current = [row["kafka_offset"] for row in read[kind, "history_by_key"] if row["is_current"]]
    assert sorted(current) == [1, 2]  # type: ignore[type-var]
    (closed,) = [row for row in read[kind, "history_by_key"] if not row["is_current"]]
    assert (closed["kafka_offset"], closed["valid_to"]) == (0, "1970-01-03T00:00:00.000Z")
