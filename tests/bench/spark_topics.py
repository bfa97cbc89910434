"""Topics read into Spark, and written as Parquet: Leadline's format and table job beside Spark's own Kafka connector.

Both read the same topic of a Leadline broker in one Spark, in turns; what comes out is compared before it is measured.
To be read means to arrive as rows in Spark, all columns of them (its sink `noop` takes them). A stream reads the topic
in several batches, with the trigger availableNow, from the start of the query to its end. As Parquet, Leadline's side
is a new table of `leadline pipeline table`, flushed to the disk and committed; the other is Spark's own writer.

The first batch of a table of JSON documents finds its columns, too. It is compared with the batches after it.
"""

import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median

from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from leadline.spark.client.cluster import ClusterClient
from leadline.spark.session import session
from leadline.spark.table.table_format import TablePlace
from leadline.spark.table.table_writer import BatchSummary, TableSpec, TableWriter
from tests.bench.results import Goal, Row
from tests.bench.run import Run
from tests.bench.sides import same
from tests.conformance.kafka.jars import jars_of
from tests.support.broker import RunningBroker, leadline
from tests.support.topics import create_topic

CONNECTOR = Path(__file__).parent.parent / "spark" / "connector" / "pom.xml"
SETTINGS = {"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "2"}
PARTITIONS = 4
KINDS = (("100 B", 100, 2_000_000, 40_000), ("1 KB", 1000, 300_000, 10_000))
POOL_BYTES, STRIDE = 1 << 22, 7_919
TWICE = Goal(times=2)
STREAM_BATCHES = 6
STREAM_GOALS = {1000: Goal(times=1.5)}
DOCUMENTS, DOCUMENT_BATCHES = (600_000, 8_000), 4
FIRST_BATCH = Goal(below=1.25)


def measure(run: Run) -> list[Row]:
    rows: list[Row] = []
    jars = ",".join(map(str, sorted(jars_of(CONNECTOR, "spark-kafka-connector-4.2.0").glob("*.jar"))))
    spark = session("bench", master="local[2]", settings=SETTINGS | {"spark.jars": jars})
    try:
        with leadline(run.folder / "data") as broker:
            for name, record_bytes, full, quick in KINDS:
                run.say(f"topics, {name}: writing")
                topic = Filled(spark, broker, f"records-{record_bytes}", record_bytes, run.sized(full, quick))
                goal = STREAM_GOALS.get(record_bytes)
                rows.append(_measure(run, f"read, {name}, into Spark", topic, _read, _read, TWICE))
                rows.append(_measure(run, f"stream, {name}, into Spark", topic, _stream, _stream, goal))
                rows.append(_measure(run, f"to Parquet, {name}", topic, _as_table, _as_parquet, TWICE))
            run.say("topics, JSON: writing")
            rows.append(_measure_first_batch(run, Documents(spark, broker, run.sized(*DOCUMENTS))))
    finally:
        spark.stop()
    return rows


class Topic:
    """A topic with so many records."""

    def __init__(self, spark: SparkSession, broker: RunningBroker, name: str, count: int) -> None:
        self.spark, self.server, self.name, self.count = spark, broker.bootstrap, name, count
        self.out = broker.directory.with_name(name)
        create_topic(self.server, name, PARTITIONS)
        producer = Producer(
            {"bootstrap.servers": self.server, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000}
        )
        for n in range(count):
            producer.produce(name, self.value(n), n.to_bytes(8, "big"), partition=n % PARTITIONS)
            if n % 100_000 == 99_999:
                producer.flush()
        assert producer.flush(60) == 0

    def value(self, n: int) -> bytes:
        raise NotImplementedError


class Filled(Topic):
    """No two values are alike that are near each other."""

    def __init__(self, spark: SparkSession, broker: RunningBroker, name: str, record_bytes: int, count: int) -> None:
        self._bytes, self._pool = record_bytes - 8, os.urandom(POOL_BYTES + record_bytes)
        super().__init__(spark, broker, name, count)

    def value(self, n: int) -> bytes:
        at = (n + 1) * STRIDE % POOL_BYTES
        return self._pool[at : at + self._bytes]

    def rows(self, format: str, **options: str) -> DataFrame:
        reader = self.spark.read.format(format).option("kafka.bootstrap.servers", self.server)
        return reader.options(subscribe=self.name, startingOffsets="earliest", **options).load()


class Documents(Topic):
    def __init__(self, spark: SparkSession, broker: RunningBroker, count: int) -> None:
        super().__init__(spark, broker, "documents", count)

    def value(self, n: int) -> bytes:
        place = {"city": "Bern", "at": [46.9, n % 180 + 0.5]}
        return json.dumps(
            {"id": n, "name": f"record {n}", "price": n * 0.25, "paid": n % 2 == 0, "where": place}
        ).encode()


def _measure_first_batch(run: Run, topic: Documents) -> Row:
    row = Row("first batch of JSON, beside the others", "x", FIRST_BATCH)
    for n in run.each_round(row.what):
        first, *others, _ = (batch.seconds / batch.records for batch in _batches(topic, "json", DOCUMENT_BATCHES))
        if n:
            row.leadline.append(first / median(others))
    return row


def _measure(run: Run, what: str, topic: Filled, ours: "Side", theirs: "Side", goal: Goal | None) -> Row:
    row = Row(what, "/s", goal)
    same(what, ours(topic, "leadline", check=True), theirs(topic, "kafka", check=True))
    for n in run.each_round(what):
        rates = [topic.count / _seconds(lambda side=side, f=f: side(topic, f))  # type: ignore[misc]
                 for side, f in ((ours, "leadline"), (theirs, "kafka"))]  # fmt: skip
        if n:
            row.add(*rates)
    return row


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _sums(rows: DataFrame) -> list[object]:
    """What must be equal for every reader."""
    sums = "count(1) n", "sum(crc32(key)) k", "sum(crc32(value)) v", "sum(offset * (partition + 1)) o"
    return list(rows.selectExpr(*sums).collect()[0])


Side = Callable[..., list[object]]


def _read(topic: Filled, format: str, *, check: bool = False) -> list[object]:
    rows = topic.rows(format)
    if check:
        return _sums(rows)
    rows.write.format("noop").mode("overwrite").save()
    return []


def _as_parquet(topic: Filled, format: str, *, check: bool = False) -> list[object]:
    shutil.rmtree(topic.out, ignore_errors=True)
    topic.rows(format, includeHeaders="true").write.parquet(str(topic.out))
    return _sums(topic.spark.read.parquet(str(topic.out))) if check else []


def _stream(topic: Filled, format: str, *, check: bool = False) -> list[object]:
    shutil.rmtree(topic.out, ignore_errors=True)
    reader = topic.spark.readStream.format(format).option("kafka.bootstrap.servers", topic.server)
    limit = -(-topic.count // STREAM_BATCHES)
    rows = reader.options(subscribe=topic.name, startingOffsets="earliest", maxOffsetsPerTrigger=str(limit)).load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(topic.out / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    batches = [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
    return [len(batches), sum(batches)] if check else []


def _as_table(topic: Filled, _: str, *, check: bool = False) -> list[object]:
    _batches(topic, "raw", 1)
    return _sums(topic.spark.read.parquet(str(topic.out))) if check else []


def _batches(topic: Topic, format: str, count: int) -> list[BatchSummary]:
    """Of a new table, about so many."""
    shutil.rmtree(topic.out, ignore_errors=True)
    properties = {"bootstrap.servers": topic.server}
    with ClusterClient(properties) as cluster:
        place = TablePlace("delta", str(topic.out))
        spec = TableSpec(topic.name, properties, format=format)
        writer = TableWriter(topic.spark, cluster, place.open(), place.dead_letters.open(), spec)
        if (whole := writer.next_batch()) is not None and count > 1:
            size = sum(range_.length * whole.bytes_per_offset[range_.tp] for range_ in whole.ranges)
            writer.spec = replace(spec, batch_bytes=int(size / count) + 1)
        return list(writer.batches())
