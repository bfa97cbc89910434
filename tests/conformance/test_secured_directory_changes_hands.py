"""A directory and a ZooKeeper tree that Kafka has secured are taken over by Leadline, from the same file, and back.

Both log in to ZooKeeper and keep what they write to themselves (zookeeper.set.acl). The key store of the listener is a
dynamic setting, whose password is encoded in the tree.
"""

import asyncio
import base64
import os
import socket
import ssl
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError, Producer
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from leadline.config.values import Password
from leadline.coordination.zookeeper.access import ZooKeeperAccess
from leadline.coordination.zookeeper.client import ZooKeeperTree
from leadline.coordination.zookeeper.digest_md5 import DigestLogin
from leadline.security.acls import ResourceType
from leadline.wire import messages as m
from tests.conformance.kafka.broker import _free_port, broker, zookeeper
from tests.support.broker import RunningBroker, until_killed
from tests.support.certificates import authority
from tests.support.java_stores import jks
from tests.support.secured import STRANGER, ClusterSecurity, acl, read, refusal
from tests.support.waiting import until

pytestmark = pytest.mark.conformance

PATIENCE_S = 180
SETTINGS = {
    "num.partitions": "2",
    "offsets.topic.num.partitions": "1",
    "zookeeper.session.timeout.ms": "6000",
    "log.cleaner.dedupe.buffer.size": "10485760",
    "zookeeper.set.acl": "true",
    "delegation.token.secret.key": "key-of-all-tokens",
    "password.encoder.secret": "secret-of-the-encoder",
}
USER, PASSWORD = "kafka", "kafka-secret"  # towards ZooKeeper
LOGIN_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule required"
JAVA_LOGIN = "-Djava.security.auth.login.config="
BROKER = 4


class Token(NamedTuple):
    id: str
    hmac: bytes

    @property
    def password(self) -> str:
        return base64.b64encode(self.hmac).decode()


def create_token(security: ClusterSecurity, port: int, user: str) -> Token:
    answer = security.ask(port, m.CreateDelegationTokenRequest(), m.CreateDelegationTokenResponse, 3, user)
    assert answer.error_code == 0
    return Token(answer.token_id, bytes(answer.hmac))


def renew(security: ClusterSecurity, port: int, user: str, token: Token) -> int:
    request = m.RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=3_600_000)
    answer = security.ask(port, request, m.RenewDelegationTokenResponse, 2, user)
    assert answer.error_code == 0
    return answer.expiry_timestamp_ms


def tokens_of(security: ClusterSecurity, port: int, user: str) -> dict[str, tuple[str, bytes, int]]:
    """What their owner is told of them."""
    request = m.DescribeDelegationTokenRequest(owners=None)
    answer = security.ask(port, request, m.DescribeDelegationTokenResponse, 3, user)
    assert answer.error_code == 0
    return {
        token.token_id: (token.principal_name, bytes(token.hmac), token.expiry_timestamp) for token in answer.tokens
    }


def has_rights_of_owner(security: ClusterSecurity, port: int, token: Token) -> bool:
    """Whether somebody who logs in by the token may describe the topic."""
    topic = m.MetadataRequest.MetadataRequestTopic(name="t")
    request = m.MetadataRequest(topics=[topic], allow_auto_topic_creation=False)
    answer = security.ask(port, request, m.MetadataResponse, 9, token.id, token.password)
    return [topic.error_code for topic in answer.topics] == [0]


def written(security: ClusterSecurity, port: int) -> tuple[set[Any], set[Any], dict[str, Any]]:
    """ACLs, quotas and tokens."""
    return acls_of(security, port), quotas_of(security, port), tokens_of(security, port, "alice")


def change_key_store(security: ClusterSecurity, port: int, folder: Path, name: str) -> bytes:
    """To another one, with a password of its own. The certificate that it has."""
    identity, prefix = authority().issue("broker"), "listener.name.secure.ssl.keystore."
    (folder / f"{name}.jks").write_bytes(jks(f"{name}-secret", {"key": identity}, {}))
    changes = {"type": "JKS", "location": str(folder / f"{name}.jks"), "password": f"{name}-secret"}
    configs = [
        m.IncrementalAlterConfigsRequest.AlterableConfig(name=prefix + key, value=text) for key, text in changes.items()
    ]
    resource = m.IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=BROKER, resource_name="0", configs=configs
    )
    request = m.IncrementalAlterConfigsRequest(resources=[resource])
    (result,) = security.ask(port, request, m.IncrementalAlterConfigsResponse, 1).responses
    assert result.error_code == 0, result
    until(lambda: certificate(port) == identity.chain[0])
    return identity.chain[0]


