"""Topics read into Spark, and written as Parquet: Leadline's format and table job beside Spark's own Kafka connector.

Both read the same topic of a Leadline broker in one Spark, in turns; what comes out is compared before it is measured.
To be read means to arrive as rows in Spark, all columns of them (its sink `noop` takes them). As Parquet, Leadline's
side is a new table of `leadline pipeline table`, flushed to the disk and committed; the other is Spark's own writer.
"""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from leadline.spark.client.cluster import ClusterClient
from leadline.spark.session import session
from leadline.spark.table.table_format import TablePlace
from leadline.spark.table.table_writer import TableSpec, TableWriter
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


def measure(run: Run) -> list[Row]:
    rows: list[Row] = []
    jars = ",".join(map(str, sorted(jars_of(CONNECTOR, "spark-connector").glob("*.jar"))))
    spark = session("bench", master="local[2]", settings=SETTINGS | {"spark.jars": jars})
    try:
        with leadline(run.folder / "data") as broker:
            for name, record_bytes, full, quick in KINDS:
                run.say(f"topics, {name}: writing")
                topic = Filled(spark, broker, f"records-{record_bytes}", record_bytes, run.sized(full, quick))
                rows.append(_measure(run, f"read, {name}, into Spark", topic, _read, _read))
                rows.append(_measure(run, f"to Parquet, {name}", topic, _as_table, _as_parquet))
    finally:
        spark.stop()
    return rows


class Filled:
    """A topic with so many records, and no two values alike that are near each other."""

    def __init__(self, spark: SparkSession, broker: RunningBroker, name: str, record_bytes: int, count: int) -> None:
        self.spark, self.server, self.name, self.count = spark, broker.bootstrap, name, count
        self.out = broker.directory.with_name(name)
        create_topic(self.server, name, PARTITIONS)
        producer = Producer(
            {"bootstrap.servers": self.server, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000}
        )
        pool, at = os.urandom(POOL_BYTES + record_bytes), 0
        for n in range(count):
            at = (at + STRIDE) % POOL_BYTES
            producer.produce(name, pool[at : at + record_bytes - 8], n.to_bytes(8, "big"), partition=n % PARTITIONS)
            if n % 100_000 == 99_999:
                producer.flush()
        assert producer.flush(60) == 0

    def rows(self, format: str, **options: str) -> DataFrame:
        reader = self.spark.read.format(format).option("kafka.bootstrap.servers", self.server)
        return reader.options(subscribe=self.name, startingOffsets="earliest", **options).load()


def _measure(run: Run, what: str, topic: Filled, ours: "Side", theirs: "Side") -> Row:
    row = Row(what, "/s", TWICE)
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


def _as_table(topic: Filled, _: str, *, check: bool = False) -> list[object]:
    shutil.rmtree(topic.out, ignore_errors=True)
    properties = {"bootstrap.servers": topic.server}
    with ClusterClient(properties) as cluster:
        place = TablePlace("delta", str(topic.out))
        table, dead = place.open(), place.dead_letters.open()
        for _summary in TableWriter(topic.spark, cluster, table, dead, TableSpec(topic.name, properties)).batches():
            pass
    return _sums(topic.spark.read.parquet(str(topic.out))) if check else []
