"""A damaged partition on one broker of a cluster: other brokers lead it, and all others are copied as before."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support import in_memory
from tests.support.cluster import PATIENCE_S, Cluster, cluster
from tests.support.waiting import until

PARTITIONS, RECORDS = 4, 5


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    for path in in_memory.directory():
        with cluster(path) as started:
            yield started


@pytest.fixture
def served(running: Cluster, request: pytest.FixtureRequest) -> Cluster:
    """With a topic of its own for each test, `served.topic`."""
    running.create(re.sub(r"\W+", "-", request.node.name), PARTITIONS)
    return running


def write(served: Cluster) -> None:
    """To each partition, acknowledged by all in-sync replicas."""
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": served.bootstrap, "acks": "all", "log_level": 0})
    for partition in range(PARTITIONS):
        producer.produce(served.topic, b"value", partition=partition, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert errors == [None] * PARTITIONS


def damage(directory: Path) -> None:
    (directory / "partition.metadata").write_text("nonsense")


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_damaged_replica_is_offline_alone_until_it_is_mended(served: Cluster, end: str) -> None:
    write(served)
    broken, bad = served.leader(), f"{served.topic}-0"
    broker = served.brokers[broken]
    before = len(broker.output())
    served.run_steps(f"{end} {broken}")
    damage(broker.directory / bad)
    served.run_steps(f"start {broken}")

    def all_but_one_are_in_sync() -> bool:
        partitions = served.described(served.topic)
        others = [len(isr) == 3 and leader in isr for leader, isr in partitions[1:]]
        return len(others) == PARTITIONS - 1 and all(others) and broken not in (*partitions[0][1], partitions[0][0])

    until(all_but_one_are_in_sync, lambda: (served.described(served.topic), broker.output()[-2000:]))
    write(served)
    lines = [line for line in broker.output().splitlines() if f"{bad} is offline" in line]
    assert len(lines) == 1, lines
    assert "remove this file" in lines[0]
    assert "bug" not in broker.output()
    assert "Traceback" not in broker.output()
    assert broker.stop() == (1 if end == "kill" else 0)
    # What was not opened is not recovered.
    assert ("not everything is on disk" in broker.output()[before:]) is (end == "kill")
    (broker.directory / bad / "partition.metadata").unlink()
    served.run_steps(f"start {broken}, settle")
    write(served)


def read_all(served: Cluster) -> list[int]:
    """The offsets of the first partition, from its leader."""
    consumer = Consumer({"bootstrap.servers": served.bootstrap, "group.id": "reader", "log_level": 0})
    consumer.assign([TopicPartition(served.topic, 0, 0)])
    try:
        messages = consumer.consume(RECORDS, PATIENCE_S)
        return [message.offset() or 0 for message in messages if message.error() is None]
    finally:
        consumer.close()


def test_a_replica_that_is_damaged_in_use_hands_its_leadership_over(served: Cluster) -> None:
    """Its broker goes on, and leads and follows everything else."""
    for _ in range(RECORDS):
        write(served)
    broken, bad = served.leader(), f"{served.topic}-0"
    broker = served.brokers[broken]
    os.truncate(broker.directory / bad / f"{0:020}.log", 100)
    assert read_all(served) == list(range(RECORDS))

    def another_leads() -> bool:
        partitions = served.described(served.topic)
        return bool(partitions) and broken not in (partitions[0][0], *partitions[0][1])

    until(another_leads, lambda: (served.described(served.topic), broker.output()[-2000:]))
    write(served)
    (line,) = [line for line in broker.output().splitlines() if f"{bad} is offline" in line]
    assert "Before the next start" in line
    assert all(len(isr) == 3 for _, isr in served.described(served.topic)[1:])
    assert "Traceback" not in broker.output()
    assert broker.stop() == 1  # the replica was not closed
    served.run_steps(f"start {broken}, settle")
    assert read_all(served) == list(range(RECORDS))


def test_a_deleted_topic_loses_its_damaged_replica_when_that_is_mended(served: Cluster) -> None:
    """As in Kafka, the controller waits with what it knows to be offline; before it knows, the broker deletes it."""
    broker, topic = served.brokers[1], served.topic
    bad, folders = f"{topic}-0", f"{topic}-[0-9]"
    served.run_steps("stop 1")
    damage(broker.directory / bad)
    served.run_steps("start 1")
    until(lambda: f"{bad} is offline" in broker.output())
    served.delete(topic)
    until(lambda: not any(served.brokers[2].directory.glob(folders)))
    served.run_steps("stop 1")
    (broker.directory / bad / "partition.metadata").unlink(missing_ok=True)
    served.run_steps("start 1")
    until(lambda: not any(broker.directory.glob(folders)), lambda: list(broker.directory.iterdir()))
