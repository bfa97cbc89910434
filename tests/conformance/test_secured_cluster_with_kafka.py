"""Leadline and Apache Kafka as brokers of one cluster over SASL_SSL, with SCRAM and ACLs.

All traffic between brokers is protected: replication both ways, the requests of either as the controller, markers.
Brokers are no super users: an ACL gives them ClusterAction, and that is enough.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer
from kazoo.client import KazooClient

from leadline.security import acl_nodes
from leadline.security.acls import (
    CLUSTER_NAME,
    AccessControlEntry,
    AclOperation,
    AclPermission,
    ResourcePattern,
    ResourceType,
)
from leadline.wire import messages as m
from tests.conformance.kafka.broker import Broker, _free_port, broker, zookeeper
from tests.conformance.kafka.elections import controller_of, elect
from tests.support.broker import RunningBroker, leadline
from tests.support.secured import ADMIN, BROKER, STRANGER, ClusterSecurity, acl, read, refusal
from tests.support.waiting import until

pytestmark = pytest.mark.conformance

PATIENCE_S = 180
KAFKAS, OURS = 0, (1, 2)
NO_SUPER_USERS = {"super.users": f"User:{ADMIN}"}  # among the brokers
SETTINGS = {
    "offsets.topic.replication.factor": 3,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.num.partitions": 3,
    "transaction.state.log.min.isr": 2,
    "min.insync.replicas": 2,
    "group.initial.rebalance.delay.ms": 0,
    "zookeeper.session.timeout.ms": 6000,
    "auto.leader.rebalance.enable": "false",
    "connections.max.reauth.ms": 10_000,  # all log in again meanwhile: brokers of both kinds, and clients
}


@dataclass
class SecuredCluster:
    """A broker of Kafka's, 0, and two of ours, 1 and 2."""

    security: ClusterSecurity
    ports: dict[int, int]  # of the protected listeners
    kafka: Broker
    ours: dict[int, RunningBroker]
    tree: KazooClient

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    @property
    def dirs(self) -> list[Path]:
        return [self.kafka.log_dir, *(broker.directory for broker in self.ours.values())]

    def client(self, user: str) -> dict[str, str]:
        return {"bootstrap.servers": self.bootstrap, **self.security.client(user)}

    def create(self, topic: str) -> None:
        """Three partitions, each led by another broker. All three brokers have to be known to the controller."""
        assignments = [
            m.CreateTopicsRequest.CreatableReplicaAssignment(
                partition_index=first, broker_ids=[(first + n) % 3 for n in range(3)]
            )
            for first in range(3)
        ]
        creatable = m.CreateTopicsRequest.CreatableTopic(
            name=topic, num_partitions=-1, replication_factor=-1, assignments=assignments
        )
        request = m.CreateTopicsRequest(topics=[creatable], timeout_ms=60_000)

        def is_created() -> bool:
            controller = controller_of(self.tree)
            if controller is None:
                return False
            response = self.security.ask(self.ports[controller], request, m.CreateTopicsResponse, 5)
            return response.topics[0].error_code in (0, 36)  # it may have been created by an attempt before

        until(is_created, f"{topic} to be created")
        self.wait_for_all(topic)

    def isrs(self, port: int, topic: str) -> list[set[int]]:
        request = m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name=topic)])
        (described,) = self.security.ask(port, request, m.MetadataResponse, 9).topics
        return [set(partition.isr_nodes) for partition in described.partitions]

    def wait_for_all(self, topic: str) -> None:
        for id, port in self.ports.items():
            until(partial(self._is_in_sync, port, topic), f"replicas in sync, as broker {id} says")

    def _is_in_sync(self, port: int, topic: str) -> bool:
        return self.isrs(port, topic) == [{0, 1, 2}] * 3

    def wait_for_brokers(self) -> None:
        for port in self.ports.values():
            until(partial(self._has_all_brokers, port), "three brokers")

    def _has_all_brokers(self, port: int) -> bool:
        return len(self.security.ask(port, m.MetadataRequest(topics=[]), m.MetadataResponse, 9).brokers) == 3

    def same_bytes(self, topic: str) -> None:
        names = sorted(path.name for path in self.dirs[0].glob(f"{topic}-*"))
        assert names
        until(
            lambda: all(len({content(folder / name) for folder in self.dirs}) == 1 for name in names),
            f"replicas of {topic} that are byte for byte the same",
        )


