"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs, answered as Kafka does; and what a change brings about."""

import socket
from collections.abc import Callable, Iterator

import pytest

from leadline.wire.messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    FetchRequest,
    FetchResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
)
from tests.conformance.both import Both, Connection, Side, produced
from tests.support.logs import START_MS, batch
from tests.support.waiting import until

pytestmark = pytest.mark.conformance

TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
SETTLED_S = 60
INVALID_REQUEST = 42
RESOURCE = DescribeConfigsRequest.DescribeConfigsResource
Setting = tuple[str, str | None]
Op = tuple[str, int, str | None]


def without_what_leadline_lacks(answer: DescribeConfigsResponse) -> None:
    """Removes settings of Leadline alone and those that differ by broker: listeners, directories, ZooKeeper."""
    for result in answer.results:
        result.configs = [entry for entry in result.configs if entry.name not in ("zookeeper.connect", "log.dir")]
        for entry in result.configs:
            if entry.name in ("log.dirs", "listeners", "advertised.listeners"):
                entry.value = "its own"
                for synonym in entry.synonyms:
                    synonym.value = "its own"


def describe(
    both: Both, version: int, *resources: tuple[int, str, list[str] | None], synonyms: bool = True
) -> DescribeConfigsResponse:
    request = DescribeConfigsRequest(
        resources=[
            RESOURCE(resource_type=kind, resource_name=name, configuration_keys=keys) for kind, name, keys in resources
        ]
    )
    if version >= 1:
        request.include_synonyms = synonyms
    if version >= 3:
        request.include_documentation = True
    return both.ask_and_compare(DescribeConfigsResponse, request, version, differ=without_what_leadline_lacks)


@pytest.fixture(scope="module")
def topic(both: Both) -> str:
    return both.create("configured", retention_ms=123_456, cleanup_policy="compact,delete", segment_bytes=20_000)


@pytest.mark.parametrize("version", DescribeConfigsRequest.VERSIONS)
@pytest.mark.parametrize("synonyms", [True, False])
def test_settings_are_described_as_kafka_does(both: Both, topic: str, version: int, synonyms: bool) -> None:
    entries = describe(both, version, (TOPIC, topic, None), synonyms=synonyms).results[0].configs
    assert len(entries) > 30
    describe(both, version, (TOPIC, topic, ["retention.ms", "unknown", "flush.ms", "flush.ms"]), synonyms=synonyms)
    describe(both, version, (TOPIC, topic, []), (TOPIC, "missing", None), (TOPIC, "a b", None), (TOPIC, "", None))
    describe(both, version, (BROKER, "", None), (BROKER, "", ["log.retention.ms"]))
    describe(
        both,
        version,
        (BROKER, "1", ["log.retention.ms", "message.max.bytes", "broker.id", "unknown", "num.partitions"]),
    )


@pytest.mark.parametrize("version", DescribeConfigsRequest.VERSIONS)
def test_all_settings_of_a_broker(both: Both, version: int) -> None:
    assert len(describe(both, version, (BROKER, "1", None)).results[0].configs) > 200


@pytest.mark.parametrize(
    "resource", [(BROKER, "2"), (BROKER, "x"), (BROKER, "-1"), (0, "a"), (3, "a"), (99, ""), (-1, "")]
)
def test_unknown_resources_are_refused_as_kafka_does(both: Both, resource: tuple[int, str]) -> None:
    for version in DescribeConfigsRequest.VERSIONS:
        assert describe(both, version, (*resource, None)).results[0].error_code != 0
    if resource[1] == "-1":
        return  # which Kafka takes for a broker
    for change in (alter, incrementally):
        change(both, 0, resource, ("retention.ms", SET, "5"))


def alter(both: Both, version: int, resource: tuple[int, str], *settings: Op, only_check: bool = False) -> list[int]:
    configs = [AlterConfigsRequest.AlterableConfig(name=name, value=value) for name, _, value in settings]
    kind, name = resource
    changed = AlterConfigsRequest.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = AlterConfigsRequest(resources=[changed], validate_only=only_check)
    return [response.error_code for response in both.ask_and_compare(AlterConfigsResponse, request, version).responses]


