"""The authorizer's decisions against a real Kafka's, over random ACLs that our store writes and Kafka's brokers follow.

Two brokers share one ZooKeeper: one lets everybody do what no ACL mentions. Users are probed by requests for resources
that mostly do not exist: what is not allowed has an error of authorization, and everything else has another.
"""

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from leadline.coordination.zookeeper.client import ZooKeeperTree
from leadline.runtime.ports import SystemTime
from leadline.security.acl_store import AclStore
from leadline.security.acls import (
    CLUSTER_NAME,
    AccessControlEntry,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from leadline.security.audit import AuditRecord
from leadline.security.authorizer import Authorizer
from leadline.security.principal import Principal
from leadline.wire.messages import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
)
from tests.conformance.both import Connection
from tests.conformance.kafka.broker import ZooKeeper, zookeeper
from tests.conformance.kafka.secured import SecuredBroker, secured_broker
from tests.support.chance import SeededChance
from tests.support.waiting import until

pytestmark = pytest.mark.conformance

NAMES = ["a", "ab", "abc", "b"]
EXISTING = "abc"  # a topic
HOSTS = ["127.0.0.1", "127.0.0.2"]
USERS = ["alice", "bob"]
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
NOT_REQUESTED = -(1 << 31)
DENIED = {TOPIC: 29, GROUP: 30, CLUSTER: 31, TRANSACTIONAL_ID: 53}
NOT_CONTROLLER = 41  # said before anything is authorized
UPDATES_S = 60


class Question(NamedTuple):
    operation: AclOperation
    resource_type: ResourceType
    name: str


Answers = dict[Question, int]  # error codes


# What Kafka says


def ask_of_topics(client: Connection) -> Iterator[tuple[AclOperation, str, int]]:
    offsets = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(
                name=name,
                partitions=[ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)],
            )
            for name in NAMES
        ],
    )
    for topic in client.ask(ListOffsetsResponse, offsets, 5).topics:
        yield AclOperation.DESCRIBE, topic.name, topic.partitions[0].error_code
    producers = DescribeProducersRequest(
        topics=[DescribeProducersRequest.TopicRequest(name=name, partition_indexes=[7]) for name in NAMES]
    )
    for described in client.ask(DescribeProducersResponse, producers, 0).topics:
        yield AclOperation.READ, described.name, described.partitions[0].error_code
    data = [
        ProduceRequest.TopicProduceData(
            name=name, partition_data=[ProduceRequest.PartitionProduceData(index=7, records=b"")]
        )
        for name in NAMES
    ]
    for produced in client.ask(ProduceResponse, ProduceRequest(acks=1, timeout_ms=9000, topic_data=data), 9).responses:
        yield AclOperation.WRITE, produced.name, produced.partition_responses[0].error_code
    deleted = DeleteRecordsRequest(
        timeout_ms=9000,
        topics=[
            DeleteRecordsRequest.DeleteRecordsTopic(
                name=name, partitions=[DeleteRecordsRequest.DeleteRecordsPartition(partition_index=7, offset=0)]
            )
            for name in NAMES
        ],
    )
    for removed in client.ask(DeleteRecordsResponse, deleted, 1).topics:
        yield AclOperation.DELETE, removed.name, removed.partitions[0].error_code
    created = CreateTopicsRequest(
        topics=[
            CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in NAMES
        ],
        timeout_ms=9000,
        validate_only=True,
    )
    for topic_created in client.ask(CreateTopicsResponse, created, 4).topics:
        yield AclOperation.CREATE, topic_created.name, topic_created.error_code
    grown = CreatePartitionsRequest(
        topics=[CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=3) for name in NAMES],
        timeout_ms=9000,
        validate_only=True,
    )
    for result in client.ask(CreatePartitionsResponse, grown, 1).results:
        yield AclOperation.ALTER, result.name, result.error_code


