"""All messages of the protocol. Made from schema.txt by `python -m leadline.wire.stubs`; a test holds it to that."""

from uuid import UUID

from leadline.wire.classes import Message, Struct
from leadline.wire.primitives import Records

class RequestHeader(Message):
    request_api_key: int = 0
    request_api_version: int = 0
    correlation_id: int = 0
    client_id: str | None = ""

class ResponseHeader(Message):
    correlation_id: int = 0

class ProduceRequest(Message):
    class PartitionProduceData(Struct):
        index: int = 0
        records: Records | None = None

    class TopicProduceData(Struct):
        name: str = ""
        partition_data: list[ProduceRequest.PartitionProduceData] = ...

    transactional_id: str | None = None
    acks: int = 0
    timeout_ms: int = 0
    topic_data: list[TopicProduceData] = ...

class ProduceResponse(Message):
    class BatchIndexAndErrorMessage(Struct):
        batch_index: int = 0
        batch_index_error_message: str | None = None

    class LeaderIdAndEpoch(Struct):
        leader_id: int = -1
        leader_epoch: int = -1

    class PartitionProduceResponse(Struct):
        index: int = 0
        error_code: int = 0
        base_offset: int = 0
        log_append_time_ms: int = -1
        log_start_offset: int = -1
        record_errors: list[ProduceResponse.BatchIndexAndErrorMessage] = ...
        error_message: str | None = None
        current_leader: ProduceResponse.LeaderIdAndEpoch = ...

    class TopicProduceResponse(Struct):
        name: str = ""
        partition_responses: list[ProduceResponse.PartitionProduceResponse] = ...

    class NodeEndpoint(Struct):
        node_id: int = 0
        host: str = ""
        port: int = 0
        rack: str | None = None

    responses: list[TopicProduceResponse] = ...
    throttle_time_ms: int = 0
    node_endpoints: list[NodeEndpoint] = ...

class FetchRequest(Message):
    class ReplicaState(Struct):
        replica_id: int = -1
        replica_epoch: int = -1

    class FetchPartition(Struct):
        partition: int = 0
        current_leader_epoch: int = -1
        fetch_offset: int = 0
        last_fetched_epoch: int = -1
        log_start_offset: int = -1
        partition_max_bytes: int = 0

    class FetchTopic(Struct):
        topic: str = ""
        topic_id: UUID = ...
        partitions: list[FetchRequest.FetchPartition] = ...

    class ForgottenTopic(Struct):
        topic: str = ""
        topic_id: UUID = ...
        partitions: list[int] = ...

    cluster_id: str | None = None
    replica_id: int = -1
    replica_state: ReplicaState = ...
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = 2147483647
    isolation_level: int = 0
    session_id: int = 0
    session_epoch: int = -1
    topics: list[FetchTopic] = ...
    forgotten_topics_data: list[ForgottenTopic] = ...
    rack_id: str = ""

class FetchResponse(Message):
    class EpochEndOffset(Struct):
        epoch: int = -1
        end_offset: int = -1

    class LeaderIdAndEpoch(Struct):
        leader_id: int = -1
        leader_epoch: int = -1

    class SnapshotId(Struct):
        end_offset: int = -1
        epoch: int = -1

    class AbortedTransaction(Struct):
        producer_id: int = 0
        first_offset: int = 0

    class PartitionData(Struct):
        partition_index: int = 0
        error_code: int = 0
        high_watermark: int = 0
        last_stable_offset: int = -1
        log_start_offset: int = -1
        diverging_epoch: FetchResponse.EpochEndOffset = ...
        current_leader: FetchResponse.LeaderIdAndEpoch = ...
        snapshot_id: FetchResponse.SnapshotId = ...
        aborted_transactions: list[FetchResponse.AbortedTransaction] | None = ...
        preferred_read_replica: int = -1
        records: Records | None = None

    class FetchableTopicResponse(Struct):
        topic: str = ""
        topic_id: UUID = ...
        partitions: list[FetchResponse.PartitionData] = ...

    class NodeEndpoint(Struct):
        node_id: int = 0
        host: str = ""
        port: int = 0
        rack: str | None = None

    throttle_time_ms: int = 0
    error_code: int = 0
    session_id: int = 0
    responses: list[FetchableTopicResponse] = ...
    node_endpoints: list[NodeEndpoint] = ...

class ListOffsetsRequest(Message):
    class ListOffsetsPartition(Struct):
        partition_index: int = 0
        current_leader_epoch: int = -1
        timestamp: int = 0
        max_num_offsets: int = 1

    class ListOffsetsTopic(Struct):
        name: str = ""
        partitions: list[ListOffsetsRequest.ListOffsetsPartition] = ...

    replica_id: int = 0
    isolation_level: int = 0
    topics: list[ListOffsetsTopic] = ...

class ListOffsetsResponse(Message):
    class ListOffsetsPartitionResponse(Struct):
        partition_index: int = 0
        error_code: int = 0
        old_style_offsets: list[int] = ...
        timestamp: int = -1
        offset: int = -1
        leader_epoch: int = -1

    class ListOffsetsTopicResponse(Struct):
        name: str = ""
        partitions: list[ListOffsetsResponse.ListOffsetsPartitionResponse] = ...

    throttle_time_ms: int = 0
    topics: list[ListOffsetsTopicResponse] = ...

class MetadataRequest(Message):
    class MetadataRequestTopic(Struct):
        topic_id: UUID = ...
        name: str | None = ""

    topics: list[MetadataRequestTopic] | None = ...
    allow_auto_topic_creation: bool = True
    include_cluster_authorized_operations: bool = False
    include_topic_authorized_operations: bool = False

class MetadataResponse(Message):
    class MetadataResponseBroker(Struct):
        node_id: int = 0
        host: str = ""
        port: int = 0
        rack: str | None = None

    class MetadataResponsePartition(Struct):
        error_code: int = 0
        partition_index: int = 0
        leader_id: int = 0
        leader_epoch: int = -1
        replica_nodes: list[int] = ...
        isr_nodes: list[int] = ...
        offline_replicas: list[int] = ...

    class MetadataResponseTopic(Struct):
        error_code: int = 0
        name: str | None = ""
        topic_id: UUID = ...
        is_internal: bool = False
        partitions: list[MetadataResponse.MetadataResponsePartition] = ...
        topic_authorized_operations: int = -2147483648

    throttle_time_ms: int = 0
    brokers: list[MetadataResponseBroker] = ...
    cluster_id: str | None = None
    controller_id: int = -1
    topics: list[MetadataResponseTopic] = ...
    cluster_authorized_operations: int = -2147483648

