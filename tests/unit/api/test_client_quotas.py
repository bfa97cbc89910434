"""DescribeClientQuotas and AlterClientQuotas on a broker in memory."""

import pytest

from leadline.coordination import znodes
from leadline.security.client_quotas import DEFAULT, QuotaEntity, QuotaKind
from leadline.wire.messages import (
    AlterClientQuotasResponse,
    DescribeClientQuotasResponse,
)
from tests.support.authorized_broker import AuthorizedBroker, run_authorized
from tests.support.client_quotas import EntityNames, QuotaComponent, altering, describing
from tests.support.in_memory_broker import InMemoryClient, run

INVALID_REQUEST, UNSUPPORTED_VERSION, CLUSTER_REFUSED, UNKNOWN_SERVER_ERROR = 42, 35, 31, -1
EXACT, OF_DEFAULT, ANY = 0, 1, 2
ENTITIES: list[EntityNames] = [
    {"user": "alice"},
    {"user": "alice", "client-id": "app"},
    {"user": None},
    {"user": None, "client-id": None},
    {"client-id": "app"},
    {"client-id": None},
]


async def alter(
    client: InMemoryClient, names: EntityNames, validate_only: bool = False, /, **values: float | None
) -> tuple[int, str | None]:
    response = await client.send(altering(names, values, validate_only), AlterClientQuotasResponse, 1)
    (entry,) = response.entries
    assert {part.entity_type: part.entity_name for part in entry.entity} == names
    return entry.error_code, entry.error_message


async def answer(
    client: InMemoryClient, *components: QuotaComponent, strict: bool = False
) -> DescribeClientQuotasResponse:
    request = describing(*components, strict=strict)
    return await client.send(request, DescribeClientQuotasResponse, 1)


async def described(
    client: InMemoryClient, *components: QuotaComponent, strict: bool = False
) -> list[dict[str, str | None]]:
    response = await answer(client, *components, strict=strict)
    assert (response.error_code, response.error_message) == (0, "")
    return [{part.entity_type: part.entity_name for part in entry.entity} for entry in response.entries or []]


def test_an_altered_quota_is_stored_in_force_and_described() -> None:
    async def test(client: InMemoryClient) -> None:
        assert await alter(client, {"user": "alice"}, producer_byte_rate=1024, request_percentage=50.5) == (0, None)
        node = await client.broker.tree.get("/config/users/alice")
        assert node is not None
        assert znodes.decode_config("", node.data) == {"producer_byte_rate": "1024", "request_percentage": "50.5"}
        in_force = client.broker.client_configs.quotas.quotas(QuotaEntity("alice"))
        assert in_force == {QuotaKind.PRODUCER_BYTE_RATE: 1024, QuotaKind.REQUEST_PERCENTAGE: 50.5}
        (entry,) = (await answer(client)).entries or []
        assert {value.key: value.value for value in entry.values} == {
            "producer_byte_rate": 1024.0,
            "request_percentage": 50.5,
        }
        assert await alter(client, {"user": "alice"}, producer_byte_rate=None, request_percentage=None) == (0, None)
        assert await described(client) == []

    run(test)


def test_what_is_only_validated_is_not_written() -> None:
    async def test(client: InMemoryClient) -> None:
        assert await alter(client, {"user": None}, True, consumer_byte_rate=5) == (0, None)
        assert (await alter(client, {"user": None}, True, consumer_byte_rate=0.5))[0] == INVALID_REQUEST
        assert await described(client) == []
        assert client.broker.client_configs.quotas.quotas(QuotaEntity(DEFAULT)) == {}

    run(test)


@pytest.mark.parametrize(
    ("components", "strict", "matching"),
    [
        ([], False, [0, 1, 2, 3, 4, 5]),
        ([], True, []),
        ([("user", EXACT, "alice")], False, [0, 1]),
        ([("user", EXACT, "alice")], True, [0]),
        ([("user", OF_DEFAULT, None)], False, [2, 3]),
        ([("user", ANY, None)], False, [0, 1, 2, 3]),
        ([("user", ANY, None)], True, [0, 2]),
        ([("client-id", OF_DEFAULT, None)], True, [5]),
        ([("user", ANY, None), ("client-id", EXACT, "app")], True, [1]),
    ],
)
def test_a_filter_shows_the_entities_that_it_names(
    components: list[QuotaComponent], strict: bool, matching: list[int]
) -> None:
    async def test(client: InMemoryClient) -> None:
        for names in ENTITIES:
            assert await alter(client, names, controller_mutation_rate=1.5) == (0, None)
        entities = await described(client, *components, strict=strict)
        assert sorted(map(str, entities)) == sorted(str(dict(ENTITIES[index])) for index in matching)

    run(test)


