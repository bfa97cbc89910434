"""What a server.properties gives a broker."""

import pytest

from leadline.config import LONG_MAX, InvalidSetting, broker_settings

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
    ("given", "retention_ms"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_milliseconds_count_before_minutes_and_minutes_before_hours(given: dict[str, str], retention_ms: int) -> None:
    assert broker_settings(given).topics.retention_ms == retention_ms


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
    ("given", "error"),
    [
        ({"log.segment.bytes": "13"}, r"log\.segment\.bytes=13: must be at least 14"),
        ({"log.retention.hours": "soon"}, r"log\.retention\.hours=soon: must be a 32-bit whole number"),
        ({"log.roll.ms": "0"}, r"log\.roll\.ms=0: must be at least 1"),
        ({"log.retention.ms": "0"}, r"log\.retention\.ms=0: must be -1 or at least 1"),
        ({"log.dirs": ","}, r"log\.dirs=,: must name at least one directory"),
        ({"broker.id": "1001"}, r"broker\.id=1001: must be between -1 and reserved\.broker\.max\.id=1000"),
        (
            {"process.roles": "broker"},
            r"process\.roles=broker: not supported: there is no KRaft; set zookeeper\.connect",
        ),
        ({"authorizer.class.name": "my.Own"}, r"not supported: use kafka\.security\.authorizer\.AclAuthorizer"),
        ({"config.providers": "file"}, r"config\.providers=file: not supported"),
        ({"inter.broker.protocol.version": "2.8"}, r"not supported: bring all brokers to the protocol of 3\.8 first"),
        ({"inter.broker.protocol.version": "9"}, "must be a release of Kafka"),
        ({"sasl.enabled.mechanisms": "OAUTHBEARER"}, "not supported: use some of PLAIN, SCRAM-SHA-256"),
        ({"replica.fetch.wait.max.ms": "40000"}, r"must not exceed replica\.socket\.timeout\.ms=30000"),
        ({"max.connections.per.ip.overrides": "here"}, "here must be a pair with a colon between"),
    ],
)
def test_what_does_not_fit_is_refused_with_name_value_and_limit(given: dict[str, str], error: str) -> None:
    with pytest.raises(InvalidSetting, match=error):
        broker_settings(given)


def test_a_listener_may_have_settings_of_its_own() -> None:
    settings = broker_settings(
        {
            "listeners": "PLAINTEXT://:1,OUTSIDE://:2",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:SASL_SSL",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.outside.sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN",
            "listener.name.outside.plain.sasl.jaas.config": "of plain",
            "listener.name.outside.scram-sha-256.sasl.jaas.config": "of scram",
            "listener.name.outside.ssl.keymanager.algorithm": "x",
            "listener.name.outside.ssl.keystore": "x",
        }
    )
    outside = settings.at_listener("OUTSIDE", "SCRAM-SHA-256")
    assert outside.sasl_enabled_mechanisms == ("SCRAM-SHA-256", "PLAIN")
    assert outside.sasl_jaas_config is not None
    assert outside.sasl_jaas_config.value == "of scram"
    assert settings.at_listener("OUTSIDE").sasl_jaas_config is None
    assert settings.at_listener("PLAINTEXT").sasl_enabled_mechanisms == ("PLAIN",)
    assert [text.split(" ")[0] for text in settings.ignored] == [
        "listener.name.outside.ssl.keymanager.algorithm",
        "listener.name.outside.ssl.keystore",
    ]


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({}, "GSSAPI of listener SASL_PLAINTEXT is not supported"),
        ({"listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN"}, "=GSSAPI: must be one of"),
    ],
)
def test_a_listener_with_sasl_needs_mechanisms_that_are_there(more: dict[str, str], error: str) -> None:
    given = {
        "listeners": "SASL_PLAINTEXT://:9092",
        "advertised.listeners": "SASL_PLAINTEXT://here:9092",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
    }
    with pytest.raises(InvalidSetting, match=error):
        broker_settings(given | more)


def test_what_is_set_while_brokers_run_has_no_place_in_a_file() -> None:
    (ignored,) = broker_settings({"leader.replication.throttled.rate": "5"}).ignored
    assert ignored.startswith("leader.replication.throttled.rate (it is set while")
