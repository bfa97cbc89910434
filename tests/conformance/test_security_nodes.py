"""The nodes of ACLs, quotas, users and delegation tokens: Kafka's tools write them and our code reads them, and back.

One broker for all. Our stores do what the tools did, below a path of their own; the trees must then be the same.
"""

import asyncio
import base64
import importlib
import importlib.util
import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest

from leadline.coordination import znodes
from leadline.coordination.membership import make_persistent_nodes
from leadline.coordination.tree import Tree
from leadline.coordination.zookeeper.client import ZooKeeperTree
from leadline.runtime.network import TcpNetwork
from leadline.runtime.ports import SystemTime
from leadline.security import acl_nodes, delegation_tokens
from leadline.security.acl_store import AclStore
from leadline.security.acls import (
    AccessControlEntry,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)
from leadline.security.authorizer import Authorizer
from leadline.security.client_quotas import DEFAULT, ClientQuotas, QuotaEntity, QuotaKind
from leadline.security.connection_rates import ConnectionRates
from leadline.security.delegation_tokens import TokenLifetimes
from leadline.security.principal import Principal
from leadline.security.quota_nodes import ConfigEntity, IpEntity, QuotaAlteration, altered, entity_of, entity_path
from leadline.security.quota_store import QuotaStore
from leadline.security.scram_credentials import credential_text, parse_credential
from leadline.security.secret import Secret
from leadline.security.token_store import TokenStore
from tests.conformance.kafka.broker import ZooKeeper, zookeeper
from tests.conformance.kafka.secured import LOGIN, PASSWORDS, SECRET_KEY, SecuredBroker, secured_broker
from tests.conformance.kafka.tools import tool
from tests.support.chance import SeededChance
from tests.support.waiting import until

pytestmark = pytest.mark.conformance

T = TypeVar("T")
Nodes = dict[str, bytes | None]  # None: null
DAY_MS = 86_400_000
STRANGE = 'User:CN=ümlaut "x"\\,O=é'
UPDATES_S = 60


class Kafka(NamedTuple):
    zookeeper: ZooKeeper
    broker: SecuredBroker
    login: Path  # for tools, as alice

    def acls(self, *arguments: str) -> str:
        return tool("acls", "--bootstrap-server", self.broker.bootstrap, *arguments)

    def configs(self, *arguments: str) -> str:
        return tool("configs", "--bootstrap-server", self.broker.bootstrap, *arguments)

    def tokens(self, *arguments: str) -> str:
        users = f"127.0.0.1:{self.broker.users_port}"
        return tool("delegation-tokens", "--bootstrap-server", users, "--command-config", self.login, *arguments)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    directory = tmp_path_factory.mktemp("nodes")
    login = directory / "alice.properties"
    module = f'{LOGIN}.plain.PlainLoginModule required username="alice" password="{PASSWORDS["alice"]}";'
    login.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={module}\n", encoding="utf-8"
    )
    with zookeeper(directory / "zk") as zk, secured_broker(directory / "broker", zk, {}) as broker:
        yield Kafka(zk, broker, login)


def read_all(connect: str, below: str, chroot: str = "") -> Nodes:
    """Each node whose path matches, and its data."""
    client: Any = importlib.import_module("kazoo.client").KazooClient(connect)
    client.start()
    nodes: Nodes = {}

    def read(path: str) -> None:
        if re.match(f"({below})(/|$)", path):
            nodes[path] = client.get(f"{chroot}{path}")[0]
        for name in client.get_children(f"{chroot}{path}" or "/"):
            if name not in ("zookeeper", "ours"):
                read(f"{path}/{name}")

    try:
        read("")
    finally:
        client.stop()
        client.close()
    return nodes


def with_tree(connect: str, use: Callable[[Tree], Awaitable[T]]) -> T:
    async def main() -> T:
        tree = await ZooKeeperTree.open(
            connect, session_timeout_ms=20_000, connection_timeout_ms=60_000, max_in_flight=10
        )
        try:
            return await use(tree)
        finally:
            await tree.close()

    return asyncio.run(main())


# ACLs

