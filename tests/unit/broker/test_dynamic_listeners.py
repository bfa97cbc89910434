"""Listeners that change while a broker runs, by requests as kafka-configs sends them."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from leadline.broker.broker import Broker
from leadline.coordination import znodes
from leadline.coordination.registration import decode_registration
from leadline.coordination.tree import Node
from leadline.wire.classes import Message
from leadline.wire.frames import parse_response, request_frame
from leadline.wire.messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    MetadataRequest,
    MetadataResponse,
)
from tests.support.brokers import joined
from tests.support.certificates import authority
from tests.support.in_memory_broker import InMemoryClient
from tests.support.in_process import broker_in_process
from tests.support.in_process_cluster import cluster_in_process
from tests.support.waiting import eventually

BROKER, SET, DELETE = 4, 0, 1
NONE, INVALID_REQUEST = 0, 42
BASE = "PLAINTEXT://127.0.0.1:0"
PROTOCOLS = "PLAINTEXT:PLAINTEXT,SSL:SSL,EXTRA:PLAINTEXT,MORE:PLAINTEXT"
SETTINGS = {"broker.id": "0", "listeners": BASE, "listener.security.protocol.map": PROTOCOLS}
EXTRA = {"listeners": f"{BASE},EXTRA://127.0.0.1:0"}
Changes = Mapping[str, str | None]
M = TypeVar("M", bound=Message)


def alteration(changes: Changes, id: int = 0, *, only_check: bool = False) -> IncrementalAlterConfigsRequest:
    """None deletes a setting."""
    entries = [
        IncrementalAlterConfigsRequest.AlterableConfig(
            name=name, config_operation=DELETE if text is None else SET, value=text
        )
        for name, text in changes.items()
    ]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=BROKER, resource_name=str(id), configs=entries
    )
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=only_check)


async def alter(broker: Broker, changes: Changes, *, only_check: bool = False) -> tuple[int, str]:
    """Error code and message."""
    request = alteration(changes, broker.metadata.me.id, only_check=only_check)
    (result,) = (await InMemoryClient(broker).send(request, IncrementalAlterConfigsResponse, 1)).responses
    return result.error_code, result.error_message or ""


async def node_of(broker: Broker) -> Node:
    node = await broker.tree.get(znodes.broker_path(broker.metadata.me.id))
    assert node is not None
    return node


async def registered(broker: Broker) -> list[str]:
    return list(map(str, decode_registration(broker.metadata.me.id, (await node_of(broker)).data).endpoints))


def address_text(broker: Broker, listener: str) -> str:
    return f"{listener}://127.0.0.1:{broker.addresses[listener].port}"


async def advertised_on(port: int, tls: ssl.SSLContext | None = None) -> list[tuple[str, int]]:
    """The brokers that a client of a listener learns of."""
    name = None if tls is None else "localhost"
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=name)
    answer = await ask(reader, writer, MetadataRequest(topics=[]), MetadataResponse, 9)
    writer.close()
    return [(broker.host, broker.port) for broker in answer.brokers]


async def ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: Message, kind: type[M], version: int
) -> M:
    writer.write(joined(request_frame(request, version, 7, "test")))
    frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
    return parse_response(kind, frame, version)[1]


async def refuses(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionRefusedError:
        return True
    writer.close()
    return False


def run(path: Path, test: Callable[[Broker], Awaitable[None]], **settings: str) -> None:
    async def main() -> None:
        own = SETTINGS | {name.replace("__", "."): text for name, text in settings.items()}
        async with broker_in_process(path / "data", settings=own) as broker:
            await test(broker)

    asyncio.run(main())


@asynccontextmanager
async def occupied_port() -> AsyncIterator[int]:
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


def test_a_new_listener_is_open_and_registered_in_the_same_node(tmp_path: Path) -> None:
    async def test(broker: Broker) -> None:
        before = await node_of(broker)
        assert await alter(broker, EXTRA, only_check=True) == (NONE, "")
        assert list(broker.addresses) == ["PLAINTEXT"]
        assert await alter(broker, EXTRA) == (NONE, "")
        port = broker.addresses["EXTRA"].port
        await eventually(lambda: "EXTRA" in broker.metadata.brokers[0].endpoints)
        assert await advertised_on(port) == [("127.0.0.1", port)]
        after = await node_of(broker)
        assert await registered(broker) == [address_text(broker, "PLAINTEXT"), address_text(broker, "EXTRA")]
        assert (after.czxid, after.owner, after.version) == (before.czxid, before.owner, before.version + 1)
        assert broker.metadata.broker_epoch == before.czxid

    run(tmp_path, test)


def test_a_removed_listener_is_closed_with_its_connections_and_others_stay(tmp_path: Path) -> None:
    async def test(broker: Broker) -> None:
        await alter(broker, EXTRA)
        port = broker.addresses["EXTRA"].port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        others = await asyncio.open_connection("127.0.0.1", broker.addresses["PLAINTEXT"].port)
        await eventually(lambda: len(broker.net.connections) == 2)
        assert await alter(broker, {"listeners": None}) == (NONE, "")
        assert await reader.read() == b""
        assert await refuses(port)
        await eventually(lambda: [connection.listener for connection in broker.net.connections] == ["PLAINTEXT"])
        assert await registered(broker) == [address_text(broker, "PLAINTEXT")]
        await eventually(lambda: list(broker.metadata.brokers[0].endpoints) == ["PLAINTEXT"])
        for opened in (writer, others[1]):
            opened.close()

    run(tmp_path, test)


def test_a_client_that_removes_its_own_listener_is_answered_before_its_connection_is_closed(tmp_path: Path) -> None:
    async def test(broker: Broker) -> None:
        await alter(broker, EXTRA)
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.addresses["EXTRA"].port)
        answer = await ask(reader, writer, alteration({"listeners": None}), IncrementalAlterConfigsResponse, 1)
        assert answer.responses[0].error_code == NONE
        assert await reader.read() == b""
        assert list(broker.addresses) == ["PLAINTEXT"]
        writer.close()

    run(tmp_path, test)


def test_a_new_listener_may_have_the_port_of_one_that_is_removed(tmp_path: Path) -> None:
    async def test(broker: Broker) -> None:
        await alter(broker, EXTRA)
        port = broker.addresses["EXTRA"].port
        assert await alter(broker, {"listeners": f"{BASE},MORE://127.0.0.1:{port}"}) == (NONE, "")
        assert list(broker.addresses) == ["PLAINTEXT", "MORE"]
        await eventually(lambda: "MORE" in broker.metadata.brokers[0].endpoints)
        assert await advertised_on(port) == [("127.0.0.1", port)]

    run(tmp_path, test)


def test_an_advertised_address_changes_without_the_listener(tmp_path: Path) -> None:
    async def test(broker: Broker) -> None:
        port = broker.addresses["PLAINTEXT"].port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await alter(broker, {"advertised.listeners": "PLAINTEXT://there.example:7"}) == (NONE, "")
        await eventually(lambda: broker.metadata.brokers[0].endpoints["PLAINTEXT"] == ("there.example", 7))
        assert await advertised_on(port) == [("there.example", 7)]
        assert await registered(broker) == ["PLAINTEXT://there.example:7"]
        assert not reader.at_eof()
        writer.close()

    run(tmp_path, test)


def test_a_new_listener_has_the_protection_of_the_same_request(tmp_path: Path) -> None:
    authority().issue("localhost").write(tmp_path / "server.pem")
    protected: Changes = {
        "listeners": f"{BASE},SSL://127.0.0.1:0",
        "listener.name.ssl.ssl.keystore.type": "PEM",
        "listener.name.ssl.ssl.keystore.location": str(tmp_path / "server.pem"),
    }

    async def test(broker: Broker) -> None:
        code, message = await alter(broker, {"listeners": protected["listeners"]})
        assert (code, "a listener with TLS has a key store" in message) == (INVALID_REQUEST, True)
        assert await alter(broker, protected) == (NONE, "")
        await eventually(lambda: "SSL" in broker.metadata.brokers[0].endpoints)
        port, context = broker.addresses["SSL"].port, ssl.create_default_context(cadata=authority().pem)
        assert await advertised_on(port, context) == [("127.0.0.1", port)]
        assert await alter(broker, dict.fromkeys(protected)) == (NONE, "")
        assert await refuses(port)
        assert broker.securities.by_listener == {}

    run(tmp_path, test)


def test_a_new_listener_takes_tokens_whose_keys_are_fetched_until_it_is_removed(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text('{"keys": []}')
    line = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
    handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
    prefix = "listener.name.tokens"
    protected: Changes = {
        "listeners": f"{BASE},TOKENS://127.0.0.1:0",
        "listener.security.protocol.map": f"{PROTOCOLS},TOKENS:SASL_PLAINTEXT",
        f"{prefix}.sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{prefix}.oauthbearer.sasl.jaas.config": line,
        f"{prefix}.oauthbearer.sasl.server.callback.handler.class": handler,
        f"{prefix}.sasl.oauthbearer.jwks.endpoint.url": (tmp_path / "keys.json").as_uri(),
        f"{prefix}.sasl.oauthbearer.expected.audience": "brokers",
    }

    def fetching() -> int:
        return sum(task.get_name().startswith("keys of") for task in asyncio.all_tasks())

    async def test(broker: Broker) -> None:
        assert await alter(broker, protected, only_check=True) == (NONE, "")
        assert fetching() == 0
        assert await alter(broker, protected) == (NONE, "")
        assert fetching() == 1
        assert await alter(broker, dict.fromkeys(protected)) == (NONE, "")
        assert fetching() == 0

    run(tmp_path, test, password__encoder__secret="encoder-secret", password__encoder__iterations="1024")


@pytest.mark.parametrize("removed", [False, True], ids=["added", "in place of another"])
def test_an_address_in_use_is_refused_by_host_and_port_and_changes_nothing(tmp_path: Path, removed: bool) -> None:
    async def test(broker: Broker) -> None:
        await alter(broker, EXTRA)
        before, addresses, node = broker.settings.current, dict(broker.addresses), await node_of(broker)
        async with occupied_port() as port:
            listeners = BASE if removed else EXTRA["listeners"]
            code, message = await alter(broker, {"listeners": f"{listeners},MORE://127.0.0.1:{port}"})
        assert (code, f"cannot listen on 127.0.0.1:{port} (MORE)" in message) == (INVALID_REQUEST, True)
        assert (broker.settings.current, broker.addresses, await node_of(broker)) == (before, addresses, node)

    run(tmp_path, test)


def test_an_address_that_is_taken_at_the_last_moment_leaves_all_listeners_and_connections_as_they_were(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(broker: Broker) -> None:
        await alter(broker, EXTRA)
        addresses, node = dict(broker.addresses), await node_of(broker)
        reader, writer = await asyncio.open_connection("127.0.0.1", addresses["EXTRA"].port)
        await eventually(lambda: len(broker.net.connections) == 1)
        async with occupied_port() as port:
            config = {"listeners": f"{BASE},SSL://127.0.0.1:0,MORE://127.0.0.1:{port}"}
            config |= {"listener.security.protocol.map": PROTOCOLS.replace("SSL:SSL", "SSL:PLAINTEXT")}
            await broker.cluster.alter_broker_config(lambda: config, of_all=False)  # as if another broker wrote it
        assert f"cannot listen on 127.0.0.1:{port} (MORE): Address already in use" in caplog.text
        assert (broker.addresses, await node_of(broker)) == (addresses, node)
        assert [connection.listener for connection in broker.net.connections] == ["EXTRA"]
        assert await advertised_on(addresses["EXTRA"].port) == [("127.0.0.1", addresses["EXTRA"].port)]
        assert not reader.at_eof()
        writer.close()

    run(tmp_path, test)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"listeners": "EXTRA://127.0.0.1:0"}, "must be the name of an advertised listener"),
        ({"listeners": f"{BASE},OTHER://127.0.0.1:0"}, "OTHER has no protocol"),
        ({"listener.security.protocol.map": "PLAINTEXT:SSL"}, "cannot change from PLAINTEXT to SSL while it is open"),
        ({"inter.broker.listener.name": "EXTRA"}, "cannot change while the broker runs"),
        ({"control.plane.listener.name": "EXTRA"}, "cannot change while the broker runs"),
    ],
)
def test_what_an_open_listener_cannot_follow_is_refused(tmp_path: Path, changes: Changes, error: str) -> None:
    async def test(broker: Broker) -> None:
        before = broker.settings.current
        for only_check in (True, False):
            code, message = await alter(broker, changes, only_check=only_check)
            assert (code, error in message) == (INVALID_REQUEST, True), message
        assert broker.settings.current is before

    run(tmp_path, test)


def test_listeners_hold_after_a_restart_and_a_request_that_replaces_all_settings_removes_them(tmp_path: Path) -> None:
    async def add(broker: Broker) -> None:
        assert await alter(broker, EXTRA) == (NONE, "")

    async def remove(broker: Broker) -> None:
        assert list(broker.addresses) == ["PLAINTEXT", "EXTRA"]
        resource = AlterConfigsRequest.AlterConfigsResource(resource_type=BROKER, resource_name="0", configs=[])
        request = AlterConfigsRequest(resources=[resource])
        (result,) = (await InMemoryClient(broker).send(request, AlterConfigsResponse, 2)).responses
        assert result.error_code == NONE, result
        assert list(broker.addresses) == ["PLAINTEXT"]

    run(tmp_path, add)
    run(tmp_path, remove)


def test_all_brokers_of_a_cluster_learn_of_a_new_listener_and_of_its_end(tmp_path: Path) -> None:
    def knows(broker: Broker, listeners: set[str]) -> bool:
        return broker.metadata.brokers[2].endpoints.keys() == listeners

    async def main() -> None:
        async with cluster_in_process(tmp_path, lambda id: SETTINGS | {"broker.id": str(id)}) as brokers:
            changed = brokers[2]
            before = await node_of(changed)
            for changes, listeners in ((EXTRA, {"PLAINTEXT", "EXTRA"}), ({"listeners": None}, {"PLAINTEXT"})):
                assert await alter(changed, changes) == (NONE, "")
                for broker in brokers:
                    await eventually(partial(knows, broker, listeners))
                assert (await node_of(changed)).czxid == before.czxid
            for broker in brokers:
                assert set(broker.metadata.brokers) == {0, 1, 2}

    asyncio.run(asyncio.wait_for(main(), 120))
