"""kafka-python."""
# mypy: disable-error-code="import-untyped,import-not-found"

import logging
import time
from functools import cached_property
from pathlib import Path
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.net.sasl.oauth import AbstractTokenProvider
from kafka.structs import OffsetAndMetadata

from tests.clients.python import serving
from tests.clients.python.serving import WAIT_S, Login, Records, Starts, raw, raw_headers, shown, shown_headers

SPECIAL_TIMES = {"latest": -1, "earliest": -2, "max": -3}


MANAGER = logging.getLogger("kafka.net.manager")


class Refusal(logging.Handler):
    """Ends an attempt to log in with what the client logs about it. By itself it goes on for 30 s and says less."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith(("Bootstrap connection to", "Bootstrap attempt to")):
            raise ConnectionError(record.getMessage())


REFUSED_AT_ONCE = Refusal(logging.WARNING)


class Client:
    def __init__(self, bootstrap: str, login: Login | None) -> None:
        self.common: dict[str, Any] = {"bootstrap_servers": bootstrap} | ({} if login is None else _settings(login))
        if login is not None:
            MANAGER.addHandler(REFUSED_AT_ONCE)

    @cached_property
    def admin(self) -> Any:
        return KafkaAdminClient(**self.common)

    @cached_property
    def reader(self) -> Any:
        return KafkaConsumer(**self.common, group_id=None, enable_auto_commit=False)

    def close(self) -> None:
        MANAGER.removeHandler(REFUSED_AT_ONCE)
        for name in {"admin", "reader"} & self.__dict__.keys():
            getattr(self, name).close()

    def produce(self, topic: str, codec: str, idempotent: bool, records: Records) -> list[int]:
        producer = KafkaProducer(
            **self.common,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            linger_ms=50,
            batch_size=1_000_000,
        )
        try:
            sent = [
                producer.send(topic, raw(value), raw(key), raw_headers(headers), partition, timestamp)
                for partition, key, value, headers, timestamp in records
            ]
            return [done.get(WAIT_S).offset for done in sent]
        finally:
            producer.close(WAIT_S)

    def consume(self, topic: str, starts: Starts) -> list[list[object]]:
        self.reader.assign([TopicPartition(topic, partition) for partition, _, _ in starts])
        for partition, offset, _ in starts:
            self.reader.seek(TopicPartition(topic, partition), offset)
        rows: list[list[object]] = []
        count, deadline = sum(start[2] for start in starts), time.monotonic() + WAIT_S
        while len(rows) < count and time.monotonic() < deadline:
            for records in self.reader.poll(200, count - len(rows)).values():
                rows += [_shown(record) for record in records]
        return rows

    def write_transaction(self, topic: str, id: str, records: Records, commit: bool) -> list[int]:
        producer = KafkaProducer(**self.common, transactional_id=id)
        try:
            producer.init_transactions()
            producer.begin_transaction()
            sent = [
                producer.send(topic, raw(value), raw(key), raw_headers(headers), partition, timestamp)
                for partition, key, value, headers, timestamp in records
            ]
            producer.flush(WAIT_S)
            (producer.commit_transaction if commit else producer.abort_transaction)()
            return [done.get(WAIT_S).offset for done in sent]
        finally:
            producer.close(WAIT_S)

    def read_in_group(self, topic: str, group: str, count: int, isolation: str) -> list[list[object]]:
        member = KafkaConsumer(
            **self.common,
            group_id=group,
            isolation_level=isolation,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        # kafka-python 3.0.12 joins before it knows the topic, and again after. If its metadata arrive while the second
        # join is answered, it never asks for offsets or records again. So it gets to know the topic first.
        member.partitions_for_topic(topic)
        member.subscribe([topic])
        rows: list[list[object]] = []
        read: dict[TopicPartition, OffsetAndMetadata] = {}
        deadline = time.monotonic() + WAIT_S
        while len(rows) < count and time.monotonic() < deadline:
            for of, records in member.poll(200, count - len(rows)).items():
                rows += [_shown(record) for record in records]
                read[of] = OffsetAndMetadata(records[-1].offset + 1, "", -1)
        member.commit(read)
        member.close()
        return rows

    def committed_offsets(self, group: str) -> dict[int, int]:
        offsets = self.admin.list_group_offsets(group)[group]
        return {of.partition: committed.offset for of, committed in offsets.items()}

    def describe_group(self, group: str) -> list[object]:
        description = self.admin.describe_groups([group])[group]
        return [description["group_state"], len(description["members"])]

    def list_groups(self) -> list[str]:
        return [group["group_id"] for group in self.admin.list_groups()]

    def delete_group(self, group: str) -> None:
        result = self.admin.delete_groups([group])[group]
        if result != "OK":
            raise RuntimeError(result)

    def create_topic(self, topic: str, partitions: int, config: dict[str, str]) -> None:
        self.admin.create_topics({topic: {"num_partitions": partitions, "replication_factor": 1, "configs": config}})

    def delete_topic(self, topic: str) -> None:
        self.admin.delete_topics([topic])

    def list_topics(self) -> list[str]:
        return list(self.admin.list_topics())

    def describe_topic(self, topic: str) -> list[int]:
        (description,) = self.admin.describe_topics([topic])
        parts = sorted(description["partitions"], key=lambda part: part["partition_index"])
        return [part["leader_id"] for part in parts]

    def describe_config(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        entries = self.admin.describe_configs([resource], config_filter="all")["topic"][topic]
        return {name: entry["value"] for name, entry in entries.items()}

    def set_config(self, topic: str, config: dict[str, str]) -> None:
        self._alter(ConfigResource(ConfigResourceType.TOPIC, topic, config), incremental=False)

    def alter_config(self, topic: str, changes: list[tuple[str, str, str]]) -> None:
        operations = {name: (operation, value) for operation, name, value in changes}
        self._alter(ConfigResource(ConfigResourceType.TOPIC, topic, operations), incremental=True)

    def _alter(self, resource: ConfigResource, *, incremental: bool) -> None:
        result = self.admin.alter_configs([resource], incremental=incremental)["topic"][resource.name]
        if result != "OK":
            raise RuntimeError(result)

    def create_partitions(self, topic: str, total: int) -> None:
        self.admin.create_partitions({topic: total})

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        where = TopicPartition(topic, partition)
        return int(self.admin.delete_records({where: before})[where]["low_watermark"])

    def describe_log_dirs(self, topic: str) -> dict[int, int]:
        return {
            part["partition_index"]: part["partition_size"]
            for broker in self.admin.describe_log_dirs([topic])
            for directory in broker["log_dirs"]
            for described in directory["topics"]
            for part in described["partitions"]
        }

    def describe_cluster(self) -> dict[str, object]:
        cluster = self.admin.describe_cluster()
        return {
            "cluster": cluster["cluster_id"],
            "controller": cluster["controller_id"],
            "brokers": [[node["broker_id"], node["host"], node["port"]] for node in cluster["brokers"]],
        }

    def list_offset(self, topic: str, partition: int, at: str | int) -> int:
        where = TopicPartition(topic, partition)
        time_ms = SPECIAL_TIMES[at] if isinstance(at, str) else at
        return int(self.admin.list_partition_offsets({where: time_ms})[where].offset)


class Token(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, path: str) -> None:
        self.text = Path(path).read_text()

    def token(self) -> str:
        return self.text


def _settings(login: Login) -> dict[str, object]:
    settings: dict[str, object] = {
        "security_protocol": login.protocol,
        "ssl_cafile": login.trusted,
        "ssl_certfile": login.identity,
        "sasl_mechanism": login.mechanism,
        "sasl_plain_username": login.username,
        "sasl_plain_password": login.password,
    }
    if login.token is not None:
        settings["sasl_oauth_token_provider"] = Token(login.token)
    return settings


def _shown(record: Any) -> list[object]:
    where = [record.partition, record.offset, record.timestamp]
    return [*where, shown(record.key), shown(record.value), shown_headers(record.headers)]


if __name__ == "__main__":
    logging.basicConfig(level=logging.DEBUG, format="%(asctime)s %(name)s %(message)s")
    serving.serve(Client)
