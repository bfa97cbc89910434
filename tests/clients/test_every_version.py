"""Every version of a request is answered with what kio, a codec of other people, reads as that version of the answer.

Twice each: for a topic that is there, and for one that is not. kio knows no versions that Kafka 4 no longer has; for
those it is our own codec that reads the answer.
"""

from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from leadline.api import TABLE
from leadline.wire import messages as m
from leadline.wire.classes import Message
from leadline.wire.frames import parse_response
from tests.clients.client import Client
from tests.conformance.both import Connection
from tests.support.broker import RunningBroker
from tests.support.logs import batch

TOPIC, BROKER, DESCRIBE_ALL = 2, 4, None
LATEST = -1


class Target(NamedTuple):
    """What a request is about."""

    topic: str
    topic_id: UUID
    directory: str
    broker: int


Maker = Callable[[int, Target], Message]


def produce(version: int, target: Target) -> Message:
    part = m.ProduceRequest.PartitionProduceData(index=0, records=bytes(batch(3)))
    topic = m.ProduceRequest.TopicProduceData(name=target.topic, partition_data=[part])
    return m.ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])


def fetch(version: int, target: Target) -> Message:
    part = m.FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    topic = m.FetchRequest.FetchTopic(topic=target.topic, topic_id=target.topic_id, partitions=[part])
    return m.FetchRequest(max_wait_ms=10, min_bytes=1, session_epoch=0, topics=[topic])


def list_offsets(version: int, target: Target) -> Message:
    part = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=LATEST)
    topic = m.ListOffsetsRequest.ListOffsetsTopic(name=target.topic, partitions=[part])
    return m.ListOffsetsRequest(replica_id=-1, topics=[topic])


def metadata(version: int, target: Target) -> Message:
    return m.MetadataRequest(
        topics=[m.MetadataRequest.MetadataRequestTopic(name=target.topic)], allow_auto_topic_creation=version < 4
    )


def find_coordinator(version: int, target: Target) -> Message:
    if version < 4:
        return m.FindCoordinatorRequest(key="group")
    return m.FindCoordinatorRequest(coordinator_keys=["group", "other"])


def create_topics(version: int, target: Target) -> Message:
    """It is there, or would be created."""
    topic = m.CreateTopicsRequest.CreatableTopic(name=target.topic, num_partitions=1, replication_factor=1)
    return m.CreateTopicsRequest(topics=[topic] if version else [], validate_only=version >= 1)


def delete_topics(version: int, target: Target) -> Message:
    """One that is not there in any case."""
    name = f"{target.topic}-not"
    if version < 6:
        return m.DeleteTopicsRequest(topic_names=[name])
    return m.DeleteTopicsRequest(topics=[m.DeleteTopicsRequest.DeleteTopicState(name=name)])


def delete_records(version: int, target: Target) -> Message:
    part = m.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=0)
    topic = m.DeleteRecordsRequest.DeleteRecordsTopic(name=target.topic, partitions=[part])
    return m.DeleteRecordsRequest(topics=[topic], timeout_ms=1000)


def offset_for_leader_epoch(version: int, target: Target) -> Message:
    part = m.OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    topic = m.OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=target.topic, partitions=[part])
    return m.OffsetForLeaderEpochRequest(topics=[topic])


def describe_configs(version: int, target: Target) -> Message:
    kind = m.DescribeConfigsRequest.DescribeConfigsResource
    topic = kind(resource_type=TOPIC, resource_name=target.topic, configuration_keys=DESCRIBE_ALL)
    broker = kind(resource_type=BROKER, resource_name=str(target.broker), configuration_keys=DESCRIBE_ALL)
    return m.DescribeConfigsRequest(
        resources=[topic, broker], include_synonyms=version >= 1, include_documentation=version >= 3
    )


def alter_configs(version: int, target: Target) -> Message:
    entry = m.AlterConfigsRequest.AlterableConfig(name="retention.ms", value="5")
    topic = m.AlterConfigsRequest.AlterConfigsResource(resource_type=TOPIC, resource_name=target.topic, configs=[entry])
    return m.AlterConfigsRequest(resources=[topic], validate_only=True)


