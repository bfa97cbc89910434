"""The pipeline reads and audits the directories of two Apache Kafka brokers, while they run and after they ended."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer

from leadline.model import TopicPartition
from leadline.spark.audit.audit_job import audit_unit, logs_of, units
from leadline.spark.files import segments
from leadline.spark.files.segments import LogFiles, logs_in
from tests.conformance.kafka.broker import broker, zookeeper
from tests.conformance.kafka.tools import tool
from tests.support.waiting import until

pytestmark = pytest.mark.conformance

SETTINGS = {
    "log.segment.bytes": 6000,
    "log.index.interval.bytes": 500,
    "replica.high.watermark.checkpoint.interval.ms": 200,
    "log.cleaner.backoff.ms": 100,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 2,
}
ORDERS, STATES = TopicPartition("orders", 0), TopicPartition("states", 0)
PLAIN, IN_TRANSACTIONS, ABORTED = 600, 100, 50


class Kafka(NamedTuple):
    data: list[str]
    seen_while_running: list[object]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Kafka:
    parent = tmp_path_factory.mktemp("kafka")
    folders = [parent / name for name in ("zookeeper", "one", "two")]
    for folder in folders:
        folder.mkdir()
    with (
        zookeeper(folders[0]) as ensemble,
        broker(folders[1], ensemble, **SETTINGS, **{"broker.id": 1}) as one,
        broker(folders[2], ensemble, **SETTINGS, **{"broker.id": 2}) as two,
    ):
        servers = one.bootstrap
        create(servers, ORDERS.topic)
        create(servers, STATES.topic, "cleanup.policy=compact", "min.cleanable.dirty.ratio=0.01", "segment.bytes=4096")
        fill(servers)
        data = [str(folders[1] / "data"), str(folders[2] / "data")]
        until(lambda: all(is_whole(log) for log in logs_in(data, [ORDERS.topic])), 60)
        until(lambda: all(log.cleaned_until for log in logs_in(data, [STATES.topic])), 60)
        expected = [*findings(data), [len(rows(log)) for log in logs_in(data, [ORDERS.topic])]]
        one.stop()
        two.kill()
    return Kafka(data, expected)


def create(servers: str, topic: str, *settings: str) -> None:
    configs = [part for setting in settings for part in ("--config", setting)]
    tool("topics", "--bootstrap-server", servers, "--create", "--topic", topic,
         "--partitions", "1", "--replication-factor", "2", *configs)  # fmt: skip


def fill(servers: str) -> None:
    plain = Producer({"bootstrap.servers": servers, "compression.type": "lz4"})
    for n in range(PLAIN):
        plain.produce(ORDERS.topic, f"v{n}" * 10, f"k{n}", headers=[("n", str(n))])
        plain.produce(STATES.topic, f"v{n}" * 10 if n % 11 else None, f"k{n % 7}")
        if n % 7 == 0:
            plain.flush()
    plain.flush()
    for n in range(IN_TRANSACTIONS // 10):
        producer = Producer({"bootstrap.servers": servers, "transactional.id": f"id-{n % 3}"})
        producer.init_transactions()
        producer.begin_transaction()
        for _ in range(10):
            producer.produce(ORDERS.topic, "of a transaction")
        producer.flush()
        producer.commit_transaction() if n % 2 else producer.abort_transaction()


def is_whole(log: LogFiles) -> bool:
    end = PLAIN + IN_TRANSACTIONS + IN_TRANSACTIONS // 10
    return log.high_watermark == end == segments.log_end(log)


def findings(paths: list[str]) -> list[object]:
    logs, unreadable = logs_of(paths)
    return [*unreadable, *(one for unit in units(logs, checksums=True) for one in audit_unit(unit).findings)]


def rows(log: LogFiles, *, committed: bool = False) -> list[tuple[int, bytes]]:
    end = segments.readable_until(log, committed=committed)
    aborted = segments.aborted_in(log, 0, end) if committed else None
    pairs: Iterator[tuple[int, bytes]] = (
        pair
        for batch in segments.rows(log, 0, end, aborted=aborted)
        for pair in zip(batch.column("offset").to_pylist(), batch.column("value").to_pylist(), strict=True)
    )
    return list(pairs)


def test_healthy_replicas_of_a_running_kafka_give_no_findings(kafka: Kafka) -> None:
    assert kafka.seen_while_running == [[PLAIN + IN_TRANSACTIONS] * 2]


def test_nor_do_they_after_one_was_killed_and_the_other_stopped(kafka: Kafka) -> None:
    assert findings(kafka.data) == []


def test_its_records_are_read_from_each_replica_as_they_were_written(kafka: Kafka) -> None:
    for log in logs_in(kafka.data, [ORDERS.topic]):
        assert len(log.segments) > 2
        records = rows(log)
        assert [value for _, value in records[:PLAIN]] == [f"v{n}".encode() * 10 for n in range(PLAIN)]
        assert len(records) == PLAIN + IN_TRANSACTIONS
        assert len(rows(log, committed=True)) == PLAIN + IN_TRANSACTIONS - ABORTED


def test_damage_in_its_files_is_found(kafka: Kafka) -> None:
    (path,) = (log.segments[1].path for log in logs_in(kafka.data[:1], [ORDERS.topic]))
    data = Path(path).read_bytes()
    Path(path).write_bytes(data[:700] + bytes([data[700] ^ 1]) + data[701:])
    try:
        assert any(path in str(one) for one in findings(kafka.data))
    finally:
        Path(path).write_bytes(data)
