"""Producers that send numbered records to a topic of several partitions, and what must be there of them afterwards.

what was acknowledged is there, at the offset that it was acknowledged with
offsets go on, without a gap and without a repeat
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Protocol

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

PARTITIONS = 3
DELIVERED_S = 120

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


class Served(Protocol):
    """A broker, or a cluster."""

    @property
    def bootstrap(self) -> str: ...


class Load:
    """One producer that sends numbered records, 50 between two pauses, and notes what was acknowledged."""

    def __init__(
        self,
        broker: Served,
        topic: str,
        name: str,
        settings: Mapping[str, str | bool],
        keys: int = 0,
        pause_s: float = 0.01,
    ) -> None:
        self.topic, self.name, self.keys, self.pause_s = topic, name, keys, pause_s
        self.producer = Producer({**CLIENT, "bootstrap.servers": broker.bootstrap, **settings})
        self.acked: dict[tuple[int, int], bytes] = {}  # by partition and offset
        self.placeless: set[bytes] = set()  # acknowledged, too: the answer was lost, but what came later was stored
        self.acked_at: list[float] = []
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
        assert isinstance(value, bytes)
        self.acked_at.append(time.monotonic())
        if offset is None:
            self.placeless.add(value)
            return
        place = (partition, offset)
        if place in self.acked:
            self.repeated.append(place)
        self.acked[place] = value

    @property
    def longest_gap_s(self) -> float:
        """Between two acknowledgements, one after the other."""
        return max(later - earlier for earlier, later in pairwise(self.acked_at))

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self.producer.flush(DELIVERED_S) == 0, f"{self.name}: some records never arrived"
        assert not self.failed, f"{self.name}: {Counter(self.failed)}"
        assert not self.repeated, f"{self.name}: offsets acknowledged twice: {self.repeated[:5]}"
        assert len(self.acked) + len(self.placeless) == self.sent


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


def stored(broker: Served, topic: str) -> dict[int, list[tuple[int, bytes | None, bytes]]]:
    """Offset, key and value of all records, by partition, in their order."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "none", "enable.partition.eof": True, "log_level": 0}
    )
    rows: dict[int, list[tuple[int, bytes | None, bytes]]] = {n: [] for n in range(PARTITIONS)}
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
            rows[partition].append((offset, key if isinstance(key, bytes) else None, value))
    consumer.close()
    assert len(ended) == PARTITIONS, "not all partitions were read to their end"
    return rows


def check(broker: Served, *loads: Load) -> Counter[bytes]:
    """How often each value is there, by the way."""
    (topic,) = {load.topic for load in loads}
    by_partition = stored(broker, topic)
    at_place = {(n, offset): value for n, rows in by_partition.items() for offset, _, value in rows}
    for load in loads:
        missing = [place for place, value in load.acked.items() if at_place.get(place) != value]
        assert load.placeless <= set(at_place.values()), f"{load.name}: some acknowledged are not there"
        assert not missing, (
            f"{load.name}: {len(missing)} of {len(load.acked)} acknowledged are not there: {missing[:5]}"
        )
    for rows in by_partition.values():
        assert [offset for offset, _, _ in rows] == list(range(len(rows)))
    return Counter(at_place.values())
