"""A well-formed request of every kind, about things that exist on the broker that gets it.

What a request changes, it changes in a topic, a group or a transaction of its case alone.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any
from uuid import UUID

from leadline.wire import messages as m
from tests.conformance.both import Side
from tests.support.logs import batch
from tests.support.waiting import until

READ, WRITTEN, STAYS = "limits-read", "limits-written", "limits-stays"  # topics that cases share
TOPICS = (READ, WRITTEN, STAYS)
RECORDS_MS = 1_600_000_000_000
MINUTE_MS = 60_000
TOPIC_RESOURCE = 2
NOT_HERE = "limits-not-here"  # a topic that does not exist
STRANGER = 77  # the id of no broker


class Target:
    """What one case is about on one broker. Groups, producers and topics of its own are made when a base needs them."""

    def __init__(self, side: Side, version: int, name: str, partition: int = 0) -> None:
        """`partition`: to write to."""
        self.side, self.version, self.name, self.partition = side, version, name, partition

    @property
    def topic_id(self) -> UUID:
        return self.side.id_of(READ)

    @cached_property
    def member(self) -> m.JoinGroupResponse:
        """The only member of a stable group that has the name of the case."""
        join = m.JoinGroupRequest(
            group_id=self.name,
            session_timeout_ms=MINUTE_MS,
            rebalance_timeout_ms=MINUTE_MS,
            protocol_type="consumer",
            protocols=[m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"any")],
        )
        response = self.side.ask(m.JoinGroupResponse, join, 3)
        assert response.error_code == 0, response
        return response

    @cached_property
    def synced_member(self) -> m.JoinGroupResponse:
        joined = self.member
        request = m.SyncGroupRequest(
            group_id=self.name,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")],
        )
        assert self.side.ask(m.SyncGroupResponse, request, 3).error_code == 0
        return joined

    @cached_property
    def committed_group(self) -> str:
        """An empty group with a committed offset."""
        part = m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=3)
        topic = m.OffsetCommitRequest.OffsetCommitRequestTopic(name=READ, partitions=[part])
        request = m.OffsetCommitRequest(group_id=self.name, topics=[topic])
        (answer,) = self.side.ask(m.OffsetCommitResponse, request, 6).topics
        assert answer.partitions[0].error_code == 0, answer
        return self.name

    @cached_property
    def producer(self) -> m.InitProducerIdResponse:
        request = m.InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=10 * MINUTE_MS)
        responses: list[m.InitProducerIdResponse] = []

        def is_initialized() -> bool:  # the coordinator may still load
            responses.append(self.side.ask(m.InitProducerIdResponse, request, 4))
            return responses[-1].error_code == 0

        until(is_initialized)
        return responses[-1]

    @cached_property
    def transaction(self) -> m.InitProducerIdResponse:
        """With a partition of the written topic, and with the offsets of the case's group."""
        producer = self.producer
        topic = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=WRITTEN, partitions=[1])
        add = m.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[topic],
        )
        (answer,) = self.side.ask(m.AddPartitionsToTxnResponse, add, 3).results_by_topic_v3_and_below
        assert answer.results_by_partition[0].partition_error_code == 0, answer
        offsets = m.AddOffsetsToTxnRequest(
            transactional_id=self.name,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            group_id=self.name,
        )
        assert self.side.ask(m.AddOffsetsToTxnResponse, offsets, 3).error_code == 0
        return producer

    @cached_property
    def own_topic(self) -> str:
        kind = m.CreateTopicsRequest.CreatableTopic
        topic = kind(name=self.name, num_partitions=1, replication_factor=1)
        (result,) = self.side.ask(
            m.CreateTopicsResponse, m.CreateTopicsRequest(topics=[topic], timeout_ms=MINUTE_MS), 7
        ).topics
        assert result.error_code == 0, result
        described = m.MetadataRequest(
            topics=[m.MetadataRequest.MetadataRequestTopic(name=self.name)], allow_auto_topic_creation=False
        )
        until(lambda: self.side.ask(m.MetadataResponse, described, 9).topics[0].error_code == 0)
        return self.name


Values = dict[str, Any]


def produce(to: Target) -> Values:
    part = {"index": to.partition, "records": bytes(batch(1, timestamp=RECORDS_MS))}
    return {"acks": -1, "timeout_ms": MINUTE_MS, "topic_data": [{"name": WRITTEN, "partition_data": [part]}]}


