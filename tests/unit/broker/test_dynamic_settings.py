"""Settings that change while a broker runs: each takes effect wherever it is used, and is back when it is deleted.

Kafka calls these settings dynamic: cluster-wide ones of brokers, and all of topics. Every one that is obeyed has a row
here, with a look at the part of the broker that obeys it, or in `test_dynamic_effects`, with what its clients see.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from leadline.broker.broker import Broker
from leadline.broker.net import Net
from leadline.config.broker import kafka_table
from leadline.config.listener_changes import LISTENER_SETTINGS
from leadline.config.security import SecurityConfig
from leadline.config.settings import Mode, Support
from leadline.config.topic import LogConfig
from leadline.log.cleaner import LogToClean, request_for
from leadline.log.compaction_request import CompactionRequest
from leadline.log.log import Log
from leadline.model import TopicPartition
from tests.support.in_process import broker_in_process
from tests.support.waiting import eventually
from tests.unit.broker.test_dynamic_effects import EFFECTS

SECONDS = 30
TP = TopicPartition("orders", 0)
Look = Callable[[Broker], object]


def log_of(broker: Broker) -> Log:
    return broker.replicas.hosted[TP].log


def net_of(broker: Broker) -> Net:
    return broker.net


def pass_over(broker: Broker) -> CompactionRequest:
    """The request of a compaction that begins now."""
    log = log_of(broker)
    return request_for(LogToClean(log, 0, 0, 0, 0, False), broker.dirs.config, 0)


def cleaners(broker: Broker) -> int:
    return sum(not task.done() for task in broker.log_tasks._cleaners.values())


BROKER: dict[str, tuple[str, Look, object]] = {
    "max.connections": ("7", lambda broker: net_of(broker).limits.max_connections, 7),
    "max.connection.creation.rate": ("7", lambda broker: net_of(broker).limits.max_connection_creation_rate, 7),
    "log.cleaner.threads": ("2", cleaners, 2),
    "log.cleaner.io.max.bytes.per.second": ("4000.0", lambda broker: pass_over(broker).max_bytes_per_second, 4000.0),
    "log.cleaner.dedupe.buffer.size": ("100000000", lambda broker: pass_over(broker).dedupe_bytes, 100_000_000),
    "log.cleaner.io.buffer.load.factor": ("0.5", lambda broker: pass_over(broker).load_factor, 0.5),
    "log.cleaner.io.buffer.size": ("900000", lambda broker: pass_over(broker).io_buffer_bytes, 450_000),
    "log.cleaner.backoff.ms": ("77", lambda broker: broker.dirs.config.log_cleaner_backoff_ms, 77),
    "log.cleaner.delete.retention.ms": ("77", lambda broker: pass_over(broker).config.delete_retention_ms, 77),
}
ELSEWHERE = {
    **dict.fromkeys(LISTENER_SETTINGS, "by test_dynamic_listeners"),
    "num.recovery.threads.per.data.dir": "of use at the start alone",
    "sasl.mechanism.inter.broker.protocol": "of use at the start alone, in Kafka too",
    **dict.fromkeys(
        (name for name, row in SecurityConfig.rows().items() if row.mode is not Mode.READ_ONLY),
        "of stores, by test_listener_security; of others, for listeners that are new, in Kafka too",
    ),
    "log.message.timestamp.difference.max.ms": "the older name of two others",
}


def test_every_dynamic_setting_of_a_broker_that_is_obeyed_is_looked_at() -> None:
    dynamic = {
        name
        for name, row in kafka_table().items()
        if row.mode is not Mode.READ_ONLY and row.support is Support.OBEYED and not row.internal
    }
    assert dynamic == BROKER.keys() | EFFECTS.keys() | ELSEWHERE.keys()
    assert not BROKER.keys() & EFFECTS.keys()


async def until_equal(look: Callable[[], object], expected: object, name: str = "") -> None:
    await eventually(lambda: look() == expected, lambda: f"{name} is {look()}, not {expected}")


async def create_topic(broker: Broker) -> None:
    await broker.cluster.create_topic(TP.topic, ((broker.services.metadata.me.id,),), {})


def only(config: dict[str, str], _: object) -> dict[str, str]:
    return config


async def alter(broker: Broker, config: dict[str, str]) -> None:
    await broker.cluster.alter_broker_config(lambda: config, of_all=True)


def test_a_changed_setting_of_a_broker_is_obeyed_at_once_and_so_is_the_old_one_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker_in_process(tmp_path) as broker:
            await create_topic(broker)
            for name, (value, look, after) in BROKER.items():
                before = look(broker)
                assert before != after, name
                await alter(broker, {name: value})
                await until_equal(partial(look, broker), after, name)
                await alter(broker, {})
                await until_equal(partial(look, broker), before, name)

    asyncio.run(scenario())


def test_a_misspelt_name_that_the_cluster_holds_is_reported_and_stops_neither_a_change_nor_a_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Kafka stores any name."""
    misspelt = "ssl.keystore.locatoin"

    async def scenario() -> None:
        async with broker_in_process(tmp_path) as broker:
            await alter(broker, {misspelt: "/x", "max.connections": "7"})
            await until_equal(lambda: net_of(broker).limits.max_connections, 7, "max.connections")
        async with broker_in_process(tmp_path) as broker:
            assert net_of(broker).limits.max_connections == 7

    asyncio.run(scenario())
    line = f"settings that the cluster holds, without effect: {misspelt} (did you mean ssl.keystore.location?)"
    assert caplog.messages.count(line) == 2, "once in each run"


