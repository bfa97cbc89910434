"""A directory and a ZooKeeper tree that Kafka has secured are taken over by Leadline, from the same file, and back."""

from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer

from leadline.security.acls import ResourceType
from leadline.wire import messages as m
from tests.conformance.kafka.broker import _free_port, broker, zookeeper
from tests.support.broker import RunningBroker, until_killed
from tests.support.secured import STRANGER, ClusterSecurity, acl, read, refusal

pytestmark = pytest.mark.conformance

PATIENCE_S = 180
SETTINGS = {
    "num.partitions": "2",
    "offsets.topic.num.partitions": "1",
    "zookeeper.session.timeout.ms": "6000",
    "log.cleaner.dedupe.buffer.size": "10485760",
}


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
    """Users with SCRAM, ACLs and quotas that either has written, and the records, are there for the other."""
    with zookeeper(tmp_path / "zookeeper") as zoo:
        alternate(tmp_path, zoo.connect)


def alternate(path: Path, connect: str) -> None:
    port, security = _free_port(), ClusterSecurity(path / "security")
    security.create_users(connect)
    secured = SETTINGS | security.settings("$port", port)
    clients = {
        user: {"bootstrap.servers": f"127.0.0.1:{port}", **security.client(user)}
        for user in ("alice", STRANGER, "carol", "dave")
    }
    with broker(path / "kafka", connect, **secured) as kafka:
        security.add_user(port, "carol")
        for user in ("alice", "carol"):
            allow(security, port, user)
        limit(security, port, "alice", 50_000_000)
        values = send(clients["alice"], "kafka")
        before = acls_of(security, port), quotas_of(security, port)
        kafka.stop()
    ours = RunningBroker(path / "kafka" / "data", {}, properties=path / "kafka" / "server.properties")
    with until_killed(ours):
        assert (acls_of(security, port), quotas_of(security, port)) == before
        assert set(read(clients["carol"], "t", "carol", 100)) == values
        values |= send(clients["alice"], "leadline")
        assert refusal(clients[STRANGER], "t") == KafkaError.TOPIC_AUTHORIZATION_FAILED
        security.add_user(port, "dave")
        allow(security, port, "dave")
        limit(security, port, "dave", 60_000_000)
        after = acls_of(security, port), quotas_of(security, port)
        assert after[0] > before[0]
        assert after[1] > before[1]
        assert ours.stop() == 0
    with broker(path / "kafka", connect, **secured) as kafka:
        assert (acls_of(security, port), quotas_of(security, port)) == after
        values |= send(clients["dave"], "dave")
        assert set(read(clients["dave"], "t", "dave", 300)) == values
        kafka.stop()