class LeaderAndIsrRequest(Message):
    class LeaderAndIsrPartitionState(Struct):
        topic_name: str = ""
        partition_index: int = 0
        controller_epoch: int = 0
        leader: int = 0
        leader_epoch: int = 0
        isr: list[int] = ...
        partition_epoch: int = 0
        replicas: list[int] = ...
        adding_replicas: list[int] = ...
        removing_replicas: list[int] = ...
        is_new: bool = False
        leader_recovery_state: int = 0

    class LeaderAndIsrTopicState(Struct):
        topic_name: str = ""
        topic_id: UUID = ...
        partition_states: list[LeaderAndIsrRequest.LeaderAndIsrPartitionState] = ...

    class LeaderAndIsrLiveLeader(Struct):
        broker_id: int = 0
        host_name: str = ""
        port: int = 0

    controller_id: int = 0
    is_kraft_controller: bool = False
    controller_epoch: int = 0
    broker_epoch: int = -1
    type: int = 0
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = ...
    topic_states: list[LeaderAndIsrTopicState] = ...
    live_leaders: list[LeaderAndIsrLiveLeader] = ...

class LeaderAndIsrResponse(Message):
    class LeaderAndIsrPartitionError(Struct):
        topic_name: str = ""
        partition_index: int = 0
        error_code: int = 0

    class LeaderAndIsrTopicError(Struct):
        topic_id: UUID = ...
        partition_errors: list[LeaderAndIsrResponse.LeaderAndIsrPartitionError] = ...

    error_code: int = 0
    partition_errors: list[LeaderAndIsrPartitionError] = ...
    topics: list[LeaderAndIsrTopicError] = ...

class StopReplicaRequest(Message):
    class StopReplicaPartitionV0(Struct):
        topic_name: str = ""
        partition_index: int = 0

    class StopReplicaTopicV1(Struct):
        name: str = ""
        partition_indexes: list[int] = ...

    class StopReplicaPartitionState(Struct):
        partition_index: int = 0
        leader_epoch: int = -1
        delete_partition: bool = False

    class StopReplicaTopicState(Struct):
        topic_name: str = ""
        partition_states: list[StopReplicaRequest.StopReplicaPartitionState] = ...

    controller_id: int = 0
    is_kraft_controller: bool = False
    controller_epoch: int = 0
    broker_epoch: int = -1
    delete_partitions: bool = False
    ungrouped_partitions: list[StopReplicaPartitionV0] = ...
    topics: list[StopReplicaTopicV1] = ...
    topic_states: list[StopReplicaTopicState] = ...

class StopReplicaResponse(Message):
    class StopReplicaPartitionError(Struct):
        topic_name: str = ""
        partition_index: int = 0
        error_code: int = 0

    error_code: int = 0
    partition_errors: list[StopReplicaPartitionError] = ...

class UpdateMetadataRequest(Message):
    class UpdateMetadataPartitionState(Struct):
        topic_name: str = ""
        partition_index: int = 0
        controller_epoch: int = 0
        leader: int = 0
        leader_epoch: int = 0
        isr: list[int] = ...
        zk_version: int = 0
        replicas: list[int] = ...
        offline_replicas: list[int] = ...

    class UpdateMetadataTopicState(Struct):
        topic_name: str = ""
        topic_id: UUID = ...
        partition_states: list[UpdateMetadataRequest.UpdateMetadataPartitionState] = ...

    class UpdateMetadataEndpoint(Struct):
        port: int = 0
        host: str = ""
        listener: str = ""
        security_protocol: int = 0

    class UpdateMetadataBroker(Struct):
        id: int = 0
        v0_host: str = ""
        v0_port: int = 0
        endpoints: list[UpdateMetadataRequest.UpdateMetadataEndpoint] = ...
        rack: str | None = ""

    controller_id: int = 0
    is_kraft_controller: bool = False
    type: int = 0
    controller_epoch: int = 0
    broker_epoch: int = -1
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = ...
    topic_states: list[UpdateMetadataTopicState] = ...
    live_brokers: list[UpdateMetadataBroker] = ...

class UpdateMetadataResponse(Message):
    error_code: int = 0

class ControlledShutdownRequest(Message):
    broker_id: int = 0
    broker_epoch: int = -1

class ControlledShutdownResponse(Message):
    class RemainingPartition(Struct):
        topic_name: str = ""
        partition_index: int = 0

    error_code: int = 0
    remaining_partitions: list[RemainingPartition] = ...

class OffsetCommitRequest(Message):
    class OffsetCommitRequestPartition(Struct):
        partition_index: int = 0
        committed_offset: int = 0
        committed_leader_epoch: int = -1
        commit_timestamp: int = -1
        committed_metadata: str | None = ""

    class OffsetCommitRequestTopic(Struct):
        name: str = ""
        partitions: list[OffsetCommitRequest.OffsetCommitRequestPartition] = ...

    group_id: str = ""
    generation_id_or_member_epoch: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    retention_time_ms: int = -1
    topics: list[OffsetCommitRequestTopic] = ...

class OffsetCommitResponse(Message):
    class OffsetCommitResponsePartition(Struct):
        partition_index: int = 0
        error_code: int = 0

    class OffsetCommitResponseTopic(Struct):
        name: str = ""
        partitions: list[OffsetCommitResponse.OffsetCommitResponsePartition] = ...

    throttle_time_ms: int = 0
    topics: list[OffsetCommitResponseTopic] = ...

class OffsetFetchRequest(Message):
    class OffsetFetchRequestTopic(Struct):
        name: str = ""
        partition_indexes: list[int] = ...

    class OffsetFetchRequestTopics(Struct):
        name: str = ""
        partition_indexes: list[int] = ...

    class OffsetFetchRequestGroup(Struct):
        group_id: str = ""
        member_id: str | None = None
        member_epoch: int = -1
        topics: list[OffsetFetchRequest.OffsetFetchRequestTopics] | None = ...

    group_id: str = ""
    topics: list[OffsetFetchRequestTopic] | None = ...
    groups: list[OffsetFetchRequestGroup] = ...
    require_stable: bool = False

