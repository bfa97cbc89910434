"""A ZooKeeper that both brokers log in to: their nodes have the same ACLs, and their dynamic passwords are one form.

Before both start, one and the same node has the key store of their SSL listener, with its password encoded here. Then
both get the same requests: stores that fit and stores that do not.
"""

import asyncio
import base64
import hashlib
import importlib
import logging
import os
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from leadline.broker.zookeeper_access import zookeeper_access
from leadline.config.broker import broker_settings
from leadline.config.values import Password
from leadline.coordination import znodes
from leadline.coordination.tree import ConnectionLost, TreeError
from leadline.coordination.zookeeper.access import ZooKeeperAccess
from leadline.coordination.zookeeper.client import ZooKeeperTree
from leadline.coordination.zookeeper.digest_md5 import DigestLogin
from leadline.log.files import read_file
from leadline.runtime.ports import OsFiles
from leadline.security.dynamic_passwords import DynamicPasswords
from leadline.wire.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.conformance.both import Side
from tests.conformance.kafka.broker import ZooKeeper, _free_port, broker, zookeeper
from tests.conformance.kafka.tools import tool
from tests.support.broker import RunningBroker, until_killed
from tests.support.certificates import Identity, issued, new_authority
from tests.support.java_stores import jks
from tests.support.proxy import proxy_to
from tests.support.shown_secrets import check_not_shown, digest_secrets
from tests.support.waiting import until

pytestmark = pytest.mark.conformance

WAIT_S = 90
BROKER = 4
NONE, INVALID_CONFIG, INVALID_REQUEST = 0, 40, 42
STORE = "listener.name.ssl.ssl."
USER, PASSWORD, STORE_PASSWORD, SUPER = "kafka", "kafka-secret", "store-secret", "super:super-secret"
REALM = "zk-sasl-md5"  # of ZooKeeper's server
DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule required"
JAVA_LOGIN = "-Djava.security.auth.login.config="
NETTY = "org.apache.zookeeper.ClientCnxnSocketNetty"
Acls = dict[str, list[tuple[int, str, str]]]  # of each path: permissions, scheme, id


class Secured(NamedTuple):
    folder: Path
    zookeeper: ZooKeeper
    secure_port: int
    kafka: Side
    ours: Side
    ssl_ports: dict[str, int]  # by the name of the side
    identities: dict[str, Identity]

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.kafka, self.ours

    def write(self, file: str, identity: str, at_s: int = 0) -> str:
        """A store, changed so long after now: Kafka compares times."""
        return write_store(self.folder, file, self.identities[identity], at_s)


def write_store(folder: Path, file: str, identity: Identity, at_s: int = 0) -> str:
    path = folder / file
    path.write_bytes(jks(STORE_PASSWORD, {"key": identity}, {}))
    os.utime(path, (path.stat().st_atime, path.stat().st_mtime + at_s))
    return str(path)


def settings_of(ssl_port: int, ports: str) -> dict[str, str]:
    return {
        "broker.id": "0",
        "listeners": f"PLAINTEXT://127.0.0.1:{ports},SSL://127.0.0.1:{ssl_port}",
        "inter.broker.listener.name": "PLAINTEXT",
        "zookeeper.set.acl": "true",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",
        "password.encoder.secret": "encoder-secret",
        "delegation.token.secret.key": "token-secret",
    }


def passwords() -> DynamicPasswords:
    return DynamicPasswords.of(broker_settings(settings_of(1, "2")).broker, os.urandom)


def login(password: str = PASSWORD) -> DigestLogin:
    return DigestLogin(USER, Password(password), os.urandom)


async def open_tree(connect: str, access: ZooKeeperAccess) -> ZooKeeperTree:
    return await ZooKeeperTree.open(
        connect,
        session_timeout_ms=20_000,
        connection_timeout_ms=1000 * WAIT_S,
        max_in_flight=10,
        access=access,
    )


async def write_settings(connect: str, config: dict[str, str]) -> None:
    """As kafka-configs --zookeeper does it before a broker starts."""
    tree = await open_tree(connect, ZooKeeperAccess(None, login(), True))
    data = znodes.encode_config(passwords().encoded(config, of_all=False))
    await tree.create(znodes.config_path("brokers", "0"), data, make_parents=True)
    await tree.close()


