"""Stores and passwords that change while a broker runs, by requests as kafka-configs sends them."""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from leadline.broker.broker import Broker
from leadline.broker.ports import Ports
from leadline.cluster.dynamic_configs import BROKERS
from leadline.config.broker import broker_settings
from leadline.config.values import InvalidSetting
from leadline.coordination import znodes
from leadline.security.dynamic_passwords import DynamicPasswords
from leadline.wire.messages import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.support.certificates import Identity, authority
from tests.support.in_memory_broker import InMemoryClient

BROKER, SET = 4, 0
NONE, INVALID_CONFIG, INVALID_REQUEST = 0, 40, 42
LISTENER = "listener.name.ssl.ssl."
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
JAAS = "listener.name.sasl_plaintext.plain.sasl.jaas.config"


def settings_of(tmp_path: Path, **settings: str) -> dict[str, str]:
    (tmp_path / "ca.pem").write_text(authority().pem)
    authority().issue("localhost").write(tmp_path / "server.pem")
    return {
        "broker.id": "0",
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        JAAS: f"{PLAIN} user_alice=wonderland;",
        "log.dirs": str(tmp_path / "data"),
        "ssl.keystore.type": "PEM",
        "ssl.truststore.type": "PEM",
        "ssl.keystore.location": str(tmp_path / "server.pem"),
        "ssl.truststore.location": str(tmp_path / "ca.pem"),
        "password.encoder.secret": "encoder-secret",
        "password.encoder.iterations": "1024",
    } | {name.replace("__", "."): text for name, text in settings.items()}


@asynccontextmanager
async def running(properties: dict[str, str]) -> AsyncIterator[Broker]:
    broker = Broker(broker_settings(properties), Ports())
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


async def shown(broker: Broker) -> bytes:
    """The certificate that a new connection gets."""
    context = ssl.create_default_context(cadata=authority().pem)
    port = broker.addresses["SSL"].port
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
    certificate: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return certificate


async def alter(
    broker: Broker, configs: dict[str, str], name: str = "0", *, only_check: bool = False
) -> tuple[int, str]:
    entries = [
        IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=SET, value=text)
        for key, text in configs.items()
    ]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=BROKER, resource_name=name, configs=entries
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=only_check)
    (result,) = (await InMemoryClient(broker).send(request, IncrementalAlterConfigsResponse, 1)).responses
    return result.error_code, result.error_message or ""


async def stored(broker: Broker) -> dict[str, str]:
    path = znodes.config_path(BROKERS, "0")
    node = await broker.tree.get(path)
    return {} if node is None else znodes.decode_config(path, node.data)


def der(identity: Identity) -> bytes:
    return ssl.PEM_cert_to_DER_cert(identity.certificate_pem)


def test_another_key_store_is_in_force_for_new_connections_and_after_a_restart(tmp_path: Path) -> None:
    properties, successor = settings_of(tmp_path), authority().issue("localhost")
    successor.write(tmp_path / "successor.pem")

    async def main() -> None:
        async with running(properties) as broker:
            assert await alter(broker, {f"{LISTENER}keystore.location": str(tmp_path / "successor.pem")}) == (NONE, "")
            assert await shown(broker) == der(successor)
        async with running(properties) as broker:
            assert await shown(broker) == der(successor)

    asyncio.run(main())


