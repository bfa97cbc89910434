"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs: the settings of topics and brokers."""

import pytest

from leadline.wire.messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.support.in_memory_broker import InMemoryClient, run

TOPIC, BROKER, GROUP, CLIENT_METRICS = 2, 4, 32, 16
SET, DELETE, APPEND, SUBTRACT = range(4)
UNKNOWN_TOPIC, INVALID_TOPIC, INVALID_CONFIG, INVALID_REQUEST = 3, 17, 40, 42
UNKNOWN_SERVER_ERROR = -1
TOPIC_CONFIG, DEFAULT_CONFIG = 1, 5  # sources


async def describe(
    client: InMemoryClient, kind: int, name: str, keys: list[str] | None = None, version: int = 4
) -> DescribeConfigsResponse.DescribeConfigsResult:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=version > 0)
    (result,) = (await client.send(request, DescribeConfigsResponse, version)).results
    return result


async def value(client: InMemoryClient, name: str) -> str | None:
    (entry,) = (await describe(client, TOPIC, "orders", [name])).configs
    return entry.value


async def alter(
    client: InMemoryClient,
    *changes: tuple[str, int, str | None],
    kind: int = TOPIC,
    name: str = "orders",
    validate_only: bool = False,
) -> int:
    configs = [
        IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=operation, value=new)
        for key, operation, new in changes
    ]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=configs
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (result,) = (await client.send(request, IncrementalAlterConfigsResponse, 1)).responses
    assert (result.error_code == 0) is (result.error_message is None)
    return result.error_code


async def replace(client: InMemoryClient, configs: dict[str, str | None], *, times: int = 1) -> list[int]:
    resource = AlterConfigsRequest.AlterConfigsResource(
        resource_type=TOPIC,
        resource_name="orders",
        configs=[AlterConfigsRequest.AlterableConfig(name=key, value=new) for key, new in configs.items()],
    )
    response = await client.send(AlterConfigsRequest(resources=[resource] * times), AlterConfigsResponse, 2)
    return [result.error_code for result in response.responses]


@pytest.mark.parametrize("version", range(5))
def test_a_setting_of_a_topic_has_its_value_and_source(version: int) -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders", retention_ms="1000")
        result = await describe(client, TOPIC, "orders", ["retention.ms", "segment.ms"], version)
        entries = {entry.name: entry for entry in result.configs}
        assert {name: entry.value for name, entry in entries.items()} == {
            "retention.ms": "1000",
            "segment.ms": "604800000",
        }
        if version == 0:
            assert [entries[name].is_default for name in ("retention.ms", "segment.ms")] == [False, True]
        else:
            sources = [entries[name].config_source for name in ("retention.ms", "segment.ms")]
            assert sources == [TOPIC_CONFIG, DEFAULT_CONFIG]

    run(test)


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "missing", UNKNOWN_TOPIC),
        (TOPIC, "not a name", INVALID_TOPIC),
        (BROKER, "99", INVALID_REQUEST),
        (GROUP, "missing", INVALID_REQUEST),  # as Kafka 3.8: groups have no settings
        (CLIENT_METRICS, "any", INVALID_REQUEST),
    ],
)
def test_a_resource_that_does_not_exist_is_an_error(kind: int, name: str, code: int) -> None:
    async def test(client: InMemoryClient) -> None:
        result = await describe(client, kind, name)
        assert result.error_code == code
        assert (result.resource_type, result.resource_name, result.configs) == (kind, name, [])
        assert result.error_message

    run(test)


def test_a_broker_describes_itself_and_the_default_of_all() -> None:
    async def test(client: InMemoryClient) -> None:
        me = str(client.broker.services.metadata.me.id)
        (entry,) = (await describe(client, BROKER, me, ["log.retention.ms"])).configs
        assert entry.name == "log.retention.ms"
        assert (await describe(client, BROKER, "")).configs == []
        assert await alter(client, ("log.retention.ms", SET, "5000"), kind=BROKER, name="") == 0
        (entry,) = (await describe(client, BROKER, "")).configs
        assert (entry.name, entry.value) == ("log.retention.ms", "5000")

    run(test)


def test_single_settings_are_set_appended_to_subtracted_from_and_deleted() -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders", retention_ms="1000")
        assert await alter(client, ("segment.ms", SET, "2000"), ("cleanup.policy", APPEND, "compact")) == 0
        assert await value(client, "segment.ms") == "2000"
        assert await value(client, "cleanup.policy") == "delete,compact"
        assert await alter(client, ("cleanup.policy", SUBTRACT, "delete"), ("retention.ms", DELETE, None)) == 0
        assert await value(client, "cleanup.policy") == "compact"
        assert await value(client, "retention.ms") == "604800000"

    run(test)


def test_settings_that_a_replacement_does_not_name_go_back_to_their_defaults() -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders", retention_ms="1000")
        assert await replace(client, {"segment.ms": "2000"}) == [0]
        assert await value(client, "segment.ms") == "2000"
        assert await value(client, "retention.ms") == "604800000"

    run(test)


def test_a_resource_that_is_named_twice_is_rejected() -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        assert await replace(client, {"segment.ms": "2000"}, times=2) == [INVALID_REQUEST] * 2
        assert await replace(client, {"segment.ms": None}) == [INVALID_REQUEST]
        assert await value(client, "segment.ms") == "604800000"

    run(test)


def test_validation_alone_changes_nothing() -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        assert await alter(client, ("segment.ms", SET, "2000"), validate_only=True) == 0
        assert await alter(client, ("segment.ms", SET, "much"), validate_only=True) == INVALID_CONFIG
        assert await value(client, "segment.ms") == "604800000"

    run(test)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("segment.ms", SET, "much")], INVALID_CONFIG),
        ([("segment.ms", SET, None)], INVALID_REQUEST),
        ([("segment.ms", 9, "1")], UNKNOWN_SERVER_ERROR),  # as in Kafka, for topics
        ([("segment.ms", SET, "1"), ("segment.ms", SET, "2")], INVALID_REQUEST),
    ],
)
def test_a_bad_change_is_rejected(changes: list[tuple[str, int, str | None]], code: int) -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        assert await alter(client, *changes) == code
        assert await alter(client, *changes, name="") == INVALID_REQUEST
        assert await alter(client, *changes, kind=GROUP) == INVALID_REQUEST

    run(test)


def test_a_bad_value_of_a_broker_is_an_invalid_request() -> None:
    async def test(client: InMemoryClient) -> None:
        change = ("log.retention.ms", SET, "much")
        assert await alter(client, change, kind=BROKER, name="") == INVALID_REQUEST
        assert await alter(client, change, kind=BROKER, name="99") == INVALID_REQUEST

    run(test)