def secured_zookeeper(folder: Path, secure_port: int, identities: dict[str, Identity]) -> Any:
    (folder / "server.conf").write_text(f'Server {{ {DIGEST} user_{USER}="{PASSWORD}"; }};')
    (folder / "client.conf").write_text(f'Client {{ {DIGEST} username="{USER}" password="{PASSWORD}"; }};')
    (folder / "zookeeper.pem").write_text(identities["zookeeper"].key_pem() + identities["zookeeper"].chain_pem)
    (folder / "ca.pem").write_text(identities["ca"].certificate_pem)
    (folder / "client.pem").write_text(identities["client"].key_pem() + identities["client"].chain_pem)
    settings = {
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "secureClientPort": str(secure_port),
        "secureClientPortAddress": "127.0.0.1",
        "ssl.keyStore.location": str(folder / "zookeeper.pem"),
        "ssl.trustStore.location": str(folder / "ca.pem"),
        "ssl.clientAuth": "want",
        "authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        "authProvider.x509": "org.apache.zookeeper.server.auth.X509AuthenticationProvider",
    }
    digest = base64.b64encode(hashlib.sha1(SUPER.encode()).digest()).decode()
    options = (
        f"{JAVA_LOGIN}{folder / 'server.conf'}",
        f"-Dzookeeper.DigestAuthenticationProvider.superDigest=super:{digest}",
    )
    return zookeeper(folder / "zk", settings, options)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder, ca = tmp_path_factory.mktemp("secured"), new_authority()
    identities = {name: issued(ca) for name in ("first", "second", "third")}
    identities |= {"ca": ca, "stranger": issued(ca, "stranger"), "client": issued(ca, "client")}
    identities["zookeeper"] = issued(ca, "zookeeper", ("127.0.0.1",))
    location = write_store(folder, "first.jks", identities["first"])
    before = {f"{STORE}keystore.location": location, f"{STORE}keystore.password": STORE_PASSWORD}
    secure_port, kafka_ssl, our_ssl = _free_port(), _free_port(), _free_port()
    with ExitStack() as stack:
        server = stack.enter_context(secured_zookeeper(folder, secure_port, identities))
        for chroot in ("kafka", "ours"):
            asyncio.run(write_settings(f"{server.connect}/{chroot}", before))
        options = (f"{JAVA_LOGIN}{folder / 'client.conf'}",)
        kafka = stack.enter_context(
            broker(folder / "kafka", f"{server.connect}/kafka", options, **settings_of(kafka_ssl, "$port"))
        )
        properties = settings_of(our_ssl, "0") | {"zookeeper.connect": f"{server.connect}/ours"}
        us = RunningBroker(folder / "ours", properties, environment={"KAFKA_OPTS": options[0]})
        stack.enter_context(until_killed(us))
        sides = Side("Kafka", "127.0.0.1", kafka.port, []), Side("Leadline", "127.0.0.1", us.port, [])
        for side in sides:
            stack.callback(side.connection.close)
        yield Secured(folder, server, secure_port, *sides, {"Kafka": kafka_ssl, "Leadline": our_ssl}, identities)


# Dynamic passwords and stores


