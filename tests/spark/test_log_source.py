"""The files of a broker as DataFrames: of one that runs, with groups and transactions that clients made."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from leadline.spark.files.log_source import LogReader, log_options, tasks
from leadline.spark.files.log_views import VIEWS
from leadline.spark.topics.source_options import BadOption
from tests.support.broker import leadline

RECORDS = 300
Row = Any  # a column is an attribute


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """300 records in orders, of which a transaction aborted 10 and another committed the last 10; a group read some."""
    directory = tmp_path_factory.mktemp("broker")
    settings = {
        "num_partitions": 2,
        "offsets_topic_num_partitions": 2,
        "transaction_state_log_num_partitions": 2,
        "log_segment_bytes": 4096,
        "log_index_interval_bytes": 500,
        "replica_high_watermark_checkpoint_interval_ms": 100,
    }
    with leadline(directory, **settings) as broker:
        fill({"bootstrap.servers": broker.bootstrap})
        broker.stop()
        yield str(directory)


def fill(servers: dict[str, str]) -> None:
    plain = Producer(servers)
    for n in range(RECORDS - 20):
        plain.produce("orders", f"v{n}", f"k{n}", partition=n % 2, headers=[("n", str(n))])
        if n % 10 == 0:
            plain.flush()
    plain.flush()
    for commit in (False, True):
        producer = Producer(servers | {"transactional.id": "payments"})
        producer.init_transactions()
        producer.begin_transaction()
        for _ in range(10):
            producer.produce("orders", "of a transaction", partition=0)
        producer.flush()
        producer.commit_transaction() if commit else producer.abort_transaction()
    consumer = Consumer(servers | {"group.id": "readers", "enable.auto.commit": "false"})
    consumer.commit(offsets=[TopicPartition("orders", 1, 42, "so far")], asynchronous=False)
    consumer.close()


def rows(path: str, name: str, **options: str) -> list[Row]:
    """All rows of a view, read as tasks do, without Spark."""
    reader = LogReader(log_options({"path": path, "view": name} | options))
    records = [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]
    return [SimpleNamespace(**row) for row in records]


def test_all_records_are_there_once(log_dir: str) -> None:
    records = rows(log_dir, "records", topic="orders", includeheaders="true")
    assert len(records) == RECORDS
    assert {(row.partition, row.offset) for row in records if row.key} == {(n % 2, n // 2) for n in range(RECORDS - 20)}
    row = next(row for row in records if row.key == b"k11")
    assert (row.topic, row.partition, row.offset, row.value, row.timestampType) == ("orders", 1, 5, b"v11", 0)
    assert row.headers == [{"key": "n", "value": b"11"}]
    assert row.log_dir == log_dir


def test_large_logs_are_split_and_small_ones_packed(log_dir: str) -> None:
    assert len(tasks(log_options({"path": log_dir, "minpartitions": "20"}))) >= 20
    assert len(tasks(log_options({"path": log_dir}))) == 1
    records = rows(log_dir, "records", topic="orders", minpartitions="20")
    assert len({(row.partition, row.offset) for row in records}) == len(records) == RECORDS


def test_committed_records_are_without_those_of_an_aborted_transaction(log_dir: str) -> None:
    assert len(rows(log_dir, "records", topic="orders", **{"kafka.isolation.level": "read_committed"})) == RECORDS - 10


def test_batches_show_what_is_in_the_files(log_dir: str) -> None:
    batches = rows(log_dir, "batches", topic="orders")
    assert all(row.crc_valid and row.error is None for row in batches)
    assert sum(row.record_count for row in batches if not row.is_control) == RECORDS
    assert len({row.file for row in batches if row.partition == 0}) > 1
    first = min((row for row in batches if row.partition == 1), key=lambda row: row.base_offset)
    assert (first.file, first.position, first.codec) == ("00000000000000000000.log", 0, "none")
    sizes = {path.name: path.stat().st_size for path in Path(log_dir, "orders-0").glob("*.log")}
    assert sum(row.size for row in batches if row.partition == 0) == sum(sizes.values())


def test_indexes_point_into_the_log(log_dir: str) -> None:
    entries = rows(log_dir, "indexes", topic="orders")
    batches = rows(log_dir, "batches", topic="orders")
    places = {(row.partition, row.file.split(".")[0], row.position): row for row in batches}
    pointing = [row for row in entries if row.kind == "index"]
    assert pointing
    for row in pointing:
        assert places[row.partition, row.file.split(".")[0], row.log_position].last_offset == row.offset
    (aborted,) = [row for row in entries if row.kind == "txnindex"]
    assert (aborted.first_offset, aborted.offset) == (140, 150)
    assert {row.kind for row in entries} == {"index", "timeindex", "txnindex"}


def test_checkpoints_show_the_offsets_of_each_partition(log_dir: str) -> None:
    lines = rows(log_dir, "checkpoints", topic="orders")
    marks = [row for row in lines if row.file == "replication-offset-checkpoint" and row.topic == "orders"]
    assert {row.partition: row.offset for row in marks} == {0: 140 + 22, 1: 140}
    epochs = [row for row in lines if row.file == "leader-epoch-checkpoint"]
    assert {(row.partition, row.epoch, row.offset) for row in epochs} == {(0, 0, 0), (1, 0, 0)}
    assert [row.name for row in lines if row.name in ("broker.id", "topic_id")] == ["broker.id", "topic_id", "topic_id"]


def test_producers_are_those_of_the_snapshots(log_dir: str) -> None:
    producers = [row for row in rows(log_dir, "producers", topic="orders") if row.partition == 0]
    newest = [row for row in producers if row.snapshot_offset == 162]
    assert newest
    assert all(row.txn_first_offset is None and row.last_offset < 162 and row.error is None for row in newest)


def test_committed_offsets_are_read_from_the_journal_of_groups(log_dir: str) -> None:
    commits = [row for row in rows(log_dir, "offsets") if row.kind == "commit"]
    last = max(commits, key=lambda row: row.journal_offset)
    assert (last.group, last.topic, last.partition, last.offset) == ("readers", "orders", 1, 42)
    assert last.metadata.startswith("so far")
    assert not last.is_forgotten


def test_transactions_are_read_from_their_journal(log_dir: str) -> None:
    transactions = sorted(rows(log_dir, "transactions"), key=lambda row: row.journal_offset)
    assert {row.transactional_id for row in transactions} == {"payments"}
    states = [row.state for row in transactions]
    assert [state for state in states if state.startswith("Prepare")] == ["PrepareAbort", "PrepareCommit"]
    ongoing = next(row for row in transactions if row.state == "Ongoing")
    assert ongoing.partitions == [{"topic": "orders", "partition": 0}]


@pytest.fixture
def damaged(log_dir: str, tmp_path: Path) -> Path:
    """A copy of a partition's folder, the first segment of which does not begin with a batch."""
    folder = tmp_path / "orders-0"
    shutil.copytree(Path(log_dir, "orders-0"), folder)
    segment = min(folder.glob("*.log"))
    segment.write_bytes(b"\x09" * 100 + segment.read_bytes()[100:])
    return segment