def incremental_alter_configs(version: int, target: Target) -> Message:
    entry = m.IncrementalAlterConfigsRequest.AlterableConfig(name="retention.ms", config_operation=0, value="5")
    topic = m.IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=TOPIC, resource_name=target.topic, configs=[entry]
    )
    return m.IncrementalAlterConfigsRequest(resources=[topic], validate_only=True)


def alter_replica_log_dirs(version: int, target: Target) -> Message:
    topic = m.AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=target.topic, partitions=[0])
    directory = m.AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=target.directory, topics=[topic])
    return m.AlterReplicaLogDirsRequest(dirs=[directory])


def create_partitions(version: int, target: Target) -> Message:
    topic = m.CreatePartitionsRequest.CreatePartitionsTopic(name=target.topic, count=2, assignments=None)
    return m.CreatePartitionsRequest(topics=[topic], timeout_ms=1000, validate_only=True)


def elect_leaders(version: int, target: Target) -> Message:
    topic = m.ElectLeadersRequest.TopicPartitions(topic=target.topic, partitions=[0])
    return m.ElectLeadersRequest(topic_partitions=[topic])


def describe_producers(version: int, target: Target) -> Message:
    topic = m.DescribeProducersRequest.TopicRequest(name=target.topic, partition_indexes=[0])
    return m.DescribeProducersRequest(topics=[topic])


def offset_commit(version: int, target: Target) -> Message:
    part = m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=3)
    topic = m.OffsetCommitRequest.OffsetCommitRequestTopic(name=target.topic, partitions=[part])
    return m.OffsetCommitRequest(group_id=target.topic, topics=[topic])


def offset_fetch(version: int, target: Target) -> Message:
    if version < 8:
        topic = m.OffsetFetchRequest.OffsetFetchRequestTopic(name=target.topic, partition_indexes=[0, 1])
        return m.OffsetFetchRequest(group_id=target.topic, topics=[topic])
    of_group = m.OffsetFetchRequest.OffsetFetchRequestTopics(name=target.topic, partition_indexes=[0, 1])
    groups = [
        m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=target.topic, topics=[of_group]),
        m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id="other", topics=None),
    ]
    return m.OffsetFetchRequest(groups=groups)


def offset_delete(version: int, target: Target) -> Message:
    part = m.OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)
    topic = m.OffsetDeleteRequest.OffsetDeleteRequestTopic(name=target.topic, partitions=[part])
    return m.OffsetDeleteRequest(group_id=target.topic, topics=[topic])


def join_group(version: int, target: Target) -> Message:
    """Each in a group of its own, so that none waits for another."""
    protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"any")
    return m.JoinGroupRequest(
        group_id=f"{target.topic}-{version}",
        session_timeout_ms=6000,
        rebalance_timeout_ms=1000 if version else -1,
        protocol_type="consumer",
        protocols=[protocol],
    )


def sync_group(version: int, target: Target) -> Message:
    request = m.SyncGroupRequest(group_id=target.topic, generation_id=1, member_id="nobody")
    if version >= 5:
        request.protocol_type, request.protocol_name = "consumer", "range"
    return request


def heartbeat(version: int, target: Target) -> Message:
    return m.HeartbeatRequest(group_id=target.topic, generation_id=1, member_id="nobody")


def leave_group(version: int, target: Target) -> Message:
    if version < 3:
        return m.LeaveGroupRequest(group_id=target.topic, member_id="nobody")
    return m.LeaveGroupRequest(group_id=target.topic, members=[m.LeaveGroupRequest.MemberIdentity(member_id="nobody")])


def add_partitions_to_txn(version: int, target: Target) -> Message:
    topic = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=target.topic, partitions=[0])
    if version < 4:
        return m.AddPartitionsToTxnRequest(v3_and_below_transactional_id=target.topic, v3_and_below_topics=[topic])
    kind = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
    return m.AddPartitionsToTxnRequest(transactions=[kind(transactional_id=target.topic, topics=[topic])])


