"""Our tables of settings against those inside Kafka 3.8: the rows field by field, and what each side makes of texts."""

import json
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import product
from typing import Any

import pytest

from docs.site.settings_reference import KAFKAS_DEFAULTS, STRICTER
from leadline.config.alter import AlterConfigOp, ConfigChange, changed, check_broker, check_topic
from leadline.config.broker import DYNAMIC_ONLY, broker_settings, kafka_table, row_of, synonyms
from leadline.config.describe import (
    ConfigEntry,
    ConfigLayers,
    describe_broker,
    describe_broker_defaults,
    describe_topic,
)
from leadline.config.listeners import SecurityProtocol
from leadline.config.settings import SettingRow, Support
from leadline.config.topic import LogConfig
from leadline.config.values import ConfigType, InvalidSetting, write
from tests.conformance.kafka import jars

pytestmark = pytest.mark.conformance

FILE = {"broker.id": "1", "zookeeper.connect": "localhost:2181", "log.dir": "data"}


def ask(*questions: Mapping[str, object]) -> list[dict[str, Any]]:
    """All in one go, as a JVM takes longer to start than to answer: each as ok or refused."""
    classes = jars.compiled(jars.HERE / "settings" / "SettingsOracle.java")
    command = jars.command("SettingsOracle", classes=classes)
    done = subprocess.run(command, input=json.dumps(questions), capture_output=True, text=True, timeout=120, check=True)
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers


@pytest.fixture(scope="module")
def tables() -> Any:
    return ask({"ask": "tables"})[0]["ok"]


def as_kafka_shows(row: SettingRow) -> dict[str, object]:
    return {
        "kind": row.kind.name,
        "default": row.default_text,
        "valid": row.check.valid if row.check else "",
        "importance": row.importance.value,
        "internal": row.internal,
    }


def test_a_broker_has_kafkas_settings_each_like_kafkas(tables: Any) -> None:
    ours = {name: as_kafka_shows(row) for name, row in kafka_table().items()}
    for name, default in KAFKAS_DEFAULTS.items():
        assert tables["broker"][name]["default"] == default
        tables["broker"][name]["default"] = ours[name]["default"]
    assert ours == tables["broker"]


def test_a_topic_has_kafkas_settings_each_like_kafkas(tables: Any) -> None:
    assert {name: as_kafka_shows(row) for name, row in LogConfig.table().items()} == tables["topic"]


def test_the_same_settings_may_change_while_a_broker_runs(tables: Any) -> None:
    ours = {name: row.mode.value for name, row in kafka_table().items() if row.mode.value != "read-only"}
    assert ours == tables["modes"]


def test_the_same_settings_are_never_in_a_file(tables: Any) -> None:
    only = {name: row for name, row in tables["dynamic only"].items() if name not in tables["broker"]}
    assert {name: as_kafka_shows(row) for name, row in DYNAMIC_ONLY.items()} == only


def test_a_topics_defaults_come_from_the_same_settings_of_a_broker(tables: Any) -> None:
    ours = {name: list(row.from_broker.names) for name, row in LogConfig.table().items() if row.from_broker}
    assert ours == tables["from broker"]


def test_the_same_settings_are_synonyms(tables: Any) -> None:
    assert {name: list(synonyms(name)) for name in kafka_table()} == tables["synonyms"]


TEXTS = """
    0 1 -1 -2 -3 5 9 10 17 18 +3 007 1_000 12a 0x10 1.5 .5 5. 1e3 1E400 NaN Infinity -Infinity inf nan 1f 0.5d 1.0e-5
    32767 32768 2147483647 2147483648 9223372036854775807 9223372036854775808 -9223372036854775809
    true TRUE False yes a,b delete compact,delete delete,,compact 0:1,2:3 * *,1:1 0:1, snappy producer none required
    CreateTime createtime SSL ssl 3.8 2.8-IV1 2.8.1 0.10 0.10.2 4.0 classic broker downgrade
""".split()


def test_each_text_is_read_as_kafka_reads_it() -> None:
    rows = [(row, False) for row in kafka_table().values()] + [(row, True) for row in LogConfig.table().values()]
    texts = ["", " ", " 7 ", "\t7\n", " a , b ", *TEXTS]
    cases = [(row, of_topic, text) for (row, of_topic), text in product(rows, texts) if comparable(row)]
    questions = [{"ask": "read", "name": row.name, "text": text, "topic": of_topic} for row, of_topic, text in cases]
    differences = []
    for (row, _, text), kafkas in zip(cases, ask(*questions), strict=True):
        ours = read(row, text)
        refused_here = "refused" in ours and "ok" in kafkas
        if refused_here and ("not supported" in ours["refused"] or row.name in STRICTER or text == "NaN"):
            continue
        if ours.keys() != kafkas.keys() or ours.get("ok") != kafkas.get("ok"):
            differences.append((row.name, text, ours, kafkas))
    assert differences == []


