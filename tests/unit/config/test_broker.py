"""What a server.properties gives a broker."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import leadline
from leadline.config import unsupported
from leadline.config.authorizer import ACL_AUTHORIZER
from leadline.config.broker import BrokerConfig, broker_settings
from leadline.config.describe import ConfigLayers
from leadline.config.settings import Support
from leadline.config.topic import LogConfig
from leadline.config.values import LONG_MAX, InvalidSetting

KAFKAS_SETTINGS = 313  # of a broker of Kafka 3.8
KAFKAS_OWN_FILE = {
    "broker.id": "0",
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "log.dirs": "/tmp/kafka-logs",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.retention.hours": "168",
    "log.retention.check.interval.ms": "300000",
    "zookeeper.connect": "localhost:2181",
    "zookeeper.connection.timeout.ms": "18000",
    "group.initial.rebalance.delay.ms": "0",
}


def test_kafkas_own_file_is_taken_and_what_means_nothing_is_named() -> None:
    settings = broker_settings(KAFKAS_OWN_FILE)
    assert settings.broker.offsets_topic_replication_factor == 1
    assert settings.storage.log_dirs == ("/tmp/kafka-logs",)
    assert [text.split(" ")[0] for text in settings.ignored] == ["num.io.threads", "num.network.threads"]


def test_an_unknown_name_is_kept_with_the_nearest_known_one() -> None:
    settings = broker_settings({"num.partition": "3", "of.my.own": "x"})
    assert settings.ignored == ("num.partition (did you mean num.partitions?)", "of.my.own")


def test_a_bare_broker_has_a_directory_a_listener_and_no_zookeeper() -> None:
    settings = broker_settings({})
    assert settings.broker.log_dirs == ("leadline-data",)
    assert str(settings.listeners.bound[0]) == "PLAINTEXT://:9092"
    assert settings.broker.zookeeper_connect is None
    assert settings.ignored == ()


@pytest.mark.parametrize(
    ("properties", "retention_ms"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_milliseconds_count_before_minutes_and_minutes_before_hours(
    properties: dict[str, str], retention_ms: int
) -> None:
    assert broker_settings(properties).topics.retention_ms == retention_ms


def test_the_older_limit_of_timestamps_counts_where_a_newer_one_is_not_set() -> None:
    topics = broker_settings(
        {"log.message.timestamp.difference.max.ms": "9", "log.message.timestamp.after.max.ms": "3"}
    ).topics
    assert (topics.message_timestamp_before_max_ms, topics.message_timestamp_after_max_ms) == (9, 3)
    assert topics.with_values({"message.timestamp.difference.max.ms": "5"}).message_timestamp_before_max_ms == 9


def test_what_is_unset_falls_back() -> None:
    settings = broker_settings(
        {"log.dir": "here", "zookeeper.session.timeout.ms": "5", "log.flush.scheduler.interval.ms": "7"}
    )
    assert settings.broker.log_dirs == ("here",)
    assert settings.broker.zookeeper_connection_timeout_ms == 5
    assert settings.topics.flush_ms == 7
    assert broker_settings({}).topics.flush_ms == LONG_MAX


def test_the_two_names_of_the_id_are_one() -> None:
    assert broker_settings({"node.id": "5"}).broker.broker_id == 5
    with pytest.raises(InvalidSetting, match=r"node\.id=6: must be the same as broker\.id=5"):
        broker_settings({"broker.id": "5", "node.id": "6"})


@pytest.mark.parametrize(
    ("properties", "error"),
    [
        ({"log.segment.bytes": "13"}, r"Invalid value 13 .* log\.segment\.bytes: Value must be at least 14"),
        ({"log.retention.hours": "soon"}, r"Invalid value soon .* log\.retention\.hours: Not a number of type INT"),
        ({"log.roll.ms": "0"}, r"Invalid value 0 for configuration log\.roll\.ms: Value must be at least 1"),
        ({"log.retention.ms": "0"}, r"log\.retention\.ms=0: must be -1 or at least 1"),
        ({"log.dirs": ","}, r"log\.dirs=,: must name at least one directory"),
        ({"broker.id": "1001"}, r"broker\.id=1001: must be between -1 and reserved\.broker\.max\.id=1000"),
        (
            {"process.roles": "broker"},
            r"process\.roles=broker: not supported: there is no KRaft; set zookeeper\.connect",
        ),
        ({"config.providers": "file"}, r"config\.providers=file: not supported"),
        (
            {"inter.broker.protocol.version": "0.10.2"},
            r"log.message.format.version 3\.0-IV1 can only be used when inter.broker.protocol.version is set to "
            r"version 0\.11\.0 or higher",
        ),
        (
            {"inter.broker.protocol.version": "2.8", "log.message.format.version": "0.10.2"},
            r"log.message.format.version=0\.10\.2: not supported with inter.broker.protocol.version=2\.8",
        ),
        ({"inter.broker.protocol.version": "3.9"}, "Version 3.9 is not a valid version"),
        ({"inter.broker.protocol.version": "9"}, "Version 9 is not a valid version"),
        ({"metric.reporters": "com.example.Reporter"}, "not supported: Java classes cannot be loaded"),
        ({"offsets.commit.required.acks": "1"}, "not supported: commits wait for all in-sync replicas"),
        ({"listener.name.plaintext.max.connections": "many"}, "Not a number of type INT"),
        ({"zookeeper.ssl.crl.enable": "true"}, "not supported: revoked certificates of ZooKeeper are not looked up"),
        ({"replica.fetch.wait.max.ms": "40000"}, r"must not exceed replica\.socket\.timeout\.ms=30000"),
        ({"max.connections.per.ip.overrides": "here"}, "here must be a pair with a colon"),
    ],
)
def test_what_does_not_fit_is_refused_with_name_value_and_limit(properties: dict[str, str], error: str) -> None:
    with pytest.raises(InvalidSetting, match=error):
        broker_settings(properties)


JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required user_ada=secret;"


def test_a_listener_has_its_own_settings_and_else_those_of_all() -> None:
    settings = broker_settings(
        {
            "listeners": "PLAINTEXT://:9092,SASL_SSL://:9093,IN://:9094",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,IN:SSL",
            "ssl.client.auth": "requested",
            "ssl.keystore.location": "/all.jks",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.in.ssl.client.auth": "required",
            "listener.name.sasl_ssl.ssl.keystore.location": "/one.jks",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": JAAS,
        }
    )
    one, other = settings.of_listener("SASL_SSL"), settings.of_listener("IN")
    assert (one.ssl_client_auth, one.ssl_keystore_location) == ("requested", "/one.jks")
    assert (other.ssl_client_auth, other.ssl_keystore_location) == ("required", "/all.jks")
    assert settings.own_of_listener("SASL_SSL")["plain.sasl.jaas.config"] == JAAS
    assert settings.ignored == ()


@pytest.mark.parametrize(
    "properties",
    [
        {"authorizer.class.name": "my.Own"},
        {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"},
        {"zookeeper.ssl.crl.enable": "true"},
        {"zookeeper.ssl.ocsp.enable": "true"},
        {"principal.builder.class": "my.Own"},
        {"ssl.provider": "BCJSSE"},
        {"ssl.trustmanager.algorithm": "my.Own"},
        {"listener.name.plaintext.ssl.provider": "BCJSSE"},
    ],
    ids=lambda properties: next(iter(properties)),
)
def test_what_promises_protection_is_refused_by_name(properties: dict[str, str]) -> None:
    with pytest.raises(InvalidSetting) as refused:
        broker_settings(properties)
    name, message = next(iter(properties)), str(refused.value)
    assert message.startswith(f"{name}=")
    assert "not supported: " in message
    assert message.startswith(f"{name}=[hidden]") or "secret" not in properties[name]


def test_a_setting_without_effect_is_named_with_the_reason() -> None:
    settings = broker_settings(
        {
            "ssl.keymanager.algorithm": "PKIX",
            "sasl.jaas.config": JAAS,
            "listener.name.elsewhere.ssl.keystore.location": "/x",
        }
    )
    assert settings.ignored == (
        "listener.name.elsewhere.ssl.keystore.location (no listener has this name)",
        "sasl.jaas.config (it counts with a listener and a mechanism: "
        "listener.name.<listener>.<mechanism>.sasl.jaas.config)",
        "ssl.keymanager.algorithm (it belongs to Java's TLS)",
    )


def test_protection_of_a_zookeeper_that_is_not_there_has_no_effect() -> None:
    protection = {"zookeeper.set.acl": "true"}
    (reason,) = broker_settings(protection).ignored
    assert reason == "zookeeper.set.acl (without zookeeper.connect there is no ZooKeeper to protect)"
    assert broker_settings({**protection, "zookeeper.connect": "localhost:2181"}).ignored == ()


@pytest.mark.parametrize("name", ["ssl.keystore.locatoin", "listener.name.plaintext.sasl.enabeld.mechanisms"])
def test_a_misspelt_name_is_refused_in_a_file_and_has_no_effect_where_the_cluster_holds_it(name: str) -> None:
    with pytest.raises(InvalidSetting, match=f"unknown setting {name}"):
        broker_settings({name: "x"})
    assert [text for text in broker_settings({name: "x"}, stored={name}).ignored if text.startswith(name)]
    assert ConfigLayers(dynamic_broker={name: "x"}).settings().ignored


def test_the_settings_of_the_authorizer_are_obeyed() -> None:
    assert broker_settings({}).broker.authorizer_class_name == ""
    settings = broker_settings(
        {
            "authorizer.class.name": " kafka.security.authorizer.AclAuthorizer ",
            "super.users": "User:admin;User:CN=a,O=b",
            "allow.everyone.if.no.acl.found": "true",
        }
    )
    assert settings.broker.authorizer_class_name == ACL_AUTHORIZER
    assert settings.broker.super_users == "User:admin;User:CN=a,O=b"
    assert settings.broker.allow_everyone_if_no_acl_found
    assert settings.ignored == ()


def test_what_is_set_while_brokers_run_has_no_place_in_a_file() -> None:
    (ignored,) = broker_settings({"leader.replication.throttled.rate": "5"}).ignored
    assert ignored.startswith("leader.replication.throttled.rate (it can only be set dynamically")


def test_a_setting_that_no_listener_can_have_of_its_own_is_named() -> None:
    (ignored,) = broker_settings({"listener.name.plaintext.log.retention.ms": "5"}).ignored
    assert ignored == "listener.name.plaintext.log.retention.ms (listeners cannot have different values, in Kafka too)"


# What is read within the tables themselves, and comes out of them under another name.
WORKED_OUT = {
    "listeners": "listeners advertised_listeners listener_security_protocol_map",
    "between brokers": "control_plane_listener_name inter_broker_listener_name security_inter_broker_protocol",
    "storage": "log_dir",
    "identity": "node_id",
    "topics": "log_retention_hours log_retention_minutes log_roll_hours log_roll_jitter_hours",
    "topic": "cleanup_policy message_timestamp_difference_max_ms message_timestamp_type",
    "only one value": "group_coordinator_rebalance_protocols",
}
# How the objects that hold settings are called where they are read. A setting may share its name with other things.
HOLDERS = {"config", "_config", "broker", "limits", "storage", "settings", "_settings"}


def settings_read(source: str) -> Iterator[str]:
    """The fields that are read of such an object, or of what a call returns that makes one."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            holder = node.value
            name = holder.attr if isinstance(holder, ast.Attribute) else getattr(holder, "id", "")
            if name in HOLDERS or isinstance(holder, ast.Call):
                yield node.attr