def fetch(to: Target) -> Values:
    part = {"partition": 0, "fetch_offset": 1, "partition_max_bytes": 1000}
    return {
        "max_wait_ms": 10,
        "min_bytes": 1,
        "max_bytes": 100_000,
        "session_epoch": -1,
        "topics": [{"topic": READ, "topic_id": to.topic_id, "partitions": [part]}],
        "forgotten_topics_data": [{"topic": READ, "topic_id": to.topic_id, "partitions": [1]}],
    }


def list_offsets(to: Target) -> Values:
    part = {"partition_index": 0, "timestamp": RECORDS_MS, "max_num_offsets": 2}
    return {"replica_id": -1, "topics": [{"name": READ, "partitions": [part]}]}


def metadata(to: Target) -> Values:
    return {"topics": [{"name": READ}], "allow_auto_topic_creation": False}


def offset_commit(to: Target) -> Values:
    part = {"partition_index": 0, "committed_offset": 3, "committed_leader_epoch": 0, "committed_metadata": "why"}
    return {
        "group_id": to.name,
        "generation_id_or_member_epoch": to.synced_member.generation_id if to.version else -1,
        "member_id": to.synced_member.member_id if to.version else "",
        "retention_time_ms": -1,
        "topics": [{"name": READ, "partitions": [part]}],
    }


def offset_fetch(to: Target) -> Values:
    topics = [{"name": READ, "partition_indexes": [0, 1]}]
    group = {"group_id": to.committed_group, "member_epoch": -1, "topics": topics}
    return {"group_id": to.committed_group, "topics": topics, "groups": [group]}


def find_coordinator(to: Target) -> Values:
    return {"key": to.name, "coordinator_keys": [to.name]}


def join_group(to: Target) -> Values:
    return {
        "group_id": to.name,
        "session_timeout_ms": MINUTE_MS,
        "rebalance_timeout_ms": MINUTE_MS,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"any"}],
        "reason": "because",
    }


def rejoin_group(to: Target) -> Values:
    return {**join_group(to), "member_id": to.synced_member.member_id}


def heartbeat(to: Target) -> Values:
    return {
        "group_id": to.name,
        "generation_id": to.synced_member.generation_id,
        "member_id": to.synced_member.member_id,
    }


def leave_group(to: Target) -> Values:
    member = to.synced_member.member_id
    return {"group_id": to.name, "member_id": member, "members": [{"member_id": member, "reason": "done"}]}


def sync_group(to: Target) -> Values:
    return {
        "group_id": to.name,
        "generation_id": to.member.generation_id,
        "member_id": to.member.member_id,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": to.member.member_id, "assignment": b"all"}],
    }


def create_topics(to: Target) -> Values:
    topic = {
        "name": to.name,
        "num_partitions": 2,
        "replication_factor": 1,
        "configs": [{"name": "retention.ms", "value": "100000"}],
    }
    return {"topics": [topic], "timeout_ms": MINUTE_MS, "validate_only": True}


def create_assigned_topics(to: Target) -> Values:
    topic = {
        "name": to.name,
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [{"partition_index": 0, "broker_ids": [1]}],
    }
    return {"topics": [topic], "timeout_ms": MINUTE_MS, "validate_only": True}


def delete_topics(to: Target) -> Values:
    return {"topics": [{"name": to.own_topic}], "topic_names": [to.own_topic], "timeout_ms": MINUTE_MS}


def delete_records(to: Target) -> Values:
    part = {"partition_index": 0, "offset": 1}
    return {"topics": [{"name": WRITTEN, "partitions": [part]}], "timeout_ms": MINUTE_MS}


def init_producer_id(to: Target) -> Values:
    return {
        "transactional_id": to.name,
        "transaction_timeout_ms": MINUTE_MS,
        "producer_id": to.producer.producer_id,
        "producer_epoch": to.producer.producer_epoch,
    }


def offset_for_leader_epoch(to: Target) -> Values:
    part = {"partition": 0, "current_leader_epoch": 0, "leader_epoch": 0}
    return {"replica_id": -1, "topics": [{"topic": READ, "partitions": [part]}]}