class OffsetFetchResponse(Message):
    class OffsetFetchResponsePartition(Struct):
        partition_index: int = 0
        committed_offset: int = 0
        committed_leader_epoch: int = -1
        metadata: str | None = ""
        error_code: int = 0

    class OffsetFetchResponseTopic(Struct):
        name: str = ""
        partitions: list[OffsetFetchResponse.OffsetFetchResponsePartition] = ...

    class OffsetFetchResponsePartitions(Struct):
        partition_index: int = 0
        committed_offset: int = 0
        committed_leader_epoch: int = -1
        metadata: str | None = ""
        error_code: int = 0

    class OffsetFetchResponseTopics(Struct):
        name: str = ""
        partitions: list[OffsetFetchResponse.OffsetFetchResponsePartitions] = ...

    class OffsetFetchResponseGroup(Struct):
        group_id: str = ""
        topics: list[OffsetFetchResponse.OffsetFetchResponseTopics] = ...
        error_code: int = 0

    throttle_time_ms: int = 0
    topics: list[OffsetFetchResponseTopic] = ...
    error_code: int = 0
    groups: list[OffsetFetchResponseGroup] = ...

class FindCoordinatorRequest(Message):
    key: str = ""
    key_type: int = 0
    coordinator_keys: list[str] = ...

class FindCoordinatorResponse(Message):
    class Coordinator(Struct):
        key: str = ""
        node_id: int = 0
        host: str = ""
        port: int = 0
        error_code: int = 0
        error_message: str | None = ""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    node_id: int = 0
    host: str = ""
    port: int = 0
    coordinators: list[Coordinator] = ...

class JoinGroupRequest(Message):
    class JoinGroupRequestProtocol(Struct):
        name: str = ""
        metadata: bytes = b""

    group_id: str = ""
    session_timeout_ms: int = 0
    rebalance_timeout_ms: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    protocol_type: str = ""
    protocols: list[JoinGroupRequestProtocol] = ...
    reason: str | None = None

class JoinGroupResponse(Message):
    class JoinGroupResponseMember(Struct):
        member_id: str = ""
        group_instance_id: str | None = None
        metadata: bytes = b""

    throttle_time_ms: int = 0
    error_code: int = 0
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = ""
    leader: str = ""
    skip_assignment: bool = False
    member_id: str = ""
    members: list[JoinGroupResponseMember] = ...

class HeartbeatRequest(Message):
    group_id: str = ""
    generation_id: int = 0
    member_id: str = ""
    group_instance_id: str | None = None

class HeartbeatResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0

class LeaveGroupRequest(Message):
    class MemberIdentity(Struct):
        member_id: str = ""
        group_instance_id: str | None = None
        reason: str | None = None

    group_id: str = ""
    member_id: str = ""
    members: list[MemberIdentity] = ...

class LeaveGroupResponse(Message):
    class MemberResponse(Struct):
        member_id: str = ""
        group_instance_id: str | None = ""
        error_code: int = 0

    throttle_time_ms: int = 0
    error_code: int = 0
    members: list[MemberResponse] = ...

class SyncGroupRequest(Message):
    class SyncGroupRequestAssignment(Struct):
        member_id: str = ""
        assignment: bytes = b""

    group_id: str = ""
    generation_id: int = 0
    member_id: str = ""
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: list[SyncGroupRequestAssignment] = ...

class SyncGroupResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""

class DescribeGroupsRequest(Message):
    groups: list[str] = ...
    include_authorized_operations: bool = False

class DescribeGroupsResponse(Message):
    class DescribedGroupMember(Struct):
        member_id: str = ""
        group_instance_id: str | None = None
        client_id: str = ""
        client_host: str = ""
        member_metadata: bytes = b""
        member_assignment: bytes = b""

    class DescribedGroup(Struct):
        error_code: int = 0
        group_id: str = ""
        group_state: str = ""
        protocol_type: str = ""
        protocol_data: str = ""
        members: list[DescribeGroupsResponse.DescribedGroupMember] = ...
        authorized_operations: int = -2147483648

    throttle_time_ms: int = 0
    groups: list[DescribedGroup] = ...

class ListGroupsRequest(Message):
    states_filter: list[str] = ...
    types_filter: list[str] = ...

class ListGroupsResponse(Message):
    class ListedGroup(Struct):
        group_id: str = ""
        protocol_type: str = ""
        group_state: str = ""
        group_type: str = ""

    throttle_time_ms: int = 0
    error_code: int = 0
    groups: list[ListedGroup] = ...

class SaslHandshakeRequest(Message):
    mechanism: str = ""

class SaslHandshakeResponse(Message):
    error_code: int = 0
    mechanisms: list[str] = ...

class ApiVersionsRequest(Message):
    client_software_name: str = ""
    client_software_version: str = ""

class ApiVersionsResponse(Message):
    class ApiVersion(Struct):
        api_key: int = 0
        min_version: int = 0
        max_version: int = 0

    class SupportedFeatureKey(Struct):
        name: str = ""
        min_version: int = 0
        max_version: int = 0

    class FinalizedFeatureKey(Struct):
        name: str = ""
        max_version_level: int = 0
        min_version_level: int = 0

    error_code: int = 0
    api_keys: list[ApiVersion] = ...
    throttle_time_ms: int = 0
    supported_features: list[SupportedFeatureKey] = ...
    finalized_features_epoch: int = -1
    finalized_features: list[FinalizedFeatureKey] = ...
    zk_migration_ready: bool = False

class CreateTopicsRequest(Message):
    class CreatableReplicaAssignment(Struct):
        partition_index: int = 0
        broker_ids: list[int] = ...

    class CreateableTopicConfig(Struct):
        name: str = ""
        value: str | None = ""

    class CreatableTopic(Struct):
        name: str = ""
        num_partitions: int = 0
        replication_factor: int = 0
        assignments: list[CreateTopicsRequest.CreatableReplicaAssignment] = ...
        configs: list[CreateTopicsRequest.CreateableTopicConfig] = ...

    topics: list[CreatableTopic] = ...
    timeout_ms: int = 60000
    validate_only: bool = False