READ = AccessControlEntry("User:alice", "*", AclOperation.READ, AclPermission.ALLOW)
KAFKAS = [  # what the tool is told, and what that means
    (("--allow-principal", "User:alice", "--operation", "Read", "--topic", "one"),
     AclBinding(ResourcePattern(ResourceType.TOPIC, "one"), READ)),
    (("--allow-principal", "User:alice", "--operation", "Read", "--topic", "two"),
     AclBinding(ResourcePattern(ResourceType.TOPIC, "two"), READ)),
    (("--deny-principal", "User:bob", "--deny-host", "127.0.0.1", "--operation", "DescribeConfigs", "--topic", "two"),
     AclBinding(ResourcePattern(ResourceType.TOPIC, "two"),
                AccessControlEntry("User:bob", "127.0.0.1", AclOperation.DESCRIBE_CONFIGS, AclPermission.DENY))),
    (("--allow-principal", "User:alice", "--operation", "IdempotentWrite", "--cluster"),
     AclBinding(ResourcePattern(ResourceType.CLUSTER, "kafka-cluster"),
                READ._replace(operation=AclOperation.IDEMPOTENT_WRITE))),
    (("--allow-principal", STRANGE, "--operation", "All", "--topic", "pre-", "--resource-pattern-type", "prefixed"),
     AclBinding(ResourcePattern(ResourceType.TOPIC, "pre-", PatternType.PREFIXED),
                AccessControlEntry(STRANGE, "*", AclOperation.ALL, AclPermission.ALLOW))),
    (("--allow-principal", "User:*", "--operation", "Describe", "--transactional-id", "tx",
      "--resource-pattern-type", "prefixed"),
     AclBinding(ResourcePattern(ResourceType.TRANSACTIONAL_ID, "tx", PatternType.PREFIXED),
                AccessControlEntry("User:*", "*", AclOperation.DESCRIBE, AclPermission.ALLOW))),
    (("--allow-principal", "User:alice", "--operation", "Read", "--group", "*"),
     AclBinding(ResourcePattern(ResourceType.GROUP, "*"), READ)),
    (("--allow-principal", "User:alice", "--operation", "Describe", "--delegation-token", "abc"),
     AclBinding(ResourcePattern(ResourceType.DELEGATION_TOKEN, "abc"), READ._replace(operation=AclOperation.DESCRIBE))),
    (("--allow-principal", "User:alice", "--operation", "CreateTokens", "--user-principal", "User:bob"),
     AclBinding(ResourcePattern(ResourceType.USER, "User:bob"), READ._replace(operation=AclOperation.CREATE_TOKENS))),
]  # fmt: skip


def of_acls(path: str, data: bytes | None) -> bytes | None:
    """What we would have written."""
    if data is None:
        return None
    if re.match(r"/kafka-acl(-extended)?-changes/", path):
        return acl_nodes.encode_change(acl_nodes.decode_change(path, data))
    return acl_nodes.encode_acls(acl_nodes.decode_acls(path, data))


def test_acls_that_kafkas_tool_wrote_are_ours_byte_for_byte(kafka: Kafka) -> None:
    acls = "/kafka-acl|/kafka-acl-extended|/kafka-acl-changes|/kafka-acl-extended-changes"
    for arguments, _ in KAFKAS:
        kafka.acls("--add", "--force", *arguments)
    kafka.acls("--remove", "--force", *KAFKAS[0][0])  # the last of its node
    theirs = read_all(kafka.zookeeper.connect, acls)
    assert {path: of_acls(path, data) for path, data in theirs.items()} == theirs
    assert sum(data is not None for data in theirs.values()) == 7 + len(KAFKAS) + 1

    async def ours(tree: Tree) -> None:
        store = AclStore(tree, Authorizer(), SystemTime(), SeededChance())
        await store.start()
        for _, binding in KAFKAS:
            assert await store.create([binding]) == [None]
        pattern = KAFKAS[0][1].pattern
        ((deleted, error),) = (await store.delete([AclBindingFilter(ResourcePatternFilter(*pattern))]))[0]
        assert (deleted, error) == (KAFKAS[0][1], None)
        await store.stop()

    with_tree(f"{kafka.zookeeper.connect}/ours", ours)
    assert read_all(kafka.zookeeper.connect, acls, "/ours") == theirs