def txn_offset_commit(version: int, target: Target) -> Message:
    part = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=3)
    topic = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=target.topic, partitions=[part])
    return m.TxnOffsetCommitRequest(transactional_id=target.topic, group_id=target.topic, topics=[topic])


def write_txn_markers(version: int, target: Target) -> Message:
    topic = m.WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=target.topic, partition_indexes=[0, 7])
    marker = m.WriteTxnMarkersRequest.WritableTxnMarker(producer_id=900, topics=[topic])
    return m.WriteTxnMarkersRequest(markers=[marker])


def alter_reassignments(_: int, to: Target) -> Message:
    """Called off: where nothing is under way, nothing happens."""
    partition = m.AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=0, replicas=None)
    topic = m.AlterPartitionReassignmentsRequest.ReassignableTopic(name=to.topic, partitions=[partition])
    return m.AlterPartitionReassignmentsRequest(topics=[topic])


MAKERS: list[tuple[type[Message], type[Message], Maker]] = [
    (m.ProduceRequest, m.ProduceResponse, produce),
    (m.FetchRequest, m.FetchResponse, fetch),
    (m.ListOffsetsRequest, m.ListOffsetsResponse, list_offsets),
    (m.MetadataRequest, m.MetadataResponse, metadata),
    (m.FindCoordinatorRequest, m.FindCoordinatorResponse, find_coordinator),
    (m.ApiVersionsRequest, m.ApiVersionsResponse, lambda *_: m.ApiVersionsRequest()),
    (m.CreateTopicsRequest, m.CreateTopicsResponse, create_topics),
    (m.DeleteTopicsRequest, m.DeleteTopicsResponse, delete_topics),
    (m.DeleteRecordsRequest, m.DeleteRecordsResponse, delete_records),
    (m.InitProducerIdRequest, m.InitProducerIdResponse, lambda *_: m.InitProducerIdRequest(transactional_id=None)),
    (m.OffsetForLeaderEpochRequest, m.OffsetForLeaderEpochResponse, offset_for_leader_epoch),
    (m.DescribeConfigsRequest, m.DescribeConfigsResponse, describe_configs),
    (m.AlterConfigsRequest, m.AlterConfigsResponse, alter_configs),
    (m.IncrementalAlterConfigsRequest, m.IncrementalAlterConfigsResponse, incremental_alter_configs),
    (m.AlterReplicaLogDirsRequest, m.AlterReplicaLogDirsResponse, alter_replica_log_dirs),
    (m.DescribeLogDirsRequest, m.DescribeLogDirsResponse, lambda *_: m.DescribeLogDirsRequest(topics=None)),
    (m.CreatePartitionsRequest, m.CreatePartitionsResponse, create_partitions),
    (m.ElectLeadersRequest, m.ElectLeadersResponse, elect_leaders),
    (m.DescribeClusterRequest, m.DescribeClusterResponse, lambda *_: m.DescribeClusterRequest()),
    (m.DescribeProducersRequest, m.DescribeProducersResponse, describe_producers),
    (m.OffsetCommitRequest, m.OffsetCommitResponse, offset_commit),
    (m.OffsetFetchRequest, m.OffsetFetchResponse, offset_fetch),
    (m.OffsetDeleteRequest, m.OffsetDeleteResponse, offset_delete),
    (m.JoinGroupRequest, m.JoinGroupResponse, join_group),
    (m.SyncGroupRequest, m.SyncGroupResponse, sync_group),
    (m.HeartbeatRequest, m.HeartbeatResponse, heartbeat),
    (m.LeaveGroupRequest, m.LeaveGroupResponse, leave_group),
    (m.DescribeGroupsRequest, m.DescribeGroupsResponse, lambda _, to: m.DescribeGroupsRequest(groups=[to.topic])),
    (m.ListGroupsRequest, m.ListGroupsResponse, lambda *_: m.ListGroupsRequest()),
    (m.AddPartitionsToTxnRequest, m.AddPartitionsToTxnResponse, add_partitions_to_txn),
    (
        m.AddOffsetsToTxnRequest,
        m.AddOffsetsToTxnResponse,
        lambda _, to: m.AddOffsetsToTxnRequest(transactional_id=to.topic, group_id=to.topic),
    ),
    (m.EndTxnRequest, m.EndTxnResponse, lambda _, to: m.EndTxnRequest(transactional_id=to.topic)),
    (m.TxnOffsetCommitRequest, m.TxnOffsetCommitResponse, txn_offset_commit),
    (m.WriteTxnMarkersRequest, m.WriteTxnMarkersResponse, write_txn_markers),
    (
        m.DescribeTransactionsRequest,
        m.DescribeTransactionsResponse,
        lambda _, to: m.DescribeTransactionsRequest(transactional_ids=[to.topic]),
    ),
    (m.ListTransactionsRequest, m.ListTransactionsResponse, lambda *_: m.ListTransactionsRequest()),
    (m.DeleteGroupsRequest, m.DeleteGroupsResponse, lambda _, to: m.DeleteGroupsRequest(groups_names=[to.topic])),
    (m.AlterPartitionReassignmentsRequest, m.AlterPartitionReassignmentsResponse, alter_reassignments),
    (
        m.ListPartitionReassignmentsRequest,
        m.ListPartitionReassignmentsResponse,
        lambda *_: m.ListPartitionReassignmentsRequest(topics=None),
    ),
    (
        m.DescribeClientQuotasRequest,
        m.DescribeClientQuotasResponse,
        lambda *_: m.DescribeClientQuotasRequest(components=[], strict=False),
    ),
    (
        m.AlterClientQuotasRequest,
        m.AlterClientQuotasResponse,
        lambda _, to: m.AlterClientQuotasRequest(
            entries=[
                m.AlterClientQuotasRequest.EntryData(
                    entity=[m.AlterClientQuotasRequest.EntityData(entity_type="user", entity_name=to.topic)],
                    ops=[m.AlterClientQuotasRequest.OpData(key="producer_byte_rate", value=1e9)],
                )
            ],
            validate_only=True,
        ),
    ),
    # What needs security or newer groups: it is refused, with an answer that clients understand.
    (m.SaslHandshakeRequest, m.SaslHandshakeResponse, lambda *_: m.SaslHandshakeRequest(mechanism="PLAIN")),
    (m.SaslAuthenticateRequest, m.SaslAuthenticateResponse, lambda *_: m.SaslAuthenticateRequest(auth_bytes=b"")),
    (
        m.DescribeAclsRequest,
        m.DescribeAclsResponse,
        lambda *_: m.DescribeAclsRequest(resource_type_filter=1, operation=1, permission_type=1),
    ),
    (m.CreateAclsRequest, m.CreateAclsResponse, lambda *_: m.CreateAclsRequest()),
    (m.DeleteAclsRequest, m.DeleteAclsResponse, lambda *_: m.DeleteAclsRequest()),
    (
        m.DescribeUserScramCredentialsRequest,
        m.DescribeUserScramCredentialsResponse,
        lambda _, to: m.DescribeUserScramCredentialsRequest(
            users=[m.DescribeUserScramCredentialsRequest.UserName(name=to.topic)]
        ),
    ),
    (
        m.AlterUserScramCredentialsRequest,
        m.AlterUserScramCredentialsResponse,
        lambda _, to: m.AlterUserScramCredentialsRequest(
            deletions=[m.AlterUserScramCredentialsRequest.ScramCredentialDeletion(name=to.topic, mechanism=1)]
        ),
    ),
    (m.CreateDelegationTokenRequest, m.CreateDelegationTokenResponse, lambda *_: m.CreateDelegationTokenRequest()),
    (m.RenewDelegationTokenRequest, m.RenewDelegationTokenResponse, lambda *_: m.RenewDelegationTokenRequest()),
    (m.ExpireDelegationTokenRequest, m.ExpireDelegationTokenResponse, lambda *_: m.ExpireDelegationTokenRequest()),
    (
        m.DescribeDelegationTokenRequest,
        m.DescribeDelegationTokenResponse,
        lambda *_: m.DescribeDelegationTokenRequest(owners=None),
    ),
    (m.UpdateFeaturesRequest, m.UpdateFeaturesResponse, lambda *_: m.UpdateFeaturesRequest()),
    (
        m.ConsumerGroupHeartbeatRequest,
        m.ConsumerGroupHeartbeatResponse,
        lambda _, to: m.ConsumerGroupHeartbeatRequest(group_id=to.topic),
    ),
    (
        m.ConsumerGroupDescribeRequest,
        m.ConsumerGroupDescribeResponse,
        lambda _, to: m.ConsumerGroupDescribeRequest(group_ids=[to.topic]),
    ),
    # What brokers ask each other: whoever asks one that is alone is refused.
    (m.LeaderAndIsrRequest, m.LeaderAndIsrResponse, lambda *_: m.LeaderAndIsrRequest()),
    (m.StopReplicaRequest, m.StopReplicaResponse, lambda *_: m.StopReplicaRequest()),
    (m.UpdateMetadataRequest, m.UpdateMetadataResponse, lambda *_: m.UpdateMetadataRequest()),
    (m.ControlledShutdownRequest, m.ControlledShutdownResponse, lambda *_: m.ControlledShutdownRequest()),
    (m.AlterPartitionRequest, m.AlterPartitionResponse, lambda *_: m.AlterPartitionRequest()),
    (m.AllocateProducerIdsRequest, m.AllocateProducerIdsResponse, lambda *_: m.AllocateProducerIdsRequest()),
]


