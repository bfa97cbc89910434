"""The nodes of quotas, byte for byte as a real Kafka has left them, and the requests for them."""

import pytest

from leadline.coordination import znodes
from leadline.coordination.node_json import MalformedNode
from leadline.errors import InvalidRequest, UnsupportedVersion, WireError
from leadline.security.client_quotas import DEFAULT, QuotaEntity, QuotaKind
from leadline.security.quota_nodes import (
    ConfigEntity,
    IpEntity,
    QuotaAlteration,
    QuotaFilter,
    QuotaFilterComponent,
    altered,
    client_quotas_in,
    connection_rate_in,
    entity_of,
    entity_of_request,
    entity_path,
    names_of,
    node_path,
)

SCRAM = (
    "salt=MDEyMzQ1Njc4OWFiY2RlZg==,stored_key=m8lGoSUhzwi9YHfc8DS3Ek3NZenZ+UGZOFtUTYgeVr4=,"
    "server_key=v+oJ1PNoIs9QFCpX/eZFaqojJhVr8JWoRFaLmDK/bvk=,iterations=4096"
)

PATHS = [
    (QuotaEntity("alice"), "users/alice"),
    (QuotaEntity("a/b c", "cl*1"), "users/a%2Fb%20c/clients/cl%2A1"),
    (QuotaEntity("CN=bob, O=x*y~z+é"), "users/CN%3Dbob%2C%20O%3Dx%2Ay%7Ez%2B%C3%A9"),
    (QuotaEntity(DEFAULT, DEFAULT), "users/<default>/clients/<default>"),
    (QuotaEntity("<default>"), "users/%3Cdefault%3E"),
    (QuotaEntity(DEFAULT), "users/<default>"),
    (QuotaEntity(None, DEFAULT), "clients/<default>"),
    (QuotaEntity(None, "c"), "clients/c"),
    (IpEntity("127.0.0.7"), "ips/127.0.0.7"),
    (IpEntity("::1"), "ips/::1"),
    (IpEntity(DEFAULT), "ips/<default>"),
]


@pytest.mark.parametrize(("entity", "path"), PATHS)
def test_an_entity_has_kafkas_path_and_is_read_from_it(entity: ConfigEntity, path: str) -> None:
    assert entity_path(entity) == path
    assert node_path(entity) == f"/config/{path}"
    assert entity_of(path) == entity


@pytest.mark.parametrize("path", ["topics/t", "brokers/0", "users/u/clients", "users", "users/a/b/c/d"])
def test_other_paths_have_no_quotas(path: str) -> None:
    assert entity_of(path) is None


def test_quotas_and_credentials_share_a_node_as_kafka_writes_it() -> None:
    quotas = '"request_percentage":"50.5","producer_byte_rate":"1024","consumer_byte_rate":"2048"'
    text = f'{{"version":1,"config":{{"SCRAM-SHA-256":"{SCRAM}",{quotas},"controller_mutation_rate":"10.0"}}}}'
    data = text.encode()
    config = znodes.decode_config("/config/users/alice", data)
    assert client_quotas_in("/config/users/alice", config) == {
        QuotaKind.REQUEST_PERCENTAGE: 50.5,
        QuotaKind.PRODUCER_BYTE_RATE: 1024,
        QuotaKind.CONSUMER_BYTE_RATE: 2048,
        QuotaKind.CONTROLLER_MUTATION_RATE: 10,
    }
    changes = [
        QuotaAlteration("producer_byte_rate", 1024.0),
        QuotaAlteration("controller_mutation_rate", 10.0),
        QuotaAlteration("consumer_byte_rate", 2048),
        QuotaAlteration("request_percentage", 50.5),
    ]
    assert znodes.encode_config(altered(QuotaEntity("alice"), {"SCRAM-SHA-256": SCRAM}, changes)) == data


def test_what_is_not_named_stays_and_what_is_removed_goes() -> None:
    config = {"SCRAM-SHA-256": SCRAM, "producer_byte_rate": "1", "request_percentage": "2.0"}
    removed = altered(QuotaEntity("u"), config, [QuotaAlteration("producer_byte_rate", None)])
    assert removed == {"SCRAM-SHA-256": SCRAM, "request_percentage": "2.0"}
    assert altered(QuotaEntity("u"), config, [QuotaAlteration("nothing", None)]) == config


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("producer_byte_rate", 1024.0, "1024"),
        ("producer_byte_rate", 1024.0000001, "1024"),
        ("producer_byte_rate", 0.9999999, "1"),
        ("producer_byte_rate", 1e15, "1000000000000000"),
        ("producer_byte_rate", 0.0, "0"),
        ("request_percentage", 10.0, "10.0"),
        ("request_percentage", 1e7, "1.0E7"),
        ("controller_mutation_rate", 0.00001, "1.0E-5"),
    ],
)
def test_a_value_is_written_as_kafka_does(key: str, value: float, text: str) -> None:
    assert altered(QuotaEntity("u"), {}, [QuotaAlteration(key, value)]) == {key: text}