def content(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


def allow_cluster_action(connect: str) -> None:
    """Before the first broker starts, as none could reach another without it."""
    entry = AccessControlEntry(f"User:{BROKER}", "*", AclOperation.CLUSTER_ACTION, AclPermission.ALLOW)
    path = acl_nodes.acl_path(ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME))
    tree = KazooClient(connect)
    tree.start()
    try:
        tree.create(path, acl_nodes.encode_acls([entry]), makepath=True)
    finally:
        tree.stop()
        tree.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    path = tmp_path_factory.mktemp("secured")
    security = ClusterSecurity(path / "security")
    ports = {id: _free_port() for id in (KAFKAS, *OURS)}
    with ExitStack() as stack:
        zoo = stack.enter_context(zookeeper(path / "zookeeper"))
        security.create_users(zoo.connect)
        allow_cluster_action(zoo.connect)
        secured = security.settings("$port", ports[KAFKAS]) | NO_SUPER_USERS
        kafka = stack.enter_context(broker(path / "kafka", zoo, **SETTINGS | secured | {"broker.id": KAFKAS}))
        ours = {}
        for id in OURS:
            settings = SETTINGS | security.settings(_free_port(), ports[id]) | NO_SUPER_USERS
            own = {"broker.id": id, "zookeeper.connect": zoo.connect}
            ours[id] = stack.enter_context(leadline(path / f"ours{id}", **settings | own))
        tree = KazooClient(zoo.connect)
        tree.start()
        stack.callback(tree.close)
        stack.callback(tree.stop)
        cluster = SecuredCluster(security, ports, kafka, ours, tree)
        cluster.wait_for_brokers()
        rights = [acl(ResourceType.TOPIC, "*", "alice"), acl(ResourceType.GROUP, "*", "alice")]
        rights.append(acl(ResourceType.TRANSACTIONAL_ID, "*", "alice"))
        request = m.CreateAclsRequest(creations=rights)
        response = security.ask(ports[OURS[0]], request, m.CreateAclsResponse, 3)
        assert [result.error_code for result in response.results] == [0, 0, 0]
        yield cluster


class Sender:
    """Alice's producer, and what was acknowledged."""

    def __init__(self, cluster: SecuredCluster, topic: str, **settings: object) -> None:
        self.topic, self.values, self.errors = topic, set[bytes](), list[KafkaError]()
        own = {name.replace("_", "."): value for name, value in settings.items()}
        self.producer = Producer(cluster.client("alice") | {"enable.idempotence": True, "linger.ms": 1} | own)

    def send(self, name: str, count: int) -> None:
        for number in range(count):
            value = f"{name} {number}".encode()
            self.producer.produce(self.topic, value, str(number), on_delivery=self._delivered)
            self.producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
        elif (value := message.value()) is not None:
            self.values.add(value)

    def flush(self) -> None:
        assert self.producer.flush(PATIENCE_S) == 0
        assert self.errors == []


@pytest.mark.parametrize("elected", ["kafka", "leadline"])
def test_records_and_transactions_replicate_both_ways(cluster: SecuredCluster, elected: str) -> None:
    elect(cluster.tree, lambda id: (id in OURS) == (elected == "leadline"))
    topic = f"both-{elected}"
    cluster.create(topic)
    sender = Sender(cluster, topic)
    sender.send("plain", 500)
    sender.flush()
    in_transaction = Sender(cluster, topic, transactional_id=elected)
    in_transaction.producer.init_transactions(PATIENCE_S)
    for outcome in (in_transaction.producer.commit_transaction, in_transaction.producer.abort_transaction):
        in_transaction.producer.begin_transaction()
        in_transaction.send(outcome.__name__, 30)
        in_transaction.flush()
        outcome(PATIENCE_S)
    values = read(cluster.client("alice"), topic, elected, 530)
    expected = sender.values | {b"commit_transaction %d" % number for number in range(30)}
    assert len(values) == 530
    assert set(values) == expected
    cluster.same_bytes(topic)
    cluster.same_bytes("__consumer_offsets")
    assert refusal(cluster.client(STRANGER), topic) == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_what_was_acknowledged_survives_the_death_of_either_kind(cluster: SecuredCluster) -> None:
    controller = elect(cluster.tree, lambda id: id in OURS)
    cluster.create("death")
    sender = Sender(cluster, "death")
    sender.send("before", 300)
    cluster.ours[controller].kill()
    sender.send("without ours", 300)
    sender.flush()
    cluster.ours[controller].start()
    cluster.wait_for_all("death")
    sender.send("with all", 300)
    sender.flush()
    cluster.same_bytes("death")
    cluster.kafka.kill()
    sender.send("without kafka", 300)
    sender.flush()
    values = read(cluster.client("alice"), "death", "death", 1200)
    assert len(values) == len(set(values)) == len(sender.values) == 1200
    assert set(values) == sender.values
    until(lambda: cluster.isrs(cluster.ports[OURS[0]], "death") == [{1, 2}] * 3, "two in sync")
    for broker_of_ours in cluster.ours.values():
        assert "secret" not in broker_of_ours.output()
