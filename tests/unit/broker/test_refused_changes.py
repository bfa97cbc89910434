"""Settings that tools or other brokers wrote and that this broker cannot obey: it names them, and changes nothing."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from leadline.broker.broker import Broker
from leadline.broker.reconfiguration import connections_per_address
from leadline.cluster.dynamic_configs import BROKERS, TOPICS
from leadline.config.broker import broker_settings
from leadline.config.values import InvalidSetting
from leadline.coordination import znodes
from leadline.coordination.tree import Create
from leadline.model import TopicPartition
from tests.support import in_memory
from tests.support.in_process import broker_in_process
from tests.support.memory_network import MemoryNetwork
from tests.support.waiting import eventually

TP = TopicPartition("talk", 0)
SECONDS = 30


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    yield from in_memory.directory()


def run(path: Path, test: Callable[[Broker], Awaitable[None]], **settings: str) -> None:
    async def main() -> None:
        properties = {name.replace("_", "."): text for name, text in settings.items()}
        async with broker_in_process(path / "data", settings=properties) as broker:
            await test(broker)

    asyncio.run(main())


async def write(broker: Broker, kind: str, name: str, **config: str) -> None:
    """Writes settings as a tool or another broker does. Returns once this broker has seen them."""
    changes: list[tuple[str, str]] = []

    async def note(kind: str, name: str) -> None:
        changes.append((kind, name))

    broker.configs.on_change.append(note)
    values = {key.replace("_", "."): value for key, value in config.items()}
    path, data = znodes.config_path(kind, name), json.dumps({"version": 1, "config": values}).encode()
    node = await broker.tree.get(path)
    if node is None:
        await broker.tree.create(path, data, make_parents=True)
    else:
        await broker.tree.set(path, data)
    change = znodes.encode_config_change(f"{kind}/{name}")
    await broker.tree.multi([Create(znodes.CONFIG_CHANGE, change, sequential=True)])
    await eventually(lambda: (kind, name) in changes)


async def with_topic(broker: Broker) -> None:
    await broker.cluster.create_topic(TP.topic, ((broker.services.metadata.me.id,),), {})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"listeners": "SASL_PLAINTEXT://localhost:0"}, "must be the name of an advertised listener"),
        ({"listeners": "PLAINTEXT://localhost:0,SSL://localhost:0"}, "a listener with TLS has a key store"),
        ({"listeners": "PLAINTEXT://localhost:9"}, "cannot change to PLAINTEXT://localhost:9 while it is open"),
        ({"listener_name_plaintext_max_connections": "few"}, "Not a number of type INT"),
        ({"max_connections_per_ip_overrides": "no.such.host.invalid:5"}, "no.such.host.invalid has no address"),
        ({"metric_reporters": "my.Own"}, "Java classes cannot be loaded"),
        ({"log_retention_ms": "soon"}, "Not a number of type LONG"),
    ],
)
def test_what_a_tool_wrote_and_cannot_be_obeyed_is_named_and_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, wrong: dict[str, str], message: str
) -> None:
    async def test(broker: Broker) -> None:
        name = str(broker.services.metadata.me.id)
        before = broker.settings.current
        await write(broker, BROKERS, name, max_connections="7", **wrong)
        assert broker.settings.current is before
        await write(broker, BROKERS, name, max_connections="7")
        assert broker.settings.broker.max_connections == 7

    run(tmp_path, test)
    (error,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert message in error


def test_what_a_tool_wrote_and_cannot_be_obeyed_stops_the_start(tmp_path: Path) -> None:
    async def test(broker: Broker) -> None:
        await write(broker, BROKERS, "<default>", metric_reporters="my.Own")

    async def nothing(broker: Broker) -> None: ...

    run(tmp_path, test)
    with pytest.raises(InvalidSetting, match=r"metric\.reporters=my\.Own: not supported: .*kafka-configs"):
        run(tmp_path, nothing)


def test_a_topics_settings_that_cannot_be_obeyed_are_named_and_the_others_hold(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(broker: Broker) -> None:
        await with_topic(broker)
        await write(broker, TOPICS, TP.topic, remote_storage_enable="true", unheard_of="1", retention_ms="5000")
        assert broker.dirs.logs[TP].config.retention_ms == 5000

    async def again(broker: Broker) -> None:
        assert broker.dirs.logs[TP].config.retention_ms == 5000

    run(tmp_path, test)
    run(tmp_path, again)
    errors = {record.getMessage() for record in caplog.records if record.levelname == "ERROR"}
    assert any("topic talk" in error and "remote.storage.enable=true: not supported" in error for error in errors)
    assert any("topic talk" in error and "unheard.of" in error for error in errors)


def test_a_limit_for_a_host_by_name_counts_for_its_addresses() -> None:
    overrides = {"max.connections.per.ip.overrides": "localhost:5,127.0.0.9:6,0:0:0:0:0:0:0:9:7"}
    per_address = asyncio.run(connections_per_address(broker_settings(overrides).broker, MemoryNetwork()))
    assert dict(per_address) == {"127.0.0.1": 5, "127.0.0.9": 6, "::9": 7}


def test_a_limit_for_an_unknown_host_is_refused() -> None:
    overrides = {"max.connections.per.ip.overrides": "no.such.host.invalid:5"}
    with pytest.raises(InvalidSetting, match=r"max\.connections\.per\.ip\.overrides: no\.such\.host\.invalid has no"):
        asyncio.run(connections_per_address(broker_settings(overrides).broker, MemoryNetwork()))