class CreateTopicsResponse(Message):
    class CreatableTopicConfigs(Struct):
        name: str = ""
        value: str | None = ""
        read_only: bool = False
        config_source: int = -1
        is_sensitive: bool = False

    class CreatableTopicResult(Struct):
        name: str = ""
        topic_id: UUID = ...
        error_code: int = 0
        error_message: str | None = ""
        topic_config_error_code: int = 0
        num_partitions: int = -1
        replication_factor: int = -1
        configs: list[CreateTopicsResponse.CreatableTopicConfigs] | None = ...

    throttle_time_ms: int = 0
    topics: list[CreatableTopicResult] = ...

class DeleteTopicsRequest(Message):
    class DeleteTopicState(Struct):
        name: str | None = None
        topic_id: UUID = ...

    topics: list[DeleteTopicState] = ...
    topic_names: list[str] = ...
    timeout_ms: int = 0

class DeleteTopicsResponse(Message):
    class DeletableTopicResult(Struct):
        name: str | None = ""
        topic_id: UUID = ...
        error_code: int = 0
        error_message: str | None = None

    throttle_time_ms: int = 0
    responses: list[DeletableTopicResult] = ...

class DeleteRecordsRequest(Message):
    class DeleteRecordsPartition(Struct):
        partition_index: int = 0
        offset: int = 0

    class DeleteRecordsTopic(Struct):
        name: str = ""
        partitions: list[DeleteRecordsRequest.DeleteRecordsPartition] = ...

    topics: list[DeleteRecordsTopic] = ...
    timeout_ms: int = 0

class DeleteRecordsResponse(Message):
    class DeleteRecordsPartitionResult(Struct):
        partition_index: int = 0
        low_watermark: int = 0
        error_code: int = 0

    class DeleteRecordsTopicResult(Struct):
        name: str = ""
        partitions: list[DeleteRecordsResponse.DeleteRecordsPartitionResult] = ...

    throttle_time_ms: int = 0
    topics: list[DeleteRecordsTopicResult] = ...

class InitProducerIdRequest(Message):
    transactional_id: str | None = ""
    transaction_timeout_ms: int = 0
    producer_id: int = -1
    producer_epoch: int = -1

class InitProducerIdResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    producer_id: int = -1
    producer_epoch: int = 0

class OffsetForLeaderEpochRequest(Message):
    class OffsetForLeaderPartition(Struct):
        partition: int = 0
        current_leader_epoch: int = -1
        leader_epoch: int = 0

    class OffsetForLeaderTopic(Struct):
        topic: str = ""
        partitions: list[OffsetForLeaderEpochRequest.OffsetForLeaderPartition] = ...

    replica_id: int = -2
    topics: list[OffsetForLeaderTopic] = ...

class OffsetForLeaderEpochResponse(Message):
    class EpochEndOffset(Struct):
        error_code: int = 0
        partition: int = 0
        leader_epoch: int = -1
        end_offset: int = -1

    class OffsetForLeaderTopicResult(Struct):
        topic: str = ""
        partitions: list[OffsetForLeaderEpochResponse.EpochEndOffset] = ...

    throttle_time_ms: int = 0
    topics: list[OffsetForLeaderTopicResult] = ...

class AddPartitionsToTxnRequest(Message):
    class AddPartitionsToTxnTopic(Struct):
        name: str = ""
        partitions: list[int] = ...

    class AddPartitionsToTxnTransaction(Struct):
        transactional_id: str = ""
        producer_id: int = 0
        producer_epoch: int = 0
        verify_only: bool = False
        topics: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = ...

    transactions: list[AddPartitionsToTxnTransaction] = ...
    v3_and_below_transactional_id: str = ""
    v3_and_below_producer_id: int = 0
    v3_and_below_producer_epoch: int = 0
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = ...

class AddPartitionsToTxnResponse(Message):
    class AddPartitionsToTxnPartitionResult(Struct):
        partition_index: int = 0
        partition_error_code: int = 0

    class AddPartitionsToTxnTopicResult(Struct):
        name: str = ""
        results_by_partition: list[AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult] = ...

    class AddPartitionsToTxnResult(Struct):
        transactional_id: str = ""
        topic_results: list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult] = ...

    throttle_time_ms: int = 0
    error_code: int = 0
    results_by_transaction: list[AddPartitionsToTxnResult] = ...
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = ...

class AddOffsetsToTxnRequest(Message):
    transactional_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    group_id: str = ""

class AddOffsetsToTxnResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0

class EndTxnRequest(Message):
    transactional_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    committed: bool = False

class EndTxnResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0

class WriteTxnMarkersRequest(Message):
    class WritableTxnMarkerTopic(Struct):
        name: str = ""
        partition_indexes: list[int] = ...

    class WritableTxnMarker(Struct):
        producer_id: int = 0
        producer_epoch: int = 0
        transaction_result: bool = False
        topics: list[WriteTxnMarkersRequest.WritableTxnMarkerTopic] = ...
        coordinator_epoch: int = 0

    markers: list[WritableTxnMarker] = ...

class WriteTxnMarkersResponse(Message):
    class WritableTxnMarkerPartitionResult(Struct):
        partition_index: int = 0
        error_code: int = 0

    class WritableTxnMarkerTopicResult(Struct):
        name: str = ""
        partitions: list[WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult] = ...

    class WritableTxnMarkerResult(Struct):
        producer_id: int = 0
        topics: list[WriteTxnMarkersResponse.WritableTxnMarkerTopicResult] = ...

    markers: list[WritableTxnMarkerResult] = ...

class TxnOffsetCommitRequest(Message):
    class TxnOffsetCommitRequestPartition(Struct):
        partition_index: int = 0
        committed_offset: int = 0
        committed_leader_epoch: int = -1
        committed_metadata: str | None = ""

    class TxnOffsetCommitRequestTopic(Struct):
        name: str = ""
        partitions: list[TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition] = ...

    transactional_id: str = ""
    group_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    topics: list[TxnOffsetCommitRequestTopic] = ...

