"""A task that writes files of a table: which files, which rows, and what it reports instead."""

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from leadline.model import TopicPartition
from leadline.records.build import BatchFields, build
from leadline.records.record import Record
from leadline.spark.client.range_fetch import FetchOptions
from leadline.spark.ranges import Range
from leadline.spark.table.bucketed_files import buckets_of
from leadline.spark.table.data_directory import DataDirectory
from leadline.spark.table.evolution import NOTHING
from leadline.spark.table.payload import ShapedRecords, extended
from leadline.spark.table.table import DELETED, OriginColumns
from leadline.spark.table.write_task import TaskColumns, TaskOutput, WriteTask, write_files
from leadline.wire.messages import FetchRequest, FetchResponse
from tests.support.decoded import decoded
from tests.support.scripted_brokers import ScriptedBrokers

TP = TopicPartition("orders", 0)
DAY_MS = 86_400_000
COLUMNS = OriginColumns.of("json")
NOT_AUTHORIZED = 29
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


class TopicOfDocuments:
    """A record a day, with these values. A fetch returns one batch of `batch_records`."""

    def __init__(self, *values: bytes | None, error_code: int = 0, batch_records: int = 100) -> None:
        self.until, self.error_code, self.batch_records = len(values), error_code, batch_records
        self.batches = [
            self._batch(first, values[first : first + batch_records]) for first in range(0, len(values), batch_records)
        ]
        self.brokers = ScriptedBrokers({TP.topic: 1}, {FetchRequest: self._fetch})

    def _batch(self, first: int, values: Sequence[bytes | None]) -> bytearray:
        records = [Record(n, n * DAY_MS, b"k%d" % (n % 2), value) for n, value in enumerate(values, first)]
        return build(records, BatchFields(base_offset=first))

    def _fetch(self, request: FetchRequest) -> FetchResponse:
        first = request.topics[0].partitions[0].fetch_offset
        part = FetchResponse.PartitionData(
            partition_index=0,
            error_code=self.error_code,
            high_watermark=self.until,
            last_stable_offset=self.until,
            records=memoryview(self.batches[first // self.batch_records]) if first < self.until else memoryview(b""),
        )
        return FetchResponse(responses=[FetchResponse.FetchableTopicResponse(topic=TP.topic, partitions=[part])])

    def write(self, monkeypatch: pytest.MonkeyPatch, directory: Path, *, buckets: int = 0) -> TaskOutput:
        self.brokers.client(monkeypatch).close()
        job = WriteTask(
            properties={"bootstrap.servers": "broker:1"},
            fetch_options=FetchOptions(),
            format="json",
            registry="",
            columns=COLUMNS,
            schema=SCHEMA,
            directory=DataDirectory(str(directory / "table")),
            dead_directory=DataDirectory(str(directory / "dead")),
            partition_by="day",
            slot="day",
            buckets=buckets,
        )
        return write_files(job, (Range(TP, 0, self.until),))


def task_columns(schema: pa.Schema) -> TaskColumns:
    place = DataDirectory("unused")
    return TaskColumns(WriteTask({}, FetchOptions(), "json", "", COLUMNS, schema, place, place, "none", None))


SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 2.0]) | st.sampled_from(["", "a"])
MEMBERS = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)
OBJECTS = st.dictionaries(st.sampled_from(["n", "x", "y", "X", "_pos"]), MEMBERS, max_size=3)


def without_nulls(value: object) -> object:
    if isinstance(value, dict):
        return {name: without_nulls(member) for name, member in value.items() if member is not None}
    return [without_nulls(member) for member in value] if isinstance(value, list) else value


def content(shaped: ShapedRecords) -> tuple[list[object], list[object]]:
    """Rows, and the offsets of bad records."""
    bad = [] if shaped.bad is None else shaped.bad.column("offset").to_pylist()
    return [without_nulls(row) for row in shaped.rows.to_pylist()], bad