def test_a_key_within_the_settings_is_encoded_in_the_tree_and_never_shown(tmp_path: Path) -> None:
    properties, successor = settings_of(tmp_path), authority().issue("localhost")
    del properties["ssl.keystore.location"]
    static = {f"{LISTENER}keystore.location": str(tmp_path / "server.pem")}
    pem = {
        f"{LISTENER}keystore.key": successor.key_pem(),
        f"{LISTENER}keystore.certificate.chain": successor.certificate_pem,
    }

    async def main() -> None:
        async with running(properties | static) as broker:
            code, message = await alter(broker, pem)
            assert (code, "Both SSL key store location and" in message) == (INVALID_REQUEST, True)
        first = authority().issue("localhost")
        inline = dict(zip(pem, (first.key_pem(), first.certificate_pem), strict=True))
        async with running(properties | inline) as broker:
            assert await shown(broker) == der(first)
            assert await alter(broker, pem) == (NONE, "")
            assert await shown(broker) == der(successor)
            config = await stored(broker)
            assert all(text.startswith("initializationVector:") for text in config.values())
            assert "BEGIN" not in str(config)
            names = [DescribeConfigsRequest.DescribeConfigsResource(resource_type=BROKER, resource_name="0")]
            request = DescribeConfigsRequest(resources=names, include_synonyms=True)
            (result,) = (await InMemoryClient(broker).send(request, DescribeConfigsResponse, 4)).results
            entries = {entry.name: entry for entry in result.configs}
            for name in pem:
                assert (entries[name].value, entries[name].is_sensitive, entries[name].config_source) == (None, True, 2)
                assert [synonym.value for synonym in entries[name].synonyms] == [None, None]
            assert "BEGIN" not in repr(result)

    asyncio.run(main())


def test_the_same_file_is_read_again_when_a_setting_of_the_broker_is_set(tmp_path: Path) -> None:
    properties, successor = settings_of(tmp_path), authority().issue("localhost")

    async def main() -> None:
        async with running(properties) as broker:
            before = await shown(broker)
            same = {f"{LISTENER}keystore.location": str(tmp_path / "server.pem")}
            assert await alter(broker, same) == (NONE, "")
            successor.write(tmp_path / "server.pem")
            assert await alter(broker, same, only_check=True) == (NONE, "")
            assert await alter(broker, {"log.retention.ms": "77"}, name="") == (NONE, "")
            assert await shown(broker) == before
            assert await alter(broker, same) == (NONE, "")
            assert await shown(broker) == der(successor)

    asyncio.run(main())


@pytest.mark.parametrize("is_named", [True, False], ids=["another file", "the same file"])
@pytest.mark.parametrize(
    ("name", "message"),
    [("another", "Keystore DistinguishedName does not match"), (None, "Failed to load SSL keystore")],
)
def test_a_key_store_that_does_not_fit_is_refused_and_the_old_one_stays(
    tmp_path: Path, name: str | None, message: str, is_named: bool
) -> None:
    properties = settings_of(tmp_path)
    path = tmp_path / ("successor.pem" if is_named else "server.pem")

    async def main() -> None:
        async with running(properties) as broker:
            before = await shown(broker)
            path.write_text("no key") if name is None else authority().issue(name).write(path)
            code, text = await alter(broker, {f"{LISTENER}keystore.location": str(path)})
            assert code == (INVALID_REQUEST if is_named else INVALID_CONFIG)
            assert message in text
            assert await alter(broker, {"log.retention.ms": "77"}, name="") == (NONE, "")
            assert await shown(broker) == before
            assert await stored(broker) == {}

    asyncio.run(main())


