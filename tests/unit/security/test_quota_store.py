"""Quotas in the tree: written beside credentials, announced, deleted when empty, followed."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import pytest

from leadline.coordination import znodes
from leadline.coordination.membership import make_persistent_nodes
from leadline.coordination.tree import SessionState, Tree
from leadline.errors import InvalidRequest, NotController, UnknownServerError
from leadline.runtime.network import TcpNetwork
from leadline.runtime.ports import SystemTime
from leadline.security.client_quotas import DEFAULT, ClientQuotas, QuotaEntity, QuotaKind
from leadline.security.connection_rates import UNLIMITED, ConnectionRates
from leadline.security.quota_nodes import ConfigEntity, IpEntity, QuotaAlteration, altered
from leadline.security.quota_store import QuotaStore
from tests.support.waiting import eventually
from tests.unit.coordination.conftest import Run

PRODUCE = QuotaKind.PRODUCER_BYTE_RATE
PAIR = QuotaEntity("a/b c", "cl*1")


def a_store(tree: Tree) -> QuotaStore:
    return QuotaStore(tree, ClientQuotas(), ConnectionRates(["PLAINTEXT"], "PLAINTEXT"), SystemTime(), TcpNetwork())


def setting(entity: ConfigEntity, **values: float | None) -> Callable[[Mapping[str, str]], dict[str, str]]:
    changes = [QuotaAlteration(*change) for change in values.items()]
    return lambda config: altered(entity, config, changes)


async def alter(store: QuotaStore, entity: ConfigEntity, **values: float | None) -> None:
    await store.alter(entity, setting(entity, **values))


async def announced(tree: Tree) -> list[bytes]:
    nodes = [
        await tree.get(f"{znodes.CONFIG_CHANGES}/{name}") for name in await tree.children(znodes.CONFIG_CHANGES) or []
    ]
    return [node.data for node in nodes if node is not None]


def check(run: Run, tree: Tree, scenario: Callable[[QuotaStore], Awaitable[None]]) -> None:
    async def main() -> None:
        await make_persistent_nodes(tree)
        store = a_store(tree)
        async with asyncio.timeout(120):
            await store.start()
            await scenario(store)
            await store.stop()

    run(main())


def test_a_quota_is_written_announced_and_in_force(run: Run, tree: Tree) -> None:
    async def scenario(store: QuotaStore) -> None:
        await alter(store, PAIR, producer_byte_rate=1024)
        node = await tree.get("/config/users/a%2Fb%20c/clients/cl%2A1")
        parent = await tree.get("/config/users/a%2Fb%20c")
        assert node is not None
        assert parent is not None
        assert (node.data, parent.data) == (b'{"version":1,"config":{"producer_byte_rate":"1024"}}', b"")
        assert await announced(tree) == [b'{"version":2,"entity_path":"users/a%2Fb%20c/clients/cl%2A1"}']
        assert store.quotas.quotas(PAIR) == {PRODUCE: 1024}

    check(run, tree, scenario)


def test_quotas_keep_the_credentials_beside_them(run: Run, tree: Tree) -> None:
    async def scenario(store: QuotaStore) -> None:
        user = QuotaEntity("alice")
        await store.alter(user, lambda config: {**config, "SCRAM-SHA-256": "secret"})
        assert store.quotas.quotas(user) == {}
        assert store.quotas.are_enabled
        await alter(store, user, producer_byte_rate=5)
        assert await store.config(user) == {"SCRAM-SHA-256": "secret", "producer_byte_rate": "5"}
        await alter(store, user, producer_byte_rate=None)
        assert await store.config(user) == {"SCRAM-SHA-256": "secret"}

    check(run, tree, scenario)


def test_the_last_setting_takes_the_node_and_the_empty_ones_above_it_along(run: Run, tree: Tree) -> None:
    async def scenario(store: QuotaStore) -> None:
        await alter(store, PAIR, producer_byte_rate=1)
        await alter(store, QuotaEntity("a/b c", "other"), producer_byte_rate=1)
        await alter(store, PAIR, producer_byte_rate=None)
        assert await tree.children("/config/users/a%2Fb%20c/clients") == ["other"]
        await alter(store, QuotaEntity("a/b c", "other"), producer_byte_rate=None)
        assert await tree.children("/config/users") == []
        assert len(await announced(tree)) == 4
        assert store.quotas.quotas(PAIR) == {}

    check(run, tree, scenario)


def test_a_user_with_settings_of_its_own_stays_when_its_last_client_goes(run: Run, tree: Tree) -> None:
    async def scenario(store: QuotaStore) -> None:
        await alter(store, QuotaEntity("a/b c"), producer_byte_rate=2)
        await alter(store, PAIR, producer_byte_rate=1)
        await alter(store, PAIR, producer_byte_rate=None)
        assert await tree.children("/config/users/a%2Fb%20c") == []
        assert await store.config(QuotaEntity("a/b c")) == {"producer_byte_rate": "2"}

    check(run, tree, scenario)


def test_a_user_whose_clients_have_settings_stays_without_any(run: Run, tree: Tree) -> None:
    async def scenario(store: QuotaStore) -> None:
        await alter(store, PAIR, producer_byte_rate=1)
        await alter(store, QuotaEntity("a/b c"), producer_byte_rate=2)
        await alter(store, QuotaEntity("a/b c"), producer_byte_rate=None)
        node = await tree.get("/config/users/a%2Fb%20c")
        assert node is not None
        assert node.data == b'{"version":1,"config":{}}'
        await alter(store, PAIR, producer_byte_rate=None)
        assert await tree.children("/config/users") == []

    check(run, tree, scenario)


def test_removing_a_missing_entry_is_announced_and_nothing_else(run: Run, tree: Tree) -> None:
    async def scenario(store: QuotaStore) -> None:
        await alter(store, PAIR, producer_byte_rate=None)
        assert await tree.children("/config/users") == []
        assert len(await announced(tree)) == 1

    check(run, tree, scenario)


def test_a_refused_change_writes_nothing(run: Run, tree: Tree) -> None:
    async def scenario(store: QuotaStore) -> None:
        with pytest.raises(InvalidRequest):
            await alter(store, PAIR, producer_byte_rate=1.5)
        assert await announced(tree) == []
        assert await tree.children("/config/users") == []

    check(run, tree, scenario)


def test_rates_of_addresses_reach_the_acceptor(run: Run, tree: Tree) -> None:
    async def scenario(store: QuotaStore) -> None:
        rates = store.connection_rates
        await alter(store, IpEntity("127.0.0.7"), connection_creation_rate=100)
        await alter(store, IpEntity("::1"), connection_creation_rate=3)
        await alter(store, IpEntity(DEFAULT), connection_creation_rate=7)
        assert rates.address_limits == {"127.0.0.7": 100, "0:0:0:0:0:0:0:1": 3}
        assert rates.default_address_limit == 7
        await alter(store, IpEntity("127.0.0.7"), connection_creation_rate=None)
        await alter(store, IpEntity(DEFAULT), connection_creation_rate=None)
        assert "127.0.0.7" not in rates.address_limits
        assert rates.default_address_limit == UNLIMITED
        assert await tree.children("/config/ips") == ["::1"]

    check(run, tree, scenario)


def test_another_broker_loads_follows_and_catches_up(run: Run, tree: Tree) -> None:
    async def scenario(store: QuotaStore) -> None:
        await alter(store, PAIR, producer_byte_rate=1)
        await alter(store, QuotaEntity(None, DEFAULT), consumer_byte_rate=2)
        await alter(store, IpEntity("10.0.0.1"), connection_creation_rate=3)
        other = a_store(tree)
        await other.start()
        assert other.quotas.quotas(PAIR) == {PRODUCE: 1}
        assert other.quotas.quotas(QuotaEntity(None, DEFAULT)) == {QuotaKind.CONSUMER_BYTE_RATE: 2}
        assert other.connection_rates.address_limits == {"10.0.0.1": 3}
        await alter(store, PAIR, producer_byte_rate=9)
        await eventually(lambda: other.quotas.quotas(PAIR) == {PRODUCE: 9})
        await alter(store, PAIR, producer_byte_rate=None)
        await eventually(lambda: other.quotas.quotas(PAIR) == {})
        await other.stop()

    check(run, tree, scenario)


def test_lost_notifications_are_made_up_for_once_the_connection_is_back(run: Run, tree: Tree) -> None:
    async def scenario(store: QuotaStore) -> None:
        await alter(store, QuotaEntity("u"), producer_byte_rate=1)
        await alter(store, QuotaEntity(None, "c"), producer_byte_rate=2)
        await tree.set("/config/users/u", znodes.encode_config({"producer_byte_rate": "5"}))
        await tree.delete("/config/clients/c")
        store._changes._notifications._session(SessionState.CONNECTED)
        await eventually(lambda: store.quotas.quotas(QuotaEntity("u")) == {PRODUCE: 5})
        await eventually(lambda: store.quotas.quotas(QuotaEntity(None, "c")) == {})

    check(run, tree, scenario)


def test_credentials_in_the_nodes_reach_their_listeners(run: Run, tree: Tree) -> None:
    async def scenario(store: QuotaStore) -> None:
        credentials = dict[ConfigEntity, str | None]()
        store.on_change.append(lambda entity, config: credentials.update({entity: config.get("SCRAM-SHA-256")}))
        user = QuotaEntity("alice")
        await store.alter(user, lambda config: {**config, "SCRAM-SHA-256": "secret"})
        assert credentials == {user: "secret"}
        await store.alter(user, lambda config: {})
        assert credentials == {user: None}

    check(run, tree, scenario)


def test_a_node_that_cannot_be_read_leaves_quotas_in_force(run: Run, tree: Tree) -> None:
    async def scenario(store: QuotaStore) -> None:
        user, other = QuotaEntity("u"), QuotaEntity("other")
        await alter(store, user, producer_byte_rate=1)
        for data in (b"no JSON", znodes.encode_config({"producer_byte_rate": "many"})):
            await tree.set("/config/users/u", data)
            for change in (
                b"what?",
                b'{"version":2,"entity_path":"users/u"}',
                b'{"version":2,"entity_path":"topics/t"}',
            ):
                await tree.create(znodes.CONFIG_CHANGE, change, sequential=True)
        await tree.create("/config/users/other", znodes.encode_config({"producer_byte_rate": "7"}))
        await tree.create(znodes.CONFIG_CHANGE, b'{"version":2,"entity_path":"users/other"}', sequential=True)
        await eventually(lambda: store.quotas.quotas(other) == {PRODUCE: 7})
        assert store.quotas.quotas(user) == {PRODUCE: 1}

    check(run, tree, scenario)


def test_changes_at_once_all_count(run: Run, tree: Tree) -> None:
    async def scenario(store: QuotaStore) -> None:
        user, others = QuotaEntity("u"), a_store(tree)
        changes = [
            alter(store, user, producer_byte_rate=1),
            others.alter(user, lambda config: {**config, "SCRAM-SHA-256": "secret"}),
            alter(others, user, request_percentage=2),
            alter(store, user, controller_mutation_rate=3),
        ]
        await asyncio.gather(*changes)
        names = ["SCRAM-SHA-256", "controller_mutation_rate", "producer_byte_rate", "request_percentage"]
        assert sorted(await store.config(user)) == names

    check(run, tree, scenario)


@pytest.mark.parametrize("name", [".", ".."])
def test_a_name_that_no_node_can_have_is_refused(run: Run, tree: Tree, name: str) -> None:
    async def scenario(store: QuotaStore) -> None:
        for entity in (QuotaEntity(name), QuotaEntity("u", name), QuotaEntity(None, name)):
            with pytest.raises(UnknownServerError):
                await alter(store, entity, producer_byte_rate=1)
        assert await announced(tree) == []

    check(run, tree, scenario)


def test_during_a_migration_to_kraft_nothing_is_written(run: Run, tree: Tree) -> None:
    async def scenario(store: QuotaStore) -> None:
        controller = znodes.ControllerNode(3000, 1, kraft_epoch=1)
        await tree.create(znodes.CONTROLLER, znodes.encode_controller(controller))
        with pytest.raises(NotController):
            await alter(store, PAIR, producer_byte_rate=1)
        await tree.set(znodes.CONTROLLER, znodes.encode_controller(controller._replace(kraft_epoch=-1)))
        await alter(store, PAIR, producer_byte_rate=1)

    check(run, tree, scenario)