@given(st.lists(st.lists(OBJECTS, min_size=1, max_size=3), min_size=1, max_size=4))
@example([[{"x": []}], [{"x": "a"}]])
@example([[{"x": {"a": []}}], [{"x": {"a": {"b": 1}}}]])
@example([[{"x": [1]}], [{"y": 1, "x": [0.5]}]])
@example([[{"x": None}], [{"X": 1}]])
@example([[{"x": {"a": None}}], [{"x": {"A": 1}}]])
def test_one_pass_writes_what_a_task_with_all_columns_writes(fetches: list[list[dict[str, object]]]) -> None:
    batches, first = [], 0
    for documents in fetches:
        values = [json.dumps(document).encode() for document in documents]
        batches.append(decoded(*values, first=first))
        first += len(values)
    columns = task_columns(SCHEMA)
    written = [columns.shape(batch, TP) for batch in batches]
    again = task_columns(extended(SCHEMA, [columns.unknown]))
    complete = [again.shape(batch, TP) for batch in batches]
    assert not again.are_late
    assert again.unknown == NOTHING
    if not columns.are_late:
        assert [content(shaped) for shaped in written if shaped] == [content(shaped) for shaped in complete if shaped]


def files_in(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*.parquet"))


def test_each_day_has_a_file_with_the_range_of_its_offsets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    output = TopicOfDocuments(b'{"n": 1}', b'{"n": 2}').write(monkeypatch, tmp_path)
    assert [file.slot for file in output.files] == [{"day": "1970-01-01"}, {"day": "1970-01-02"}]
    assert [file.lowest["kafka_offset"] for file in output.files] == [0, 1]
    assert (output.records, output.newest_ms, output.dead, output.error) == (2, DAY_MS, [], "")
    for n, file in enumerate(output.files):
        path = tmp_path / "table" / file.path
        assert path.stat().st_size == file.size
        assert pq.read_table(path, partitioning=None)["n"].to_pylist() == [n + 1]


def test_bad_records_go_to_the_dead_letters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    output = TopicOfDocuments(b'{"n": 1}', b"no document", b'{"n": "text"}').write(monkeypatch, tmp_path)
    assert sum(file.rows for file in output.files) == 1
    (dead,) = output.dead
    letters = pq.read_table(tmp_path / "dead" / dead.path)
    assert letters["offset"].to_pylist() == [1, 2]
    assert letters["value"].to_pylist() == [b"no document", b'{"n": "text"}']
    assert output.records == 3


def stored(output: TaskOutput, directory: Path) -> list[dict[str, object]]:
    """The fields of the rows that a task hands over."""
    tables = [pq.read_table(directory / "table" / file.path, partitioning=None) for file in output.files]
    rows = [row for table in tables for row in table.to_pylist()]
    return [{name: value for name, value in row.items() if not name.startswith("kafka_")} for row in rows]


def test_a_field_without_a_column_is_written_and_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    values = [b'{"n": 1}', b'{"n": 2, "name": "x"}', b'{"n": 3, "name": "y", "at": {"x": 1}}', b'{"at": {"y": 2}}']
    output = TopicOfDocuments(*values, batch_records=1).write(monkeypatch, tmp_path)
    at = pa.struct([("x", pa.int64()), ("y", pa.int64())])
    assert output.lacks_columns
    assert output.unknown == pa.struct([("name", pa.string()), ("at", at)])
    assert output.is_kept(SCHEMA, extended(SCHEMA, [output.unknown]))
    assert stored(output, tmp_path) == [
        {"n": 1},
        {"n": 2, "name": "x"},
        {"n": 3, "name": "y", "at": {"x": 1}},
        {"n": None, "name": None, "at": {"x": None, "y": 2}},
    ]


def test_rows_of_one_day_are_in_files_of_the_columns_that_were_known(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(f"{__name__}.DAY_MS", 1)
    values = [b'{"n": 1}', b'{"n": 2}', b'{"n": 3, "name": "x"}', b'{"n": 4, "name": "y"}']
    output = TopicOfDocuments(*values, batch_records=2).write(monkeypatch, tmp_path)
    assert [(file.rows, file.lowest["kafka_offset"], file.highest["kafka_offset"]) for file in output.files] == [
        (2, 0, 1),
        (2, 2, 3),
    ]
    assert [row["n"] for row in stored(output, tmp_path)] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ((b'{"x": 1}', b'{"x": 1.5}'), pa.float64()),  # whole numbers and others, in any order
        ((b'{"x": 1}', b'{"x": 1.5, "y": 1}'), pa.float64()),
        ((b'{"x": [1]}', b'{"x": [1.5]}'), pa.list_(pa.float64())),
        ((b'{"x": []}', b'{"x": ["a"]}'), pa.list_(pa.string())),  # the first row would lack its empty array
        ((b'{"x": {}}', b'{"x": {"a": 1}}'), pa.struct([("a", pa.int64())])),
    ],
)
def test_a_task_whose_first_rows_would_differ_hands_nothing_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, values: tuple[bytes, ...], kind: pa.DataType
) -> None:
    output = TopicOfDocuments(*values, b'{"z": true}', batch_records=1).write(monkeypatch, tmp_path)
    types = {field.name: field.type for field in output.unknown}
    assert (types["x"], types["z"]) == (kind, pa.bool_())
    assert (output.files, output.dead) == ([], [])
    assert not output.is_kept(SCHEMA, extended(SCHEMA, [output.unknown]))