def ask_of_configs(client: Connection, resource_type: int, names: list[str]) -> Iterator[tuple[AclOperation, str, int]]:
    described = DescribeConfigsRequest(
        resources=[
            DescribeConfigsRequest.DescribeConfigsResource(
                resource_type=resource_type, resource_name=name, configuration_keys=[]
            )
            for name in names
        ]
    )
    for result in client.ask(DescribeConfigsResponse, described, 1).results:
        yield AclOperation.DESCRIBE_CONFIGS, result.resource_name, result.error_code
    altered = IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsRequest.AlterConfigsResource(
                resource_type=resource_type, resource_name=name, configs=[]
            )
            for name in names
        ],
        validate_only=True,
    )
    for response in client.ask(IncrementalAlterConfigsResponse, altered, 0).responses:
        yield AclOperation.ALTER_CONFIGS, response.resource_name, response.error_code


def ask_of_groups(client: Connection) -> Iterator[tuple[AclOperation, str, int]]:
    for name in NAMES:
        heartbeat = HeartbeatRequest(group_id=name, generation_id=1, member_id="m")
        yield AclOperation.READ, name, client.ask(HeartbeatResponse, heartbeat, 1).error_code
    for group in client.ask(DescribeGroupsResponse, DescribeGroupsRequest(groups=NAMES), 1).groups:
        yield AclOperation.DESCRIBE, group.group_id, group.error_code
    for result in client.ask(DeleteGroupsResponse, DeleteGroupsRequest(groups_names=NAMES), 1).results:
        yield AclOperation.DELETE, result.group_id, result.error_code


def ask_of_transactional_ids(client: Connection) -> Iterator[tuple[AclOperation, str, int]]:
    described = client.ask(DescribeTransactionsResponse, DescribeTransactionsRequest(transactional_ids=NAMES), 0)
    for state in described.transaction_states:
        yield AclOperation.DESCRIBE, state.transactional_id, state.error_code
    for name in NAMES:
        end = EndTxnRequest(transactional_id=name, producer_id=1, producer_epoch=0, committed=True)
        yield AclOperation.WRITE, name, client.ask(EndTxnResponse, end, 1).error_code


def ask_of_cluster(client: Connection) -> Iterator[tuple[AclOperation, str, int]]:
    listed = client.ask(ListPartitionReassignmentsResponse, ListPartitionReassignmentsRequest(timeout_ms=9000), 0)
    yield AclOperation.DESCRIBE, CLUSTER_NAME, listed.error_code
    altered = client.ask(AlterPartitionReassignmentsResponse, AlterPartitionReassignmentsRequest(timeout_ms=9000), 0)
    yield AclOperation.ALTER, CLUSTER_NAME, altered.error_code
    allocated = client.ask(AllocateProducerIdsResponse, AllocateProducerIdsRequest(broker_id=9, broker_epoch=-2), 0)
    yield AclOperation.CLUSTER_ACTION, CLUSTER_NAME, allocated.error_code
    for operation, _, code in ask_of_configs(client, 4, [""]):
        yield operation, CLUSTER_NAME, code


def kafkas_answers(client: Connection) -> Answers:
    of_types: list[tuple[ResourceType, Iterator[tuple[AclOperation, str, int]]]] = [
        (TOPIC, ask_of_topics(client)),
        (TOPIC, ask_of_configs(client, 2, NAMES)),
        (GROUP, ask_of_groups(client)),
        (TRANSACTIONAL_ID, ask_of_transactional_ids(client)),
        (CLUSTER, ask_of_cluster(client)),
    ]
    return {
        Question(operation, resource_type, name): code
        for resource_type, answers in of_types
        for operation, name, code in answers
        if code != NOT_CONTROLLER
    }


def kafkas_bit_fields(client: Connection) -> tuple[int, int, bool]:
    """The authorized operations of the cluster and of a topic, and whether there may be an idempotent producer."""
    cluster = client.ask(DescribeClusterResponse, DescribeClusterRequest(include_cluster_authorized_operations=True), 0)
    metadata = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=EXISTING)],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    (topic,) = client.ask(MetadataResponse, metadata, 9).topics
    producer = client.ask(
        InitProducerIdResponse, InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 1
    )
    return (
        cluster.cluster_authorized_operations,
        topic.topic_authorized_operations,
        producer.error_code != DENIED[CLUSTER],
    )


