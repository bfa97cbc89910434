"""aiokafka. It knows no incremental changes of settings, no log directories and no deletion of groups."""
# mypy: disable-error-code="import-untyped,import-not-found"

import asyncio
import logging
import ssl
from collections.abc import Awaitable
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.abc import AbstractTokenProvider
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaConnectionError, for_code

from tests.clients.python import serving
from tests.clients.python.serving import WAIT_S, Login, Records, Starts, raw, raw_headers, shown, shown_headers

T = TypeVar("T")


class LastLine(logging.Handler):
    line = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.line = record.getMessage()


LOGGED = LastLine(logging.WARNING)


class Client:
    """Each request in a turn of the loop of its own; between two of them nothing runs."""

    def __init__(self, bootstrap: str, login: Login | None) -> None:
        self.common: dict[str, Any] = {"bootstrap_servers": bootstrap} | ({} if login is None else _settings(login))
        self.loop = asyncio.new_event_loop()

    @cached_property
    def admin(self) -> Any:
        return self._run(self._started(AIOKafkaAdminClient))

    def close(self) -> None:
        if "admin" in self.__dict__:
            self._run(self.admin.close())
        self.loop.close()

    def _run(self, job: Awaitable[T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(job, WAIT_S))

    async def _started(self, kind: Any, *topics: str, **settings: object) -> Any:
        made = kind(*topics, **self.common, **settings)
        try:
            await made.start()
        except KafkaConnectionError as error:
            if kind is not AIOKafkaAdminClient:
                await made.stop()
            raise ConnectionError(f"{error}; it had logged: {LOGGED.line}") from error  # the reason is only there
        return made

    def produce(self, topic: str, codec: str, idempotent: bool, records: Records) -> list[int]:
        return self._run(self._produce(topic, codec, idempotent, records))

    async def _produce(self, topic: str, codec: str, idempotent: bool, records: Records) -> list[int]:
        producer = await self._started(
            AIOKafkaProducer,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            linger_ms=50,
            max_batch_size=1_000_000,
        )
        try:
            sent = [
                await producer.send(topic, raw(value), raw(key), partition, timestamp, raw_headers(headers))
                for partition, key, value, headers, timestamp in records
            ]
            return [done.offset for done in await asyncio.gather(*sent)]
        finally:
            await producer.stop()

    def consume(self, topic: str, starts: Starts) -> list[list[object]]:
        return self._run(self._consume(topic, starts))

    async def _consume(self, topic: str, starts: Starts) -> list[list[object]]:
        reader = await self._started(AIOKafkaConsumer, enable_auto_commit=False)
        try:
            reader.assign([TopicPartition(topic, partition) for partition, _, _ in starts])
            for partition, offset, _ in starts:
                reader.seek(TopicPartition(topic, partition), offset)
            return [_shown(await reader.getone()) for _ in range(sum(start[2] for start in starts))]
        finally:
            await reader.stop()

    def write_transaction(self, topic: str, id: str, records: Records, commit: bool) -> list[int]:
        return self._run(self._write_transaction(topic, id, records, commit))

    async def _write_transaction(self, topic: str, id: str, records: Records, commit: bool) -> list[int]:
        producer = await self._started(AIOKafkaProducer, transactional_id=id)
        try:
            await producer.begin_transaction()
            sent = [
                await producer.send(topic, raw(value), raw(key), partition, timestamp, raw_headers(headers))
                for partition, key, value, headers, timestamp in records
            ]
            await producer.flush()
            await (producer.commit_transaction() if commit else producer.abort_transaction())
            return [done.offset for done in await asyncio.gather(*sent)]
        finally:
            await producer.stop()

    def read_in_group(self, topic: str, group: str, count: int, isolation: str) -> list[list[object]]:
        return self._run(self._read_in_group(topic, group, count, isolation))

    async def _read_in_group(self, topic: str, group: str, count: int, isolation: str) -> list[list[object]]:
        made = await self._started(
            AIOKafkaConsumer,
            topic,
            group_id=group,
            isolation_level=isolation,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        try:
            records = [await made.getone() for _ in range(count)]
            await made.commit({TopicPartition(topic, record.partition): record.offset + 1 for record in records})
            return [_shown(record) for record in records]
        finally:
            await made.stop()

    def committed_offsets(self, group: str) -> dict[int, int]:
        offsets = self._run(self.admin.list_consumer_group_offsets(group))
        return {of.partition: committed.offset for of, committed in offsets.items()}

    def describe_group(self, group: str) -> list[object]:
        ((description,),) = [answer.groups for answer in self._run(self.admin.describe_consumer_groups([group]))]
        _check(description)
        return [description[2], len(description[5])]

    def list_groups(self) -> list[str]:
        return [group[0] for group in self._run(self.admin.list_consumer_groups())]

    def create_topic(self, topic: str, partitions: int, config: dict[str, str]) -> None:
        made = NewTopic(topic, partitions, 1, topic_configs=config)
        _check(self._run(self.admin.create_topics([made])).topic_errors[0][1:])

    def delete_topic(self, topic: str) -> None:
        _check(self._run(self.admin.delete_topics([topic])).topic_error_codes[0][1:])

    def list_topics(self) -> list[str]:
        return list(self._run(self.admin.list_topics()))

    def describe_topic(self, topic: str) -> list[int]:
        (description,) = self._run(self.admin.describe_topics([topic]))
        return [part["leader"] for part in sorted(description["partitions"], key=lambda part: part["partition"])]

    def describe_config(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        ((description,),) = [answer.resources for answer in self._run(self.admin.describe_configs([resource]))]
        _check(description)
        return {entry[0]: entry[1] for entry in description[4]}

    def set_config(self, topic: str, config: dict[str, str]) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, config)
        ((result,),) = [answer.resources for answer in self._run(self.admin.alter_configs([resource]))]
        _check(result)

    def create_partitions(self, topic: str, total: int) -> None:
        (result,) = self._run(self.admin.create_partitions({topic: NewPartitions(total)})).topic_errors
        _check(result[1:])

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        where = TopicPartition(topic, partition)
        return int(self._run(self.admin.delete_records({where: RecordsToDelete(before)}))[where])

    def describe_cluster(self) -> dict[str, object]:
        cluster = self._run(self.admin.describe_cluster())
        return {
            "cluster": cluster["cluster_id"],
            "controller": cluster["controller_id"],
            "brokers": [[node["node_id"], node["host"], node["port"]] for node in cluster["brokers"]],
        }

    def list_offset(self, topic: str, partition: int, at: str | int) -> int:
        if at == "max":
            raise NotImplementedError("lacking")
        return self._run(self._list_offset(TopicPartition(topic, partition), at))

    async def _list_offset(self, where: TopicPartition, at: str | int) -> int:
        reader = await self._started(AIOKafkaConsumer)
        try:
            if isinstance(at, int):
                position = (await reader.offsets_for_times({where: at}))[where]
                return -1 if position is None else int(position.offset)
            ask = {"earliest": reader.beginning_offsets, "latest": reader.end_offsets}[at]
            return int((await ask([where]))[where])
        finally:
            await reader.stop()


class Token(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, path: str) -> None:
        self.text = Path(path).read_text()

    async def token(self) -> str:
        return self.text


def _settings(login: Login) -> dict[str, object]:
    context = ssl.create_default_context(cafile=login.trusted)
    if login.identity is not None:
        context.load_cert_chain(login.identity)
    settings: dict[str, object] = {"security_protocol": login.protocol, "ssl_context": context}
    if login.mechanism is not None:
        settings["sasl_mechanism"] = login.mechanism
    if login.username is not None:
        settings |= {"sasl_plain_username": login.username, "sasl_plain_password": login.password}
    if login.token is not None:
        settings["sasl_oauth_token_provider"] = Token(login.token)
    return settings


def _check(answer: tuple[int, str]) -> None:
    """Of an answer that aiokafka hands over as it came: its code, and what else it says."""
    if answer[0]:
        raise for_code(answer[0])(answer)


def _shown(record: Any) -> list[object]:
    where = [record.partition, record.offset, record.timestamp]
    return [*where, shown(record.key), shown(record.value), shown_headers(record.headers)]


if __name__ == "__main__":
    logging.getLogger("aiokafka").addHandler(LOGGED)
    serving.serve(Client)
