"""What a cluster is asked beside records, transactions and groups, again and again while a soak lasts."""

import threading
from concurrent.futures import Future
from itertools import count
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic

ANSWER_S = 60.0
RECORDS = 200
PAUSE_S = 1.0
TOPIC = {"cleanup.policy": "compact", "segment.ms": "5000", "min.cleanable.dirty.ratio": "0.01"}


class FeatureRounds:
    """A thread. Each round makes a topic and a group of its own, uses all of it, and removes both."""

    def __init__(self, bootstrap: str) -> None:
        self._client: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap, "log_level": 0}
        self.rounds, self.failures = 0, list[str]()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="features")
        self._thread.start()

    def _run(self) -> None:
        for number in count():
            if self._stop.wait(PAUSE_S):
                return
            try:
                self._round(f"soak-{number}")
                self.rounds += 1
            except (KafkaException, AssertionError) as error:
                self.failures.append(f"round {number}: {error}")

    def _round(self, name: str) -> None:
        admin = AdminClient(self._client)
        new = NewTopic(name, num_partitions=2, replication_factor=3, config=TOPIC)
        done(admin.create_topics([new]))
        self._write(name)
        self._read(name)
        self._transact(name)
        done(admin.create_partitions([NewPartitions(name, 3)]))
        entry = ConfigEntry("retention.ms", "3600000", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
        done(admin.incremental_alter_configs([resource]))
        done(admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]))
        done(admin.list_offsets({TopicPartition(name, 0): OffsetSpec.latest()}))  # type: ignore[no-untyped-call]
        done(admin.describe_topics(TopicCollection([name])))
        done(admin.describe_consumer_groups([name]))
        admin.list_consumer_groups().result(ANSWER_S)
        done(admin.delete_consumer_groups([name]))
        done(admin.delete_topics([name]))

    def _write(self, topic: str) -> None:
        for compression in ("none", "gzip", "snappy", "lz4", "zstd"):
            producer = Producer(self._client | {"compression.type": compression, "enable.idempotence": True})
            for n in range(RECORDS // 5):
                producer.produce(topic, b"%d" % n * 50, b"key %d" % (n % 10), partition=n % 2, headers={"n": b"1"})
            assert producer.flush(ANSWER_S) == 0, "records were not acknowledged"

    def _read(self, topic: str) -> None:
        consumer = Consumer(self._client | {"group.id": topic, "auto.offset.reset": "earliest"})
        try:
            consumer.subscribe([topic])
            read, attempts = 0, 0
            while read < RECORDS and attempts < ANSWER_S:
                read += sum(message.error() is None for message in consumer.consume(RECORDS, 1.0))
                attempts += 1
            assert read >= RECORDS or attempts < ANSWER_S, f"only {read} of {RECORDS} were read"
            consumer.commit(asynchronous=False)
        finally:
            consumer.close()

    def _transact(self, topic: str) -> None:
        producer = Producer(self._client | {"transactional.id": topic})
        producer.init_transactions(ANSWER_S)
        for end in (producer.abort_transaction, producer.commit_transaction):
            producer.begin_transaction()
            producer.produce(topic, b"value", b"key", partition=0)
            end(ANSWER_S)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def done(futures: "dict[Any, Future[Any]]") -> None:
    for future in futures.values():
        future.result(ANSWER_S)