# What we say


def our_answer(authorizer: Authorizer, principal: Principal, host: str, question: Question) -> bool:
    client = authorizer.client(principal, host)
    if question.operation is AclOperation.CREATE and client.allows(AclOperation.CREATE, CLUSTER, CLUSTER_NAME):
        return True
    allowed = client.allows(*question)
    assert authorizer.decide(principal, host, *question).allowed is allowed
    return allowed


def our_bit_fields(authorizer: Authorizer, principal: Principal, host: str) -> tuple[int, int, bool]:
    client = authorizer.client(principal, host)
    describes = client.allows(AclOperation.DESCRIBE, CLUSTER, CLUSTER_NAME)
    cluster = client.authorized_operations(CLUSTER, CLUSTER_NAME) if describes else 0
    visible = client.allows(AclOperation.DESCRIBE, TOPIC, EXISTING)
    topic = client.authorized_operations(TOPIC, EXISTING) if visible else NOT_REQUESTED
    idempotent = client.allows(AclOperation.IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME)
    return cluster, topic, idempotent or client.allows_any(AclOperation.WRITE, TOPIC)


# ACLs by chance


def random_acls(seed: int) -> list[AclBinding]:
    random = Random(seed)
    bindings = set[AclBinding]()
    for _ in range(random.choice([1, 4, 12, 40])):
        resource_type = random.choice([TOPIC, TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID])
        name, kind = random.choice([*NAMES, "*"]), random.choice([PatternType.LITERAL, PatternType.PREFIXED])
        if resource_type is CLUSTER:
            name, kind = CLUSTER_NAME, PatternType.LITERAL
        entry = AccessControlEntry(
            random.choice(["User:alice", "User:bob", "User:*", "Group:*"]),
            random.choice(["*", "*", *HOSTS]),
            random.choice([operation for operation in AclOperation if operation > AclOperation.ANY]),
            random.choice([AclPermission.ALLOW, AclPermission.ALLOW, AclPermission.DENY]),
        )
        bindings.add(AclBinding(ResourcePattern(resource_type, name, kind), entry))
    return sorted(bindings)


def kafkas_acls(client: Connection) -> set[AclBinding]:
    everything = DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    return {
        AclBinding(
            ResourcePattern(ResourceType(of.resource_type), of.resource_name, PatternType(of.pattern_type)),
            AccessControlEntry(
                acl.principal, acl.host, AclOperation(acl.operation), AclPermission(acl.permission_type)
            ),
        )
        for of in client.ask(DescribeAclsResponse, everything, 3).resources
        for acl in of.acls
    }


class Cluster(NamedTuple):
    zookeeper: ZooKeeper
    strict: SecuredBroker
    lenient: SecuredBroker  # allow.everyone.if.no.acl.found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory: Path = tmp_path_factory.mktemp("authorization")
    with (
        zookeeper(directory / "zk") as zk,
        secured_broker(directory / "strict", zk, {"broker.id": 0}) as strict,
        secured_broker(
            directory / "lenient", zk, {"broker.id": 1, "allow.everyone.if.no.acl.found": "true"}
        ) as lenient,
    ):
        client = strict.connect()
        topic = CreateTopicsRequest.CreatableTopic(name=EXISTING, num_partitions=1, replication_factor=1)
        client.ask(CreateTopicsResponse, CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 4)
        client.close()
        yield Cluster(zk, strict, lenient)