def add_partitions_to_txn(to: Target) -> Values:
    topics = [{"name": WRITTEN, "partitions": [1]}]
    producer = to.transaction if to.version >= 4 else to.producer
    return {
        "transactions": [
            {
                "transactional_id": to.name,
                "producer_id": producer.producer_id,
                "producer_epoch": producer.producer_epoch,
                "verify_only": True,
                "topics": topics,
            }
        ],
        "v3_and_below_transactional_id": to.name,
        "v3_and_below_producer_id": producer.producer_id,
        "v3_and_below_producer_epoch": producer.producer_epoch,
        "v3_and_below_topics": topics,
    }


def of_producer(to: Target, producer: m.InitProducerIdResponse) -> Values:
    return {
        "transactional_id": to.name,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
    }


def add_offsets_to_txn(to: Target) -> Values:
    return {**of_producer(to, to.producer), "group_id": to.name}


def end_txn(to: Target) -> Values:
    return {**of_producer(to, to.transaction), "committed": False}


def write_txn_markers(to: Target) -> Values:
    marker = {
        "producer_id": 900,
        "producer_epoch": 0,
        "transaction_result": False,
        "topics": [{"name": WRITTEN, "partition_indexes": [0]}],
        "coordinator_epoch": 0,
    }
    return {"markers": [marker]}


def txn_offset_commit(to: Target) -> Values:
    part = {"partition_index": 0, "committed_offset": 3, "committed_leader_epoch": 0, "committed_metadata": "why"}
    return {
        **of_producer(to, to.transaction),
        "group_id": to.name,
        "generation_id": -1,
        "topics": [{"name": READ, "partitions": [part]}],
    }


def acl_filter(to: Target) -> Values:
    return {
        "resource_type_filter": 2,
        "resource_name_filter": "t",
        "pattern_type_filter": 3,
        "principal_filter": "User:zoe",
        "host_filter": "*",
        "operation": 3,
        "permission_type": 3,
    }


