"""The broker is killed with SIGKILL, again and again, under producers that never let go.

what was acknowledged is there, at the offset that it was acknowledged with
offsets go on, without a gap and without a repeat
a producer that is idempotent leaves no record twice, and goes on with the broker that comes back
"""

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.fault.load import CLIENT, DELIVERED_S, PARTITIONS, Load, check, running, stored
from tests.support.broker import RunningBroker, leadline
from tests.support.topics import create_topic
from tests.support.waiting import until

KILLS = 4
ALIVE_S = (0.2, 0.9)  # how long it lives at least and at most
ANSWER_S = 30  # of a broker that lives; a client notices at once that it was killed

SETTINGS = {
    "log.segment.bytes": 200_000,
    "log.index.interval.bytes": 500,
    "log.cleaner.backoff.ms": 50,
    "log.cleaner.min.cleanable.ratio": 0.01,
    "log.segment.delete.delay.ms": 100,
    "log.retention.ms": -1,
    "log.flush.offset.checkpoint.interval.ms": 200,
    "log.initial.task.delay.ms": 100,
    "num.partitions": 2,
}


def kill_and_restart(broker: RunningBroker, times: int = KILLS, meanwhile: Callable[[], None] = lambda: None) -> None:
    for _ in range(times):
        meanwhile()
        time.sleep(random.uniform(*ALIVE_S))
        broker.kill()
        broker.start()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with leadline(tmp_path / "data", **SETTINGS) as running_broker:
        yield running_broker


def test_nothing_that_was_acknowledged_is_lost(broker: RunningBroker) -> None:
    create_topic(broker.bootstrap, "orders", PARTITIONS)
    loads = [
        Load(broker, "orders", "all", {"acks": "all"}),
        Load(broker, "orders", "one", {"acks": "1", "compression.type": "lz4"}),
        Load(broker, "orders", "idempotent", {"enable.idempotence": True}),
        Load(broker, "orders", "packed", {"enable.idempotence": True, "compression.type": "zstd"}),
    ]
    with running(*loads):
        kill_and_restart(broker)
    times_stored = check(broker, *loads)
    for load in loads[2:]:
        values = (value for value in times_stored if value.startswith(f"{load.name} ".encode()))
        repeated = [value for value in values if times_stored[value] > 1]
        assert not repeated, f"{load.name}: {len(repeated)} records are there twice"
    assert broker.stop() == 0
    broker.start()
    check(broker, *loads)


def test_a_compacted_topic_keeps_the_last_of_every_key(broker: RunningBroker) -> None:
    config = {"cleanup_policy": "compact", "segment_bytes": "50000", "min_cleanable_dirty_ratio": "0.01"}
    create_topic(broker.bootstrap, "state", PARTITIONS, **config)
    load = Load(broker, "state", "writer", {"enable.idempotence": True}, keys=50, pause_s=0.02)
    with running(load):
        kill_and_restart(broker, 3, meanwhile=lambda: wait_for_compaction(broker))
    last: dict[tuple[int, bytes], int] = {}
    for (partition, offset), value in load.acked.items():
        key = b"key %d" % (int(value.split(b".")[0].split()[1]) % 50)
        last[partition, key] = max(offset, last.get((partition, key), -1))
    rows = {(n, offset): value for n, rows in stored(broker, "state").items() for offset, _, value in rows}
    for (partition, _), offset in last.items():
        assert rows.get((partition, offset)) == load.acked[partition, offset]
    assert all(load.acked.get(place) == value for place, value in rows.items())
    assert len(rows) < load.sent


def wait_for_compaction(broker: RunningBroker) -> None:
    """Until one more pass has begun to take effect, so that some kills meet the next."""
    before = broker.output().count("compacted state")
    until(lambda: broker.output().count("compacted state") > before, "a compaction", DELIVERED_S)


def test_topics_are_there_or_not_there(broker: RunningBroker) -> None:
    """Creation and deletion under way when it is killed: done or not done, and never undone."""
    created: list[str] = []
    deleted: list[str] = []
    answers: list[str] = []  # the name of the topic that was created or deleted
    stop = threading.Event()

    def churn() -> None:
        number = 0
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 100})
        while not stop.is_set():
            name, number = f"topic-{number}", number + 1
            with suppress(KafkaException, TimeoutError):
                admin.create_topics([NewTopic(name, 2, 1)], request_timeout=ANSWER_S)[name].result(2 * ANSWER_S)
                created.append(name)
                answers.append(name)
            if number % 2 and created:
                gone = random.choice(created)
                with suppress(KafkaException, TimeoutError):
                    admin.delete_topics([gone], request_timeout=ANSWER_S)[gone].result(2 * ANSWER_S)
                    deleted.append(gone)
                    answers.append(gone)
                created.remove(gone)  # who got no answer does not know

    def wait_for_some() -> None:
        before = len(answers)
        until(lambda: len(answers) >= before + 2, "topics are created and deleted", 4 * ANSWER_S)

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        kill_and_restart(broker, 3, meanwhile=wait_for_some)
    finally:
        stop.set()
        thread.join()
    for _ in range(2):
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        topics = admin.list_topics(timeout=DELIVERED_S).topics
        assert set(created) <= topics.keys()
        assert not topics.keys() & set(deleted)
        assert all(partition.error is None for name in created for partition in topics[name].partitions.values())
        producer = Producer(CLIENT | {"bootstrap.servers": broker.bootstrap})
        for name in created:
            producer.produce(name, b"usable")
        assert producer.flush(DELIVERED_S) == 0
        broker.stop()
        broker.start()