def test_each_setting_that_counts_as_obeyed_is_read_by_the_broker() -> None:
    root = Path(leadline.__file__).parent
    others = ("config", "cli", "spark", "admin", "console", "testing", "simulation")
    sources = [path for path in root.rglob("*.py") if path.relative_to(root).parts[0] not in others]
    read = {field for path in sources for field in settings_read(path.read_text())}
    worked_out = set(" ".join(WORKED_OUT.values()).split())
    fields = {row.field for table in (BrokerConfig, LogConfig) for row in table.rows().values()}
    assert fields - read == worked_out - read
    assert worked_out <= fields


@pytest.mark.parametrize(
    ("source", "fields"),
    [
        ("self._settings.broker.num_partitions", {"num_partitions"}),
        ("log.config.segment_bytes + 1", {"segment_bytes"}),
        ("request.node_id", set()),
        ("node_id", set()),
        ("topic_config('x').segment_ms", {"segment_ms"}),
    ],
)
def test_a_name_that_only_looks_like_a_setting_does_not_count(source: str, fields: set[str]) -> None:
    assert set(settings_read(source)) - {"broker", "config"} == fields


def test_the_decision_has_the_number_of_settings_of_each_standing() -> None:
    supports = Counter(row.support for row in unsupported.rows())
    rows = {
        "obeyed": KAFKAS_SETTINGS - supports.total(),
        "refused": supports[Support.REFUSED],
        "accepted": supports[Support.ACCEPTED],
    }
    text = (Path(__file__).parents[3] / "docs/decisions/0013-settings-as-tables.md").read_text()
    written = re.findall(r"^\| (obeyed|refused|accepted) \| (\d+) \|", text, re.MULTILINE)
    assert {name: int(count) for name, count in written} == rows


def test_a_topics_settings_that_cannot_be_obeyed_are_named_and_the_others_hold() -> None:
    values = {"retention.ms": "5", "remote.storage.enable": "true", "unheard.of": "1", "segment.bytes": "3"}
    config, wrong = LogConfig().with_readable(values)
    assert config.retention_ms == 5
    assert [str(error).split("=")[0] for error in wrong] == [
        "remote.storage.enable",
        "Unknown topic config name: unheard.of",
        "Invalid value 3 for configuration segment.bytes: Value must be at least 14",
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("unstable.api.versions.enable", "true"),
        ("unstable.feature.versions.enable", "true"),
        ("inter.broker.protocol.version", "0.11.0-IV0"),
        ("inter.broker.protocol.version", "2.8"),
        ("inter.broker.protocol.version", "3.7-IV4"),
        ("inter.broker.protocol.version", "3.9-IV0"),
        ("inter.broker.protocol.version", "3.8"),
    ],
)
def test_what_changes_nothing_for_a_broker_with_zookeeper_is_accepted(name: str, value: str) -> None:
    assert broker_settings({name: value}).properties[name] == value