def test_a_changed_setting_without_effect_is_reported_once_with_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with broker_in_process(tmp_path) as broker:
            for connections in (7, 8):
                rate = {"leader.replication.throttled.rate": "5"}  # no table of settings has it, and it is obeyed
                await alter(broker, {**rate, "num.io.threads": "9", "max.connections": str(connections)})
                await until_equal(lambda: net_of(broker).limits.max_connections, connections, "max.connections")

    asyncio.run(scenario())
    lines = [message for message in caplog.messages if "without effect" in message]
    reason = "num.io.threads (one thread serves all requests)"
    assert lines == [f"settings that the cluster holds, without effect: {reason}"]


def test_a_changed_setting_of_a_topic_is_obeyed_by_its_running_log(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker_in_process(tmp_path) as broker:
            await create_topic(broker)
            for name, row in LogConfig.table().items():
                if row.support is not Support.OBEYED or row.field == "":
                    continue
                before = getattr(log_of(broker).config, row.field)
                value = OTHER.get(name, "77")
                await broker.cluster.alter_topic_config(TP.topic, partial(only, {name: value}))
                after = LogConfig.parse({name: value})
                await until_equal(lambda: log_of(broker).config, broker.settings.topics.with_values({name: value}))
                assert getattr(after, row.field) != before, name

    asyncio.run(scenario())


OTHER = {
    "cleanup.policy": "compact",
    "compression.type": "zstd",
    "compression.gzip.level": "5",
    "compression.lz4.level": "5",
    "compression.zstd.level": "5",
    "message.timestamp.type": "LogAppendTime",
    "min.cleanable.dirty.ratio": "0.7",
    "message.downconversion.enable": "false",
    "preallocate": "true",
    "unclean.leader.election.enable": "true",
    "segment.bytes": "7777",
    "segment.index.bytes": "7777",
    "min.insync.replicas": "2",
    "leader.replication.throttled.replicas": "0:1",
    "follower.replication.throttled.replicas": "0:1",
}


async def connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("localhost", port)


def test_connections_that_wait_are_accepted_when_more_are_allowed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker_in_process(tmp_path, settings={"max.connections": "1"}) as broker:
            net, port = net_of(broker), broker.addresses["PLAINTEXT"].port
            clients = [await connect(port) for _ in range(3)]
            await until_equal(lambda: len(net.connections), 1)
            await alter(broker, {"max.connections": "3"})
            await until_equal(lambda: len(net.connections), 3)
            await alter(broker, {"max.connections": "2"})
            await until_equal(lambda: len(net.connections), 2)
            for _, writer in clients:
                writer.close()

    asyncio.run(scenario())


def test_a_cleaner_that_rests_looks_at_the_new_settings_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker_in_process(tmp_path, settings={"log.cleaner.backoff.ms": "600000"}) as broker:
            passes = 0

            async def look() -> bool:
                nonlocal passes
                passes += 1
                return False

            broker.log_tasks.cleaner.clean_filthiest = look  # type: ignore[method-assign]
            await alter(broker, {"log.cleaner.backoff.ms": "10"})
            await until_equal(lambda: passes > 3, True)

    asyncio.run(scenario())
