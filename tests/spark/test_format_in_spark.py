"""The format `leadline` inside of Spark, and Spark's own Kafka connector beside it."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from leadline.spark.client.cluster import ClusterClient
from leadline.spark.mirror.mirror import Mirror, MirrorSpec, on_spark
from leadline.spark.positions import Positions
from leadline.spark.topics.options import SubscribedTopics
from pyspark_leadline import DefaultSource
from tests.conformance.kafka.jars import jars_of
from tests.support.broker import RunningBroker, leadline
from tests.support.topics import create_topic

HERE = Path(__file__).parent
_fresh = itertools.count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with leadline(tmp_path_factory.mktemp("spark") / "data") as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def registered(spark: SparkSession) -> None:
    """Spark looks for formats once, and gives up on a very busy machine. `topic_to_topic` depends on its look."""
    spark.dataSource.register(DefaultSource)


class Formats:
    """One broker through a format: `leadline`, or Spark's own `kafka`."""

    def __init__(self, spark: SparkSession, broker: RunningBroker, name: str) -> None:
        self.spark, self.broker, self.name = spark, broker, name
        self.servers = {"kafka.bootstrap.servers": broker.bootstrap}

    def topic(self, partitions: int = 3) -> str:
        name = f"{self.name}-{next(_fresh)}"
        create_topic(self.broker.bootstrap, name, partitions)
        return name

    def read(self, topic: str, **options: str) -> DataFrame:
        return self.spark.read.format(self.name).options(**self.servers, subscribe=topic, **options).load()

    def write(self, rows: DataFrame, topic: str) -> None:
        rows.write.format(self.name).options(**self.servers, topic=topic).mode("append").save()

    def stream(self, topic: str, out: str, checkpoint: Path, **options: str) -> StreamingQuery:
        """All there is, as batches that begin where the checkpoint ends."""
        rows = self.spark.readStream.format(self.name).options(
            **self.servers, subscribe=topic, startingOffsets="earliest", **options
        )
        writer = rows.load().writeStream.format(self.name).options(**self.servers, topic=out)
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination(300)
        return query


def rows(spark: SparkSession, first: int, until: int) -> DataFrame:
    columns = ["CAST(id % 7 AS STRING) AS key", "CONCAT('v', id) AS value"]
    headers = "ARRAY(NAMED_STRUCT('key', 'n', 'value', CAST(CAST(id AS STRING) AS BINARY))) AS headers"
    return spark.range(first, until, 1, 2).selectExpr(*columns, headers)


def values_of(read: DataFrame) -> list[str]:
    return sorted(row[0] for row in read.select(F.col("value").cast("string")).collect())


def values(first: int, until: int) -> list[str]:
    return sorted(f"v{n}" for n in range(first, until))


def test_what_is_written_is_read_with_all_its_columns(spark: SparkSession, broker: RunningBroker) -> None:
    ours = Formats(spark, broker, "leadline")
    topic = ours.topic()
    ours.write(rows(spark, 0, 100), topic)
    read = ours.read(topic, includeHeaders="true")
    assert read.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
    assert values_of(read) == values(0, 100)
    row = read.where("CAST(value AS STRING) = 'v64'").collect()[0]
    assert (row.key, row.topic, row.timestampType, row.headers) == (b"1", topic, 0, [Row(key="n", value=b"64")])
    assert read.groupBy("key").agg(F.count_distinct("partition").alias("n")).where("n > 1").count() == 0


def test_a_stream_goes_on_from_its_checkpoint_and_commits_its_progress(
    spark: SparkSession, broker: RunningBroker, tmp_path: Path
) -> None:
    ours = Formats(spark, broker, "leadline")
    topic, out = ours.topic(), ours.topic()
    ours.write(rows(spark, 0, 90), topic)
    first = ours.stream(topic, out, tmp_path, maxOffsetsPerTrigger="40")
    assert sum(progress["numInputRows"] for progress in first.recentProgress) == 90
    assert max(progress["numInputRows"] for progress in first.recentProgress) <= 40
    ours.write(rows(spark, 90, 130), topic)
    again = ours.stream(topic, out, tmp_path)
    assert again.recentProgress[-1]["batchId"] > first.recentProgress[-1]["batchId"]
    assert values_of(ours.read(out, **{"kafka.isolation.level": "read_committed"})) == values(0, 130)
    end = Positions.from_json(_json(again.recentProgress[-1]["sources"][0]["endOffset"]))
    with ClusterClient({"bootstrap.servers": broker.bootstrap}) as cluster:
        committed = {tp: note.offset for tp, note in cluster.committed(end.group, list(end.offsets)).items()}
    assert committed == end.offsets


