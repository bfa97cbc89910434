"""confluent-kafka, which is librdkafka."""

import importlib
import time
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.clients.python import serving
from tests.clients.python.serving import WAIT_S, Login, Records, Starts, raw, raw_headers, shown, shown_headers

api: Any = importlib.import_module("confluent_kafka.admin")  # its types do not say what it exports
SPECS = {"earliest": api.OffsetSpec.earliest, "latest": api.OffsetSpec.latest, "max": api.OffsetSpec.max_timestamp}


REFUSALS = {KafkaError._AUTHENTICATION, KafkaError._SSL}


class Client:
    def __init__(self, bootstrap: str, login: Login | None) -> None:
        self.refusals: list[KafkaError] = []  # of logins, which the client repeats without end
        self.common: dict[str, Any] = {"bootstrap.servers": bootstrap, "error_cb": self._note}
        self.common |= {} if login is None else _settings(login)

    @cached_property
    def admin(self) -> Any:
        return api.AdminClient(self.common)

    @cached_property
    def reader(self) -> Consumer:
        return Consumer(self.common | {"group.id": "none", "enable.auto.commit": False})

    def close(self) -> None:
        if "reader" in self.__dict__:
            self.reader.close()

    def _note(self, error: KafkaError) -> None:
        if error.code() in REFUSALS or "SSL alert" in error.str():
            self.refusals.append(error)

    def _check_login(self) -> None:
        if self.refusals:
            raise RuntimeError(self.refusals[0])

    def produce(self, topic: str, codec: str, idempotent: bool, records: Records) -> list[int | None]:
        settings = {"compression.type": codec, "enable.idempotence": idempotent, "linger.ms": 50, "batch.size": 1000000}
        return self._sent(Producer(self.common | settings), topic, records)

    def write_transaction(self, topic: str, id: str, records: Records, commit: bool) -> list[int | None]:
        producer = Producer(self.common | {"transactional.id": id})
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        offsets = self._sent(producer, topic, records)
        if commit:
            producer.commit_transaction(WAIT_S)
        else:
            producer.abort_transaction(WAIT_S)
        return offsets

    def read_in_group(self, topic: str, group: str, count: int, isolation: str) -> list[list[object]]:
        settings = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "isolation.level": isolation}
        member = Consumer(self.common | settings | {"group.id": group})
        member.subscribe([topic])
        rows: list[list[object]] = []
        read: dict[int, TopicPartition] = {}
        deadline = time.monotonic() + WAIT_S
        while len(rows) < count and time.monotonic() < deadline:
            for message in member.consume(count - len(rows), 0.2):
                if message.error():
                    raise RuntimeError(message.error())
                rows.append(_shown(message))
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                read[partition] = TopicPartition(topic, partition, offset + 1)
        member.commit(offsets=list(read.values()), asynchronous=False)
        member.close()
        return rows

    def committed_offsets(self, group: str) -> dict[int, int]:
        request = importlib.import_module("confluent_kafka").ConsumerGroupTopicPartitions(group)
        offsets = _only(self.admin.list_consumer_group_offsets([request]))
        return {committed.partition: committed.offset for committed in offsets.topic_partitions}

    def describe_group(self, group: str) -> list[object]:
        description = _only(self.admin.describe_consumer_groups([group]))
        return [description.state.name.title().replace("_", ""), len(description.members)]

    def list_groups(self) -> list[str]:
        return [group.group_id for group in self.admin.list_consumer_groups().result(WAIT_S).valid]

    def delete_group(self, group: str) -> None:
        _only(self.admin.delete_consumer_groups([group]))

    def consume(self, topic: str, starts: Starts) -> list[list[object]]:
        self.reader.assign([TopicPartition(topic, partition, offset) for partition, offset, _ in starts])
        left, rows, deadline = sum(start[2] for start in starts), [], time.monotonic() + WAIT_S
        while left and time.monotonic() < deadline:
            for message in self.reader.consume(left, 0.2):
                if message.error():
                    raise RuntimeError(message.error())
                rows.append(_shown(message))
                left -= 1
            self._check_login()
        self.reader.unassign()
        return rows

    def create_topic(self, topic: str, partitions: int, config: dict[str, str]) -> None:
        _only(self.admin.create_topics([api.NewTopic(topic, partitions, 1, config=config)]))

    def delete_topic(self, topic: str) -> None:
        _only(self.admin.delete_topics([topic]))

    def list_topics(self) -> list[str]:
        return list(self.admin.list_topics(timeout=WAIT_S).topics)

    def describe_topic(self, topic: str) -> list[int]:
        names = importlib.import_module("confluent_kafka").TopicCollection([topic])
        return [partition.leader.id for partition in _only(self.admin.describe_topics(names)).partitions]

    def describe_config(self, topic: str) -> dict[str, str]:
        entries = _only(self.admin.describe_configs([api.ConfigResource("topic", topic)]))
        return {entry.name: entry.value for entry in entries.values()}

    def set_config(self, topic: str, config: dict[str, str]) -> None:
        _only(self.admin.alter_configs([api.ConfigResource("topic", topic, set_config=config)]))

    def alter_config(self, topic: str, changes: list[tuple[str, str, str]]) -> None:
        entries = [
            api.ConfigEntry(name, value, incremental_operation=api.AlterConfigOpType[operation])
            for operation, name, value in changes
        ]
        _only(
            self.admin.incremental_alter_configs(
                [api.ConfigResource("topic", topic, incremental_configs=entries)],
            )
        )

    def create_partitions(self, topic: str, total: int) -> None:
        _only(self.admin.create_partitions([api.NewPartitions(topic, total)]))

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        return int(_only(self.admin.delete_records([TopicPartition(topic, partition, before)])).low_watermark)

    def describe_cluster(self) -> dict[str, object]:
        cluster = self.admin.describe_cluster().result(WAIT_S)
        return {
            "cluster": cluster.cluster_id,
            "controller": cluster.controller.id,
            "brokers": [[node.id, node.host, node.port] for node in cluster.nodes],
        }

    def list_offset(self, topic: str, partition: int, at: str | int) -> int:
        spec = SPECS[at]() if isinstance(at, str) else api.OffsetSpec.for_timestamp(at)
        return int(_only(self.admin.list_offsets({TopicPartition(topic, partition): spec})).offset)

    def _sent(self, producer: Producer, topic: str, records: Records) -> list[int | None]:
        """The offsets, once all have arrived."""
        offsets: dict[int, int | None] = {}
        errors = []

        def delivered(at: int, error: object, message: Message) -> None:
            if error is not None:
                errors.append(error)
            offsets[at] = message.offset()

        for n, (partition, key, value, headers, timestamp) in enumerate(records):
            producer.produce(
                topic,
                partition=partition,
                key=raw(key),
                value=raw(value),
                headers=raw_headers(headers),
                timestamp=timestamp,
                on_delivery=partial(delivered, n),
            )
        deadline = time.monotonic() + WAIT_S
        while producer.flush(0.2) and time.monotonic() < deadline:
            self._check_login()
        if errors:
            raise RuntimeError(errors[0])
        return [offsets[n] for n in range(len(records))]


def _settings(login: Login) -> dict[str, object]:
    settings: dict[str, object] = {"security.protocol": login.protocol, "ssl.ca.location": login.trusted}
    if login.identity is not None:
        settings |= {"ssl.certificate.location": login.identity, "ssl.key.location": login.identity}
    if login.mechanism is not None:
        settings["sasl.mechanism"] = login.mechanism
    if login.username is not None:
        settings |= {"sasl.username": login.username, "sasl.password": login.password}
    if login.token is not None:
        token = Path(login.token).read_text()
        settings["oauth_cb"] = lambda _: (token, time.time() + WAIT_S)
    return settings


def _only(futures: dict[object, Any]) -> Any:
    (future,) = futures.values()
    return future.result(WAIT_S)


def _shown(message: Message) -> list[object]:
    key: Any = message.key()
    value: Any = message.value()
    headers: Any = message.headers()
    where = [message.partition(), message.offset(), message.timestamp()[1]]
    return [*where, shown(key), shown(value), shown_headers(headers)]


if __name__ == "__main__":
    serving.serve(Client)
