"""An example for each row of the table of authorization: a request that needs the right."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from uuid import UUID

from leadline.api import TABLE
from leadline.api.authorization import AUTHORIZATION, Requirement, Right
from leadline.security.acls import CLUSTER_NAME, AclBinding, AclOperation, ResourceType
from leadline.wire import messages as m
from leadline.wire.classes import Message
from leadline.wire.classes import Struct as Part
from tests.support.authorized_broker import DENY, rule
from tests.support.logs import batch

TOPIC, GROUP, TXN_ID = "t", "g", "x"
NAMES = {
    ResourceType.TOPIC: TOPIC,
    ResourceType.GROUP: GROUP,
    ResourceType.TRANSACTIONAL_ID: TXN_ID,
    ResourceType.CLUSTER: CLUSTER_NAME,
}
REFUSALS = {29, 30, 31, 53}


class Setup(NamedTuple):
    topic_id: UUID
    broker_id: int


class Example(NamedTuple):
    request: Callable[[Setup], Message]
    version: int
    shows: Callable[[Message], bool] | None = None  # whether the response shows what may be hidden


def produce(transactional: bool, transactional_id: str | None) -> Message:
    data = batch(1, producer_id=5, transactional=True) if transactional else batch(1)
    part = m.ProduceRequest.PartitionProduceData(index=0, records=bytes(data))
    topic = m.ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[part])
    return m.ProduceRequest(transactional_id=transactional_id, acks=1, timeout_ms=1000, topic_data=[topic])


def fetch(replica: int) -> Message:
    part = m.FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    topic = m.FetchRequest.FetchTopic(topic=TOPIC, partitions=[part])
    return m.FetchRequest(replica_id=replica, max_wait_ms=0, topics=[topic])


def metadata_of(*topics: UUID | str, create: bool = False, operations: bool = False) -> Message:
    return m.MetadataRequest(
        topics=[
            m.MetadataRequest.MetadataRequestTopic(topic_id=topic, name=None)
            if isinstance(topic, UUID)
            else m.MetadataRequest.MetadataRequestTopic(name=topic)
            for topic in topics
        ],
        allow_auto_topic_creation=create,
        include_cluster_authorized_operations=operations,
    )


def commit(kind: type[m.OffsetCommitRequest] | type[m.TxnOffsetCommitRequest]) -> Message:
    if kind is m.OffsetCommitRequest:
        part = m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        topic = m.OffsetCommitRequest.OffsetCommitRequestTopic(name=TOPIC, partitions=[part])
        return m.OffsetCommitRequest(group_id=GROUP, topics=[topic])
    txn_part = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    txn_topic = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[txn_part])
    return m.TxnOffsetCommitRequest(
        transactional_id=TXN_ID, group_id=GROUP, producer_id=5, producer_epoch=0, topics=[txn_topic]
    )


def fetch_offsets(topics: bool) -> Message:
    named = [m.OffsetFetchRequest.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])] if topics else None
    return m.OffsetFetchRequest(groups=[m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=GROUP, topics=named)])


def configs_of(kind: int, name: str, keys: list[str] | None = None) -> Message:
    resource = m.DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    return m.DescribeConfigsRequest(resources=[resource])


def alter(kind: int, name: str, setting: str) -> Message:
    config = m.AlterConfigsRequest.AlterableConfig(name=setting, value="7")
    resource = m.AlterConfigsRequest.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
    return m.AlterConfigsRequest(resources=[resource], validate_only=True)


def alter_incrementally(kind: int, name: str, setting: str) -> Message:
    config = m.IncrementalAlterConfigsRequest.AlterableConfig(name=setting, config_operation=0, value="7")
    resource = m.IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=[config]
    )
    return m.IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)


def alter_quotas() -> Message:
    part = m.AlterClientQuotasRequest.EntityData(entity_type="client-id", entity_name="somebody")
    change = m.AlterClientQuotasRequest.OpData(key="producer_byte_rate", value=1e9)
    entry = m.AlterClientQuotasRequest.EntryData(entity=[part], ops=[change])
    return m.AlterClientQuotasRequest(entries=[entry], validate_only=True)


def add_partitions(version: int) -> Message:
    topic = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])
    if version < 4:
        return m.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TXN_ID,
            v3_and_below_producer_id=5,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=[topic],
        )
    txn = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
        transactional_id=TXN_ID, producer_id=5, producer_epoch=0, verify_only=True, topics=[topic]
    )
    return m.AddPartitionsToTxnRequest(transactions=[txn])


def create_topic(name: str) -> Message:
    topic = m.CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return m.CreateTopicsRequest(topics=[topic], timeout_ms=1000, validate_only=True)


def find(key_type: int, key: str) -> Message:
    return m.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])


def markers() -> Message:
    topic = m.WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0])
    marker = m.WriteTxnMarkersRequest.WritableTxnMarker(producer_id=99, producer_epoch=0, topics=[topic])
    return m.WriteTxnMarkersRequest(markers=[marker])


def acl_filter() -> dict[str, Any]:
    names = {"resource_name_filter": "nothing", "principal_filter": None, "host_filter": None}
    return {"resource_type_filter": 2, "pattern_type_filter": 3, "operation": 1, "permission_type": 1, **names}


def elect() -> Message:
    topic = m.ElectLeadersRequest.TopicPartitions(topic=TOPIC, partitions=[0])
    return m.ElectLeadersRequest(topic_partitions=[topic], timeout_ms=1000)


def move_dirs() -> Message:
    topic = m.AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=TOPIC, partitions=[0])
    return m.AlterReplicaLogDirsRequest(
        dirs=[m.AlterReplicaLogDirsRequest.AlterReplicaLogDir(path="/nowhere", topics=[topic])]
    )


def reassign() -> Message:
    part = m.AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=0, replicas=None)
    topic = m.AlterPartitionReassignmentsRequest.ReassignableTopic(name=TOPIC, partitions=[part])
    return m.AlterPartitionReassignmentsRequest(topics=[topic])


def creation() -> Message:
    return m.CreateAclsRequest(
        creations=[
            m.CreateAclsRequest.AclCreation(
                resource_type=2, resource_name="t", principal="User:zoe", host="*", operation=3, permission_type=3
            )
        ]
    )


def delete_credential() -> Message:
    deletion = m.AlterUserScramCredentialsRequest.ScramCredentialDeletion(name="nobody", mechanism=1)
    return m.AlterUserScramCredentialsRequest(deletions=[deletion])


def offsets_of(kind: str) -> Message:
    if kind == "epoch":
        epoch = m.OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=0, leader_epoch=0)
        topic = m.OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=TOPIC, partitions=[epoch])
        return m.OffsetForLeaderEpochRequest(topics=[topic])
    part = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    return m.ListOffsetsRequest(topics=[m.ListOffsetsRequest.ListOffsetsTopic(name=TOPIC, partitions=[part])])


def delete_offsets() -> Message:
    part = m.OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)
    topic = m.OffsetDeleteRequest.OffsetDeleteRequestTopic(name=TOPIC, partitions=[part])
    return m.OffsetDeleteRequest(group_id=GROUP, topics=[topic])


def delete_records() -> Message:
    part = m.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=0)
    return m.DeleteRecordsRequest(
        topics=[m.DeleteRecordsRequest.DeleteRecordsTopic(name=TOPIC, partitions=[part])], timeout_ms=1000
    )


def lead(topic_id: UUID) -> Message:
    """From a controller of the past."""
    state = m.LeaderAndIsrRequest.LeaderAndIsrPartitionState(partition_index=0, leader=1, replicas=[1], isr=[1])
    topic = m.LeaderAndIsrRequest.LeaderAndIsrTopicState(
        topic_name=TOPIC, topic_id=topic_id, partition_states=[state, state]
    )
    return m.LeaderAndIsrRequest(controller_epoch=0, topic_states=[topic])


def stop() -> Message:
    """From a controller of the past."""
    state = m.StopReplicaRequest.StopReplicaPartitionState(partition_index=0)
    topic = m.StopReplicaRequest.StopReplicaTopicState(topic_name=TOPIC, partition_states=[state])
    return m.StopReplicaRequest(controller_epoch=0, topic_states=[topic])


def names_in(message: Message, field: str) -> set[object]:
    return {value for name, value in fields_of(message) if name == field}


def example(request: Message, version: int, shows: Callable[[Message], bool] | None = None) -> Example:
    return Example(lambda setup: request, version, shows)


def operations_of_the_cluster(message: Message) -> bool:
    (bits,) = names_in(message, "cluster_authorized_operations")
    return bits != 0


EXAMPLES: dict[tuple[str, str], Example] = {
    ("Produce", "transactional batches"): example(produce(True, TXN_ID), 9),
    ("Produce", "topics"): example(produce(False, None), 9),
    ("Fetch", "topics"): example(fetch(-1), 12),
    ("Fetch", "replica"): example(fetch(1), 12),
    ("ListOffsets", "topics"): example(offsets_of("time"), 8),
    ("OffsetForLeaderEpoch", "topics"): example(offsets_of("epoch"), 4),
    ("Metadata", "topics"): example(metadata_of(TOPIC), 12),
    ("Metadata", "topic ids"): Example(lambda setup: metadata_of(setup.topic_id), 12),
    ("Metadata", "all topics"): example(
        m.MetadataRequest(topics=None), 12, lambda message: TOPIC in names_in(message, "name")
    ),
    ("Metadata", "auto-creation"): example(metadata_of("new", create=True), 12),
    ("Metadata", "authorized operations of the cluster"): example(
        metadata_of(operations=True), 10, operations_of_the_cluster
    ),
    ("DescribeCluster", "authorized operations of the cluster"): example(
        m.DescribeClusterRequest(include_cluster_authorized_operations=True), 1, operations_of_the_cluster
    ),
    ("LeaderAndIsr", "cluster"): Example(lambda setup: lead(setup.topic_id), 7),
    ("StopReplica", "cluster"): example(stop(), 4),
    ("UpdateMetadata", "cluster"): example(m.UpdateMetadataRequest(controller_epoch=0), 8),
    ("ControlledShutdown", "cluster"): example(m.ControlledShutdownRequest(broker_id=77, broker_epoch=-1), 3),
    ("AlterPartition", "cluster"): example(m.AlterPartitionRequest(broker_id=77, broker_epoch=1), 3),
    ("AllocateProducerIds", "cluster"): example(m.AllocateProducerIdsRequest(broker_id=77, broker_epoch=1), 0),
    ("OffsetCommit", "group"): example(commit(m.OffsetCommitRequest), 8),
    ("OffsetCommit", "topics"): example(commit(m.OffsetCommitRequest), 8),
    ("OffsetFetch", "groups"): example(fetch_offsets(topics=True), 8),
    ("OffsetFetch", "topics"): example(fetch_offsets(topics=True), 8),
    ("OffsetFetch", "all topics"): example(
        fetch_offsets(topics=False), 8, lambda message: TOPIC in names_in(message, "name")
    ),
    ("FindCoordinator", "groups"): example(find(0, GROUP), 4),
    ("FindCoordinator", "transactional ids"): example(find(1, TXN_ID), 4),
    ("JoinGroup", "group"): example(m.JoinGroupRequest(group_id=GROUP, session_timeout_ms=1, protocol_type="x"), 9),
    ("SyncGroup", "group"): example(
        m.SyncGroupRequest(group_id=GROUP, member_id="m", protocol_type="x", protocol_name="x"), 5
    ),
    ("Heartbeat", "group"): example(m.HeartbeatRequest(group_id=GROUP, member_id="m"), 4),
    ("LeaveGroup", "group"): example(m.LeaveGroupRequest(group_id=GROUP), 5),
    ("DescribeGroups", "groups"): example(m.DescribeGroupsRequest(groups=[GROUP]), 5),
    ("ListGroups", "groups"): example(m.ListGroupsRequest(), 5, lambda message: GROUP in names_in(message, "group_id")),
    ("DeleteGroups", "groups"): example(m.DeleteGroupsRequest(groups_names=[GROUP]), 2),
    ("OffsetDelete", "group"): example(delete_offsets(), 0),
    ("OffsetDelete", "topics"): example(delete_offsets(), 0),
    ("CreateTopics", "topics"): example(create_topic("t"), 7),
    ("CreateTopics", "configs"): example(
        create_topic("t2"), 7, lambda message: names_in(message, "topic_config_error_code") == {0}
    ),
    ("CreatePartitions", "topics"): example(
        m.CreatePartitionsRequest(
            topics=[m.CreatePartitionsRequest.CreatePartitionsTopic(name=TOPIC, count=1, assignments=None)]
        ),
        3,
    ),
    ("DeleteTopics", "topics"): example(
        m.DeleteTopicsRequest(topics=[m.DeleteTopicsRequest.DeleteTopicState(name=TOPIC)], timeout_ms=1000), 6
    ),
    ("DeleteTopics", "topic ids"): Example(
        lambda setup: m.DeleteTopicsRequest(
            topics=[m.DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=setup.topic_id)], timeout_ms=1000
        ),
        6,
        lambda message: TOPIC in names_in(message, "name"),
    ),
    ("DeleteRecords", "topics"): example(delete_records(), 2),
    ("InitProducerId", "transactional id"): example(
        m.InitProducerIdRequest(transactional_id=TXN_ID, transaction_timeout_ms=1000), 4
    ),
    ("InitProducerId", "no transactional id"): example(
        m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4
    ),
    ("AddPartitionsToTxn", "transactional id"): example(add_partitions(3), 3),
    ("AddPartitionsToTxn", "topics"): example(add_partitions(3), 3),
    ("AddPartitionsToTxn", "transactions"): example(add_partitions(4), 4),
    ("AddOffsetsToTxn", "transactional id"): example(
        m.AddOffsetsToTxnRequest(transactional_id=TXN_ID, producer_id=5, producer_epoch=0, group_id=GROUP), 3
    ),
    ("AddOffsetsToTxn", "group"): example(
        m.AddOffsetsToTxnRequest(transactional_id=TXN_ID, producer_id=5, producer_epoch=0, group_id=GROUP), 3
    ),
    ("EndTxn", "transactional id"): example(
        m.EndTxnRequest(transactional_id=TXN_ID, producer_id=5, producer_epoch=0, committed=True), 3
    ),
    ("WriteTxnMarkers", "cluster"): example(markers(), 1),
    ("TxnOffsetCommit", "transactional id"): example(commit(m.TxnOffsetCommitRequest), 3),
    ("TxnOffsetCommit", "group"): example(commit(m.TxnOffsetCommitRequest), 3),
    ("TxnOffsetCommit", "topics"): example(commit(m.TxnOffsetCommitRequest), 3),
    ("DescribeAcls", "cluster"): example(m.DescribeAclsRequest(**acl_filter()), 3),
    ("CreateAcls", "cluster"): example(creation(), 3),
    ("DeleteAcls", "cluster"): example(
        m.DeleteAclsRequest(filters=[m.DeleteAclsRequest.DeleteAclsFilter(**acl_filter())]), 3
    ),
    ("DescribeUserScramCredentials", "cluster"): example(
        m.DescribeUserScramCredentialsRequest(
            users=[m.DescribeUserScramCredentialsRequest.UserName(name="nobody")]  # Kafka never refuses to name all
        ),
        0,
    ),
    ("AlterUserScramCredentials", "cluster"): example(delete_credential(), 0),
    ("DescribeConfigs", "topics"): example(configs_of(2, TOPIC), 4),
    ("DescribeConfigs", "brokers"): Example(lambda setup: configs_of(4, str(setup.broker_id)), 4),
    ("DescribeConfigs", "groups"): Example(
        lambda setup: configs_of(4, str(setup.broker_id), [f"leadline.rebalances.{GROUP}"]), 4
    ),
    ("AlterConfigs", "topics"): example(alter(2, TOPIC, "retention.ms"), 2),
    ("AlterConfigs", "brokers"): Example(lambda setup: alter(4, str(setup.broker_id), "max.connections"), 2),
    ("IncrementalAlterConfigs", "topics"): example(alter_incrementally(2, TOPIC, "retention.ms"), 1),
    ("IncrementalAlterConfigs", "brokers"): Example(
        lambda setup: alter_incrementally(4, str(setup.broker_id), "max.connections"), 1
    ),
    ("AlterReplicaLogDirs", "cluster"): example(move_dirs(), 2),
    ("DescribeLogDirs", "cluster"): example(m.DescribeLogDirsRequest(topics=None), 4),
    ("ElectLeaders", "cluster"): example(elect(), 2),
    ("AlterPartitionReassignments", "cluster"): example(reassign(), 0),
    ("ListPartitionReassignments", "cluster"): example(m.ListPartitionReassignmentsRequest(topics=None), 0),
    ("DescribeClientQuotas", "cluster"): example(m.DescribeClientQuotasRequest(components=[], strict=False), 1),
    ("AlterClientQuotas", "cluster"): example(alter_quotas(), 1),
    ("UpdateFeatures", "cluster"): example(m.UpdateFeaturesRequest(), 1),
    ("DescribeProducers", "topics"): example(
        m.DescribeProducersRequest(topics=[m.DescribeProducersRequest.TopicRequest(name=TOPIC, partition_indexes=[0])]),
        0,
    ),
    ("DescribeTransactions", "transactional ids"): example(
        m.DescribeTransactionsRequest(transactional_ids=[TXN_ID]), 0
    ),
    ("DescribeTransactions", "topics"): example(
        m.DescribeTransactionsRequest(transactional_ids=[TXN_ID]),
        0,
        lambda message: TOPIC in names_in(message, "topic"),
    ),
    ("ListTransactions", "transactional ids"): example(
        m.ListTransactionsRequest(), 1, lambda message: TXN_ID in names_in(message, "transactional_id")
    ),
}

OF_OTHERS = {38, 39, 40, 41}  # tokens: they need a login; see the tests of `api/delegation_tokens.py`


class AuthorizationRow(NamedTuple):
    """One requirement of one request."""

    key: int  # of the request
    requirement: Requirement

    @property
    def request_name(self) -> str:
        return AUTHORIZATION[self.key].name

    @property
    def example(self) -> Example:
        return EXAMPLES[self.request_name, self.requirement.part]

    @property
    def topic(self) -> str:
        """The one that the example names."""
        return {"auto-creation": "new", "configs": "t2"}.get(self.requirement.part, TOPIC)

    def others(self) -> list[AclBinding]:
        """Everything else that the request needs."""
        if self.key == 20 and self.requirement.part == "topic ids":
            return []  # DELETE implies DESCRIBE
        return [
            self.allowing(other.any_of[0])
            for other in AUTHORIZATION[self.key].requirements
            if self.example.version in other.versions and not set(other.any_of) & set(self.requirement.any_of)
        ]

    def allowing(self, right: Right) -> AclBinding:
        name = self.topic if right.resource_type is ResourceType.TOPIC else NAMES[right.resource_type]
        return rule(right.operation, right.resource_type, name)

    def denying(self) -> list[AclBinding]:
        """Everything is allowed, but each of the rights is denied."""
        bindings = [rule(AclOperation.ALL, kind, name) for kind, name in NAMES.items()]
        bindings += [rule(AclOperation.ALL, ResourceType.TOPIC, name) for name in ("t2", "new")]
        for right in self.requirement.any_of:
            (kind, name, _), _ = self.allowing(right)
            bindings.append(rule(right.operation, kind, "*" if right.anywhere else name, DENY))
        return bindings

    def __str__(self) -> str:
        return f"{self.request_name}: {self.requirement.part}"


# Logins, and what is refused before anything is looked at, have no rows.
ROWS = [
    AuthorizationRow(key, requirement)
    for key in TABLE
    if key not in OF_OTHERS
    for requirement in AUTHORIZATION[key].requirements
]


def fields_of(message: Part) -> Iterator[tuple[str, object]]:
    for field in message.SPEC.fields:
        value = getattr(message, field.name)
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, Part):
                yield from fields_of(item)
            else:
                yield field.name, item


def codes_in(message: Message) -> set[object]:
    return {value for name, value in fields_of(message) if name.endswith("error_code")}