@pytest.mark.parametrize(
    ("names", "values", "message"),
    [
        ({"user": "a"}, {"speed": 1}, "Invalid configuration key speed"),
        ({"user": "a"}, {"connection_creation_rate": 1}, "Invalid configuration key connection_creation_rate"),
        ({"ip": "127.0.0.1"}, {"producer_byte_rate": 1}, "Invalid configuration key producer_byte_rate"),
        ({"user": "a"}, {"producer_byte_rate": 1.5}, "Configuration producer_byte_rate must be a LONG value"),
        ({"user": ""}, {"producer_byte_rate": 1}, "Empty user not supported"),
        ({"group": "g"}, {"producer_byte_rate": 1}, "Unhandled client quota entity type: group"),
        ({}, {"producer_byte_rate": 1}, "Invalid empty client quota entity"),
        (
            {"ip": "127.0.0.1", "user": "a"},
            {"connection_creation_rate": 1},
            "Invalid quota entity combination, IP entity should not be used with user/client ID entity.",
        ),
        (
            {"ip": "no.such.host.invalid"},
            {"connection_creation_rate": 1},
            "no.such.host.invalid is not a valid IP or resolvable host.",
        ),
    ],
)
def test_an_alteration_that_makes_no_sense_is_refused(
    names: EntityNames, values: dict[str, float], message: str
) -> None:
    async def test(client: InMemoryClient) -> None:
        assert await alter(client, names, **values) == (INVALID_REQUEST, message)

    run(test)


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", ANY, None)], INVALID_REQUEST),
        ([("user", ANY, None), ("user", EXACT, "a")], INVALID_REQUEST),
        ([("user", ANY, None), ("ip", ANY, None)], INVALID_REQUEST),
        ([("group", ANY, None)], UNSUPPORTED_VERSION),
        ([("user", 3, None)], UNKNOWN_SERVER_ERROR),
        ([("user", EXACT, None)], UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused(components: list[QuotaComponent], code: int) -> None:
    async def test(client: InMemoryClient) -> None:
        response = await answer(client, *components)
        assert (response.error_code, response.entries) == (code, None)
        assert response.error_message

    run(test)


def test_a_host_gets_the_quota_of_its_address() -> None:
    async def test(client: InMemoryClient) -> None:
        assert await alter(client, {"ip": "localhost"}, connection_creation_rate=7) == (0, None)
        assert client.broker.client_configs.connection_rates.address_limits == {"127.0.0.1": 7}
        assert await described(client, ("ip", EXACT, "localhost")) == [{"ip": "localhost"}]
        assert await alter(client, {"ip": "localhost"}, connection_creation_rate=None) == (0, None)
        assert client.broker.client_configs.connection_rates.address_limits == {}

    run(test)


def test_an_entity_that_is_named_twice_is_reported_once() -> None:
    async def test(client: InMemoryClient) -> None:
        request = altering({"user": "a"}, {"producer_byte_rate": 1})
        request.entries += altering({"user": "a"}, {"producer_byte_rate": 2}).entries
        response = await client.send(request, AlterClientQuotasResponse, 0)
        assert [entry.error_code for entry in response.entries] == [0]
        assert client.broker.client_configs.quotas.quotas(QuotaEntity("a")) == {QuotaKind.PRODUCER_BYTE_RATE: 2}

    run(test)


def test_without_the_rights_each_entity_is_refused_and_nothing_is_shown() -> None:
    async def test(broker: AuthorizedBroker) -> None:
        refused = CLUSTER_REFUSED, "Cluster authorization failed."
        assert await alter(broker.client(), {"user": "a"}, producer_byte_rate=1) == refused
        response = await answer(broker.client())
        assert (response.error_code, response.error_message, response.entries) == (*refused, None)
        assert await described(broker.root) == []

    run_authorized(test)
