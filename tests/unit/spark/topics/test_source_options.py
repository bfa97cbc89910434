"""Options as Spark passes them."""

import pytest

from leadline.security.client_properties import NAMES as SECURITY_NAMES
from leadline.spark.topics.source_options import (
    ACCESS,
    READING,
    REFUSED,
    TUNING,
    WRITING,
    BadOption,
    SourceOptions,
    number,
)

NAMES = ["startingOffsets", "includeHeaders", "minPartitions"]


def options(**values: str) -> SourceOptions:
    return SourceOptions({name.replace("_", "."): value for name, value in values.items()}, NAMES, ["group.id"])


def test_options_are_found_in_any_case() -> None:
    source = options(STARTINGoffsets="earliest", kafka_group_id="g")
    assert source.has("startingOffsets")
    assert source.text("startingoffsets") == "earliest"
    assert not source.has("includeHeaders")


def test_properties_of_the_client_lose_their_prefix() -> None:
    assert SourceOptions({"kafka.group.id": "g", "kafka.linger.ms": "5"}, NAMES, ["group.id"]).client == {
        "group.id": "g",
        "linger.ms": "5",
    }


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("includeheader", "there is no option includeheader .did you mean includeheaders"),
        ("kafka.group.ids", r"there is no option kafka.group.ids.*kafka\.group\.id"),
        ("kafka.key.serializer", "kafka.key.serializer cannot be used: keys are bytes or strings"),
    ],
)
def test_a_name_that_is_unknown_or_cannot_be_used_is_refused(name: str, message: str) -> None:
    with pytest.raises(BadOption, match=message):
        SourceOptions({name: "1"}, NAMES, ["group.id"])


@pytest.mark.parametrize("text", ["yes", "1", ""])
def test_a_flag_is_true_or_false(text: str) -> None:
    assert options(includeHeaders=" TRUE ").flag("includeHeaders", False)
    with pytest.raises(BadOption, match="expected true or false"):
        options(includeHeaders=text).flag("includeHeaders", False)


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "many", "9" * 19])
def test_a_count_is_a_whole_number_from_its_least_on(text: str) -> None:
    assert (options(minPartitions=" 3 ").count("minPartitions"), options().count("minPartitions")) == (3, None)
    with pytest.raises(BadOption, match="expected a number from 1 on"):
        number("minPartitions", text, 1)


def test_every_security_property_of_kafkas_clients_is_an_option() -> None:
    options = {f"kafka.{name}": "x" for name in SECURITY_NAMES}
    with pytest.raises(BadOption) as error:
        SourceOptions(options, [], ACCESS)
    assert str(error.value).startswith("of kafka.*: security.protocol=X: it is PLAINTEXT")


def test_all_that_is_refused_stands_in_one_error_with_a_reason_each() -> None:
    options = {
        "includeHeader": "true",
        "topic": "out",
        "kafka.enable.auto.commit": "false",
        "kafka.partition.assignment.strategy": "range",
        "kafka.sasl.kerberos.service.name": "kafka",
        "kafka.security.protocol": "SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.acks": "all",
        "kafka.max.poll.records": "10",
    }
    with pytest.raises(BadOption) as error:
        SourceOptions(options, NAMES, ACCESS, {"topic": "writes only", "kafka.acks": "writes only"})
    assert str(error.value).split("; ") == [
        "there is no option includeheader (did you mean includeheaders?)",
        "topic is for writes only",
        "kafka.enable.auto.commit cannot be used: commitProgress sets whether progress is committed",
        "kafka.partition.assignment.strategy cannot be used: a query is not a member of its group: "
        "Spark assigns the partitions",
        "kafka.sasl.kerberos.service.name cannot be used: Kerberos is not available here",
        "kafka.acks is for writes only",
        "of kafka.*: sasl.mechanism has no effect with security.protocol=SSL: set it to SASL_SSL",
    ]


# Of ConsumerConfig and ProducerConfig, Kafka 3.9, without the security properties.
CONSUMER = """
    allow.auto.create.topics auto.commit.interval.ms auto.include.jmx.reporter auto.offset.reset bootstrap.servers
    check.crcs client.dns.lookup client.id client.rack connections.max.idle.ms default.api.timeout.ms
    enable.auto.commit enable.metrics.push exclude.internal.topics fetch.max.bytes fetch.max.wait.ms fetch.min.bytes
    group.id group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms interceptor.classes
    isolation.level key.deserializer max.partition.fetch.bytes max.poll.interval.ms max.poll.records
    metadata.max.age.ms metadata.recovery.strategy metric.reporters metrics.num.samples metrics.recording.level
    metrics.sample.window.ms partition.assignment.strategy receive.buffer.bytes reconnect.backoff.max.ms
    reconnect.backoff.ms request.timeout.ms retry.backoff.max.ms retry.backoff.ms send.buffer.bytes session.timeout.ms
    socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms value.deserializer
""".split()
PRODUCER = """
    acks auto.include.jmx.reporter batch.size bootstrap.servers buffer.memory client.dns.lookup client.id
    compression.gzip.level compression.lz4.level compression.type compression.zstd.level connections.max.idle.ms
    delivery.timeout.ms enable.idempotence enable.metrics.push interceptor.classes key.serializer linger.ms
    max.block.ms max.in.flight.requests.per.connection max.request.size metadata.max.age.ms metadata.max.idle.ms
    metadata.recovery.strategy metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms
    partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms partitioner.class
    partitioner.ignore.keys receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms
    retries retry.backoff.max.ms retry.backoff.ms send.buffer.bytes socket.connection.setup.timeout.max.ms
    socket.connection.setup.timeout.ms transaction.timeout.ms transactional.id value.serializer
""".split()


@pytest.mark.parametrize(("kafka", "names"), [(READING, CONSUMER), (WRITING, PRODUCER)], ids=["reads", "writes"])
def test_each_property_of_kafkas_clients_is_used_or_ignored_or_refused(kafka: list[str], names: list[str]) -> None:
    used, ignored, refused = {*ACCESS, *kafka}, {*TUNING}, {*REFUSED}
    assert {*names} <= used | ignored | refused
    assert used & ignored | used & refused | ignored & refused == set()
