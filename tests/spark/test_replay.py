"""A table, or Parquet files, back into a topic: once, in order, in the original partitions; cut off anywhere."""

import itertools
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from leadline.model import TopicPartition
from leadline.spark.client.cluster import ClusterClient
from leadline.spark.client.range_fetch import FetchOptions, rows
from leadline.spark.ranges import Range
from leadline.spark.table import replay as replaying
from leadline.spark.table.replay import Replay, ReplaySource, ReplaySpec
from leadline.spark.table.table import TableError
from leadline.spark.table.table_writer import TableSpec as TableWish
from tests.support.broker import RunningBroker, leadline
from tests.support.following import Feed, Pipeline
from tests.support.steps import Died, Steps
from tests.support.topics import create_topic

_fresh = itertools.count()
Stored = list[tuple[int, bytes | None, bytes | None, int]]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with leadline(tmp_path_factory.mktemp("replay") / "data") as running:
        yield running


@pytest.fixture
def topic(broker: RunningBroker) -> str:
    name = f"again-{next(_fresh)}"
    create_topic(broker.bootstrap, name, 2)
    return name


@pytest.fixture(scope="module")
def source(spark: SparkSession, broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> ReplaySource:
    create_topic(broker.bootstrap, "orders", 2)
    Feed(broker, "orders").more(120)
    path = tmp_path_factory.mktemp("orders") / "table"
    Pipeline(spark, broker, path, TableWish("orders", {})).run()
    return ReplaySource("delta", str(path))


def stored(broker: RunningBroker, topic: str) -> Stored:
    """What readers of committed records see: partition, key, value and time, in their order."""
    records: Stored = []
    with ClusterClient({"bootstrap.servers": broker.bootstrap}) as cluster:
        tps = [TopicPartition(topic, n) for n in range(2)]
        for tp, end in cluster.latest(tps, committed=True).items():
            for batch in rows(cluster, Range(tp, 0, end), FetchOptions(committed=True), headers=False):
                times = batch.column("timestamp").cast(pa.int64()).to_pylist()
                columns = (batch.column("key").to_pylist(), batch.column("value").to_pylist(), times)
                records += [(tp.partition, *record) for record in zip(*columns, strict=True)]
    return records


def run(spark: SparkSession, spec: ReplaySpec) -> int:
    with ClusterClient(spec.properties) as cluster:
        return sum(batch.records for batch in Replay(spark, cluster, spec).batches())


def test_a_table_is_in_the_topic_as_it_was_and_once(
    spark: SparkSession, broker: RunningBroker, source: ReplaySource, topic: str
) -> None:
    spec = ReplaySpec(source, topic, {"bootstrap.servers": broker.bootstrap}, batch_records=50)
    assert run(spark, spec) == 120
    assert stored(broker, topic) == stored(broker, "orders")
    assert run(spark, spec) == 0
    assert run(spark, replace(spec, name="second")) == 120


def test_parquet_files_are_replayed_at_a_rate(
    spark: SparkSession, broker: RunningBroker, topic: str, tmp_path: Path
) -> None:
    for n in range(2):
        offsets = pa.array(range(n * 10, n * 10 + 10), pa.int64())
        values = pa.array([b"%d" % offset.as_py() for offset in offsets], pa.binary())
        columns = {"partition": pa.array([1] * 10, pa.int32()), "offset": offsets, "value": values}
        pq.write_table(pa.table(columns), tmp_path / f"{9 - n}.parquet")
    spec = ReplaySpec(ReplaySource("parquet", str(tmp_path)), topic, {"bootstrap.servers": broker.bootstrap}, rate=20)
    started = time.monotonic()
    assert run(spark, spec) == 20
    assert time.monotonic() - started >= 1
    assert [value for _, _, value, _ in stored(broker, topic)] == [b"%d" % n for n in range(20)]


def test_cut_off_between_any_two_steps_it_goes_on_where_it_stopped(
    spark: SparkSession, broker: RunningBroker, source: ReplaySource, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replaying, "run_tasks", lambda _, work, tasks: list(map(work, tasks)))
    spec = ReplaySpec(source, topic, {"bootstrap.servers": broker.bootstrap}, batch_records=60)
    steps, deaths = Steps(monkeypatch), 0
    for step in itertools.count(1):
        steps.before(step)
        try:
            run(spark, spec)
            break
        except Died:
            deaths += 1
    assert deaths > 20
    assert stored(broker, topic) == stored(broker, "orders")


def test_a_replay_that_is_impossible_is_refused_with_its_reason(
    spark: SparkSession, broker: RunningBroker, source: ReplaySource, topic: str, tmp_path: Path
) -> None:
    properties = {"bootstrap.servers": broker.bootstrap}
    pq.write_table(pa.table({"value": [b"v"]}), tmp_path / "x.parquet")
    with pytest.raises(TableError, match="has no column partition: a replay needs partition, offset, value"):
        run(spark, ReplaySpec(ReplaySource("parquet", str(tmp_path)), topic, properties))
    with pytest.raises(TableError, match="there is no delta table at"):
        run(spark, ReplaySpec(ReplaySource("delta", str(tmp_path / "none")), topic, properties))
    create_topic(broker.bootstrap, f"{topic}-narrow", 1)
    with pytest.raises(TableError, match=r"has rows of partition 1, and .* has 1 partition:"):
        run(spark, ReplaySpec(source, f"{topic}-narrow", properties))
