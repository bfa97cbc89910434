"""A broker follows what others write into the tree, even if no notification says so: its checks notice it."""

from collections.abc import Awaitable, Callable

import pytest

from leadline.broker.broker import Broker
from leadline.coordination import change_notifications, znodes
from leadline.coordination.embedded import EmbeddedTree
from leadline.security import delegation_tokens
from leadline.security.client_quotas import QuotaEntity, QuotaKind
from leadline.security.delegation_tokens import TokenLifetimes, new_token
from leadline.security.principal import Principal
from leadline.security.scram_credentials import ScramMechanism, credential_of_password, credential_text
from leadline.security.secret import Secret
from tests.support.in_memory_broker import InMemoryClient, run
from tests.support.waiting import eventually

ALICE, SCRAM = Principal("User", "alice"), ScramMechanism.SCRAM_SHA_512
LIFETIMES = TokenLifetimes(max_lifetime_ms=3_600_000, expiry_time_ms=3_600_000)


@pytest.fixture(autouse=True)
def checks_are_frequent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_notifications, "CHECK_MS", 5)
    monkeypatch.setattr(EmbeddedTree, "is_shared", True)


def run_on_broker(test: Callable[[Broker], Awaitable[None]]) -> None:
    async def main(client: InMemoryClient) -> None:
        await client.create("t")
        await test(client.broker)

    run(main, delegation_token_secret_key="key")


def test_quotas_and_scram_users_follow_their_node() -> None:
    async def test(broker: Broker) -> None:
        services, path = broker.services, znodes.config_path("users", "alice")
        credential = credential_of_password(SCRAM, Secret.of("secret"), b"salt", 4096)
        config = {"producer_byte_rate": "1024", SCRAM.mechanism_name: credential_text(credential)}
        await broker.tree.create(path, znodes.encode_config(config), make_parents=True)
        await eventually(lambda: services.scram_users.credential_of(SCRAM, "alice") == credential)
        assert services.quotas.quotas(QuotaEntity("alice")) == {QuotaKind.PRODUCER_BYTE_RATE: 1024.0}
        await broker.tree.delete(path)
        await eventually(lambda: services.scram_users.credential_of(SCRAM, "alice") is None)
        assert services.quotas.quotas(QuotaEntity("alice")) == {}

    run_on_broker(test)


@pytest.mark.parametrize("of_all", [True, False])
def test_a_broker_follows_its_dynamic_settings(of_all: bool) -> None:
    async def test(broker: Broker) -> None:
        path = znodes.config_path("brokers", znodes.DEFAULT_ENTITY if of_all else str(broker.configs.me))
        data = znodes.encode_config({"log.cleaner.threads": "3"})
        await broker.tree.create(path, data, make_parents=True)
        await eventually(lambda: broker.settings.broker.log_cleaner_threads == 3)

    run_on_broker(test)


def test_a_topic_follows_its_settings() -> None:
    async def test(broker: Broker) -> None:
        await broker.tree.set(znodes.config_path("topics", "t"), znodes.encode_config({"retention.ms": "7"}))
        await eventually(lambda: broker.configs.topics["t"] == {"retention.ms": "7"})

    run_on_broker(test)


def test_tokens_follow_their_nodes() -> None:
    async def test(broker: Broker) -> None:
        tokens = broker.services.tokens
        assert tokens is not None
        token = new_token("some-id", ALICE, ALICE, [], -1, LIFETIMES, broker.clock.now_ms())
        await broker.tree.create(delegation_tokens.token_path(token.id), delegation_tokens.encode_token(token))
        await eventually(lambda: tokens.cache.get(token.id) == token)
        await broker.tree.delete(delegation_tokens.token_path(token.id))
        await eventually(lambda: tokens.cache.get(token.id) is None)

    run_on_broker(test)