def test_a_file_that_is_gone_does_not_keep_other_settings_from_changing(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(settings_of(tmp_path)) as broker:
            before = await shown(broker)
            (tmp_path / "server.pem").unlink()
            assert await alter(broker, {"max.connections": "77"}) == (NONE, "")
            assert await shown(broker) == before

    asyncio.run(main())


def test_passwords_are_refused_without_a_secret_and_for_all_brokers(tmp_path: Path) -> None:
    properties = settings_of(tmp_path)
    del properties["password.encoder.secret"]
    line = {JAAS: f"{PLAIN} user_bob=builder-pass;"}

    async def main() -> None:
        async with running(properties) as broker:
            assert await alter(broker, line, only_check=True) == (NONE, "")
            assert await alter(broker, line) == (INVALID_CONFIG, "Password encoder secret not configured")
            code, message = await alter(broker, line, name="")
            assert (code, "builder-pass" in message) == (INVALID_REQUEST, False)
            code, message = await alter(broker, {"password.encoder.secret": "hush"})
            assert (code, "hush" in message) == (INVALID_REQUEST, False)
            assert await stored(broker) == {}

    asyncio.run(main())


def test_the_users_of_a_login_module_change_with_the_next_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As in Kafka: on a listener that is there, only its stores change while the broker runs."""
    properties = settings_of(tmp_path)

    async def main() -> None:
        async with running(properties) as broker:
            before = broker.securities.by_listener["SASL_PLAINTEXT"].sasl
            assert await alter(broker, {JAAS: f"{PLAIN} user_bob=builder-pass;"}) == (NONE, "")
            assert broker.securities.by_listener["SASL_PLAINTEXT"].sasl is before
        async with running(properties) as broker:
            assert "user_bob" in broker.settings.current.properties[JAAS]
            assert "user_bob" not in str(await stored(broker))

    asyncio.run(main())
    assert "builder-pass" not in caplog.text


@pytest.mark.parametrize(
    "line",
    [
        "com.sun.security.auth.module.JndiLoginModule required user.provider.url=ldap;",
        "no-module",
        f"{PLAIN} user_a=1;",
    ],
)
def test_a_login_module_that_is_not_accepted_is_refused(tmp_path: Path, line: str) -> None:
    async def main() -> None:
        async with running(settings_of(tmp_path)) as broker:
            code, message = await alter(broker, {JAAS: line})
            assert code == INVALID_CONFIG
            assert f"{JAAS}=[hidden]" in message
            assert await stored(broker) == {}

    asyncio.run(main())


def test_what_a_tool_wrote_before_the_start_holds_and_an_old_secret_is_replaced(tmp_path: Path) -> None:
    properties = settings_of(tmp_path)
    inline = authority().issue("localhost")
    for name in ("ssl.keystore.location", "ssl.keystore.type"):
        del properties[name]
    written = {
        f"{LISTENER}keystore.type": "PEM",
        f"{LISTENER}keystore.key": inline.key_pem(),
        f"{LISTENER}keystore.certificate.chain": inline.certificate_pem,
    }
    earlier = broker_settings(properties | {"password.encoder.secret": "old"}).broker
    old = DynamicPasswords.of(earlier, os.urandom)

    async def main() -> None:
        with pytest.raises(InvalidSetting, match="a listener with TLS has a key store"):
            async with running(properties):
                pass
        async with running({**properties, "listeners": "PLAINTEXT://127.0.0.1:0"}) as broker:
            data = znodes.encode_config(old.encoded(written, of_all=False))
            await broker.tree.create(znodes.config_path(BROKERS, "0"), data, make_parents=True)
        async with running(properties | {"password.encoder.old.secret": "old"}) as broker:
            assert await shown(broker) == der(inline)
        async with running(properties) as broker:
            assert await shown(broker) == der(inline)

    asyncio.run(main())


def test_listeners_that_were_set_before_the_start_are_opened(tmp_path: Path) -> None:
    """By a tool that writes to the tree while no broker runs."""
    properties = settings_of(tmp_path)
    written = {
        "listeners": "PLAINTEXT://127.0.0.1:0,EXTRA://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EXTRA:PLAINTEXT",
    }

    async def main() -> None:
        async with running(properties) as broker:
            await broker.tree.create(znodes.config_path(BROKERS, "0"), znodes.encode_config(written), make_parents=True)
        async with running(properties) as broker:
            assert list(broker.addresses) == ["PLAINTEXT", "EXTRA"]

    asyncio.run(main())


def test_a_password_that_cannot_be_decoded_is_named_and_the_broker_starts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    properties = settings_of(tmp_path)

    async def main() -> None:
        async with running(properties) as broker:
            assert await alter(broker, {JAAS: f"{PLAIN} user_bob=builder-pass;"}) == (NONE, "")
        async with running(properties | {"password.encoder.secret": "another"}) as broker:
            assert "user_alice" in broker.settings.current.properties[JAAS]

    asyncio.run(main())
    assert f"{JAAS} of brokers 0 cannot be decoded with password.encoder.secret" in caplog.text