def shown(secured: Secured, side: Side) -> bytes:
    """The certificate that a new connection gets."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    plain = socket.create_connection(("127.0.0.1", secured.ssl_ports[side.name]), WAIT_S)
    with plain, context.wrap_socket(plain) as encrypted:
        return encrypted.getpeercert(binary_form=True) or b""


def show(secured: Secured, identity: str) -> None:
    """Until both show it: Kafka does some time after it has answered."""
    leaf = secured.identities[identity].chain[0]
    until(lambda: [shown(secured, side) for side in secured.sides] == [leaf, leaf], WAIT_S)


def alter(side: Side, configs: dict[str, str], name: str = "0") -> int:
    entries = [IncrementalAlterConfigsRequest.AlterableConfig(name=key, value=text) for key, text in configs.items()]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=BROKER, resource_name=name, configs=entries
    )
    (result,) = side.ask(
        IncrementalAlterConfigsResponse, IncrementalAlterConfigsRequest(resources=[resource]), 1
    ).responses
    assert not any(text in (result.error_message or "") for text in (STORE_PASSWORD, "hush"))
    return result.error_code


def test_stores_and_passwords_change_on_both_as_on_kafka(secured: Secured) -> None:
    show(secured, "first")
    password, location = f"{STORE}keystore.password", f"{STORE}keystore.location"
    garbage = secured.folder / "garbage.jks"
    garbage.write_text("no store")

    def answers(configs: dict[str, str], name: str = "0") -> list[int]:
        return [alter(side, configs, name) for side in secured.sides]

    refused, unusable = [INVALID_REQUEST] * 2, [INVALID_CONFIG] * 2
    assert answers({location: secured.write("stranger.jks", "stranger")}) == refused
    assert answers({location: str(garbage)}) == refused
    assert answers({location: str(secured.folder / "no-such-file")}) == refused
    assert answers({password: "hush"}) == refused
    assert answers({password: STORE_PASSWORD}, name="") == refused
    assert answers({"ssl.keystore.password": STORE_PASSWORD}) == refused
    assert answers({"ssl.principal.mapping.rules": "DEFAULT"}) == refused
    assert answers({"password.encoder.secret": "hush"}) == refused
    assert answers({"listener.name.other.ssl.key.password": "hush"}, name="") == refused
    show(secured, "first")

    second = secured.write("second.jks", "second")
    assert answers({location: second, password: STORE_PASSWORD}) == [NONE, NONE]
    show(secured, "second")
    secured.write("second.jks", "stranger", 5)
    assert answers({location: second}) == unusable
    assert answers({"max.connections": "1000"}) == unusable
    assert answers({"log.retention.ms": "77777777"}, name="") == [NONE, NONE]
    show(secured, "second")
    secured.write("second.jks", "third", 10)
    assert answers({location: second}) == [NONE, NONE]
    show(secured, "third")

    assert answers({"listener.name.other.plain.sasl.jaas.config": "hush", "sasl.jaas.config": "hush"}) == [NONE, NONE]
    assert answers({"sasl.enabled.mechanisms": "PLAIN"}) == [NONE, NONE]
    assert answers({"listener.name.ssl.ssl.principal.mapping.rules": "DEFAULT"}) == [NONE, NONE]
    until(lambda: described(secured.kafka).keys() == described(secured.ours).keys(), WAIT_S)
    theirs, ours = (described(side) for side in secured.sides)
    assert theirs == ours
    assert (ours[password][0], ours["sasl.jaas.config"][0]) == (None, None)

    nodes = [asyncio.run(stored(f"{secured.zookeeper.connect}/{chroot}")) for chroot in ("kafka", "ours")]
    assert nodes[0] == nodes[1]
    assert nodes[0][password] == STORE_PASSWORD


def described(side: Side) -> dict[str, tuple[object, ...]]:
    resource = DescribeConfigsRequest.DescribeConfigsResource(resource_type=BROKER, resource_name="0")
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    (result,) = side.ask(DescribeConfigsResponse, request, 4).results
    return {
        entry.name: (
            entry.value,
            entry.is_sensitive,
            entry.config_source,
            [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms],
        )
        for entry in result.configs
        if entry.name.startswith("listener.name.") or entry.name in ("sasl.jaas.config", "sasl.enabled.mechanisms")
    }


async def stored(connect: str) -> dict[str, str]:
    """The settings of the broker, decoded here, whoever has encoded them."""
    tree, path = await open_tree(connect, ZooKeeperAccess(None, login())), znodes.config_path("brokers", "0")
    node = await tree.get(path)
    await tree.close()
    assert node is not None
    config, unreadable = passwords().decoded(znodes.decode_config(path, node.data))
    assert not unreadable
    return config


def test_what_kafkas_tool_wrote_into_zookeeper_before_the_start_is_in_force(secured: Secured) -> None:
    connect, ssl_port = f"{secured.zookeeper.connect}/tool", _free_port()

    async def make_chroot() -> None:
        await (await open_tree(connect, ZooKeeperAccess())).close()

    asyncio.run(make_chroot())
    changes = {
        f"{STORE}keystore.location": secured.write("tool.jks", "first"),
        f"{STORE}keystore.password": STORE_PASSWORD,
        "password.encoder.secret": "encoder-secret",
    }
    pairs = ",".join(f"{name}={text}" for name, text in changes.items())
    tool(
        *("configs", "--zookeeper", connect, "--entity-type", "brokers", "--entity-name", "0", "--alter"),
        *("--add-config", pairs),
    )
    settings = settings_of(ssl_port, "0") | {"zookeeper.connect": connect, "zookeeper.set.acl": "false"}
    with until_killed(RunningBroker(secured.folder / "tool", settings)) as us:
        side = Side("Tool", "127.0.0.1", us.port, [])
        side.connection.close()
        ports = secured._replace(ssl_ports={"Tool": ssl_port})
        assert shown(ports, side) == secured.identities["first"].chain[0]
        assert us.stop() == 0


# ACLs of nodes


def acls_of(secured: Secured, chroot: str) -> Acls:
    """As the super user of ZooKeeper sees them. Numbers of sequential nodes are left out."""
    client: Any = importlib.import_module("kazoo.client").KazooClient(
        secured.zookeeper.connect, auth_data=[("digest", SUPER)]
    )
    client.start(WAIT_S)
    nodes: Acls = {}

    def read(path: str) -> None:
        acls = [(acl.perms, acl.id.scheme, acl.id.id) for acl in client.get_acls(chroot + path)[0]]
        kind = re.sub(r"\d{10}", "N", path)
        assert nodes.setdefault(kind, acls) == acls
        for name in client.get_children(chroot + path):
            read(f"{path}/{name}")

    try:
        read("")
    finally:
        client.stop()
        client.close()
    return nodes


def use(side: Side) -> None:
    """Makes the broker write nodes of many kinds."""
    topic = CreateTopicsRequest.CreatableTopic(name="orders", num_partitions=2, replication_factor=1)
    (created,) = side.ask(CreateTopicsResponse, CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 5).topics
    assert created.error_code == 0
    to = ("--bootstrap-server", side.bootstrap)
    tool("configs", *to, "--alter", "--entity-type", "topics", "--entity-name", "orders", "--add-config", "flush.ms=9")
    tool(
        *("configs", *to, "--alter", "--entity-type", "users", "--entity-name", "alice"),
        *("--add-config", "SCRAM-SHA-256=[iterations=4096,password=alice-secret]"),
    )
    tool("acls", *to, "--add", "--allow-principal", "User:alice", "--operation", "Read", "--topic", "orders")


def test_the_nodes_of_both_have_the_same_acls_for_who_logged_in(secured: Secured) -> None:
    for side in secured.sides:
        use(side)
    until(lambda: acls_of(secured, "/ours").keys() == acls_of(secured, "/kafka").keys(), WAIT_S)
    ours, theirs = acls_of(secured, "/ours"), acls_of(secured, "/kafka")
    assert ours == theirs
    owner, world = (31, "sasl", USER), (1, "world", "anyone")
    assert ours["/controller"] == [owner, world]
    assert ours["/config/users/alice"] == ours["/config/brokers/0"] == ours["/delegation_token/tokens"] == [owner]
    assert ours["/consumers"] == [(31, "world", "anyone")]
    assert ours[""] == [owner, world]


def test_the_nodes_of_a_broker_with_a_certificate_are_the_certificates(secured: Secured) -> None:
    settings = settings_of(_free_port(), "0") | {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "zookeeper.connect": f"127.0.0.1:{secured.secure_port}/tls",
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.clientCnxnSocket": NETTY,
        "zookeeper.ssl.keystore.location": str(secured.folder / "client.pem"),
        "zookeeper.ssl.truststore.location": str(secured.folder / "ca.pem"),
    }
    with until_killed(RunningBroker(secured.folder / "tls", settings)) as us:
        side = Side("TLS", "127.0.0.1", us.port, [])
        use(side)
        side.connection.close()
        ours = acls_of(secured, "/tls")
        assert us.stop() == 0
    theirs = acls_of(secured, "/kafka")
    common = ours.keys() & theirs.keys()
    assert {"/controller", "/brokers/ids/0", "/config/users", "/kafka-acl/Topic"} <= common

    def shapes(nodes: Acls) -> dict[str, list[tuple[int, bool]]]:
        return {path: [(perms, scheme == "world") for perms, scheme, _ in nodes[path]] for path in common}

    assert shapes(ours) == shapes(theirs)
    assert ours["/controller"][0] == (31, "x509", "CN=client,O=Acme,C=DE")


# What is refused


def test_who_does_not_log_in_can_neither_read_passwords_nor_write(secured: Secured) -> None:
    async def main() -> None:
        tree = await open_tree(f"{secured.zookeeper.connect}/kafka", ZooKeeperAccess())
        assert await tree.get("/controller") is not None
        for forbidden in (tree.get("/config/brokers/0"), tree.set("/controller_epoch", b"9"), tree.create("/mine")):
            with pytest.raises(TreeError, match="the ACL of the node is for another user"):
                await forbidden
        await tree.close()

    asyncio.run(main())


def test_a_wrong_password_ends_the_start_at_once_and_is_not_shown(
    secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    wrong = "kafka-secret-of-old"

    async def main() -> None:
        with pytest.raises(ConnectionLost, match="ZooKeeper refuses the user or the password") as refused:
            await open_tree(secured.zookeeper.connect, ZooKeeperAccess(None, login(wrong)))
        check_not_shown(digest_secrets(USER, REALM, wrong), [str(refused.value)])

    asyncio.run(main())
    check_not_shown(digest_secrets(USER, REALM, wrong), [caplog.text])


def test_a_session_that_reconnects_logs_in_again_before_anything_else(
    secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    async def main() -> None:
        async with proxy_to(secured.zookeeper.port) as proxy:
            tree = await open_tree(f"127.0.0.1:{proxy.port}/kafka", ZooKeeperAccess(None, login()))
            session = tree.session
            for _ in range(5):
                proxy.cut()
                reading = asyncio.ensure_future(tree.get("/config/brokers/0"))
                proxy.mend()
                assert await asyncio.wait_for(reading, WAIT_S) is not None
            assert tree.session == session
            await tree.close()

    asyncio.run(main())
    assert "reconnecting" in caplog.text
    assert not any(text in caplog.text for text in ("digest-uri", "encryptedPassword"))
    check_not_shown(digest_secrets(USER, REALM, PASSWORD), [caplog.text])


@pytest.mark.parametrize(
    ("host", "settings", "problem"),
    [
        ("127.0.0.1", {}, None),
        ("127.0.0.1", {"zookeeper.ssl.enabled.protocols": "TLSv1.3,TLSv1.2"}, None),
        ("localhost", {}, "Hostname mismatch"),
        ("localhost", {"zookeeper.ssl.endpoint.identification.algorithm": ""}, None),
        ("127.0.0.1", {"zookeeper.ssl.truststore.location": "other.pem"}, "certificate verify failed"),
    ],
)
def test_tls_compares_names_and_authorities_as_set(
    secured: Secured, host: str, settings: dict[str, str], problem: str | None
) -> None:
    (secured.folder / "other.pem").write_text(new_authority("other").certificate_pem)
    properties = {
        "zookeeper.connect": f"{host}:{secured.secure_port}",
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.clientCnxnSocket": NETTY,
        "zookeeper.ssl.truststore.location": "ca.pem",
    } | settings
    config = broker_settings(properties).broker
    access = zookeeper_access(config, {}, lambda path: read_file(OsFiles(), str(secured.folder / path)), os.urandom)

    async def main() -> None:
        tree = await open_tree(config.zookeeper_connect or "", access)
        names = await tree.children("/")
        assert names is not None
        reads = [tree.exists(f"/{name}") for name in names * 20]  # many answers arrive in one record
        assert await asyncio.gather(*reads) == [True] * len(reads)
        await tree.close()

    if problem is None:
        asyncio.run(main())
        return
    assert access.tls is not None
    plain = socket.create_connection(("127.0.0.1", secured.secure_port), WAIT_S)
    with plain, pytest.raises(ssl.SSLCertVerificationError, match=problem):
        access.tls.wrap_socket(plain, server_hostname=host)
