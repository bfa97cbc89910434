"""A cluster of one broker of Kafka's and one of ours, with an authorizer: what one writes is in force on both.

Everybody is User:ANONYMOUS. From 127.0.0.1, where the brokers come from, everything is allowed: they replicate.
"""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from kazoo.client import KazooClient

from leadline.config.authorizer import ACL_AUTHORIZER
from leadline.security.acls import AclOperation, ResourceType
from leadline.wire import messages as m
from tests.conformance.authorized_brokers import ANONYMOUS, USER_HOST, allow_everything_here
from tests.conformance.both import Connection
from tests.conformance.kafka.broker import broker, zookeeper
from tests.support.broker import RunningBroker, leadline
from tests.support.client_quotas import altering, describing
from tests.support.logs import batch
from tests.support.waiting import unloaded_clock, until

pytestmark = pytest.mark.conformance

KAFKAS, OURS = 1, 2
WITHIN_S = 1.0
DESCRIBE, REFUSED, ALLOW, DENY = AclOperation.DESCRIBE, 29, 3, 2
SETTINGS = {
    "authorizer.class.name": ACL_AUTHORIZER,
    "zookeeper.session.timeout.ms": 6000,
    "connections.max.idle.ms": 3_600_000,
}


@dataclass
class MixedCluster:
    ports: dict[int, int]
    ours: RunningBroker
    tree: KazooClient

    def metadata(self, id: int, request: m.MetadataRequest, source: str = "") -> m.MetadataResponse:
        connection = Connection("127.0.0.1", self.ports[id], source=source)
        try:
            return connection.ask(m.MetadataResponse, request, 9)
        finally:
            connection.close()

    def is_described(self, id: int, topic: str) -> bool:
        """Whether the user may describe it, by one of the brokers."""
        request = m.MetadataRequest(
            topics=[m.MetadataRequest.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
        )
        (described,) = self.metadata(id, request, USER_HOST).topics
        assert described.error_code in (0, REFUSED), described
        return described.error_code == 0

    def create(self, id: int, topic: str, permission: int = ALLOW, pattern_type: int = 3) -> None:
        acl = m.CreateAclsRequest.AclCreation(
            resource_type=ResourceType.TOPIC,
            resource_name=topic,
            resource_pattern_type=pattern_type,
            principal=ANONYMOUS,
            host=USER_HOST,
            operation=DESCRIBE,
            permission_type=permission,
        )
        connection = Connection("127.0.0.1", self.ports[id])
        answer = connection.ask(m.CreateAclsResponse, m.CreateAclsRequest(creations=[acl]), 3)
        connection.close()
        assert [result.error_code for result in answer.results] == [0]

    def delete(self, id: int, topic: str, permission: int) -> None:
        acl_filter = m.DeleteAclsRequest.DeleteAclsFilter(
            resource_type_filter=ResourceType.TOPIC,
            resource_name_filter=topic,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=USER_HOST,
            operation=DESCRIBE,
            permission_type=permission,
        )
        connection = Connection("127.0.0.1", self.ports[id])
        answer = connection.ask(m.DeleteAclsResponse, m.DeleteAclsRequest(filters=[acl_filter]), 3)
        connection.close()
        assert len(answer.filter_results[0].matching_acls) == 1

    def wait(self, id: int, topic: str, *, described: bool) -> None:
        until(lambda: self.is_described(id, topic) is described)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    path = tmp_path_factory.mktemp("mixed")
    with ExitStack() as stack:
        coordinator = stack.enter_context(zookeeper(path / "zookeeper"))
        asyncio.run(allow_everything_here(coordinator.connect, ""))
        kafka = stack.enter_context(broker(path / "kafka", coordinator, **SETTINGS, broker_id=KAFKAS))
        ours = stack.enter_context(
            leadline(
                path / "leadline",
                **SETTINGS,
                **{"broker.id": OURS, "zookeeper.connect": coordinator.connect, "listeners": "PLAINTEXT://127.0.0.1:0"},
            )
        )
        tree = KazooClient(coordinator.connect)
        tree.start()
        stack.callback(tree.close)
        stack.callback(tree.stop)
        cluster = MixedCluster({KAFKAS: kafka.port, OURS: ours.port}, ours, tree)
        until(lambda: len(brokers_of(cluster)) == 2)
        create_topics(cluster, "one", "two", "three", "pre-one")
        yield cluster


def brokers_of(cluster: MixedCluster) -> list[object]:
    return list(cluster.metadata(OURS, m.MetadataRequest(topics=[])).brokers)


def create_topics(cluster: MixedCluster, *names: str) -> None:
    """Each with a replica on both, the one led by Kafka and the other by Leadline."""
    assignments = [
        m.CreateTopicsRequest.CreatableReplicaAssignment(partition_index=0, broker_ids=[KAFKAS, OURS]),
        m.CreateTopicsRequest.CreatableReplicaAssignment(partition_index=1, broker_ids=[OURS, KAFKAS]),
    ]
    topics = [
        m.CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=-1, replication_factor=-1, assignments=assignments
        )
        for name in names
    ]
    connection = Connection("127.0.0.1", cluster.ports[KAFKAS])
    answer = connection.ask(m.CreateTopicsResponse, m.CreateTopicsRequest(topics=topics, timeout_ms=60_000), 7)
    connection.close()
    assert [result.error_code for result in answer.topics] == [0] * len(names), answer