def incrementally(
    both: Both, version: int, resource: tuple[int, str], *settings: Op, only_check: bool = False
) -> list[int]:
    configs = [
        IncrementalAlterConfigsRequest.AlterableConfig(name=name, config_operation=op, value=value)
        for name, op, value in settings
    ]
    kind, name = resource
    changed = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=configs
    )
    request = IncrementalAlterConfigsRequest(resources=[changed], validate_only=only_check)
    return [
        response.error_code
        for response in both.ask_and_compare(IncrementalAlterConfigsResponse, request, version).responses
    ]


def settled(both: Both, *resource: tuple[int, str]) -> None:
    """Kafka shows a change a moment after it has answered."""

    def is_same() -> bool:
        try:
            describe(both, 4, *((kind, name, None) for kind, name in resource))
        except AssertionError:
            return False
        return True

    until(is_same, seconds=SETTLED_S)


TOPIC_CHANGES: list[list[Op]] = [
    [("retention.ms", SET, "5000"), ("flush.ms", SET, "7")],
    [("retention.ms", SET, "-2")],
    [("retention.ms", SET, "soon"), ("flush.ms", SET, "8")],
    [("retention.ms", SET, "")],
    [("retention.ms", SET, None)],
    [("retention.mss", SET, "5")],
    [("segment.bytes", SET, "13")],
    [("max.message.bytes", SET, " 77 ")],
    [("cleanup.policy", SET, "compact")],
    [("cleanup.policy", SET, "compact,compact")],
    [("cleanup.policy", SET, "shred")],
    [("cleanup.policy", APPEND, "delete")],
    [("cleanup.policy", APPEND, "delete")],
    [("cleanup.policy", APPEND, "shred")],
    [("cleanup.policy", SUBTRACT, "compact")],
    [("cleanup.policy", SUBTRACT, "compact")],
    [("cleanup.policy", SUBTRACT, "delete")],
    [("retention.ms", APPEND, "5")],
    [("retention.ms", SUBTRACT, "5")],
    [("unknown", DELETE, None)],
    [("leader.replication.throttled.replicas", APPEND, "0:1,1:1")],
    [("leader.replication.throttled.replicas", APPEND, "0:1")],
    [("leader.replication.throttled.replicas", SUBTRACT, "0:1")],
    [("leader.replication.throttled.replicas", SET, "wrong")],
    [("flush.ms", DELETE, None)],
    [("flush.ms", DELETE, "7")],
    [("flush.ms", SET, "1"), ("flush.ms", SET, "2")],
    [("min.compaction.lag.ms", SET, "10"), ("max.compaction.lag.ms", SET, "5")],
    [("compression.type", SET, "brotli")],
    [("unclean.leader.election.enable", SET, "yes")],
    [("unclean.leader.election.enable", SET, "TRUE")],
    [("min.cleanable.dirty.ratio", SET, "1.5")],
    [("min.cleanable.dirty.ratio", SET, "0.25")],
    [("compression.type", SET, "zstd"), ("compression.zstd.level", SET, "99")],
    [("retention.ms", DELETE, None), ("cleanup.policy", DELETE, None)],
    [],
]


@pytest.mark.parametrize("version", IncrementalAlterConfigsRequest.VERSIONS)
def test_settings_of_a_topic_are_changed_one_by_one(both: Both, version: int) -> None:
    name = both.create(f"altered-{version}")
    for changes in TOPIC_CHANGES:
        incrementally(both, version, (TOPIC, name), *changes, only_check=True)
        incrementally(both, version, (TOPIC, name), *changes)
    settled(both, (TOPIC, name))
    assert incrementally(both, version, (TOPIC, "missing"), ("retention.ms", SET, "5")) == [3]
    incrementally(both, version, (TOPIC, ""), ("retention.ms", SET, "5"))
    incrementally(both, version, (TOPIC, "a b"), ("retention.ms", SET, "5"))


