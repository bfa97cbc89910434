"""A task that writes files of a table: which files, which rows, and what it reports instead."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from leadline.model import TopicPartition
from leadline.records.batch import assign
from leadline.records.build import build
from leadline.records.record import Record
from leadline.spark.client.range_fetch import FetchOptions
from leadline.spark.ranges import Range
from leadline.spark.table.bucketed_files import buckets_of
from leadline.spark.table.data_directory import DataDirectory
from leadline.spark.table.table import DELETED, OriginColumns
from leadline.spark.table.write_task import TaskOutput, WriteTask, write_files
from leadline.wire.messages import FetchRequest, FetchResponse
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
    """A record a day, with these values."""

    def __init__(self, *values: bytes | None, error_code: int = 0) -> None:
        self.until, self.error_code = len(values), error_code
        self.data = build([Record(n, n * DAY_MS, b"k%d" % (n % 2), value, ()) for n, value in enumerate(values)])
        assign(self.data, 0, 0, 0)
        self.brokers = ScriptedBrokers({TP.topic: 1}, {FetchRequest: self._fetch})

    def _fetch(self, _: FetchRequest) -> FetchResponse:
        part = FetchResponse.PartitionData(
            partition_index=0,
            error_code=self.error_code,
            high_watermark=self.until,
            last_stable_offset=self.until,
            records=memoryview(self.data),
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


def test_a_field_without_a_column_is_reported_and_nothing_is_handed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    output = TopicOfDocuments(b'{"n": 1}', b'{"n": 2, "name": "x"}').write(monkeypatch, tmp_path)
    assert output.lacks_columns
    assert [field.name for field in output.unknown] == ["name"]
    assert (output.files, output.dead) == ([], [])


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