@pytest.mark.parametrize(
    ("entity", "key", "value", "message"),
    [
        (QuotaEntity("u"), "producer_byte_rate", 1.5, "Configuration producer_byte_rate must be a LONG value"),
        (QuotaEntity("u"), "producer_byte_rate", float("nan"), "must be a LONG value"),
        (QuotaEntity("u"), "producer_byte_rate", float("inf"), "must be a LONG value"),
        (QuotaEntity("u"), "consumer_byte_rate", 1e30, "must be a LONG value"),
        (QuotaEntity("u"), "connection_creation_rate", 1, "Invalid configuration key connection_creation_rate"),
        (QuotaEntity("u"), "SCRAM-SHA-256", 1, "Invalid configuration key SCRAM-SHA-256"),
        (IpEntity("1.1.1.1"), "producer_byte_rate", 1, "Invalid configuration key producer_byte_rate"),
        (IpEntity("1.1.1.1"), "connection_creation_rate", 0.5, "must be a INT value"),
        (IpEntity("1.1.1.1"), "connection_creation_rate", 3e9, "must be a INT value"),
        (IpEntity("1.1.1.1"), "connection_creation_rate", -1, "must be a INT value"),
    ],
)
def test_a_value_that_kafka_refuses_is_refused(entity: ConfigEntity, key: str, value: float, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        altered(entity, {}, [QuotaAlteration(key, value)])


def test_values_that_are_no_numbers_are_malformed() -> None:
    with pytest.raises(MalformedNode, match=r"/config/users/u: config\.producer_byte_rate"):
        client_quotas_in("/config/users/u", {"producer_byte_rate": "many"})
    with pytest.raises(MalformedNode, match=r"/config/ips/1\.1\.1\.1"):
        connection_rate_in("/config/ips/1.1.1.1", {"connection_creation_rate": "1.5"})


def test_the_rate_of_an_address() -> None:
    assert connection_rate_in("/config/ips/x", {"connection_creation_rate": "100"}) == 100
    assert connection_rate_in("/config/ips/x", {}) is None


@pytest.mark.parametrize(
    ("parts", "entity"),
    [
        ([("user", "u")], QuotaEntity("u")),
        ([("client-id", None), ("user", "u")], QuotaEntity("u", DEFAULT)),
        ([("client-id", "c")], QuotaEntity(None, "c")),
        ([("ip", "1.1.1.1")], IpEntity("1.1.1.1")),
        ([("ip", None)], IpEntity(DEFAULT)),
        ([("ip", "::1")], IpEntity("::1")),
        ([("ip", "fe80::1%eth0")], IpEntity("fe80::1%eth0")),
        ([("ip", "localhost")], IpEntity("localhost")),
    ],
)
def test_an_entity_of_a_request(parts: list[tuple[str, str | None]], entity: ConfigEntity) -> None:
    assert entity_of_request(parts) == entity
    assert names_of(entity) == {kind: DEFAULT if name is None else name for kind, name in parts}


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([], "Invalid empty client quota entity"),
        ([("user", "")], "Empty user not supported"),
        ([("group", "g")], "Unhandled client quota entity type: group"),
        ([("ip", "1.1.1.1/../x")], r"1\.1\.1\.1%2F\.\.%2Fx is not a valid IP or resolvable host"),
        ([("ip", "..")], r"\.\. is not a valid IP or resolvable host"),
        ([("ip", "1.1.1.1"), ("user", "u")], "IP entity should not be used with user/client ID entity"),
    ],
)
def test_an_entity_that_kafka_refuses(parts: list[tuple[str, str | None]], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        entity_of_request(parts)


ENTITIES: list[ConfigEntity] = [entity for entity, _ in PATHS]  # type: ignore[misc]
PAIRS = [entity for entity in ENTITIES if isinstance(entity, QuotaEntity) and None not in entity]
OF_USERS = [entity for entity in ENTITIES if isinstance(entity, QuotaEntity) and entity.user is not None]


def component(kind: str, name: object) -> QuotaFilterComponent:
    return QuotaFilterComponent(kind, name)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("components", "strict", "matched"),
    [
        ([], False, ENTITIES),
        ([], True, []),
        ([component("user", None)], False, OF_USERS),
        ([component("user", None)], True, [entity for entity in OF_USERS if entity not in PAIRS]),
        ([component("user", None), component("client-id", None)], True, PAIRS),
        ([component("user", DEFAULT)], False, [QuotaEntity(DEFAULT, DEFAULT), QuotaEntity(DEFAULT)]),
        ([component("user", DEFAULT)], True, [QuotaEntity(DEFAULT)]),
        ([component("user", "<default>")], False, [QuotaEntity("<default>")]),
        ([component("client-id", "c")], False, [QuotaEntity(None, "c")]),
        ([component("client-id", "cl*1")], True, []),
        ([component("ip", None)], True, [entity for entity in ENTITIES if isinstance(entity, IpEntity)]),
        ([component("ip", "127.0.0.7")], False, [IpEntity("127.0.0.7")]),
    ],
)
def test_a_filter_matches_as_kafkas(
    components: list[QuotaFilterComponent], strict: bool, matched: list[ConfigEntity]
) -> None:
    filter = QuotaFilter(tuple(components), strict)
    filter.check()
    assert [entity for entity in ENTITIES if filter.matches(entity)] == matched


@pytest.mark.parametrize(
    ("kinds", "error", "message"),
    [
        (["user", "user"], InvalidRequest, "Duplicate user filter component entity type"),
        (["client-id", "client-id"], InvalidRequest, "Duplicate client filter component entity type"),
        ([""], InvalidRequest, "Unexpected empty filter component entity type"),
        (["group"], UnsupportedVersion, "Custom entity type 'group' not supported"),
        (["ip", "user"], InvalidRequest, "Invalid entity filter component combination"),
    ],
)
def test_a_filter_that_kafka_refuses(kinds: list[str], error: type[WireError], message: str) -> None:
    with pytest.raises(error, match=message):
        QuotaFilter(tuple(component(kind, None) for kind in kinds), False).check()