def read(row: SettingRow, text: str) -> dict[str, Any]:
    try:
        return {"ok": write(row.read(text))}
    except InvalidSetting as refused:
        return {"refused": str(refused)}


def comparable(row: SettingRow) -> bool:
    """Kafka loads classes, and reads the addresses of its quorum, which no broker here has."""
    return row.kind is not ConfigType.CLASS and not row.name.startswith("controller.quorum.")


PROTOCOLS = "0.8.2 0.10.2 0.11.0-IV0 0.11.0 1.1 2.6 2.8.1 3.0 3.6-IV2 3.7 3.8 3.9 3.9-IV0 4.0 4.0-IV0".split()
STARTS: list[dict[str, str]] = [
    {},
    {"log.retention.hours": "24"},
    {"log.retention.hours": "24", "log.retention.minutes": "30"},
    {"log.retention.hours": "24", "log.retention.minutes": "30", "log.retention.ms": "5000"},
    {"log.retention.hours": "-1"},
    {"log.retention.minutes": "-7"},
    {"log.retention.ms": "-7"},
    {"log.retention.ms": "0"},
    {"log.retention.minutes": "0"},
    {"log.roll.hours": "2"},
    {"log.roll.hours": "2", "log.roll.ms": "9"},
    {"log.roll.hours": "0"},
    {"log.roll.ms": "0"},
    {"log.roll.jitter.hours": "3"},
    {"log.roll.jitter.ms": "-1"},
    {"log.flush.scheduler.interval.ms": "77"},
    {"log.flush.scheduler.interval.ms": "77", "log.flush.interval.ms": "5"},
    {"log.flush.interval.ms": "-5"},
    {"log.message.timestamp.difference.max.ms": "9"},
    {"log.message.timestamp.difference.max.ms": "9", "log.message.timestamp.after.max.ms": "3"},
    {"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "3"},
    {"log.cleanup.policy": "compact, delete", "compression.type": "zstd", "message.max.bytes": "5"},
    {"log.dirs": "a, b,,c"},
    {"log.dirs": ","},
    {"log.dirs": ""},
    {"log.cleaner.dedupe.buffer.size": "2000000", "log.cleaner.threads": "2"},
    {"broker.id": "1000"},
    {"broker.id": "1001"},
    {"broker.id": "1001", "reserved.broker.max.id": "2000"},
    {"broker.id": "1001", "broker.id.generation.enable": "false"},
    {"broker.id": "-1"},
    {"broker.id": "-1", "broker.id.generation.enable": "false"},
    {"broker.id": "-2"},
    {"broker.id": "2", "node.id": "3"},
    {"zookeeper.session.timeout.ms": "5"},
    {"zookeeper.session.timeout.ms": "5", "zookeeper.connection.timeout.ms": "6"},
    {"replica.fetch.wait.max.ms": "30001"},
    {"replica.fetch.wait.max.ms": "501", "replica.lag.time.max.ms": "500"},
    {"offsets.commit.required.acks": "-2"},
    {"offsets.commit.required.acks": "4"},
    {"offsets.commit.required.acks": "3"},
    {"offsets.topic.compression.codec": "5"},
    {"queued.max.request.bytes": "5"},
    {"queued.max.request.bytes": "0"},
    {"queued.max.request.bytes": "104857600"},
    {"connection.failed.authentication.delay.ms": "600000"},
    {"connection.failed.authentication.delay.ms": "600000", "connections.max.idle.ms": "-1"},
    {"max.connections.per.ip": "0"},
    {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:5"},
    {"max.connections.per.ip.overrides": "::1:5, localhost:6"},
    {"max.connections.per.ip.overrides": "a b:5"},
    {"max.connections.per.ip.overrides": "localhost"},
    {"max.connections.per.ip.overrides": "localhost:many"},
    {"group.consumer.session.timeout.ms": "1"},
    {"group.consumer.min.heartbeat.interval.ms": "6000"},
    {"group.consumer.max.heartbeat.interval.ms": "4000"},
    {"group.coordinator.rebalance.protocols": "classic,consumer"},
    {"group.coordinator.rebalance.protocols": "consumer"},
    {"controller.listener.names": "CONTROLLER"},
    {"log.message.format.version": "2.8"},
    *({"inter.broker.protocol.version": protocol} for protocol in PROTOCOLS),
    {"inter.broker.protocol.version": "2.8", "log.message.format.version": "2.0"},
    {"inter.broker.protocol.version": "0.10.1", "log.message.format.version": "0.11.0"},
    {"inter.broker.protocol.version": "3.8", "unstable.feature.versions.enable": "true"},
    {"inter.broker.protocol.version": "3.9-IV0", "unstable.api.versions.enable": "true"},
    {"listeners": "PLAINTEXT://[::1]:9092"},
    {"listeners": "PLAINTEXT://::1:9092"},
    {"listeners": "PLAINTEXT://localhost:0"},
    {"listeners": "plaintext://localhost:9092"},
    {"listeners": "PLAINTEXT://localhost:9092,PLAINTEXT://localhost:9093"},
    {"listeners": "PLAINTEXT://localhost:9092,SSL://localhost:9092"},
    {"listeners": "PLAINTEXT://localhost:0,SSL://localhost:0"},
    {"listeners": "PLAINTEXT://127.0.0.1:9092,SSL://[::1]:9092"},
    {"listeners": "PLAINTEXT://127.0.0.1:9092,SSL://127.0.0.2:9092"},
    {"listeners": "PLAINTEXT://127.0.0.1:9092,SSL://[::1]:9092,SASL_SSL://:9092"},
    {"listeners": "PLAINTEXT://localhost:9092 , SSL://localhost:9093,"},
    {"listeners": ""},
    {"listeners": "localhost:9092"},
    {"listeners": "PLAINTEXT://localhost"},
    {"listeners": "PLAINTEXT://local host:9092"},
    {"listeners": "INSIDE://localhost:9092"},
    {"listeners": "INSIDE://localhost:9092", "listener.security.protocol.map": "INSIDE:PLAINTEXT"},
    {
        "listeners": "INSIDE://localhost:9092",
        "listener.security.protocol.map": "inside:plaintext",
        "inter.broker.listener.name": "inside",
    },
    {"listeners": "SSL://localhost:9092"},
    {"listeners": "SSL://localhost:9092", "security.inter.broker.protocol": "SSL"},
    {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
    {"inter.broker.listener.name": "NONE"},
    {"listener.security.protocol.map": "PLAINTEXT:CLEAR"},
    {"listener.security.protocol.map": "PLAINTEXT"},
    {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"},
    {"listeners": "PLAINTEXT://0.0.0.0:9092"},
    {"listeners": "PLAINTEXT://0.0.0.0:9092", "advertised.listeners": "PLAINTEXT://here:9092"},
    {"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"},
    {"advertised.listeners": "PLAINTEXT://there:1,SSL://there:2"},
    {"advertised.listeners": ""},
    {
        "listeners": "PLAINTEXT://:9092,SSL://:9093",
        "advertised.listeners": "PLAINTEXT://there:1,SSL://there:1",
    },
    {"control.plane.listener.name": "PLAINTEXT"},
    {"control.plane.listener.name": "SSL", "listeners": "PLAINTEXT://:9092,SSL://:9093"},
    {"control.plane.listener.name": "SSL"},
    {
        "listeners": "SASL_PLAINTEXT://:9092",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
    },
    {
        "listeners": "SASL_PLAINTEXT://:9092",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    },
]


# So that listeners under all names can be compared: protocols other than PLAINTEXT are refused here.
ALL_PLAINTEXT = {
    "listener.security.protocol.map": ",".join(f"{protocol.name}:PLAINTEXT" for protocol in SecurityProtocol)
}


def promises(properties: Mapping[str, str]) -> bool:
    """Something that Kafka keeps and that is refused here."""
    rows = {name: row for name in properties if (row := row_of(name))}
    return any(row.support is Support.REFUSED and properties[name] != row.default_text for name, row in rows.items())


def started(properties: dict[str, str]) -> dict[str, object]:
    settings = broker_settings(properties)

    def shown(listeners: Any) -> list[list[str]]:
        return [[listener.name, listener.protocol.name, listener.host, str(listener.port)] for listener in listeners]

    return {
        "topics": {name: write(getattr(settings.topics, row.field)) for name, row in LogConfig.rows().items()},
        "listeners": shown(settings.listeners.bound),
        "advertised": shown(settings.listeners.advertised),
        "inter broker": settings.listeners.inter_broker.name,
        "log dirs": list(settings.broker.log_dirs),
        "broker id": settings.broker.broker_id,
        "zookeeper connection timeout": settings.broker.zookeeper_connection_timeout_ms,
    }


def test_a_broker_starts_with_what_kafka_starts_with() -> None:
    files = [kind | more for more in STARTS for kind in (FILE, FILE | ALL_PLAINTEXT)]
    answers = ask(*({"ask": "start", "static": file} for file in files))
    for file, kafkas in zip(files, answers, strict=True):
        if "refused" in kafkas:
            with pytest.raises(InvalidSetting):
                started(file)
        elif promises(file):
            with pytest.raises(InvalidSetting, match="not supported"):
                started(file)
        else:
            obeyed = {name: value for name, value in kafkas["ok"]["topics"].items() if name in LogConfig.rows()}
            assert started(file) == kafkas["ok"] | {"topics": obeyed}, file


LAYERS: list[ConfigLayers] = [
    ConfigLayers(static=FILE),
    ConfigLayers(static=FILE | {"log.retention.hours": "24", "log.roll.ms": " 99 ", "num.io.threads": "9"}),
    ConfigLayers(
        static=FILE | {"log.retention.ms": "5", "unknown.name": "x", "ssl.key.password": "secret"},
        dynamic_default={"log.retention.ms": "6", "log.cleaner.threads": "2", "custom": "y"},
        dynamic_broker={"log.retention.ms": "7", "leader.replication.throttled.rate": "100"},
    ),
    ConfigLayers(
        static=FILE | {"log.retention.minutes": "5", "log.flush.scheduler.interval.ms": "8"},
        dynamic_default={"log.segment.bytes": "1000", "compression.type": "zstd", "log.cleanup.policy": "compact"},
        dynamic_broker={"max.connections": "5", "follower.replication.throttled.rate": "1"},
    ),
    ConfigLayers(
        static=FILE
        | {
            "listeners": "PLAINTEXT://:9092,SASL_SSL://:9093",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_ssl.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": "secret",
            "listener.name.sasl_ssl.ssl.keystore.location": "/key",
            "super.users": "User:me",
            "log.initial.task.delay.ms": "5",
            "log.message.timestamp.difference.max.ms": "7",
            "log.message.downconversion.enable": "false",
            "log.cleaner.io.max.bytes.per.second": "12345678.5",
            "log.cleaner.min.cleanable.ratio": "0.0001",
        },
        dynamic_broker={"listener.name.sasl_ssl.max.connections": "9"},
    ),
]

OVERRIDES = [
    {},
    {"cleanup.policy": "compact, delete", "retention.ms": "-1", "segment.ms": "5"},
    {"message.timestamp.difference.max.ms": "99", "message.format.version": "2.8", "local.retention.ms": "-1"},
    {"leader.replication.throttled.replicas": "0:1,1:2", "follower.replication.throttled.replicas": "*"},
    {"min.cleanable.dirty.ratio": ".25", "preallocate": "TRUE", "message.downconversion.enable": "false"},
]


def question(ask: str, layers: ConfigLayers, **more: object) -> dict[str, object]:
    places = {name.replace("_", " "): dict(place) for name, place in asdict(layers).items()}
    return {"ask": ask, **places, **{name.replace("_", " "): value for name, value in more.items()}}


def as_kafka_answers(entries: list[ConfigEntry]) -> dict[str, object]:
    return {
        entry.name: {
            "value": entry.value,
            "source": entry.source,
            "read_only": entry.read_only,
            "sensitive": entry.sensitive,
            "kind": entry.kind or 0,
            "synonyms": [[synonym.name, synonym.value, synonym.source] for synonym in entry.synonyms],
        }
        for entry in entries
    }


def without_other_defaults(entries: dict[str, Any]) -> dict[str, Any]:
    for name in KAFKAS_DEFAULTS.keys() & entries.keys():
        entries[name]["synonyms"] = [synonym for synonym in entries[name]["synonyms"] if synonym[2] != 5]
    return entries


def test_a_broker_is_described_as_kafka_describes_it() -> None:
    for layers, kafkas in zip(
        LAYERS, ask(*(question("describe broker", config_layers) for config_layers in LAYERS)), strict=True
    ):
        ours = without_other_defaults(as_kafka_answers(describe_broker(layers)))
        assert ours == without_other_defaults(kafkas["ok"])


def test_what_is_set_for_all_brokers_is_described_as_kafka_describes_it() -> None:
    for layers, kafkas in zip(
        LAYERS, ask(*(question("describe brokers", config_layers) for config_layers in LAYERS)), strict=True
    ):
        assert as_kafka_answers(describe_broker_defaults(layers)) == kafkas["ok"]


def test_a_topic_is_described_as_kafka_describes_it() -> None:
    cases = list(product(LAYERS, OVERRIDES))
    answers = ask(*(question("describe topic", layers, overrides=overrides) for layers, overrides in cases))
    for (layers, overrides), kafkas in zip(cases, answers, strict=True):
        assert as_kafka_answers(describe_topic(layers, overrides)) == kafkas["ok"]


def changes() -> Iterator[tuple[dict[str, str], list[ConfigChange]]]:
    lists = ["", "compact", "delete", "compact,delete", "delete,delete", "0:1,1:2", " delete "]
    for name in ("cleanup.policy", "leader.replication.throttled.replicas", "retention.ms"):
        for before, op, value in product([None, *lists], AlterConfigOp, lists):
            yield {} if before is None else {name: before}, [ConfigChange(name, op, value)]
    yield (
        {"retention.ms": "1"},
        [ConfigChange("flush.ms", AlterConfigOp.SET, "2"), ConfigChange("retention.ms", AlterConfigOp.DELETE)],
    )


def test_changes_are_worked_out_as_kafka_does() -> None:
    cases = list(changes())
    questions = [
        {
            "ask": "change",
            "current": current,
            "changes": [[change.name, change.op, change.value] for change in all_of_them],
        }
        for current, all_of_them in cases
    ]
    for (current, all_of_them), kafkas in zip(cases, ask(*questions), strict=True):
        if "refused" in kafkas:
            with pytest.raises(InvalidSetting):
                changed(current, all_of_them, LogConfig.table())
        else:
            assert changed(current, all_of_them, LogConfig.table()) == kafkas["ok"], (current, all_of_them)


TOPIC_CHECKS = [
    *OVERRIDES,
    {"no.such.name": "1"},
    {"log.retention.ms": "1"},
    {"retention.ms": "-2"},
    {"retention.ms": "0"},
    {"segment.bytes": "13"},
    {"min.compaction.lag.ms": "9"},
    {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"},
    {"remote.storage.enable": "true"},
    {"remote.storage.enable": "false"},
    {"cleanup.policy": "remove"},
    {"cleanup.policy": ""},
]


def test_a_topic_may_have_what_kafka_lets_it_have() -> None:
    layers = ConfigLayers(static=FILE | {"log.cleaner.max.compaction.lag.ms": "8"})
    questions = [
        {"ask": "check topic", "static": dict(layers.static), "overrides": overrides} for overrides in TOPIC_CHECKS
    ]
    for overrides, kafkas in zip(TOPIC_CHECKS, ask(*questions), strict=True):
        if "refused" in kafkas:
            with pytest.raises(InvalidSetting):
                check_topic(layers, overrides)
        else:
            check_topic(layers, overrides)


BROKER_CHECKS = [
    {"log.retention.ms": "5"},
    {"log.retention.ms": "0"},
    {"log.retention.ms": "soon"},
    {"log.retention.hours": "5"},
    {"num.io.threads": "9"},
    {"num.partitions": "9"},
    {"custom.name": "5"},
    {"leader.replication.throttled.rate": "5"},
    {"leader.replication.throttled.rate": "-5"},
    {"listeners": "PLAINTEXT://:9092,SSL://:9093"},
    {"advertised.listeners": "SSL://:9093"},
    {"ssl.keystore.location": "/here"},
    {"listener.name.ssl.ssl.keystore.location": "/here"},
    {"listener.name.ssl.max.connections": "5"},
    {"listener.name.ssl.max.connections": "many"},
    {"sasl.enabled.mechanisms": "PLAIN"},
    {"max.connections.per.ip": "0"},
    {"max.connections": "5"},
    {"broker.id": "7"},
]


@pytest.mark.parametrize("for_all", [False, True])
def test_a_running_broker_accepts_the_settings_that_kafka_accepts(for_all: bool) -> None:
    layers = ConfigLayers(static=FILE)
    questions = [question("check broker", layers, proposed=proposed, for_all=for_all) for proposed in BROKER_CHECKS]
    for proposed, kafkas in zip(BROKER_CHECKS, ask(*questions), strict=True):
        if "refused" in kafkas:
            with pytest.raises(InvalidSetting):
                check_broker(layers, proposed, for_all=for_all)
        elif promises(proposed):
            with pytest.raises(InvalidSetting, match="not supported"):
                check_broker(layers, proposed, for_all=for_all)
        else:
            check_broker(layers, proposed, for_all=for_all)