UNANSWERED = {m.EnvelopeRequest.API_KEY}  # it closes the connection of anyone but a broker, as Kafka does

# Kafka answers with a time of -1 that there is no token. kio refuses to read negative times.
REFUSED_BY_KIO = {
    m.CreateDelegationTokenRequest.API_KEY,
    m.RenewDelegationTokenRequest.API_KEY,
    m.ExpireDelegationTokenRequest.API_KEY,
}


def test_no_request_is_left_out() -> None:
    assert {request.API_KEY for request, _, _ in MAKERS} | UNANSWERED == TABLE.keys()


@pytest.fixture(scope="module")
def existing(clients: Callable[[str], Client], broker: RunningBroker) -> Target:
    clients("librdkafka").ask("create_topic", topic="versions", partitions=1, config={})
    connection = Connection("localhost", broker.port)
    (topic,) = connection.ask(m.MetadataResponse, metadata(12, Target("versions", UUID(int=0), "", 0)), 12).topics
    connection.close()
    return Target("versions", topic.topic_id, str(broker.directory), topic.partitions[0].leader_id)


@pytest.mark.parametrize(("request_type", "response_type", "make"), MAKERS, ids=lambda parameter: _id(parameter))
def test_every_version_is_answered_so_that_others_can_read_it(
    request_type: type[Message],
    response_type: type[Message],
    make: Maker,
    existing: Target,
    broker: RunningBroker,
) -> None:
    """Those for Metadata, in old versions, may create what is missing: it is one of its own for each."""
    assert request_type.API_KEY is not None
    missing = Target(f"missing-{request_type.API_KEY}", UUID(int=5), "nowhere", 12345)
    for version in TABLE[request_type.API_KEY].versions:
        for target in (existing, missing):
            connection = Connection("localhost", broker.port)
            connection.send(make(version, target), version)
            frame = connection.receive()
            connection.close()
            assert frame is not None, f"v{version} for {target}: the connection was closed"
            parse_response(response_type, frame, version)
            if request_type.API_KEY not in REFUSED_BY_KIO:
                read_by_kio(request_type.API_KEY, version, frame)


def read_by_kio(api_key: int, version: int, frame: bytes) -> None:
    index: Any = pytest.importorskip("kio.index", reason="needs kio")
    serial: Any = pytest.importorskip("kio.serial", reason="needs kio")
    try:
        schema = index.load_response_schema(api_key, version)
    except (index.UnknownEntity, index.UnknownAPIKey):  # it knows of no ZooKeeper
        return
    header = serial.entity_reader(schema.__header_schema__)(frame, 0)
    body = serial.entity_reader(schema)(frame, header[1])
    assert header[1] + body[1] == len(frame)


def _id(parameter: object) -> str:
    return parameter.__name__ if isinstance(parameter, type) and parameter.__name__.endswith("Request") else ""
