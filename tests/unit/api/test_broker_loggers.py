"""Log levels as settings of the resource BROKER_LOGGER, described and changed as Kafka does."""

import logging
from collections.abc import Awaitable, Callable, Iterator

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

BROKER_LOGGER, LOGGER_SOURCE = 8, 6
LOGGER = __name__  # one that no cluster of another test sets a level for
SET, DELETE, APPEND, SUBTRACT = range(4)
INVALID_CONFIG, INVALID_REQUEST = 40, 42

_Resource = IncrementalAlterConfigsRequest.AlterConfigsResource
_Change = IncrementalAlterConfigsRequest.AlterableConfig


@pytest.fixture(autouse=True)
def _levels_stay() -> Iterator[None]:
    logger, root = logging.getLogger(LOGGER), logging.getLogger()
    before = root.level
    yield
    logger.setLevel(logging.NOTSET)
    root.setLevel(before)


async def describe(
    client: InMemoryClient, names: list[str] | None, broker: str | None = None
) -> DescribeConfigsResponse.DescribeConfigsResult:
    name = me(client) if broker is None else broker
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=BROKER_LOGGER, resource_name=name, configuration_keys=names
    )
    response = await client.send(DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse, 4)
    return response.results[0]


async def level(client: InMemoryClient) -> str | None:
    return (await describe(client, [LOGGER])).configs[0].value


async def alter(
    client: InMemoryClient,
    *changes: tuple[str, int, str | None],
    broker: str | None = None,
    validate_only: bool = False,
) -> tuple[int, str | None]:
    configs = [_Change(name=name, config_operation=op, value=value) for name, op, value in changes]
    resource = _Resource(
        resource_type=BROKER_LOGGER, resource_name=me(client) if broker is None else broker, configs=configs
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (answer,) = (await client.send(request, IncrementalAlterConfigsResponse, 1)).responses
    return answer.error_code, answer.error_message


def me(client: InMemoryClient) -> str:
    return str(client.broker.metadata.me.id)


def with_broker(test: Callable[[InMemoryClient], Awaitable[None]]) -> None:
    run(test)


def test_all_loggers_are_described_with_the_level_that_holds() -> None:
    async def test(client: InMemoryClient) -> None:
        logging.getLogger().setLevel(logging.WARNING)
        result = await describe(client, None)
        assert result.error_code == 0
        levels = {entry.name: entry.value for entry in result.configs}
        assert levels["root"] == levels[LOGGER] == "WARN"
        assert {entry.config_source for entry in result.configs} == {LOGGER_SOURCE}
        assert "root" not in {entry.name for entry in (await describe(client, [])).configs}
        assert [entry.name for entry in (await describe(client, ["root", "no.such"])).configs] == ["root"]

    with_broker(test)


def test_a_level_is_set_at_once_and_deleted_again() -> None:
    async def test(client: InMemoryClient) -> None:
        logging.getLogger().setLevel(logging.WARNING)
        for name, number in {"DEBUG": 10, "FATAL": 50, "TRACE": 5}.items():
            assert await alter(client, (LOGGER, SET, name)) == (0, None)
            assert await level(client) == name
            assert logging.getLogger(LOGGER).level == number
        assert await alter(client, (LOGGER, DELETE, None)) == (0, None)
        assert await level(client) == "WARN"
        assert await alter(client, ("root", SET, "ERROR")) == (0, None)
        assert await level(client) == "ERROR"

    with_broker(test)


def test_a_request_that_only_validates_or_fails_in_part_changes_nothing() -> None:
    async def test(client: InMemoryClient) -> None:
        before = await level(client)
        assert await alter(client, (LOGGER, SET, "TRACE"), validate_only=True) == (0, None)
        assert (await alter(client, (LOGGER, SET, "TRACE"), ("no.such", SET, "INFO")))[0] == INVALID_CONFIG
        assert await level(client) == before

    with_broker(test)


REFUSED = {
    (LOGGER, SET, "debug"): (
        INVALID_CONFIG,
        f"Cannot set the log level of {LOGGER} to debug as it is not a supported log level. "
        "Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN",
    ),
    ("no.such", SET, "INFO"): (INVALID_CONFIG, "Logger no.such does not exist!"),
    ("no.such", DELETE, None): (INVALID_CONFIG, "Logger no.such does not exist!"),
    ("root", DELETE, None): (INVALID_REQUEST, "Removing the log level of the root logger is not allowed"),
    (LOGGER, SET, None): (INVALID_REQUEST, f"Null value not supported for : {LOGGER}"),
    (LOGGER, APPEND, "INFO"): (INVALID_REQUEST, "APPEND operation is not allowed for the BROKER_LOGGER resource"),
    (LOGGER, SUBTRACT, "INFO"): (INVALID_REQUEST, "SUBTRACT operation is not allowed for the BROKER_LOGGER resource"),
}


def test_changes_are_refused_with_kafkas_codes_and_messages() -> None:
    async def test(client: InMemoryClient) -> None:
        assert {change: await alter(client, change) for change in REFUSED} == REFUSED
        answer = await alter(client, (LOGGER, SET, "INFO"), broker="x")
        assert answer == (INVALID_REQUEST, "Node id must be an integer, but it is: x")
        assert (await alter(client, (LOGGER, SET, "INFO"), broker="77"))[0] == INVALID_REQUEST
        for broker, message in {
            "": "Broker id must not be empty",
            "x": "Broker id must be an integer, but it is: x",
            "77": f"Unexpected broker id, expected {me(client)} but received 77",
        }.items():
            result = await describe(client, None, broker)
            assert (result.error_code, result.error_message) == (INVALID_REQUEST, message)

    with_broker(test)


def test_the_request_that_replaces_all_settings_knows_no_loggers() -> None:
    async def test(client: InMemoryClient) -> None:
        resource = AlterConfigsRequest.AlterConfigsResource(
            resource_type=BROKER_LOGGER,
            resource_name=me(client),
            configs=[AlterConfigsRequest.AlterableConfig(name=LOGGER, value="INFO")],
        )
        (answer,) = (await client.send(AlterConfigsRequest(resources=[resource]), AlterConfigsResponse, 2)).responses
        assert (answer.error_code, answer.error_message) == (INVALID_REQUEST, "Unknown resource type 8")

    with_broker(test)