def put_in_force(connect: str, acls: list[AclBinding]) -> list[AclBinding]:
    """By our store, in place of all others; what it then has in force."""

    async def main() -> list[AclBinding]:
        tree = await ZooKeeperTree.open(
            connect, session_timeout_ms=20_000, connection_timeout_ms=60_000, max_in_flight=10
        )
        store = AclStore(tree, Authorizer(), SystemTime(), SeededChance())
        await store.start()
        await store.delete([AclBindingFilter()])
        assert await store.create(acls) == [None] * len(acls)
        await store.stop()
        await tree.close()
        return store.authorizer.bindings(AclBindingFilter())

    return asyncio.run(main())


def of_acls(acls: list[AclBinding], allow_everyone: bool) -> Authorizer:
    authorizer = Authorizer(allow_everyone_if_no_acl_found=allow_everyone)
    for pattern, bindings in itertools.groupby(sorted(acls), key=lambda binding: binding.pattern):
        authorizer.put(pattern, [binding.entry for binding in bindings])
    return authorizer


def compare(kafka: SecuredBroker, authorizer: Authorizer, user: str, host: str) -> None:
    principal = Principal("User", user)
    client = kafka.connect_as(user, host)
    try:
        differing = {
            question: code
            for question, code in kafkas_answers(client).items()
            if (code != DENIED[question.resource_type]) is not our_answer(authorizer, principal, host, question)
        }
        assert differing == {}, f"{user} from {host}"
        assert our_bit_fields(authorizer, principal, host) == kafkas_bit_fields(client), f"{user} from {host}"
    finally:
        client.close()


@pytest.mark.parametrize("seed", range(30))
def test_random_acls_decide_as_kafkas_do(cluster: Cluster, seed: int) -> None:
    acls = random_acls(seed)
    assert sorted(put_in_force(cluster.zookeeper.connect, acls)) == acls
    for kafka, allow_everyone in ((cluster.strict, False), (cluster.lenient, True)):
        admin = kafka.connect()
        until(lambda admin=admin: kafkas_acls(admin) == set(acls), "Kafka follows", UPDATES_S)  # type: ignore[misc]
        admin.close()
        authorizer = of_acls(acls, allow_everyone)
        for user, host in itertools.product(USERS, HOSTS):
            compare(kafka, authorizer, user, host)


def test_without_any_acl_the_setting_decides_as_in_kafka(cluster: Cluster) -> None:
    put_in_force(cluster.zookeeper.connect, [])
    for kafka, allow_everyone in ((cluster.strict, False), (cluster.lenient, True)):
        admin = kafka.connect()
        until(lambda admin=admin: kafkas_acls(admin) == set(), "Kafka follows", UPDATES_S)  # type: ignore[misc]
        admin.close()
        compare(kafka, of_acls([], allow_everyone), "alice", "127.0.0.1")


def test_denials_are_audited_in_kafkas_words(cluster: Cluster) -> None:
    put_in_force(cluster.zookeeper.connect, [])
    admin = cluster.strict.connect()
    until(lambda: kafkas_acls(admin) == set(), "Kafka follows", UPDATES_S)
    admin.close()
    client = cluster.strict.connect_as("bob", "127.0.0.2")
    answers = kafkas_answers(client)
    client.close()
    requests = {
        (AclOperation.DESCRIBE, TOPIC): "ListOffsets",
        (AclOperation.WRITE, TOPIC): "Produce",
        (AclOperation.READ, GROUP): "Heartbeat",
        (AclOperation.DESCRIBE_CONFIGS, TOPIC): "DescribeConfigs",
        (AclOperation.WRITE, TRANSACTIONAL_ID): "EndTxn",
        (AclOperation.CLUSTER_ACTION, CLUSTER): "AllocateProducerIds",
    }
    bob = Principal("User", "bob")
    lines = [
        str(AuditRecord(bob, False, question.operation, "127.0.0.2", question.resource_type, question.name, request))
        for question in answers
        if (request := requests.get(question[:2]))
    ]
    assert len(lines) == 5 * len(NAMES) + 1
    log = cluster.strict.broker.log
    until(lambda: all(line in log.read_text() for line in lines), lambda: lines, UPDATES_S)