class TxnOffsetCommitResponse(Message):
    class TxnOffsetCommitResponsePartition(Struct):
        partition_index: int = 0
        error_code: int = 0

    class TxnOffsetCommitResponseTopic(Struct):
        name: str = ""
        partitions: list[TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition] = ...

    throttle_time_ms: int = 0
    topics: list[TxnOffsetCommitResponseTopic] = ...

class DescribeAclsRequest(Message):
    resource_type_filter: int = 0
    resource_name_filter: str | None = ""
    pattern_type_filter: int = 3
    principal_filter: str | None = ""
    host_filter: str | None = ""
    operation: int = 0
    permission_type: int = 0

class DescribeAclsResponse(Message):
    class AclDescription(Struct):
        principal: str = ""
        host: str = ""
        operation: int = 0
        permission_type: int = 0

    class DescribeAclsResource(Struct):
        resource_type: int = 0
        resource_name: str = ""
        pattern_type: int = 3
        acls: list[DescribeAclsResponse.AclDescription] = ...

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    resources: list[DescribeAclsResource] = ...

class CreateAclsRequest(Message):
    class AclCreation(Struct):
        resource_type: int = 0
        resource_name: str = ""
        resource_pattern_type: int = 3
        principal: str = ""
        host: str = ""
        operation: int = 0
        permission_type: int = 0

    creations: list[AclCreation] = ...

class CreateAclsResponse(Message):
    class AclCreationResult(Struct):
        error_code: int = 0
        error_message: str | None = ""

    throttle_time_ms: int = 0
    results: list[AclCreationResult] = ...

class DeleteAclsRequest(Message):
    class DeleteAclsFilter(Struct):
        resource_type_filter: int = 0
        resource_name_filter: str | None = ""
        pattern_type_filter: int = 3
        principal_filter: str | None = ""
        host_filter: str | None = ""
        operation: int = 0
        permission_type: int = 0

    filters: list[DeleteAclsFilter] = ...

class DeleteAclsResponse(Message):
    class DeleteAclsMatchingAcl(Struct):
        error_code: int = 0
        error_message: str | None = ""
        resource_type: int = 0
        resource_name: str = ""
        pattern_type: int = 3
        principal: str = ""
        host: str = ""
        operation: int = 0
        permission_type: int = 0

    class DeleteAclsFilterResult(Struct):
        error_code: int = 0
        error_message: str | None = ""
        matching_acls: list[DeleteAclsResponse.DeleteAclsMatchingAcl] = ...

    throttle_time_ms: int = 0
    filter_results: list[DeleteAclsFilterResult] = ...

class DescribeConfigsRequest(Message):
    class DescribeConfigsResource(Struct):
        resource_type: int = 0
        resource_name: str = ""
        configuration_keys: list[str] | None = ...

    resources: list[DescribeConfigsResource] = ...
    include_synonyms: bool = False
    include_documentation: bool = False

class DescribeConfigsResponse(Message):
    class DescribeConfigsSynonym(Struct):
        name: str = ""
        value: str | None = ""
        source: int = 0

    class DescribeConfigsResourceResult(Struct):
        name: str = ""
        value: str | None = ""
        read_only: bool = False
        is_default: bool = False
        config_source: int = -1
        is_sensitive: bool = False
        synonyms: list[DescribeConfigsResponse.DescribeConfigsSynonym] = ...
        config_type: int = 0
        documentation: str | None = ""

    class DescribeConfigsResult(Struct):
        error_code: int = 0
        error_message: str | None = ""
        resource_type: int = 0
        resource_name: str = ""
        configs: list[DescribeConfigsResponse.DescribeConfigsResourceResult] = ...

    throttle_time_ms: int = 0
    results: list[DescribeConfigsResult] = ...

class AlterConfigsRequest(Message):
    class AlterableConfig(Struct):
        name: str = ""
        value: str | None = ""

    class AlterConfigsResource(Struct):
        resource_type: int = 0
        resource_name: str = ""
        configs: list[AlterConfigsRequest.AlterableConfig] = ...

    resources: list[AlterConfigsResource] = ...
    validate_only: bool = False

class AlterConfigsResponse(Message):
    class AlterConfigsResourceResponse(Struct):
        error_code: int = 0
        error_message: str | None = ""
        resource_type: int = 0
        resource_name: str = ""

    throttle_time_ms: int = 0
    responses: list[AlterConfigsResourceResponse] = ...

class AlterReplicaLogDirsRequest(Message):
    class AlterReplicaLogDirTopic(Struct):
        name: str = ""
        partitions: list[int] = ...

    class AlterReplicaLogDir(Struct):
        path: str = ""
        topics: list[AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic] = ...

    dirs: list[AlterReplicaLogDir] = ...

class AlterReplicaLogDirsResponse(Message):
    class AlterReplicaLogDirPartitionResult(Struct):
        partition_index: int = 0
        error_code: int = 0

    class AlterReplicaLogDirTopicResult(Struct):
        topic_name: str = ""
        partitions: list[AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult] = ...

    throttle_time_ms: int = 0
    results: list[AlterReplicaLogDirTopicResult] = ...

class DescribeLogDirsRequest(Message):
    class DescribableLogDirTopic(Struct):
        topic: str = ""
        partitions: list[int] = ...

    topics: list[DescribableLogDirTopic] | None = ...

class DescribeLogDirsResponse(Message):
    class DescribeLogDirsPartition(Struct):
        partition_index: int = 0
        partition_size: int = 0
        offset_lag: int = 0
        is_future_key: bool = False

    class DescribeLogDirsTopic(Struct):
        name: str = ""
        partitions: list[DescribeLogDirsResponse.DescribeLogDirsPartition] = ...

    class DescribeLogDirsResult(Struct):
        error_code: int = 0
        log_dir: str = ""
        topics: list[DescribeLogDirsResponse.DescribeLogDirsTopic] = ...
        total_bytes: int = -1
        usable_bytes: int = -1

    throttle_time_ms: int = 0
    error_code: int = 0
    results: list[DescribeLogDirsResult] = ...