def test_a_store_of_ours_loads_kafkas_acls_and_kafkas_tool_lists_ours(kafka: Kafka) -> None:
    created = AclBinding(ResourcePattern(ResourceType.TOPIC, "our-", PatternType.PREFIXED), READ)

    async def ours(tree: Tree) -> list[AclBinding]:
        store = AclStore(tree, Authorizer(), SystemTime(), SeededChance())
        await store.start()
        loaded = store.authorizer.bindings(AclBindingFilter())
        assert await store.create([created]) == [None]
        await store.stop()
        return loaded

    loaded = with_tree(kafka.zookeeper.connect, ours)
    assert set(loaded) >= {binding for _, binding in KAFKAS[1:]}
    expected = (
        "Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=our-, patternType=PREFIXED)`",
        "(principal=User:alice, host=*, operation=READ, permissionType=ALLOW)",
    )

    def is_listed() -> bool:
        text = kafka.acls("--list", "--topic", "our-", "--resource-pattern-type", "prefixed")
        return all(line in text for line in expected)

    until(is_listed, expected, UPDATES_S)


# Quotas and users

QUOTAS: list[tuple[ConfigEntity, tuple[str, ...], dict[str, float]]] = [
    (QuotaEntity("alice"), ("users", "alice"), {"producer_byte_rate": 1024, "request_percentage": 50.5}),
    (QuotaEntity("alice"), ("users", "alice"), {"consumer_byte_rate": 2048, "controller_mutation_rate": 10}),
    (QuotaEntity("a/b c", "cl*1"), ("users", "a/b c", "clients", "cl*1"), {"producer_byte_rate": 1024}),
    (QuotaEntity(DEFAULT, DEFAULT), ("users", "", "clients", ""), {"producer_byte_rate": 999}),
    (QuotaEntity(None, DEFAULT), ("clients", ""), {"consumer_byte_rate": 5}),
    (QuotaEntity(None, "c~é"), ("clients", "c~é"), {"request_percentage": 1e7}),
    (IpEntity("127.0.0.7"), ("ips", "127.0.0.7"), {"connection_creation_rate": 100}),
    (IpEntity(DEFAULT), ("ips", ""), {"connection_creation_rate": 3000}),
    (QuotaEntity("gone", "too"), ("users", "gone", "clients", "too"), {"producer_byte_rate": 1}),
    (QuotaEntity("stays"), ("users", "stays"), {"producer_byte_rate": 1}),
    (QuotaEntity("stays", "too"), ("users", "stays", "clients", "too"), {"producer_byte_rate": 1}),
]
REMOVED = [QUOTAS[8], QUOTAS[9]]  # a node and the empty ones above it; one that has children


def entity_arguments(steps: tuple[str, ...]) -> Iterator[str]:
    for kind, name in zip(steps[::2], steps[1::2], strict=True):
        yield from ("--entity-type", kind)
        yield from ("--entity-name", name) if name else ("--entity-default",)


def written(value: float) -> str:
    return f"{value:g}" if value < 1e6 else repr(value)


def test_quotas_that_kafkas_tool_wrote_are_ours_byte_for_byte(kafka: Kafka) -> None:
    configs = "/config/users|/config/clients|/config/ips|/config/changes"
    before = read_all(kafka.zookeeper.connect, "/config/changes")
    assert set(before) == {"/config/changes"}
    for _, steps, values in QUOTAS:
        limits = ",".join(f"{name}={written(value)}" for name, value in values.items())
        kafka.configs("--alter", *entity_arguments(steps), "--add-config", limits)
    for _, steps, values in REMOVED:
        kafka.configs("--alter", *entity_arguments(steps), "--delete-config", ",".join(values))
    theirs = read_all(kafka.zookeeper.connect, configs)
    assert "/config/users/gone" not in theirs
    assert theirs["/config/users/stays"] == b'{"version":1,"config":{}}'

    async def ours(tree: Tree) -> None:
        await make_persistent_nodes(tree)
        store = QuotaStore(
            tree, ClientQuotas(), ConnectionRates(["PLAINTEXT"], "PLAINTEXT"), SystemTime(), TcpNetwork()
        )
        for entity, _, values in QUOTAS:
            changes = [QuotaAlteration(*change) for change in values.items()]
            await store.alter(entity, lambda config, e=entity, c=changes: altered(e, config, c))  # type: ignore[misc]
        for entity, _, values in REMOVED:
            changes = [QuotaAlteration(name, None) for name in values]
            await store.alter(entity, lambda config, e=entity, c=changes: altered(e, config, c))  # type: ignore[misc]

    with_tree(f"{kafka.zookeeper.connect}/ours", ours)
    assert read_all(kafka.zookeeper.connect, configs, "/ours") == theirs
    for path in theirs:
        if entity := entity_of(path.removeprefix("/config/")):
            assert f"/config/{entity_path(entity)}" == path