def create_acls(to: Target) -> Values:
    creation = {
        "resource_type": 2,
        "resource_name": to.name,
        "resource_pattern_type": 3,
        "principal": "User:zoe",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    return {"creations": [creation]}


def describe_configs(to: Target) -> Values:
    resource = {"resource_type": TOPIC_RESOURCE, "resource_name": READ, "configuration_keys": ["retention.ms"]}
    return {"resources": [resource], "include_synonyms": True}


def describe_broker_configs(to: Target) -> Values:
    return {"resources": [{"resource_type": 4, "resource_name": "1", "configuration_keys": ["log.retention.ms"]}]}


def altered(to: Target, **config: object) -> Values:
    entry = {"name": "retention.ms", "value": "100000", **config}
    resource = {"resource_type": TOPIC_RESOURCE, "resource_name": STAYS, "configs": [entry]}
    return {"resources": [resource], "validate_only": True}


def altered_broker(to: Target, **config: object) -> Values:
    entry = {"name": "log.cleaner.threads", "value": "1", **config}
    return {"resources": [{"resource_type": 4, "resource_name": "1", "configs": [entry]}], "validate_only": True}


def alter_replica_log_dirs(to: Target) -> Values:
    """To the directory where it is: nothing moves."""
    return {"dirs": [{"path": to.side.dirs[0], "topics": [{"name": NOT_HERE, "partitions": [0]}]}]}


def describe_log_dirs(to: Target) -> Values:
    return {"topics": [{"topic": READ, "partitions": [0]}]}


def create_partitions(to: Target) -> Values:
    topic = {"name": STAYS, "count": 3, "assignments": [{"broker_ids": [1]}]}
    return {"topics": [topic], "timeout_ms": MINUTE_MS, "validate_only": True}


def create_delegation_token(to: Target) -> Values:
    renewer = {"principal_type": "User", "principal_name": "zoe"}
    return {"renewers": [renewer], "max_lifetime_ms": MINUTE_MS}


def elect_leaders(to: Target) -> Values:
    return {"topic_partitions": [{"topic": STAYS, "partitions": [0]}], "timeout_ms": MINUTE_MS}


def offset_delete(to: Target) -> Values:
    return {
        "group_id": to.committed_group,
        "topics": [{"name": READ, "partitions": [{"partition_index": 0}]}],
    }


def describe_client_quotas(to: Target) -> Values:
    return {"components": [{"entity_type": "user", "match_type": 0, "match": "zoe"}], "strict": False}


def alter_client_quotas(to: Target) -> Values:
    entry = {
        "entity": [{"entity_type": "user", "entity_name": to.name}],
        "ops": [{"key": "producer_byte_rate", "value": 1e9, "remove": False}],
    }
    return {"entries": [entry], "validate_only": True}


def alter_user_scram_credentials(to: Target) -> Values:
    upsertion = {
        "name": to.name,
        "mechanism": 1,
        "iterations": 4096,
        "salt": b"salt",
        "salted_password": b"password",
    }
    return {"upsertions": [upsertion]}


def delete_user_scram_credentials(to: Target) -> Values:
    return {"deletions": [{"name": to.name, "mechanism": 1}]}


def reassigned(to: Target) -> Values:
    part = {"partition_index": 0, "replicas": [1]}
    return {"timeout_ms": MINUTE_MS, "topics": [{"name": STAYS, "partitions": [part]}]}


def of_old_controller(to: Target) -> Values:
    """What a broker refuses, as there is a newer controller."""
    state = {
        "topic_name": READ,
        "partition_index": 0,
        "controller_epoch": 0,
        "leader": 1,
        "leader_epoch": 0,
        "isr": [1],
        "replicas": [1],
    }
    return {"controller_id": 1, "controller_epoch": 0, "ungrouped_partition_states": [state]}


def leader_and_isr(to: Target) -> Values:
    values = of_old_controller(to)
    (state,) = values["ungrouped_partition_states"]
    topic = {"topic_name": READ, "topic_id": to.topic_id, "partition_states": [{**state, "topic_name": ""}]}
    leader = {"broker_id": 1, "host_name": "localhost", "port": 9092}
    return {**values, "broker_epoch": -1, "topic_states": [topic], "live_leaders": [leader]}


def stop_replica(to: Target) -> Values:
    state = {"partition_index": 0, "leader_epoch": 0, "delete_partition": False}
    return {
        "controller_id": 1,
        "controller_epoch": 0,
        "broker_epoch": -1,
        "ungrouped_partitions": [{"topic_name": READ, "partition_index": 0}],
        "topics": [{"name": READ, "partition_indexes": [0]}],
        "topic_states": [{"topic_name": READ, "partition_states": [state]}],
    }


def update_metadata(to: Target) -> Values:
    values = of_old_controller(to)
    (state,) = values["ungrouped_partition_states"]
    topic = {"topic_name": READ, "topic_id": to.topic_id, "partition_states": [{**state, "topic_name": ""}]}
    endpoint = {"port": 9092, "host": "localhost", "listener": "PLAINTEXT", "security_protocol": 0}
    live = {"id": 1, "v0_host": "localhost", "v0_port": 9092, "endpoints": [endpoint], "rack": "here"}
    return {**values, "broker_epoch": -1, "topic_states": [topic], "live_brokers": [live]}


def alter_partition(to: Target) -> Values:
    """Of a broker that the controller does not know."""
    part = {
        "partition_index": 0,
        "leader_epoch": 0,
        "new_isr": [1],
        "new_isr_with_epochs": [{"broker_id": 1, "broker_epoch": 0}],
        "partition_epoch": 0,
    }
    topic = {"topic_name": READ, "topic_id": to.topic_id, "partitions": [part]}
    return {"broker_id": STRANGER, "broker_epoch": 1, "topics": [topic]}


def list_reassignments(to: Target) -> Values:
    return {"timeout_ms": MINUTE_MS, "topics": [{"name": STAYS, "partition_indexes": [0]}]}


def update_features(to: Target) -> Values:
    update = {"feature": "metadata.version", "max_version_level": 1, "upgrade_type": 1}
    return {"timeout_ms": MINUTE_MS, "feature_updates": [update], "validate_only": True}


def consumer_group_heartbeat(to: Target) -> Values:
    return {
        "group_id": to.name,
        "member_id": "member",
        "member_epoch": 0,
        "instance_id": "instance",
        "rack_id": "here",
        "rebalance_timeout_ms": MINUTE_MS,
        "subscribed_topic_names": [READ],
        "server_assignor": "range",
        "topic_partitions": [{"topic_id": to.topic_id, "partitions": [0]}],
    }


def describe_groups(to: Target) -> Values:
    return {"groups": [to.committed_group]}


def delete_groups(to: Target) -> Values:
    return {"groups_names": [to.committed_group]}


def describe_transactions(to: Target) -> Values:
    return {"transactional_ids": [to.name]} if to.producer else {}


def list_transactions(to: Target) -> Values:
    return {
        "state_filters": ["Ongoing"],
        "producer_id_filters": [to.transaction.producer_id],
        "duration_filter": -1,
    }


Base = Callable[[Target], Values]

# More than one base for a request: what one of them leaves at its default, the other one has.
BASES: dict[str, list[Base]] = {
    "Produce": [produce],
    "Fetch": [fetch],
    "ListOffsets": [list_offsets],
    "Metadata": [metadata],
    "OffsetCommit": [offset_commit],
    "OffsetFetch": [offset_fetch],
    "FindCoordinator": [find_coordinator],
    "JoinGroup": [join_group, rejoin_group],
    "Heartbeat": [heartbeat],
    "LeaveGroup": [leave_group],
    "SyncGroup": [sync_group],
    "DescribeGroups": [describe_groups],
    "ListGroups": [lambda to: {"states_filter": ["Dead"], "types_filter": ["classic"]}],
    "SaslHandshake": [lambda to: {"mechanism": "PLAIN"}],
    "ApiVersions": [lambda to: {"client_software_name": "limits", "client_software_version": "1.0"}],
    "CreateTopics": [create_topics, create_assigned_topics],
    "DeleteTopics": [delete_topics],
    "DeleteRecords": [delete_records],
    "InitProducerId": [init_producer_id],
    "OffsetForLeaderEpoch": [offset_for_leader_epoch],
    "AddPartitionsToTxn": [add_partitions_to_txn],
    "AddOffsetsToTxn": [add_offsets_to_txn],
    "EndTxn": [end_txn],
    "WriteTxnMarkers": [write_txn_markers],
    "TxnOffsetCommit": [txn_offset_commit],
    "DescribeAcls": [acl_filter],
    "CreateAcls": [create_acls],
    "DeleteAcls": [lambda to: {"filters": [acl_filter(to)]}],
    "DescribeConfigs": [describe_configs, describe_broker_configs],
    "AlterConfigs": [altered, altered_broker],
    "AlterReplicaLogDirs": [alter_replica_log_dirs],
    "DescribeLogDirs": [describe_log_dirs],
    "SaslAuthenticate": [lambda to: {"auth_bytes": b"any"}],
    "CreatePartitions": [create_partitions],
    "CreateDelegationToken": [create_delegation_token],
    "RenewDelegationToken": [lambda to: {"hmac": b"any", "renew_period_ms": MINUTE_MS}],
    "ExpireDelegationToken": [lambda to: {"hmac": b"any", "expiry_time_period_ms": MINUTE_MS}],
    "DescribeDelegationToken": [lambda to: {"owners": [{"principal_type": "User", "principal_name": "zoe"}]}],
    "DeleteGroups": [delete_groups],
    "ElectLeaders": [elect_leaders],
    "IncrementalAlterConfigs": [
        lambda to: altered(to, config_operation=0),
        lambda to: altered_broker(to, config_operation=0),
    ],
    "OffsetDelete": [offset_delete],
    "DescribeClientQuotas": [describe_client_quotas],
    "AlterClientQuotas": [alter_client_quotas],
    "DescribeUserScramCredentials": [lambda to: {"users": [{"name": "zoe"}]}],
    "AlterUserScramCredentials": [alter_user_scram_credentials, delete_user_scram_credentials],
    "DescribeCluster": [lambda to: {}],
    "DescribeProducers": [lambda to: {"topics": [{"name": READ, "partition_indexes": [0]}]}],
    "DescribeTransactions": [describe_transactions],
    "ListTransactions": [list_transactions],
    "AlterPartitionReassignments": [reassigned],
    "ListPartitionReassignments": [list_reassignments],
    "LeaderAndIsr": [leader_and_isr],
    "StopReplica": [stop_replica],
    "UpdateMetadata": [update_metadata],
    "ControlledShutdown": [lambda to: {"broker_id": STRANGER, "broker_epoch": -1}],
    "AlterPartition": [alter_partition],
    "AllocateProducerIds": [lambda to: {"broker_id": STRANGER, "broker_epoch": 1}],
    "UpdateFeatures": [update_features],
    "Envelope": [lambda to: {"request_data": b"any", "request_principal": b"any", "client_host_address": b"four"}],
    "ConsumerGroupHeartbeat": [consumer_group_heartbeat],
    "ConsumerGroupDescribe": [lambda to: {"group_ids": [to.name]}],
}