@pytest.mark.parametrize("version", AlterConfigsRequest.VERSIONS)
def test_settings_of_a_topic_are_changed_all_at_once(both: Both, version: int) -> None:
    name = both.create(f"altered-at-once-{version}", retention_ms=9)
    for changes in TOPIC_CHANGES:
        if changes and changes[0][1] == SET:
            alter(both, version, (TOPIC, name), *changes, only_check=True)
            alter(both, version, (TOPIC, name), *changes)
    settled(both, (TOPIC, name))
    alter(both, version, (TOPIC, name))
    settled(both, (TOPIC, name))
    assert alter(both, version, (TOPIC, "missing"), ("retention.ms", SET, "5")) == [3]
    alter(both, version, (TOPIC, "a b"), ("retention.ms", SET, "5"))


BROKER_CHANGES: list[list[Op]] = [
    [("log.retention.ms", SET, "1000000")],
    [("log.retention.ms", SET, "soon")],
    [("log.retention.ms", SET, "0")],
    [("log.retention.ms", SET, None)],
    [("broker.id", SET, "7")],
    [("num.partitions", SET, "7")],
    [("num.io.threads", SET, "9")],
    [("num.io.threads", SET, "100")],
    [("message.max.bytes", SET, "2000000")],
    [("message.max.bytes", SET, "-1")],
    [("unknown.to.all", SET, "5")],
    [("max.connections", SET, "1000000")],
    [("max.connections.per.ip.overrides", SET, "127.0.0.9:5")],
    [("log.cleanup.policy", SET, "shred")],
    [("log.cleanup.policy", APPEND, "compact")],
    [("log.cleanup.policy", SUBTRACT, "compact")],
    [("log.retention.ms", APPEND, "5")],
    [("log.cleaner.threads", SET, "2")],
    [("log.cleaner.threads", 4, "2")],
    [("log.cleaner.threads", -1, "2")],
    [("log.segment.bytes", SET, "1")],
    [("log.message.timestamp.type", SET, "LogAppendTime")],
    [("log.message.timestamp.type", DELETE, None)],
    [("leader.replication.throttled.rate", SET, "1000")],
    [("ssl.keystore.location", SET, "somewhere")],
    [("sasl.jaas.config", SET, "needs a secret")],
    [("listener.name.other.ssl.key.password", SET, "needs a secret")],
    [("listener.name.other.ssl.keystore.location", SET, "somewhere")],
    [("password.encoder.secret", SET, "is static")],
    [("sasl.enabled.mechanisms", SET, "PLAIN")],
    [("ssl.principal.mapping.rules", SET, "DEFAULT")],
    [("listener.name.other.ssl.principal.mapping.rules", SET, "DEFAULT")],
    [("log.flush.interval.ms", SET, "50000"), ("log.flush.interval.messages", SET, "0")],
    [("log.retention.ms", DELETE, None), ("max.connections", DELETE, None), ("message.max.bytes", DELETE, None)],
]


def dynamic_settings(side: Side, broker: str, *sources: int) -> list[str]:
    """The settings that were changed at run time, of a broker (source 2) or for all of them (3)."""
    resource = RESOURCE(resource_type=BROKER, resource_name=broker, configuration_keys=None)
    response = side.ask(DescribeConfigsResponse, DescribeConfigsRequest(resources=[resource]), 4)
    return [entry.name for entry in response.results[0].configs if entry.config_source in sources]


@pytest.fixture
def fresh_settings(both: Both) -> Iterator[None]:
    """Kafka obeys a removal a moment after it has answered; a test that begins before that meets the old settings."""
    yield
    for broker in ("1", ""):
        for side in both.sides:
            removals = [
                IncrementalAlterConfigsRequest.AlterableConfig(name=name, config_operation=DELETE, value=None)
                for name in dynamic_settings(side, broker, 2 if broker else 3)
            ]
            resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
                resource_type=BROKER, resource_name=broker, configs=removals
            )
            side.ask(
                IncrementalAlterConfigsResponse,
                IncrementalAlterConfigsRequest(resources=[resource], validate_only=False),
                1,
            )
    each_until(both, lambda side: not dynamic_settings(side, "1", 2, 3))


