"""Text of options, and what is wanted by it."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from leadline.model import TopicPartition
from leadline.records.compression import Codec
from leadline.security.client_properties import ClientLogin
from leadline.spark.client.connection import ClientSecurity
from leadline.spark.client.login_tokens import LoginTokens
from leadline.spark.topics.options import (
    AssignedPartitions,
    Edge,
    LastOffsets,
    StartingAgo,
    StartingGroup,
    StartingOffsets,
    StartingTime,
    StartingTimes,
    SubscribedTopics,
    TopicPattern,
    read_options,
    write_options,
)
from leadline.spark.topics.source_options import BadOption
from tests.support.certificates import issued, new_authority
from tests.support.java_stores import jks

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
ORDERS = {**SERVERS, "subscribe": "orders"}
TP = TopicPartition


@pytest.mark.parametrize(
    ("options", "topics"),
    [
        ({"subscribe": "a, b,a"}, SubscribedTopics(("a", "b"))),
        ({"subscribePattern": "orders-.*"}, TopicPattern("orders-.*")),
        ({"assign": '{"a": [1, 0], "b": [2]}'}, AssignedPartitions((TP("a", 1), TP("a", 0), TP("b", 2)))),
    ],
)
def test_topics_are_a_list_a_pattern_or_partitions(options: Mapping[str, str], topics: object) -> None:
    assert read_options({**SERVERS, **options}, streaming=True).topics == topics


@pytest.mark.parametrize(
    ("options", "start"),
    [
        ({}, Edge.LATEST),
        ({"startingOffsets": "Earliest"}, Edge.EARLIEST),
        (
            {"startingOffsets": '{"orders": {"0": 23, "1": -2}}'},
            StartingOffsets({TP("orders", 0): 23, TP("orders", 1): -2}),
        ),
        ({"startingOffsets": "10 minutes ago"}, StartingAgo(600_000)),
        ({"startingOffsets": "90s ago"}, StartingAgo(90_000)),
        ({"startingOffsets": "last 100"}, LastOffsets(100)),
        ({"startingOffsets": "committed", "kafka.group.id": "g"}, StartingGroup("g")),
        ({"startingTimestamp": "1000", "startingOffsets": "earliest"}, StartingTime(1000)),
        ({"startingOffsetsByTimestamp": '{"orders": {"0": 5}}'}, StartingTimes({TP("orders", 0): 5})),
    ],
)
def test_a_stream_begins_where_the_options_say(options: Mapping[str, str], start: object) -> None:
    assert read_options({**ORDERS, **options}, streaming=True).start == start


def test_a_batch_begins_at_the_earliest_and_ends_at_the_latest() -> None:
    options = read_options(ORDERS, streaming=False)
    assert (options.start, options.end) == (Edge.EARLIEST, Edge.LATEST)


def test_names_are_taken_in_any_case() -> None:
    options = read_options({**ORDERS, "MAXOFFSETSPERTRIGGER": "7", "includeheaders": "TRUE"}, streaming=True)
    assert (options.max_offsets, options.headers) == (7, True)


def test_options_of_a_stream_are_read() -> None:
    stream_options = {
        "maxBytesPerTrigger": "1000",
        "minOffsetsPerTrigger": "3",
        "maxTriggerDelay": "2m",
        "minPartitions": "8",
        "maxRecordsPerPartition": "50",
        "failOnDataLoss": "false",
        "kafka.isolation.level": "read_committed",
        "groupIdPrefix": "p",
        "startingOffsetsByTimestampStrategy": "latest",
        "kafka.max.poll.records": "10",
    }
    options = read_options({**ORDERS, **stream_options}, streaming=True)
    assert (options.max_bytes, options.min_offsets, options.max_delay_ms) == (1000, 3, 120_000)
    assert (options.min_partitions, options.max_records_per_partition) == (8, 50)
    assert (options.fail_on_data_loss, options.committed, options.group_prefix) == (False, True, "p")
    assert options.no_later_record_is_latest


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": ""}, "subscribe=: expected topics"),
        ({"assign": "{}"}, "expected one of subscribe, subscribePattern and assign, not subscribe and assign"),
        ({"startingOffset": "earliest"}, "no option startingoffset (did you mean startingoffsets?)"),
        ({"kafka.group.idd": "g"}, "no option kafka.group.idd (did you mean kafka.group.id?)"),
        ({"kafka.auto.offset.reset": "latest"}, "startingOffsets sets where to start"),
        ({"kafka.bootstrap.servers": " "}, "kafka.bootstrap.servers is missing"),
        ({"startingOffsets": "yesterday"}, "startingOffsets=yesterday: expected JSON"),
        ({"startingOffsets": "5 fortnights ago"}, "expected a length of time"),
        ({"startingOffsets": '{"orders": 5}'}, "expected JSON"),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, "orders, 0: -3"),
        ({"startingOffsets": '{"orders": {"x": 3}}'}, "orders, x: 3"),
        ({"startingOffsets": "committed"}, "kafka.group.id is missing"),
        ({"startingTimestamp": "now"}, "expected a number from 0 on"),
        ({"endingOffsets": "latest"}, "endingOffsets is for batch reads only"),
        ({"maxOffsetsPerTrigger": "0"}, "expected a number from 1 on"),
        ({"maxOffsetsPerTrigger": "ten"}, "expected a number from 1 on"),
        ({"failOnDataLoss": "yes"}, "expected true or false"),
        ({"kafka.isolation.level": "none"}, "expected read_uncommitted or read_committed"),
        ({"kafka.request.timeout.ms": "soon"}, "kafka.request.timeout.ms=soon"),
        ({"startingOffsetsByTimestampStrategy": "first"}, "expected error or latest"),
    ],
)
def test_options_that_a_stream_cannot_obey_are_refused_in_one_line(options: Mapping[str, str], message: str) -> None:
    with pytest.raises(BadOption) as error:
        read_options({**ORDERS, **options}, streaming=True)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": "latest"},
        {"startingOffsets": '{"orders": {"0": -1}}'},
        {"endingOffsets": "earliest"},
        {"endingOffsets": '{"orders": {"0": -2}}'},
        {"maxOffsetsPerTrigger": "5"},
        {"maxBytesPerTrigger": "5"},
    ],
)
def test_what_a_batch_cannot_obey(options: Mapping[str, str]) -> None:
    with pytest.raises(BadOption):
        read_options({**ORDERS, **options}, streaming=False)


@pytest.mark.parametrize("options", [{"subscribePattern": "("}, {"assign": '{"a": 0.5}'}, {"assign": "[0]"}, {}])
def test_invalid_topics_are_refused(options: Mapping[str, str]) -> None:
    with pytest.raises(BadOption):
        read_options({**SERVERS, **options}, streaming=False)


def test_options_of_a_write_are_read() -> None:
    write_settings = {
        "topic": "out",
        "checkpointLocation": "/tmp/c",
        "queryName": "q",
        "kafka.compression.type": "none",
        "kafka.batch.size": "1000",
        "kafka.transactional.id": "t",
        "kafka.transaction.timeout.ms": "5000",
        "includeTimestamp": "true",
        "kafka.linger.ms": "5",
    }
    options = write_options({**SERVERS, **write_settings})
    assert (options.topic, options.staging, options.codec) == ("out", "/tmp/c", Codec.NONE)
    assert (options.batch_bytes, options.transactional_id, options.transaction_timeout_ms) == (1000, "t", 5000)
    assert options.timestamps


@pytest.mark.parametrize(
    "options",
    [
        {"kafka.acks": "1"},
        {"kafka.enable.idempotence": "false"},
        {"kafka.compression.type": "rar"},
        {"subscribe": "a"},
        {"kafka.partitioner.class": "Mine"},
    ],
)
def test_what_a_write_cannot_obey(options: Mapping[str, str]) -> None:
    with pytest.raises(BadOption):
        write_options({**SERVERS, **options})


# Security, as it stands in jobs for Spark's own connector

MODULES = "org.apache.kafka.common.security"
PLAIN, SCRAM = f"{MODULES}.plain.PlainLoginModule", f"{MODULES}.scram.ScramLoginModule"
OAUTH = f"{MODULES}.oauthbearer.OAuthBearerLoginModule"


def secured(mechanism: str, jaas: str, **others: str) -> dict[str, str]:
    return {
        **ORDERS,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": mechanism,
        "kafka.sasl.jaas.config": jaas,
        **others,
    }


@pytest.mark.parametrize(
    ("mechanism", "jaas", "login"),
    [
        ("PLAIN", f'{PLAIN} required username="alice" password="alice-secret";', ("alice", "alice-secret")),
        ("PLAIN", f"{PLAIN} required username='alice' password='a\"b';", ("alice", 'a"b')),
        ("PLAIN", f"{PLAIN} required username=alice password=secret;", ("alice", "secret")),
        ("PLAIN", f'{PLAIN} required username="alice" password="a\\"b\\\\c";', ("alice", 'a"b\\c')),
        ("PLAIN", f'{PLAIN} required username="$ConnectionString" password="Endpoint=sb://n.example/;Key=k/+=";',
         ("$ConnectionString", "Endpoint=sb://n.example/;Key=k/+=")),
        ("PLAIN", f'kafkashaded.{PLAIN} required username="KEY" password="SECRET";', ("KEY", "SECRET")),
        ("PLAIN", f"\n    kafkashaded.{PLAIN} required\n  username='KEY'\n  password='SECRET';\n", ("KEY", "SECRET")),
        ("SCRAM-SHA-256", f'{SCRAM} required\n  username="bob"\n  password="p";\n', ("bob", "p")),
        ("SCRAM-SHA-512", f'\r\n{SCRAM}\trequired\r\nusername = "bob"\r\npassword = "p" ;', ("bob", "p")),
        ("SCRAM-SHA-512", f'{SCRAM} Required username="bob" password="pässword; }}";', ("bob", "pässword; }")),
        ("SCRAM-SHA-512", f'{SCRAM} required username="bob" password="p" serviceName="kafka";', ("bob", "p")),
    ],
)  # fmt: skip
def test_a_jaas_line_logs_in_in_all_quotings(mechanism: str, jaas: str, login: tuple[str, str]) -> None:
    security = ClientSecurity.of(read_options(secured(mechanism, jaas), streaming=True).client)
    assert isinstance(security.login, ClientLogin)
    assert (security.mechanism, security.login.username, security.login.password.reveal_text()) == (mechanism, *login)


@pytest.mark.parametrize(
    ("jaas", "message"),
    [
        (f'{PLAIN} required username="a" password="hunter2"', "not terminated by semi-colon"),
        (f'{PLAIN} required username="a" password="hunter2"; {PLAIN} required;', "contains 2 login modules"),
        (f"{PLAIN} required username=a password=1hunter2;", "Value not specified"),
        (f'{PLAIN} required username=\\"a\\" password=\\"hunter2\\";', "Value not specified"),
        (f'"{PLAIN} required username=a password=hunter2;"', "control flag not specified"),
        (f'KafkaClient {{ {PLAIN} required username="a" password="hunter2"; }};', "control flag not specified"),
        ("software.amazon.msk.auth.iam.IAMLoginModule required;", "is not allowed"),
    ],
)
def test_a_jaas_line_that_java_refuses_is_refused_without_its_words(jaas: str, message: str) -> None:
    with pytest.raises(BadOption) as error:
        read_options(secured("PLAIN", jaas), streaming=True)
    assert message in str(error.value)
    assert "hunter2" not in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("prefix", ["", "kafkashaded."])
@pytest.mark.parametrize("handler", ["OAuthBearerLoginCallbackHandler", "secured.OAuthBearerLoginCallbackHandler"])
def test_oauthbearer_gets_its_token_from_the_url(prefix: str, handler: str) -> None:
    options = {
        "kafka.sasl.login.callback.handler.class": f"{prefix}{MODULES}.oauthbearer.{handler}",
        "kafka.sasl.oauthbearer.token.endpoint.url": "https://127.0.0.1:1/token",
        "kafka.sasl.login.connect.timeout.ms": "1000",
    }
    jaas = f"{prefix}{OAUTH} required clientId='me' clientSecret='s' scope='kafka' extension_logicalCluster='lkc-1';"
    client = read_options(secured("OAUTHBEARER", jaas, **options), streaming=False).client
    assert isinstance(ClientSecurity.of(client).login, LoginTokens)


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_stores_of_java_protect_reads_and_writes(kind: str, tmp_path: Path) -> None:
    authority, password = new_authority(), "changeit"
    me = issued(authority, "client")
    trust, key = tmp_path / "client.truststore", tmp_path / "client.keystore"
    trust.write_bytes(jks(password, {}, {"ca": authority}) if kind == "JKS" else authority.pkcs12(password))
    key.write_bytes(jks(password, {"me": me}, {}) if kind == "JKS" else me.pkcs12(password))
    options = {
        **SERVERS,
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.location": str(trust),
        "kafka.ssl.truststore.password": password,
        "kafka.ssl.truststore.type": kind,
        "kafka.ssl.keystore.location": str(key),
        "kafka.ssl.keystore.password": password,
        "kafka.ssl.keystore.type": kind,
        "kafka.ssl.key.password": password,
        "kafka.ssl.endpoint.identification.algorithm": "",
    }
    for client in (read_options({**options, "subscribe": "a"}, streaming=True).client, write_options(options).client):
        context = ClientSecurity.of(client).context
        assert context is not None
        assert context.get_ca_certs(binary_form=True) == authority.chain
        assert not context.check_hostname


def test_properties_of_the_other_direction_are_named_together() -> None:
    with pytest.raises(BadOption) as error:
        read_options({**ORDERS, "kafka.acks": "all", "topic": "x", "endingOffsets": "latest"}, streaming=True)
    assert str(error.value) == (
        "kafka.acks is for writes only; topic is for writes only; endingOffsets is for batch reads only"
    )
    with pytest.raises(BadOption, match=r"subscribe is for reads only; kafka\.group\.id is for reads only"):
        write_options({**ORDERS, "kafka.group.id": "g"})
