"""The broker is killed with SIGKILL, again and again, under producers that never let go.

what was acknowledged is there, at the offset that it was acknowledged with
offsets go on, without a gap and without a repeat
a producer that is idempotent leaves no record twice, and goes on with the broker that comes back
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.broker import RunningBroker, leadline
from tests.support.topics import create_topic

KILLS = 4
PARTITIONS = 3
ALIVE_S = (0.2, 0.9)  # how long it lives at least and at most
DELIVERED_S = 30

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
CLIENT = {
    "linger.ms": 2,
    "batch.size": 16_000,
    "queue.buffering.max.messages": 1000,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    "message.timeout.ms": 60_000,
    "topic.metadata.refresh.interval.ms": 500,
    "log_level": 0,
}


class Load:
    """One producer that sends numbered records as fast as they are taken, and notes what was acknowledged."""

    def __init__(
        self,
        broker: RunningBroker,
        topic: str,
        name: str,
        settings: Mapping[str, str | bool],
        keys: int = 0,
        pause_s: float = 0.002,
    ) -> None:
        self.topic, self.name, self.keys, self.pause_s = topic, name, keys, pause_s
        self.producer = Producer({**CLIENT, "bootstrap.servers": broker.bootstrap, **settings})
        self.acked: dict[tuple[int, int], bytes] = {}  # by partition and offset
        self.repeated: list[tuple[int, int]] = []
        self.failed: list[str] = []
        self.sent = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)

    def _run(self) -> None:
        while not self._stop.is_set():
            value = f"{self.name} {self.sent}".encode() + b"." * random.choice((10, 100, 2000))
            key = f"key {self.sent % self.keys}".encode() if self.keys else None
            with suppress(BufferError):
                self.producer.produce(
                    self.topic, value, key, partition=self.sent % PARTITIONS, on_delivery=self._delivered
                )
                self.sent += 1
            self.producer.poll(0)
            if self.sent % 50 == 0:
                time.sleep(self.pause_s)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        assert isinstance(value, bytes)
        place = (partition, offset)
        if place in self.acked:
            self.repeated.append(place)
        self.acked[place] = value

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self.producer.flush(DELIVERED_S) == 0, f"{self.name}: some records never arrived"
        assert not self.failed, f"{self.name}: {Counter(self.failed)}"
        assert not self.repeated, f"{self.name}: offsets acknowledged twice: {self.repeated[:5]}"
        assert len(self.acked) == self.sent


@contextmanager
def running(*loads: Load) -> Iterator[None]:
    for load in loads:
        load.start()
    try:
        yield
    finally:
        for load in loads:
            load._stop.set()
    for load in loads:
        load.finish()


def kill_and_restart(broker: RunningBroker, times: int = KILLS, meanwhile: Callable[[], None] = lambda: None) -> None:
    for _ in range(times):
        meanwhile()
        time.sleep(random.uniform(*ALIVE_S))
        broker.kill()
        broker.start()


def stored(broker: RunningBroker, topic: str) -> dict[int, list[tuple[int, bytes | None, bytes]]]:
    """Offset, key and value of all records, by partition, in their order."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "none", "enable.partition.eof": True, "log_level": 0}
    )
    found: dict[int, list[tuple[int, bytes | None, bytes]]] = {n: [] for n in range(PARTITIONS)}
    consumer.assign([TopicPartition(topic, n, 0) for n in range(PARTITIONS)])
    ended: set[int] = set()
    deadline = time.monotonic() + DELIVERED_S
    while len(ended) < PARTITIONS and time.monotonic() < deadline:
        for message in consumer.consume(5000, 0.2):
            error, partition = message.error(), message.partition()
            assert partition is not None
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(partition)
                continue
            offset, key, value = message.offset(), message.key(), message.value()
            assert offset is not None
            assert isinstance(value, bytes)
            found[partition].append((offset, key if isinstance(key, bytes) else None, value))
    consumer.close()
    assert len(ended) == PARTITIONS, "not all partitions were read to their end"
    return found


def check(broker: RunningBroker, *loads: Load) -> None:
    (topic,) = {load.topic for load in loads}
    by_partition = stored(broker, topic)
    at_place = {(n, offset): value for n, rows in by_partition.items() for offset, _, value in rows}
    for load in loads:
        missing = [place for place, value in load.acked.items() if at_place.get(place) != value]
        assert not missing, (
            f"{load.name}: {len(missing)} of {len(load.acked)} acknowledged are not there: {missing[:5]}"
        )
    for rows in by_partition.values():
        assert [offset for offset, _, _ in rows] == list(range(len(rows)))


def times_stored(broker: RunningBroker, load: Load) -> Counter[bytes]:
    found = (value for rows in stored(broker, load.topic).values() for _, _, value in rows)
    return Counter(value for value in found if value.startswith(f"{load.name} ".encode()))


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
    check(broker, *loads)
    for load in loads[2:]:
        repeated = [value for value, count in times_stored(broker, load).items() if count > 1]
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
    seen = broker.output().count("compacted state")
    deadline = time.monotonic() + DELIVERED_S
    while broker.output().count("compacted state") == seen:
        assert time.monotonic() < deadline, f"nothing was compacted in {DELIVERED_S} s"
        time.sleep(0.01)


def test_topics_are_there_or_not_there(broker: RunningBroker) -> None:
    """Creation and deletion under way when it is killed: done or not done, and never undone."""
    created: list[str] = []
    deleted: list[str] = []
    stop = threading.Event()

    def churn() -> None:
        number = 0
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 100})
        while not stop.is_set():
            name, number = f"topic-{number}", number + 1
            with suppress(KafkaException, TimeoutError):
                admin.create_topics([NewTopic(name, 2, 1)], request_timeout=2)[name].result(3)
                created.append(name)
            if number % 2 and created:
                gone = random.choice(created)
                with suppress(KafkaException, TimeoutError):
                    admin.delete_topics([gone], request_timeout=2)[gone].result(3)
                    deleted.append(gone)
                created.remove(gone)  # who got no answer does not know

    def wait_for_some() -> None:
        seen, deadline = len(created) + 2 * len(deleted), time.monotonic() + DELIVERED_S
        while len(created) + 2 * len(deleted) < seen + 2:  # a deletion takes one from the created, and counts
            assert time.monotonic() < deadline, f"no topics were made or deleted in {DELIVERED_S} s"
            time.sleep(0.01)

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        kill_and_restart(broker, 3, meanwhile=wait_for_some)
    finally:
        stop.set()
        thread.join()
    for _ in range(2):
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        known = admin.list_topics(timeout=DELIVERED_S).topics
        assert set(created) <= known.keys()
        assert not known.keys() & set(deleted)
        assert all(partition.error is None for name in created for partition in known[name].partitions.values())
        producer = Producer(CLIENT | {"bootstrap.servers": broker.bootstrap})
        for name in created:
            producer.produce(name, b"usable")
        assert producer.flush(DELIVERED_S) == 0
        broker.stop()
        broker.start()