@pytest.mark.usefixtures("fresh_settings")
@pytest.mark.parametrize("name", ["1", ""])
def test_settings_of_brokers_are_changed_one_by_one(both: Both, name: str) -> None:
    for changes in BROKER_CHANGES:
        incrementally(both, 1, (BROKER, name), *changes, only_check=True)
        incrementally(both, 1, (BROKER, name), *changes)
        settled(both, (BROKER, "1"), (BROKER, ""))


@pytest.mark.usefixtures("fresh_settings")
@pytest.mark.parametrize("name", ["1", ""])
def test_settings_of_brokers_are_changed_all_at_once(both: Both, name: str) -> None:
    for changes in BROKER_CHANGES:
        if all(op == SET for _, op, _ in changes):
            alter(both, 2, (BROKER, name), *changes)
    settled(both, (BROKER, "1"), (BROKER, ""))
    alter(both, 2, (BROKER, name))
    settled(both, (BROKER, "1"), (BROKER, ""))


def test_many_resources_are_altered_at_once_as_kafka_does(both: Both, topic: str) -> None:
    changed = [
        IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[
                IncrementalAlterConfigsRequest.AlterableConfig(name="retention.ms", config_operation=SET, value="9")
            ],
        )
        for kind, name in ((TOPIC, topic), (TOPIC, "missing"), (TOPIC, topic), (BROKER, "9"))
    ]
    request = IncrementalAlterConfigsRequest(resources=changed, validate_only=False)
    both.ask_and_compare(IncrementalAlterConfigsResponse, request, 1)
    at_once = AlterConfigsRequest(
        resources=[
            AlterConfigsRequest.AlterConfigsResource(resource_type=TOPIC, resource_name=name)
            for name in (topic, "missing")
        ],
        validate_only=True,
    )
    both.ask_and_compare(AlterConfigsResponse, at_once, 2)


def sends(side: Side, topic: str, data: bytes) -> int:
    request = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[produced(topic, data)])
    return side.ask(ProduceResponse, request, 9).responses[0].partition_responses[0].error_code


def log_start(side: Side, topic: str) -> int:
    part = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-2)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[part])]
    )
    return side.ask(ListOffsetsResponse, request, 7).topics[0].partitions[0].offset


def each_until(both: Both, condition: Callable[[Side], bool]) -> None:
    for side in both.sides:
        try:
            until(lambda side=side: condition(side))  # type: ignore[misc]
        except AssertionError as error:
            raise AssertionError(f"{side}: {error}") from None


@pytest.mark.usefixtures("fresh_settings")
def test_a_changed_limit_of_size_holds_for_running_logs(both: Both) -> None:
    name = both.create("limited")
    large = bytes(batch(size=2000))
    assert both.map(lambda side: sends(side, name, large)) == [0, 0]
    incrementally(both, 1, (TOPIC, name), ("max.message.bytes", SET, "1000"))
    each_until(both, lambda side: sends(side, name, large) == 10)
    incrementally(both, 1, (TOPIC, name), ("max.message.bytes", DELETE, None))
    each_until(both, lambda side: sends(side, name, large) == 0)
    for broker in ("1", ""):
        incrementally(both, 1, (BROKER, broker), ("message.max.bytes", SET, "1500"))
        each_until(both, lambda side: sends(side, name, large) == 10)
        incrementally(both, 1, (BROKER, broker), ("message.max.bytes", DELETE, None))
        each_until(both, lambda side: sends(side, name, large) == 0)