class SaslAuthenticateRequest(Message):
    auth_bytes: bytes = b""

class SaslAuthenticateResponse(Message):
    error_code: int = 0
    error_message: str | None = ""
    auth_bytes: bytes = b""
    session_lifetime_ms: int = 0

class CreatePartitionsRequest(Message):
    class CreatePartitionsAssignment(Struct):
        broker_ids: list[int] = ...

    class CreatePartitionsTopic(Struct):
        name: str = ""
        count: int = 0
        assignments: list[CreatePartitionsRequest.CreatePartitionsAssignment] | None = ...

    topics: list[CreatePartitionsTopic] = ...
    timeout_ms: int = 0
    validate_only: bool = False

class CreatePartitionsResponse(Message):
    class CreatePartitionsTopicResult(Struct):
        name: str = ""
        error_code: int = 0
        error_message: str | None = None

    throttle_time_ms: int = 0
    results: list[CreatePartitionsTopicResult] = ...

class CreateDelegationTokenRequest(Message):
    class CreatableRenewers(Struct):
        principal_type: str = ""
        principal_name: str = ""

    owner_principal_type: str | None = ""
    owner_principal_name: str | None = ""
    renewers: list[CreatableRenewers] = ...
    max_lifetime_ms: int = 0

class CreateDelegationTokenResponse(Message):
    error_code: int = 0
    principal_type: str = ""
    principal_name: str = ""
    token_requester_principal_type: str = ""
    token_requester_principal_name: str = ""
    issue_timestamp_ms: int = 0
    expiry_timestamp_ms: int = 0
    max_timestamp_ms: int = 0
    token_id: str = ""
    hmac: bytes = b""
    throttle_time_ms: int = 0

class RenewDelegationTokenRequest(Message):
    hmac: bytes = b""
    renew_period_ms: int = 0

class RenewDelegationTokenResponse(Message):
    error_code: int = 0
    expiry_timestamp_ms: int = 0
    throttle_time_ms: int = 0

class ExpireDelegationTokenRequest(Message):
    hmac: bytes = b""
    expiry_time_period_ms: int = 0

class ExpireDelegationTokenResponse(Message):
    error_code: int = 0
    expiry_timestamp_ms: int = 0
    throttle_time_ms: int = 0

class DescribeDelegationTokenRequest(Message):
    class DescribeDelegationTokenOwner(Struct):
        principal_type: str = ""
        principal_name: str = ""

    owners: list[DescribeDelegationTokenOwner] | None = ...

class DescribeDelegationTokenResponse(Message):
    class DescribedDelegationTokenRenewer(Struct):
        principal_type: str = ""
        principal_name: str = ""

    class DescribedDelegationToken(Struct):
        principal_type: str = ""
        principal_name: str = ""
        token_requester_principal_type: str = ""
        token_requester_principal_name: str = ""
        issue_timestamp: int = 0
        expiry_timestamp: int = 0
        max_timestamp: int = 0
        token_id: str = ""
        hmac: bytes = b""
        renewers: list[DescribeDelegationTokenResponse.DescribedDelegationTokenRenewer] = ...

    error_code: int = 0
    tokens: list[DescribedDelegationToken] = ...
    throttle_time_ms: int = 0

class DeleteGroupsRequest(Message):
    groups_names: list[str] = ...

class DeleteGroupsResponse(Message):
    class DeletableGroupResult(Struct):
        group_id: str = ""
        error_code: int = 0

    throttle_time_ms: int = 0
    results: list[DeletableGroupResult] = ...

class ElectLeadersRequest(Message):
    class TopicPartitions(Struct):
        topic: str = ""
        partitions: list[int] = ...

    election_type: int = 0
    topic_partitions: list[TopicPartitions] | None = ...
    timeout_ms: int = 60000

class ElectLeadersResponse(Message):
    class PartitionResult(Struct):
        partition_id: int = 0
        error_code: int = 0
        error_message: str | None = ""

    class ReplicaElectionResult(Struct):
        topic: str = ""
        partition_result: list[ElectLeadersResponse.PartitionResult] = ...

    throttle_time_ms: int = 0
    error_code: int = 0
    replica_election_results: list[ReplicaElectionResult] = ...

class IncrementalAlterConfigsRequest(Message):
    class AlterableConfig(Struct):
        name: str = ""
        config_operation: int = 0
        value: str | None = ""

    class AlterConfigsResource(Struct):
        resource_type: int = 0
        resource_name: str = ""
        configs: list[IncrementalAlterConfigsRequest.AlterableConfig] = ...

    resources: list[AlterConfigsResource] = ...
    validate_only: bool = False

class IncrementalAlterConfigsResponse(Message):
    class AlterConfigsResourceResponse(Struct):
        error_code: int = 0
        error_message: str | None = ""
        resource_type: int = 0
        resource_name: str = ""

    throttle_time_ms: int = 0
    responses: list[AlterConfigsResourceResponse] = ...

class AlterPartitionReassignmentsRequest(Message):
    class ReassignablePartition(Struct):
        partition_index: int = 0
        replicas: list[int] | None = None

    class ReassignableTopic(Struct):
        name: str = ""
        partitions: list[AlterPartitionReassignmentsRequest.ReassignablePartition] = ...

    timeout_ms: int = 60000
    topics: list[ReassignableTopic] = ...

class AlterPartitionReassignmentsResponse(Message):
    class ReassignablePartitionResponse(Struct):
        partition_index: int = 0
        error_code: int = 0
        error_message: str | None = ""

    class ReassignableTopicResponse(Struct):
        name: str = ""
        partitions: list[AlterPartitionReassignmentsResponse.ReassignablePartitionResponse] = ...

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    responses: list[ReassignableTopicResponse] = ...

class ListPartitionReassignmentsRequest(Message):
    class ListPartitionReassignmentsTopics(Struct):
        name: str = ""
        partition_indexes: list[int] = ...

    timeout_ms: int = 60000
    topics: list[ListPartitionReassignmentsTopics] | None = None

class ListPartitionReassignmentsResponse(Message):
    class OngoingPartitionReassignment(Struct):
        partition_index: int = 0
        replicas: list[int] = ...
        adding_replicas: list[int] = ...
        removing_replicas: list[int] = ...

    class OngoingTopicReassignment(Struct):
        name: str = ""
        partitions: list[ListPartitionReassignmentsResponse.OngoingPartitionReassignment] = ...

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    topics: list[OngoingTopicReassignment] = ...