def test_of_contradicting_types_in_two_fetches_the_first_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    values = [b'{"x": "text"}', b'{"x": 1}', b'{"x": "more"}']
    output = TopicOfDocuments(*values, batch_records=1).write(monkeypatch, tmp_path)
    assert output.unknown == pa.struct([("x", pa.string())])
    assert [row["x"] for row in stored(output, tmp_path)] == ["text", "more"]
    (dead,) = output.dead
    assert pq.read_table(tmp_path / "dead" / dead.path)["offset"].to_pylist() == [1]


@pytest.mark.parametrize(
    ("value", "more", "is_kept"),
    [
        (b'{"x": 1}', pa.struct([("y", pa.string())]), True),
        (b'{"x": {"a": 1}}', pa.struct([("x", pa.struct([("b", pa.int64())]))]), True),
        (b'{"x": 1}', pa.struct([("x", pa.float64())]), False),
        (b'{"x": 1, "y": []}', pa.struct([("z", pa.string())]), True),
        (b'{"x": 1, "y": []}', pa.struct([("y", pa.list_(pa.string()))]), False),
        (b'{"n": 1, "y": []}', pa.struct([("y", pa.list_(pa.string()))]), False),
        (b'{"n": 1, "y": null}', pa.struct([("y", pa.string())]), True),
    ],
)
def test_what_a_task_wrote_counts_unless_other_tasks_change_its_columns(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: bytes, more: pa.DataType, is_kept: bool
) -> None:
    output = TopicOfDocuments(value).write(monkeypatch, tmp_path)
    assert output.is_kept(SCHEMA, extended(SCHEMA, [more, output.unknown])) == is_kept


def test_a_field_without_a_column_is_staged_for_a_merge_and_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    values = [b'{"n": 1}', b'{"n": 2}', b'{"n": 3, "name": "x"}']
    output = TopicOfDocuments(*values, batch_records=1).write(monkeypatch, tmp_path, buckets=1)
    assert output.unknown == pa.struct([("name", pa.string())])
    assert output.is_kept(SCHEMA, extended(SCHEMA, [output.unknown]))
    tables = [pq.read_table(tmp_path / "table" / path, partitioning=None) for path in output.staged.paths]
    staged = pa.concat_tables(tables, promote_options="permissive").sort_by("n")
    assert staged["name"].to_pylist() == [None, None, "x"]
    assert staged[DELETED].to_pylist() == [False, False, False]


def test_rows_that_are_to_be_merged_are_staged_by_key_and_mark_tombstones(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    output = TopicOfDocuments(b'{"n": 1}', None, b'{"n": 3}').write(monkeypatch, tmp_path, buckets=5)
    assert output.files == []
    by_key: dict[bytes, list[bool]] = {}
    for bucket, paths in output.staged.by_bucket.items():
        for path in paths:
            rows = pq.read_table(tmp_path / "table" / path, partitioning=None)
            assert buckets_of(rows["kafka_key"], 5).tolist() == [bucket] * rows.num_rows
            by_key |= {rows["kafka_key"][0].as_py(): rows[DELETED].to_pylist()}
    assert by_key == {b"k0": [False, False], b"k1": [True]}


def test_a_failure_of_the_cluster_is_an_output(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    output = TopicOfDocuments(b"{}", error_code=NOT_AUTHORIZED).write(monkeypatch, tmp_path)
    assert output.error.startswith("fetch of orders-0 from offset 0: ")
    assert (output.files, files_in(tmp_path)) == ([], [])