def _json(text: object) -> dict[str, object]:
    value = json.loads(text) if isinstance(text, str) else text
    assert isinstance(value, dict)
    return value


def test_spark_reports_what_is_wrong(spark: SparkSession, broker: RunningBroker, tmp_path: Path) -> None:
    ours = Formats(spark, broker, "leadline")
    topic, other = ours.topic(), ours.topic()
    with pytest.raises(PySparkException, match="there is no topic nowhere"):
        ours.read("nowhere").collect()
    with pytest.raises(PySparkException, match="there is no column value among number"):
        ours.write(spark.range(3).withColumnRenamed("id", "number"), topic)
    with pytest.raises(PySparkException, match='Please use either the "Append" or "Overwrite" mode'):
        rows(spark, 0, 3).write.format("leadline").options(**ours.servers, topic=topic).save()
    with pytest.raises(PySparkException, match="a topic cannot be overwritten"):
        rows(spark, 0, 3).write.format("leadline").options(**ours.servers, topic=topic).mode("overwrite").save()
    ours.write(rows(spark, 0, 3), topic)
    ours.stream(topic, other, tmp_path)
    with pytest.raises(StreamingQueryException, match=f"the checkpoint is of {topic}, and the query reads {other}"):
        ours.stream(other, topic, tmp_path)


@pytest.fixture(scope="module")
def connector(spark: SparkSession) -> None:
    for jar in sorted(jars_of(HERE / "connector" / "pom.xml", "spark-kafka-connector-4.2.0").glob("*.jar")):
        spark.sql(f"ADD JAR '{jar}'")


@pytest.mark.usefixtures("connector")
def test_sparks_own_connector_reads_and_writes_our_broker(
    spark: SparkSession, broker: RunningBroker, tmp_path: Path
) -> None:
    theirs, ours = Formats(spark, broker, "kafka"), Formats(spark, broker, "leadline")
    topic, out = theirs.topic(), theirs.topic()
    theirs.write(rows(spark, 0, 100), topic)
    theirs.stream(topic, out, tmp_path, maxOffsetsPerTrigger="60")
    theirs.write(rows(spark, 100, 120), topic)
    theirs.stream(topic, out, tmp_path)
    assert values_of(theirs.read(out)) == values(0, 120)
    read, read_by_us = (format.read(out, includeHeaders="true") for format in (theirs, ours))
    assert read.dtypes == read_by_us.dtypes
    assert sorted(read.collect()) == sorted(read_by_us.collect())


@pytest.mark.usefixtures("connector")
def test_a_checkpoint_goes_to_sparks_own_connector_and_back(
    spark: SparkSession, broker: RunningBroker, tmp_path: Path
) -> None:
    theirs, ours = Formats(spark, broker, "kafka"), Formats(spark, broker, "leadline")
    topic, out = ours.topic(), ours.topic()
    for number, format in enumerate((ours, theirs, ours)):
        ours.write(rows(spark, number * 40, number * 40 + 40), topic)
        query = format.stream(topic, out, tmp_path)
        assert sum(progress["numInputRows"] for progress in query.recentProgress) == 40
        position = Positions.from_json(_newest_offsets(tmp_path))
        with ClusterClient({"bootstrap.servers": broker.bootstrap}) as cluster:
            assert position.offsets == cluster.latest(position.offsets, committed=False)
        assert (len(position.offsets), position.topics, position.group) == (3, {topic}, "")
    assert values_of(ours.read(out)) == values(0, 120)


def _newest_offsets(checkpoint: Path) -> dict[str, object]:
    """As docs/spark/overview.md reads them."""
    newest = max((checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    offsets = json.loads(newest.read_text().splitlines()[2])
    return {topic: partitions for topic, partitions in offsets.items() if not topic.startswith("@")}


def test_a_mirror_copies_by_tasks_of_spark(spark: SparkSession, broker: RunningBroker, tmp_path: Path) -> None:
    ours = Formats(spark, broker, "leadline")
    topic, client = ours.topic(), {"bootstrap.servers": broker.bootstrap}
    ours.write(rows(spark, 0, 100), topic)
    spec = MirrorSpec(
        name=topic,
        source=client,
        target=client,
        topics=SubscribedTopics((topic,)),
        prefix="copy.",
        staging=str(tmp_path),
        min_tasks=2,
    )
    with ClusterClient(client) as source, ClusterClient(client) as target:
        mirror = Mirror(spec, on_spark(spark), source, target)
        mirror.load()
        assert mirror.round().records == 100
    columns = ["key", "value", "partition", "timestamp", "headers"]
    original, copy = (ours.read(name, includeHeaders="true").select(columns) for name in (topic, f"copy.{topic}"))
    assert sorted(original.collect()) == sorted(copy.collect())