def test_damage_is_a_row_among_those_of_the_files(damaged: Path) -> None:
    batches = rows(str(damaged.parent), "batches")
    wrong = [row for row in batches if row.error is not None]
    assert [(row.file, row.position, row.base_offset) for row in wrong] == [(damaged.name, 0, None)]
    assert len({row.file for row in batches}) > 1


# Through Spark


@pytest.mark.parametrize("name", VIEWS)
def test_spark_gets_the_rows_of_every_view(spark: SparkSession, log_dir: str, name: str) -> None:
    table = spark.read.format("leadline-log").option("view", name).load(log_dir).toArrow()
    assert table.column_names == VIEWS[name].schema.names
    assert table.num_rows == len(rows(log_dir, name)) > 0


def test_several_directories_are_read_together(spark: SparkSession, log_dir: str, damaged: Path) -> None:
    reader = spark.read.format("leadline-log").option("paths", json.dumps([log_dir, str(damaged.parent)]))
    directories = reader.option("view", "batches").load().select("log_dir").distinct().collect()
    assert {row.log_dir for row in directories} == {log_dir, str(damaged.parent.parent)}


def test_damage_is_an_error_for_a_reader_of_records(spark: SparkSession, damaged: Path) -> None:
    with pytest.raises(PySparkException, match=f"{damaged.name}: at byte 0: not a record batch: magic 9"):
        spark.read.format("leadline-log").load(str(damaged.parent)).count()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"view": "batch"}, "view=batch: there are records, batches, indexes"),
        ({"topics": "orders"}, r"there is no option topics \(did you mean topic"),
        ({"until": "now"}, "until=now: expected high-watermark or log-end"),
        ({"paths": "/data"}, "paths=/data: expected a JSON list"),
        ({"kafka.isolation.level": "serializable"}, "expected read_uncommitted or read_committed"),
    ],
)
def test_what_cannot_be_obeyed_is_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(BadOption, match=message):
        log_options({"path": "/data"} | options)


def test_a_directory_without_logs_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="neither a log directory nor the folder of a partition"):
        spark.read.format("leadline-log").load(str(tmp_path)).count()