@pytest.mark.usefixtures("fresh_settings")
def test_a_changed_retention_holds_for_running_logs(both: Both) -> None:
    name = both.create("kept", segment_bytes=300)
    other = both.create("kept-by-default", segment_bytes=300)
    for topic_name in (name, other):
        both.produce(topic_name, *(bytes(batch(size=100, timestamp=START_MS)) for _ in range(6)))
    incrementally(both, 1, (TOPIC, name), ("retention.bytes", SET, "500"))
    each_until(both, lambda side: log_start(side, name) == 3)
    incrementally(both, 1, (TOPIC, name), ("retention.ms", SET, "1000"))
    each_until(both, lambda side: log_start(side, name) == 6)
    assert both.map(lambda side: log_start(side, other)) == [0, 0]
    incrementally(both, 1, (BROKER, ""), ("log.retention.ms", SET, "1000"))
    each_until(both, lambda side: log_start(side, other) == 6)


def test_a_changed_policy_holds_for_running_logs(both: Both) -> None:
    name = both.create("policy", segment_bytes=200, min_cleanable_dirty_ratio=0.01)
    assert both.map(lambda side: sends(side, name, bytes(batch(key=None)))) == [0, 0]
    both.produce(name, *(bytes(batch(size=100, key="same")) for _ in range(5)))
    incrementally(both, 1, (TOPIC, name), ("cleanup.policy", SET, "compact"))
    each_until(both, lambda side: sends(side, name, bytes(batch(key=None))) == 87)
    both.produce(name, bytes(batch(size=100, key="same")))

    def left(side: Side) -> int:
        part = FetchRequest.FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1 << 20)
        request = FetchRequest(topics=[FetchRequest.FetchTopic(topic=name, partitions=[part])])
        records = side.ask(FetchResponse, request, 11).responses[0].partitions[0].records
        assert isinstance(records, memoryview)
        return int.from_bytes(records[:8], "big")

    each_until(both, lambda side: left(side) > 1)
    incrementally(both, 1, (TOPIC, name), ("cleanup.policy", DELETE, None))
    each_until(both, lambda side: sends(side, name, bytes(batch(key=None))) == 0)


LOGGER_CHANGES: list[list[Op]] = [
    [("root", SET, "WARN")],
    [("root", SET, "FATAL")],
    [("root", SET, "debug")],
    [("root", SET, "OFF")],
    [("root", SET, "")],
    [("root", SET, None)],
    [("root", DELETE, None)],
    [("root", APPEND, "INFO")],
    [("root", SUBTRACT, "INFO")],
    [("root", SET, "INFO"), ("root", SET, "WARN")],
    [("root", SET, "ERROR"), ("no.such", SET, "INFO")],
    [("no.such", SET, "INFO")],
    [("no.such", DELETE, None)],
    [],
    [("root", SET, "INFO")],
]


@pytest.mark.parametrize("version", IncrementalAlterConfigsRequest.VERSIONS)
def test_log_levels_are_described_and_changed_as_kafka_does(both: Both, version: int) -> None:
    incrementally(both, version, (LOGGER, "1"), ("root", SET, "INFO"))
    for changes in LOGGER_CHANGES:
        for only_check in (True, False):
            incrementally(both, version, (LOGGER, "1"), *changes, only_check=only_check)
            for describing in DescribeConfigsRequest.VERSIONS:
                describe(both, describing, (LOGGER, "1", ["root"]), (LOGGER, "1", ["no.such"]))
    for name in ("", "x", "2"):
        describe(both, 4, (LOGGER, name, None))
    for name in ("", "x"):
        incrementally(both, version, (LOGGER, name), ("root", SET, "INFO"))
    assert alter(both, 2, (LOGGER, "1"), ("root", SET, "INFO")) == [42]


