"""A topic with records, and tables that follow it, for tests of the pipeline."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from leadline.spark.client.cluster import ClusterClient
from leadline.spark.table.table import Table
from leadline.spark.table.table_format import TablePlace
from leadline.spark.table.table_writer import BatchSummary, TableSpec, TableWriter
from leadline.spark.table.verification import Verdict, verify
from tests.support.broker import RunningBroker

FLUSHED_S = 120


class Feed:
    """Numbered records, spread over the partitions of a topic by their keys."""

    def __init__(self, broker: RunningBroker, topic: str, **settings: str) -> None:
        self.broker, self.topic, self.count = broker, topic, 0
        properties = {"bootstrap.servers": broker.bootstrap, "linger.ms": "5", "log_level": "0"}
        self.producer = Producer({**properties, **{name.replace("_", "."): value for name, value in settings.items()}})

    def document(self) -> bytes:
        self.count += 1
        return json.dumps({"id": self.count, "name": f"record {self.count}"}).encode()

    def more(self, count: int) -> None:
        for _ in range(count):
            self.send(self.document())
        self.flush()

    def send(self, value: bytes | None, key: bytes | None = None) -> None:
        self.producer.produce(self.topic, value, key or b"key %d" % (self.count % 20))
        self.producer.poll(0)

    def flush(self) -> None:
        assert self.producer.flush(FLUSHED_S) == 0


class Pipeline:
    """A table beside its topic; each run is a new writer, as a new process would be."""

    def __init__(
        self, spark: SparkSession, broker: RunningBroker, path: Path, spec: TableSpec, kind: str = "delta"
    ) -> None:
        self.spark, self.broker, self.path, self.kind = spark, broker, path, kind
        self.uri, self.options = "", dict[str, str]()  # of a table that is not in a local directory
        self.spec = replace(spec, properties={"bootstrap.servers": broker.bootstrap, **spec.properties})

    @property
    def place(self) -> TablePlace:
        return TablePlace(self.kind, self.uri or str(self.path), self.options)

    @property
    def table(self) -> Table:
        return self.place.open()

    @property
    def dead(self) -> Table:
        return self.place.dead_letters.open()

    @contextmanager
    def following(self, **changes: object) -> Iterator[TableWriter]:
        spec = replace(self.spec, **changes)  # type: ignore[arg-type]
        with ClusterClient(spec.properties) as cluster:
            yield TableWriter(self.spark, cluster, self.table, self.dead, spec)

    def run(self, **changes: object) -> list[BatchSummary]:
        """Until the table has all there is."""
        with self.following(**changes) as following:
            return list(following.batches())

    def rows(self) -> list[Mapping[str, object]]:
        return [dict(row) for row in self.table.columns().read_all().to_pylist()]

    def dead_letters(self) -> list[Mapping[str, object]]:
        return [dict(row) for row in self.dead.columns().read_all().to_pylist()] if self.dead.state() else []

    def verdicts(self) -> list[Verdict]:
        with ClusterClient(self.spec.properties) as cluster:
            return verify(self.spark, cluster, self.place, self.spec.registry, self.spec.quality).verdicts

    def check(self, records: int) -> None:
        """The table is the topic, once."""
        verdicts = self.verdicts()
        assert [verdict for verdict in verdicts if not verdict.is_good] == []
        assert sum(verdict.records for verdict in verdicts) == records
