"""A damaged partition on one broker of a cluster: other brokers lead it, and all others are copied as before."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support import in_memory
from tests.support.cluster import Cluster, cluster, until

PARTITIONS = 4
BAD = "orders-0"


@pytest.fixture
def served() -> Iterator[Cluster]:
    for path in in_memory.directory():
        with cluster(path) as found:
            found.create("orders", PARTITIONS)
            yield found


def write(served: Cluster) -> None:
    """To each partition, acknowledged by all in-sync replicas."""
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": served.bootstrap, "acks": "all", "log_level": 0})
    for partition in range(PARTITIONS):
        producer.produce("orders", b"value", partition=partition, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(60) == 0
    assert errors == [None] * PARTITIONS


def damage(directory: Path) -> None:
    (directory / "partition.metadata").write_text("nonsense")


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_damaged_replica_is_offline_alone_until_it_is_mended(served: Cluster, end: str) -> None:
    write(served)
    broken = served.leader()
    broker = served.brokers[broken]
    served.play(f"{end} {broken}")
    damage(broker.directory / BAD)
    served.play(f"start {broken}")

    def all_but_one_are_in_sync() -> bool:
        found = served.described("orders")
        others = [len(isr) == 3 and leader in isr for leader, isr in found[1:]]
        return len(others) == PARTITIONS - 1 and all(others) and broken not in (*found[0][1], found[0][0])

    until(all_but_one_are_in_sync, lambda: (served.described("orders"), broker.output()[-2000:]))
    write(served)
    lines = [line for line in broker.output().splitlines() if f"{BAD} is offline" in line]
    assert len(lines) == 1, lines
    assert "remove this file" in lines[0]
    assert "bug" not in broker.output()
    assert "Traceback" not in broker.output()
    assert broker.stop() == (1 if end == "kill" else 0)
    assert ("not everything is on disk" in broker.output()) is (end == "kill")  # what was not opened is not recovered
    (broker.directory / BAD / "partition.metadata").unlink()
    served.play(f"start {broken}, settle")
    write(served)


def test_a_deleted_topic_loses_its_damaged_replica_when_that_is_mended(served: Cluster) -> None:
    """As in Kafka, the controller waits with what it knows to be offline; before it knows, the broker deletes it."""
    broker = served.brokers[1]
    served.play("stop 1")
    damage(broker.directory / BAD)
    served.play("start 1")
    until(lambda: f"{BAD} is offline" in broker.output())
    served.admin.delete_topics(["orders"])["orders"].result(60)
    until(lambda: not any(served.brokers[2].directory.glob("orders-[0-9]")))
    served.play("stop 1")
    (broker.directory / BAD / "partition.metadata").unlink(missing_ok=True)
    served.play("start 1")
    until(lambda: not any(broker.directory.glob("orders-[0-9]")), lambda: list(broker.directory.iterdir()))