def certificate(port: int) -> bytes:
    """That the listener shows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as plain, context.wrap_socket(plain) as encrypted:
        return encrypted.getpeercert(binary_form=True) or b""


async def create_users(security: ClusterSecurity, connect: str) -> None:
    """As one who has logged in, so that nobody else may read their credentials."""
    access = ZooKeeperAccess(None, DigestLogin(USER, Password(PASSWORD), os.urandom), True)
    tree = await ZooKeeperTree.open(
        connect, session_timeout_ms=20_000, connection_timeout_ms=1000 * PATIENCE_S, max_in_flight=10, access=access
    )
    for path, data in security.user_nodes().items():
        await tree.create(path, data, make_parents=True)
    await tree.close()


def check_closed_to_others(connect: str, *paths: str) -> None:
    """Who has not logged in can neither read these nodes nor write any."""
    client = KazooClient(connect)
    client.start(PATIENCE_S)
    try:
        for path in paths:
            with pytest.raises(NoAuthError):
                client.get(path)
        for path in ("/config/topics/t", "/brokers/topics/t", "/controller_epoch", *paths):
            with pytest.raises(NoAuthError):
                client.set(path, b"{}")
    finally:
        client.stop()
        client.close()


def quotas_of(security: ClusterSecurity, port: int) -> set[tuple[str, str, float]]:
    request = m.DescribeClientQuotasRequest(components=[], strict=False)
    entries = security.ask(port, request, m.DescribeClientQuotasResponse, 1).entries or []
    return {(str(entry.entity[0].entity_name), value.key, value.value) for entry in entries for value in entry.values}


def acls_of(security: ClusterSecurity, port: int) -> set[tuple[int, str, str, int]]:
    request = m.DescribeAclsRequest(
        resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1,
        resource_name_filter=None, principal_filter=None, host_filter=None,
    )  # fmt: skip
    return {
        (resource.resource_type, resource.resource_name, entry.principal, entry.operation)
        for resource in security.ask(port, request, m.DescribeAclsResponse, 3).resources
        for entry in resource.acls
    }


def allow(security: ClusterSecurity, port: int, user: str) -> None:
    creations = [acl(ResourceType.TOPIC, "t", user), acl(ResourceType.GROUP, "*", user)]
    response = security.ask(port, m.CreateAclsRequest(creations=creations), m.CreateAclsResponse, 3)
    assert [result.error_code for result in response.results] == [0, 0]


def limit(security: ClusterSecurity, port: int, user: str, rate: float) -> None:
    entity = m.AlterClientQuotasRequest.EntityData(entity_type="user", entity_name=user)
    op = m.AlterClientQuotasRequest.OpData(key="producer_byte_rate", value=rate, remove=False)
    entry = m.AlterClientQuotasRequest.EntryData(entity=[entity], ops=[op])
    response = security.ask(port, m.AlterClientQuotasRequest(entries=[entry]), m.AlterClientQuotasResponse, 1)
    assert [entry.error_code for entry in response.entries] == [0]


def send(client: dict[str, str], name: str) -> set[bytes]:
    errors: list[KafkaError] = []
    producer, values = Producer(client), {f"{name} {number}".encode() for number in range(100)}
    for value in values:
        producer.produce("t", value, on_delivery=lambda error, _: errors.append(error) if error else None)
    assert producer.flush(PATIENCE_S) == 0
    assert errors == []
    return values


def test_a_secured_directory_and_tree_are_taken_over_and_back(tmp_path: Path) -> None:
    """Users with SCRAM, ACLs, quotas, tokens and key stores that either has written, and the records."""
    server, client = tmp_path / "server.conf", tmp_path / "client.conf"
    server.write_text(f'Server {{ {LOGIN_MODULE} user_{USER}="{PASSWORD}"; }};')
    client.write_text(f'Client {{ {LOGIN_MODULE} username="{USER}" password="{PASSWORD}"; }};')
    providers = {"authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"}
    with zookeeper(tmp_path / "zookeeper", providers, (f"{JAVA_LOGIN}{server}",)) as zoo:
        alternate(tmp_path, zoo.connect, f"{JAVA_LOGIN}{client}")


def alternate(path: Path, connect: str, login: str) -> None:
    port, security = _free_port(), ClusterSecurity(path / "security")
    asyncio.run(create_users(security, connect))
    secured = SETTINGS | security.settings("$port", port)
    clients = {
        user: {"bootstrap.servers": f"127.0.0.1:{port}", **security.client(user)}
        for user in ("alice", STRANGER, "carol", "dave")
    }
    with broker(path / "kafka", connect, (login,), **secured) as kafka:
        security.add_user(port, "carol")
        for user in ("alice", "carol"):
            allow(security, port, user)
        limit(security, port, "alice", 50_000_000)
        values = send(clients["alice"], "kafka")
        theirs = create_token(security, port, "alice")
        shown = change_key_store(security, port, path, "theirs")
        before = written(security, port)
        kafka.stop()
    properties = path / "kafka" / "server.properties"
    ours = RunningBroker(path / "kafka" / "data", {}, properties=properties, environment={"KAFKA_OPTS": login})
    with until_killed(ours):
        assert certificate(port) == shown
        assert written(security, port) == before
        assert has_rights_of_owner(security, port, theirs)
        assert set(read(clients["carol"], "t", "carol", 100)) == values
        values |= send(clients["alice"], "leadline")
        assert refusal(clients[STRANGER], "t") == KafkaError.TOPIC_AUTHORIZATION_FAILED
        security.add_user(port, "dave")
        allow(security, port, "dave")
        limit(security, port, "dave", 60_000_000)
        expires_ms, of_ours = renew(security, port, "alice", theirs), create_token(security, port, "alice")
        shown = change_key_store(security, port, path, "ours")
        after = written(security, port)
        assert after[0] > before[0]
        assert after[1] > before[1]
        assert after[2].keys() == {theirs.id, of_ours.id}
        assert after[2][theirs.id][2] == expires_ms != before[2][theirs.id][2]
        assert ours.stop() == 0
    check_closed_to_others(connect, "/config/users/dave", "/config/brokers/0", f"/delegation_token/tokens/{of_ours.id}")
    with broker(path / "kafka", connect, (login,), **secured) as kafka:
        assert certificate(port) == shown
        assert written(security, port) == after
        assert all(has_rights_of_owner(security, port, token) for token in (theirs, of_ours))
        values |= send(clients["dave"], "dave")
        assert set(read(clients["dave"], "t", "dave", 300)) == values
        kafka.stop()