def test_listeners_are_added_and_removed_as_kafka_does(both: Both) -> None:
    """Requests and answers alike, and what a client sees: listeners that are open, and what each of them advertises."""
    first = {side: value_of(side, "listeners") for side in both.sides}
    ports = {side: free_port(side.host) for side in both.sides}
    protocols = "PLAINTEXT:PLAINTEXT,SSL:SSL,EXTRA:PLAINTEXT"
    mechanisms = "listener.name.plaintext.sasl.enabled.mechanisms"

    def extra(side: Side) -> str:
        return f"{first[side]},EXTRA://{side.host}:{ports[side]}"

    def change(*settings: tuple[str, Callable[[Side], str] | str | None], code: int = 0) -> None:
        for only_check in (True, False):
            assert change_listeners(both, *settings, only_check=only_check) == [code], settings

    change(("listeners", extra), code=INVALID_REQUEST)
    change(("listeners", extra), ("listener.security.protocol.map", protocols))
    until(lambda: all(advertised(side, ports[side]) == [(side.host, ports[side])] for side in both.sides))
    change(("listener.security.protocol.map", protocols.replace("EXTRA:PLAINTEXT", "EXTRA:SSL")), code=INVALID_REQUEST)
    change(("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT"), code=INVALID_REQUEST)
    change(("listeners", lambda side: f"EXTRA://{side.host}:{ports[side]}"), code=INVALID_REQUEST)
    change(("listeners", "nonsense"), code=INVALID_REQUEST)
    change(("control.plane.listener.name", "EXTRA"), code=INVALID_REQUEST)
    change(("inter.broker.listener.name", "EXTRA"), code=INVALID_REQUEST)
    change(("advertised.listeners", lambda side: f"{first[side]},OTHER://there.example:7"), code=INVALID_REQUEST)
    change((mechanisms, "PLAIN"), ("listeners", lambda side: first[side]), code=INVALID_REQUEST)
    change(("advertised.listeners", lambda side: f"PLAINTEXT://{side.bootstrap},EXTRA://there.example:7"))
    until(lambda: all(advertised(side, ports[side]) == [("there.example", 7)] for side in both.sides))
    change(("listeners", lambda side: first[side]), code=INVALID_REQUEST)
    connections = [socket.create_connection((side.host, ports[side]), SETTLED_S) for side in both.sides]
    change(("listeners", None), ("advertised.listeners", None), ("listener.security.protocol.map", None))
    for connection in connections:
        assert connection.recv(1) == b""
        connection.close()
    until(lambda: all(advertised(side, ports[side]) is None for side in both.sides))
    until(lambda: all(advertised(side, side.port) == [(side.host, side.port)] for side in both.sides))


def value_of(side: Side, name: str) -> str:
    resource = RESOURCE(resource_type=BROKER, resource_name="1", configuration_keys=[name])
    (result,) = side.ask(DescribeConfigsResponse, DescribeConfigsRequest(resources=[resource]), 4).results
    return str(result.configs[0].value)


def free_port(host: str) -> int:
    with socket.create_server((host, 0)) as server:
        return int(server.getsockname()[1])


def advertised(side: Side, port: int) -> list[tuple[str, int]] | None:
    """The brokers that a client of a listener learns of. None: nobody listens."""
    try:
        connection = Connection(side.host, port)
    except ConnectionRefusedError:
        return None
    answer = connection.ask(MetadataResponse, MetadataRequest(topics=[]), 9)
    connection.close()
    return [(broker.host, broker.port) for broker in answer.brokers]


def change_listeners(
    both: Both, *settings: tuple[str, Callable[[Side], str] | str | None], only_check: bool
) -> list[int]:
    def request(side: Side) -> IncrementalAlterConfigsRequest:
        configs = [
            IncrementalAlterConfigsRequest.AlterableConfig(
                name=name,
                config_operation=DELETE if value is None else SET,
                value=value(side) if callable(value) else value,
            )
            for name, value in settings
        ]
        changed = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=BROKER, resource_name="1", configs=configs
        )
        return IncrementalAlterConfigsRequest(resources=[changed], validate_only=only_check)

    answer = both.ask_and_compare(IncrementalAlterConfigsResponse, request, 1)
    return [response.error_code for response in answer.responses]