def test_quotas_keep_kafkas_credentials_and_kafkas_tool_describes_ours(kafka: Kafka) -> None:
    user, name = QuotaEntity("clara"), ("--entity-type", "users", "--entity-name", "clara")
    kafka.configs("--alter", *name, "--add-config", "SCRAM-SHA-256=[iterations=8192,password=secret]")
    before = read_all(kafka.zookeeper.connect, "/config/users/clara")["/config/users/clara"]
    assert before is not None
    text = znodes.decode_config("/config/users/clara", before)["SCRAM-SHA-256"]
    assert credential_text(parse_credential(text)) == text

    async def ours(tree: Tree) -> ClientQuotas:
        store = QuotaStore(
            tree, ClientQuotas(), ConnectionRates(["PLAINTEXT"], "PLAINTEXT"), SystemTime(), TcpNetwork()
        )
        await store.start()
        changes = [QuotaAlteration("consumer_byte_rate", 77)]
        await store.alter(user, lambda config: altered(user, config, changes))
        await store.stop()
        return store.quotas

    quotas = with_tree(kafka.zookeeper.connect, ours)
    assert quotas.quotas(QuotaEntity("alice"))[QuotaKind.CONTROLLER_MUTATION_RATE] == 10
    assert quotas.quotas(user) == {QuotaKind.CONSUMER_BYTE_RATE: 77}
    described = kafka.configs("--describe", *name)
    assert "consumer_byte_rate=77" in described
    assert "SCRAM-SHA-256=iterations=8192" in described


# Delegation tokens


def test_tokens_that_kafkas_tool_made_are_ours_byte_for_byte_and_ours_are_kafkas(kafka: Kafka) -> None:
    renewers = ("--renewer-principal", "User:bob", "--renewer-principal", "User:c d")
    created = kafka.tokens("--create", "--max-life-time-period", "-1", *renewers)
    kafka.tokens("--create", "--max-life-time-period", "1000000")
    nodes = read_all(kafka.zookeeper.connect, "/delegation_token")
    tokens = [(path, data) for path, data in nodes.items() if re.match("/delegation_token/tokens/", path)]
    assert len(tokens) == 2
    for path, data in tokens:
        assert data is not None
        token = delegation_tokens.decode_token(path, data)
        assert token is not None
        assert delegation_tokens.encode_token(token) == data
    changes = [data for path, data in nodes.items() if "/token_changes/" in path]
    assert sorted(filter(None, changes)) == sorted(path.rpartition("/")[2].encode() for path, _ in tokens)
    assert nodes["/delegation_token"] is nodes["/delegation_token/tokens"] is None

    async def ours(tree: Tree) -> tuple[str, str]:
        lifetimes = TokenLifetimes(7 * DAY_MS, DAY_MS)
        store = TokenStore(tree, Secret.of(SECRET_KEY), lifetimes, SystemTime(), SeededChance())
        await store.start()
        alice = Principal("User", "alice")
        assert {token.owner for token in store.cache.tokens()} == {alice}
        for token in store.cache.tokens():
            hmac = base64_text(store.cache.hmac(token.id))
            assert (token.id in created) is (hmac in created)
        token = await store.create(alice, alice, [Principal("User", "bob")], -1)
        await store.stop()
        return token.id, base64_text(store.cache.hmac(token.id))

    id, hmac = with_tree(kafka.zookeeper.connect, ours)

    def is_described() -> bool:
        text = kafka.tokens("--describe", "--owner-principal", "User:alice")
        return id in text and hmac in text

    until(is_described, f"{id} is described", UPDATES_S)
    kafka.tokens("--renew", "--renew-time-period", "600000", "--hmac", hmac)
    kafka.tokens("--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    assert f"/delegation_token/tokens/{id}" not in read_all(kafka.zookeeper.connect, "/delegation_token")


def base64_text(secret: Secret) -> str:
    return base64.b64encode(secret.reveal()).decode()