class OffsetDeleteRequest(Message):
    class OffsetDeleteRequestPartition(Struct):
        partition_index: int = 0

    class OffsetDeleteRequestTopic(Struct):
        name: str = ""
        partitions: list[OffsetDeleteRequest.OffsetDeleteRequestPartition] = ...

    group_id: str = ""
    topics: list[OffsetDeleteRequestTopic] = ...

class OffsetDeleteResponse(Message):
    class OffsetDeleteResponsePartition(Struct):
        partition_index: int = 0
        error_code: int = 0

    class OffsetDeleteResponseTopic(Struct):
        name: str = ""
        partitions: list[OffsetDeleteResponse.OffsetDeleteResponsePartition] = ...

    error_code: int = 0
    throttle_time_ms: int = 0
    topics: list[OffsetDeleteResponseTopic] = ...

class DescribeClientQuotasRequest(Message):
    class ComponentData(Struct):
        entity_type: str = ""
        match_type: int = 0
        match: str | None = ""

    components: list[ComponentData] = ...
    strict: bool = False

class DescribeClientQuotasResponse(Message):
    class EntityData(Struct):
        entity_type: str = ""
        entity_name: str | None = ""

    class ValueData(Struct):
        key: str = ""
        value: float = 0.0

    class EntryData(Struct):
        entity: list[DescribeClientQuotasResponse.EntityData] = ...
        values: list[DescribeClientQuotasResponse.ValueData] = ...

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    entries: list[EntryData] | None = ...

class AlterClientQuotasRequest(Message):
    class EntityData(Struct):
        entity_type: str = ""
        entity_name: str | None = ""

    class OpData(Struct):
        key: str = ""
        value: float = 0.0
        remove: bool = False

    class EntryData(Struct):
        entity: list[AlterClientQuotasRequest.EntityData] = ...
        ops: list[AlterClientQuotasRequest.OpData] = ...

    entries: list[EntryData] = ...
    validate_only: bool = False

class AlterClientQuotasResponse(Message):
    class EntityData(Struct):
        entity_type: str = ""
        entity_name: str | None = ""

    class EntryData(Struct):
        error_code: int = 0
        error_message: str | None = ""
        entity: list[AlterClientQuotasResponse.EntityData] = ...

    throttle_time_ms: int = 0
    entries: list[EntryData] = ...

class DescribeUserScramCredentialsRequest(Message):
    class UserName(Struct):
        name: str = ""

    users: list[UserName] | None = ...

class DescribeUserScramCredentialsResponse(Message):
    class CredentialInfo(Struct):
        mechanism: int = 0
        iterations: int = 0

    class DescribeUserScramCredentialsResult(Struct):
        user: str = ""
        error_code: int = 0
        error_message: str | None = ""
        credential_infos: list[DescribeUserScramCredentialsResponse.CredentialInfo] = ...

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    results: list[DescribeUserScramCredentialsResult] = ...

class AlterUserScramCredentialsRequest(Message):
    class ScramCredentialDeletion(Struct):
        name: str = ""
        mechanism: int = 0

    class ScramCredentialUpsertion(Struct):
        name: str = ""
        mechanism: int = 0
        iterations: int = 0
        salt: bytes = b""
        salted_password: bytes = b""

    deletions: list[ScramCredentialDeletion] = ...
    upsertions: list[ScramCredentialUpsertion] = ...

class AlterUserScramCredentialsResponse(Message):
    class AlterUserScramCredentialsResult(Struct):
        user: str = ""
        error_code: int = 0
        error_message: str | None = ""

    throttle_time_ms: int = 0
    results: list[AlterUserScramCredentialsResult] = ...

class AlterPartitionRequest(Message):
    class BrokerState(Struct):
        broker_id: int = 0
        broker_epoch: int = -1

    class PartitionData(Struct):
        partition_index: int = 0
        leader_epoch: int = 0
        new_isr: list[int] = ...
        new_isr_with_epochs: list[AlterPartitionRequest.BrokerState] = ...
        leader_recovery_state: int = 0
        partition_epoch: int = 0

    class TopicData(Struct):
        topic_name: str = ""
        topic_id: UUID = ...
        partitions: list[AlterPartitionRequest.PartitionData] = ...

    broker_id: int = 0
    broker_epoch: int = -1
    topics: list[TopicData] = ...

class AlterPartitionResponse(Message):
    class PartitionData(Struct):
        partition_index: int = 0
        error_code: int = 0
        leader_id: int = 0
        leader_epoch: int = 0
        isr: list[int] = ...
        leader_recovery_state: int = 0
        partition_epoch: int = 0

    class TopicData(Struct):
        topic_name: str = ""
        topic_id: UUID = ...
        partitions: list[AlterPartitionResponse.PartitionData] = ...

    throttle_time_ms: int = 0
    error_code: int = 0
    topics: list[TopicData] = ...

class UpdateFeaturesRequest(Message):
    class FeatureUpdateKey(Struct):
        feature: str = ""
        max_version_level: int = 0
        allow_downgrade: bool = False
        upgrade_type: int = 1

    timeout_ms: int = 60000
    feature_updates: list[FeatureUpdateKey] = ...
    validate_only: bool = False

class UpdateFeaturesResponse(Message):
    class UpdatableFeatureResult(Struct):
        feature: str = ""
        error_code: int = 0
        error_message: str | None = ""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    results: list[UpdatableFeatureResult] = ...

class EnvelopeRequest(Message):
    request_data: bytes = b""
    request_principal: bytes | None = b""
    client_host_address: bytes = b""

class EnvelopeResponse(Message):
    response_data: bytes | None = None
    error_code: int = 0

class DescribeClusterRequest(Message):
    include_cluster_authorized_operations: bool = False
    endpoint_type: int = 1

class DescribeClusterResponse(Message):
    class DescribeClusterBroker(Struct):
        broker_id: int = 0
        host: str = ""
        port: int = 0
        rack: str | None = None

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    endpoint_type: int = 1
    cluster_id: str = ""
    controller_id: int = -1
    brokers: list[DescribeClusterBroker] = ...
    cluster_authorized_operations: int = -2147483648