def test_brokers_with_the_right_replicate_each_others_partitions(cluster: MixedCluster) -> None:
    for leader, partition in ((KAFKAS, 0), (OURS, 1)):
        data = m.ProduceRequest.PartitionProduceData(index=partition, records=bytes(batch(3)))
        topic = m.ProduceRequest.TopicProduceData(name="one", partition_data=[data])
        request = m.ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[topic])

        def produced(leader: int = leader, request: m.ProduceRequest = request) -> bool:
            connection = Connection("127.0.0.1", cluster.ports[leader])
            answer = connection.ask(m.ProduceResponse, request, 9)
            connection.close()
            return answer.responses[0].partition_responses[0].error_code == 0

        until(produced)


@pytest.mark.parametrize(("writer", "reader", "topic"), [(KAFKAS, OURS, "one"), (OURS, KAFKAS, "two")])
def test_an_acl_is_in_force_on_the_other_broker_within_a_second(
    cluster: MixedCluster, writer: int, reader: int, topic: str
) -> None:
    for broker_id in (writer, reader):
        until(lambda broker_id=broker_id: not cluster.is_described(broker_id, topic))  # type: ignore[misc]
    with unloaded_clock() as clock:
        for _ in range(3):
            for change, permission, described in (
                (cluster.create, ALLOW, True),
                (cluster.create, DENY, False),
                (cluster.delete, DENY, True),
                (cluster.delete, ALLOW, False),
            ):
                change(writer, topic, permission)
                answered_s = clock()
                assert cluster.is_described(writer, topic) is described, "in force when the request is answered"
                cluster.wait(reader, topic, described=described)
                assert clock() - answered_s < WITHIN_S


@pytest.mark.parametrize(("writer", "other"), [(KAFKAS, OURS), (OURS, KAFKAS)])
def test_a_quota_is_in_force_on_the_other_broker_and_described_by_it(
    cluster: MixedCluster, writer: int, other: int
) -> None:
    names = {"user": "ANONYMOUS", "client-id": f"limited by {writer}"}

    def throttle_ms() -> int:
        connection = Connection("127.0.0.1", cluster.ports[other], names["client-id"])
        answer = connection.ask(m.ApiVersionsResponse, m.ApiVersionsRequest(), 2)
        connection.close()
        return answer.throttle_time_ms

    def alter(percentage: float | None) -> None:
        connection = Connection("127.0.0.1", cluster.ports[writer])
        request = altering(names, {"request_percentage": percentage})
        answer = connection.ask(m.AlterClientQuotasResponse, request, 1)
        connection.close()
        assert [entry.error_code for entry in answer.entries] == [0]

    assert throttle_ms() == 0
    alter(0.00001)
    until(lambda: throttle_ms() == 1000)
    connection = Connection("127.0.0.1", cluster.ports[other])
    described = connection.ask(m.DescribeClientQuotasResponse, describing(), 1)
    (entry,) = described.entries or []
    assert {part.entity_type: part.entity_name for part in entry.entity} == names
    alter(None)
    until(lambda: connection.ask(m.DescribeClientQuotasResponse, describing(), 1).entries == [])
    connection.close()
    until(lambda: throttle_ms() == 0)


def test_a_prefix_is_in_force_on_the_other_broker(cluster: MixedCluster) -> None:
    cluster.create(KAFKAS, "pre-", pattern_type=4)
    cluster.wait(OURS, "pre-one", described=True)
    cluster.delete(OURS, "pre-", ALLOW)
    cluster.wait(KAFKAS, "pre-one", described=False)


def test_what_changed_while_a_broker_was_down_is_in_force_when_it_is_back_even_without_notifications(
    cluster: MixedCluster,
) -> None:
    cluster.create(OURS, "three")
    cluster.wait(OURS, "three", described=True)
    assert cluster.ours.stop() == 0
    cluster.create(KAFKAS, "three", DENY)
    cluster.create(KAFKAS, "two")
    for parent in ("/kafka-acl-changes", "/kafka-acl-extended-changes"):
        for name in cluster.tree.get_children(parent):
            cluster.tree.delete(f"{parent}/{name}")
    cluster.ours.start()
    cluster.ports[OURS] = cluster.ours.port
    until(lambda: len(brokers_of(cluster)) == 2)
    until(lambda: cluster.is_described(OURS, "two"))
    assert not cluster.is_described(OURS, "three")
    cluster.delete(OURS, "three", DENY)
    assert cluster.is_described(OURS, "three")
    cluster.wait(KAFKAS, "three", described=True)


def test_a_change_whose_notification_was_never_written_is_in_force_on_a_connected_broker(cluster: MixedCluster) -> None:
    """It takes as long as a check lasts: ten seconds."""
    cluster.create(KAFKAS, "one")
    cluster.wait(OURS, "one", described=True)
    cluster.tree.delete("/kafka-acl/Topic/one")  # as a broker of Kafka does, if it dies right afterwards
    cluster.wait(OURS, "one", described=False)
    assert cluster.is_described(KAFKAS, "one"), "nothing has notified anybody"