class DescribeProducersRequest(Message):
    class TopicRequest(Struct):
        name: str = ""
        partition_indexes: list[int] = ...

    topics: list[TopicRequest] = ...

class DescribeProducersResponse(Message):
    class ProducerState(Struct):
        producer_id: int = 0
        producer_epoch: int = 0
        last_sequence: int = -1
        last_timestamp: int = -1
        coordinator_epoch: int = 0
        current_txn_start_offset: int = -1

    class PartitionResponse(Struct):
        partition_index: int = 0
        error_code: int = 0
        error_message: str | None = None
        active_producers: list[DescribeProducersResponse.ProducerState] = ...

    class TopicResponse(Struct):
        name: str = ""
        partitions: list[DescribeProducersResponse.PartitionResponse] = ...

    throttle_time_ms: int = 0
    topics: list[TopicResponse] = ...

class DescribeTransactionsRequest(Message):
    transactional_ids: list[str] = ...

class DescribeTransactionsResponse(Message):
    class TopicData(Struct):
        topic: str = ""
        partitions: list[int] = ...

    class TransactionState(Struct):
        error_code: int = 0
        transactional_id: str = ""
        transaction_state: str = ""
        transaction_timeout_ms: int = 0
        transaction_start_time_ms: int = 0
        producer_id: int = 0
        producer_epoch: int = 0
        topics: list[DescribeTransactionsResponse.TopicData] = ...

    throttle_time_ms: int = 0
    transaction_states: list[TransactionState] = ...

class ListTransactionsRequest(Message):
    state_filters: list[str] = ...
    producer_id_filters: list[int] = ...
    duration_filter: int = -1

class ListTransactionsResponse(Message):
    class TransactionState(Struct):
        transactional_id: str = ""
        producer_id: int = 0
        transaction_state: str = ""

    throttle_time_ms: int = 0
    error_code: int = 0
    unknown_state_filters: list[str] = ...
    transaction_states: list[TransactionState] = ...

class AllocateProducerIdsRequest(Message):
    broker_id: int = 0
    broker_epoch: int = -1

class AllocateProducerIdsResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    producer_id_start: int = 0
    producer_id_len: int = 0

class ConsumerGroupHeartbeatRequest(Message):
    class TopicPartitions(Struct):
        topic_id: UUID = ...
        partitions: list[int] = ...

    group_id: str = ""
    member_id: str = ""
    member_epoch: int = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: list[str] | None = None
    server_assignor: str | None = None
    topic_partitions: list[TopicPartitions] | None = None

class ConsumerGroupHeartbeatResponse(Message):
    class TopicPartitions(Struct):
        topic_id: UUID = ...
        partitions: list[int] = ...

    class Assignment(Struct):
        topic_partitions: list[ConsumerGroupHeartbeatResponse.TopicPartitions] = ...

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None

class ConsumerGroupDescribeRequest(Message):
    group_ids: list[str] = ...
    include_authorized_operations: bool = False

class ConsumerGroupDescribeResponse(Message):
    class TopicPartitions(Struct):
        topic_id: UUID = ...
        topic_name: str = ""
        partitions: list[int] = ...

    class Assignment(Struct):
        topic_partitions: list[ConsumerGroupDescribeResponse.TopicPartitions] = ...

    class Member(Struct):
        member_id: str = ""
        instance_id: str | None = None
        rack_id: str | None = None
        member_epoch: int = 0
        client_id: str = ""
        client_host: str = ""
        subscribed_topic_names: list[str] = ...
        subscribed_topic_regex: str | None = None
        assignment: ConsumerGroupDescribeResponse.Assignment = ...
        target_assignment: ConsumerGroupDescribeResponse.Assignment = ...

    class DescribedGroup(Struct):
        error_code: int = 0
        error_message: str | None = None
        group_id: str = ""
        group_state: str = ""
        group_epoch: int = 0
        assignment_epoch: int = 0
        assignor_name: str = ""
        members: list[ConsumerGroupDescribeResponse.Member] = ...
        authorized_operations: int = -2147483648

    throttle_time_ms: int = 0
    groups: list[DescribedGroup] = ...

class ConsumerProtocolSubscription(Message):
    class TopicPartition(Struct):
        topic: str = ""
        partitions: list[int] = ...

    topics: list[str] = ...
    user_data: bytes | None = None
    owned_partitions: list[TopicPartition] = ...
    generation_id: int = -1
    rack_id: str | None = None

class ConsumerProtocolAssignment(Message):
    class TopicPartition(Struct):
        topic: str = ""
        partitions: list[int] = ...

    assigned_partitions: list[TopicPartition] = ...
    user_data: bytes | None = None

class DefaultPrincipalData(Message):
    type: str = ""
    name: str = ""
    token_authenticated: bool = False

class OffsetCommitKey(Message):
    group: str = ""
    topic: str = ""
    partition: int = 0

class OffsetCommitValue(Message):
    offset: int = 0
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp: int = 0
    expire_timestamp: int = -1

class GroupMetadataKey(Message):
    group: str = ""

class GroupMetadataValue(Message):
    class MemberMetadata(Struct):
        member_id: str = ""
        group_instance_id: str | None = None
        client_id: str = ""
        client_host: str = ""
        rebalance_timeout: int = -1
        session_timeout: int = 0
        subscription: bytes = b""
        assignment: bytes = b""

    protocol_type: str = ""
    generation: int = 0
    protocol: str | None = ""
    leader: str | None = ""
    current_state_timestamp: int = -1
    members: list[MemberMetadata] = ...

class TransactionLogKey(Message):
    transactional_id: str = ""

class TransactionLogValue(Message):
    class PartitionsSchema(Struct):
        topic: str = ""
        partition_ids: list[int] = ...

    producer_id: int = 0
    producer_epoch: int = 0
    transaction_timeout_ms: int = 0
    transaction_status: int = 0
    transaction_partitions: list[PartitionsSchema] | None = ...
    transaction_last_update_timestamp_ms: int = 0
    transaction_start_timestamp_ms: int = 0
