"""One function per request: decode it, call one domain object, shape the response. Here is THE TABLE.

An entry has everything about serving a request: its versions, its handler, and its fast path if it has one. A request
without an entry is not served. Rules that hold for a request on both paths belong to its entry. The rights that it
needs stand beside it, in `authorization`: a request without an entry there is not served either.
"""

import re
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

from leadline.api.acls import create_acls, delete_acls, describe_acls
from leadline.api.authorization import AUTHORIZATION, Authorization, check_complete
from leadline.api.client_quotas import alter_client_quotas, describe_client_quotas
from leadline.api.configs import alter_configs, describe_configs, incremental_alter_configs
from leadline.api.context import ClientConnection, Context, LongResponse, Services
from leadline.api.delegation_tokens import (
    create_delegation_token,
    describe_delegation_token,
    expire_delegation_token,
    renew_delegation_token,
)
from leadline.api.describe_producers import describe_producers
from leadline.api.elect_leaders import elect_leaders
from leadline.api.fast.follower_fetch import fetch_by_follower
from leadline.api.fast.offset_commit import commit_by_template, serve_offset_commit
from leadline.api.fast.produce import produce_by_template, serve_produce
from leadline.api.fetch import fetch
from leadline.api.find_coordinator import find_coordinator
from leadline.api.group_offsets import offset_delete, offset_fetch, txn_offset_commit
from leadline.api.groups import (
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    sync_group,
)
from leadline.api.inter_broker import (
    allocate_producer_ids,
    alter_partition,
    among_brokers,
    controlled_shutdown,
    leader_and_isr,
    refused_leader_and_isr,
    refused_stop_replica,
    refused_with,
    stop_replica,
    update_metadata,
)
from leadline.api.kraft import consumer_group_describe, consumer_group_heartbeat, envelope, update_features
from leadline.api.list_offsets import list_offsets, offset_for_leader_epoch
from leadline.api.log_dirs import alter_replica_log_dirs, describe_log_dirs
from leadline.api.metadata import describe_cluster, metadata
from leadline.api.reassignments import alter_partition_reassignments, list_partition_reassignments
from leadline.api.sasl import sasl_authenticate, sasl_handshake
from leadline.api.topics import create_partitions, create_topics, delete_records, delete_topics
from leadline.api.transactions import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
    write_txn_markers,
)
from leadline.api.user_scram_credentials import alter_user_scram_credentials, describe_user_scram_credentials
from leadline.errors import InvalidRequest
from leadline.model import Buffer
from leadline.wire import messages
from leadline.wire.classes import Message
from leadline.wire.codec import decode_from
from leadline.wire.messages import ApiVersionsRequest, ApiVersionsResponse
from leadline.wire.primitives import Piece

M = TypeVar("M", bound=Message)
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")  # a client's name or version
Answer = Message | Awaitable[Message | LongResponse | None] | None
Reply = bytes | list[Piece]  # a whole frame, or its pieces

# Takes the frame, and where the body of the request starts in it.
Serve = Callable[[Buffer, int, Context], Answer]

# Takes the frame, and version and correlation id out of it. None: nothing has happened, and the handler serves it.
FastPath = Callable[[memoryview, int, int, ClientConnection, Services], Reply | Awaitable[Reply] | None]


class Entry(NamedTuple):
    """A request that is served."""

    key: int
    name: str
    versions: range  # as advertised
    serve: Serve  # decodes the request and calls its handler
    fast: FastPath | None  # tried first
    authorization: Authorization  # the rights that it needs, and how it is refused
    pipelined: bool  # the next request of the connection is served while the response to this one is awaited
    from_followers: bool  # followers send it, too: they are counted apart, and its fast path serves them alone, exempt


def _entry(
    request: type[M],
    handler: Callable[[M, Context], Answer],
    fast: FastPath | None = None,
    *,
    from_followers: bool = False,
) -> Entry:
    def serve(frame: Buffer, body_at: int, ctx: Context) -> Answer:
        """Bytes after the request are ignored, as Kafka does: librdkafka sends some with Metadata v12."""
        message, _ = decode_from(request, frame, ctx.version, body_at)
        return handler(message, ctx)

    return _served_by(request, serve, fast, from_followers=from_followers)


def _served_by(
    request: type[Message],
    serve: Serve,
    fast: FastPath | None,
    *,
    pipelined: bool = False,
    from_followers: bool = False,
) -> Entry:
    assert request.API_KEY is not None
    versions = request.VERSIONS
    name, authorization = request.__name__.removesuffix("Request"), AUTHORIZATION[request.API_KEY]
    return Entry(request.API_KEY, name, versions, serve, fast, authorization, pipelined, from_followers)


def api_versions(request: ApiVersionsRequest, ctx: Context) -> ApiVersionsResponse:
    """ApiVersions, v0-3.  v3 the client's software, and features: none, as of the first epoch."""
    return api_versions_response(request, ctx.version)


def api_versions_response(request: ApiVersionsRequest, version: int) -> ApiVersionsResponse:
    """Also before a login."""
    software = (request.client_software_name, request.client_software_version)
    if version >= 3 and not all(map(_SOFTWARE.fullmatch, software)):
        return ApiVersionsResponse(error_code=InvalidRequest.code)
    return ApiVersionsResponse(
        finalized_features_epoch=0,
        api_keys=[
            ApiVersionsResponse.ApiVersion(
                api_key=entry.key, min_version=entry.versions[0], max_version=entry.versions[-1]
            )
            for entry in TABLE.values()
        ],
    )


def by_key(*entries: Entry) -> dict[int, Entry]:
    """THE TABLE of these entries. A request that is listed twice is a bug."""
    table: dict[int, Entry] = {}
    for entry in entries:
        if (other := table.get(entry.key)) is not None:
            raise ValueError(f"{entry.name} and {other.name} both have api key {entry.key}")
        table[entry.key] = entry
    return table


TABLE = by_key(
    _served_by(messages.ProduceRequest, serve_produce, produce_by_template, pipelined=True),
    _entry(messages.FetchRequest, fetch, fast=fetch_by_follower, from_followers=True),
    _entry(messages.ListOffsetsRequest, list_offsets),
    _entry(messages.MetadataRequest, metadata),
    _served_by(messages.OffsetCommitRequest, serve_offset_commit, commit_by_template),
    _entry(messages.OffsetFetchRequest, offset_fetch),
    _entry(messages.LeaderAndIsrRequest, among_brokers(leader_and_isr, refused_leader_and_isr)),
    _entry(messages.StopReplicaRequest, among_brokers(stop_replica, refused_stop_replica)),
    _entry(
        messages.UpdateMetadataRequest, among_brokers(update_metadata, refused_with(messages.UpdateMetadataResponse))
    ),
    _entry(
        messages.ControlledShutdownRequest,
        among_brokers(controlled_shutdown, refused_with(messages.ControlledShutdownResponse)),
    ),
    _entry(messages.FindCoordinatorRequest, find_coordinator),
    _entry(messages.JoinGroupRequest, join_group),
    _entry(messages.HeartbeatRequest, heartbeat),
    _entry(messages.LeaveGroupRequest, leave_group),
    _entry(messages.SyncGroupRequest, sync_group),
    _entry(messages.DescribeGroupsRequest, describe_groups),
    _entry(messages.ListGroupsRequest, list_groups),
    _entry(messages.SaslHandshakeRequest, sasl_handshake),
    _entry(messages.ApiVersionsRequest, api_versions),
    _entry(messages.CreateTopicsRequest, create_topics),
    _entry(messages.DeleteTopicsRequest, delete_topics),
    _entry(messages.DeleteRecordsRequest, delete_records),
    _entry(messages.InitProducerIdRequest, init_producer_id),
    _entry(messages.OffsetForLeaderEpochRequest, offset_for_leader_epoch),
    _entry(messages.AddPartitionsToTxnRequest, add_partitions_to_txn),
    _entry(messages.AddOffsetsToTxnRequest, add_offsets_to_txn),
    _entry(messages.EndTxnRequest, end_txn),
    _entry(messages.WriteTxnMarkersRequest, write_txn_markers),
    _entry(messages.TxnOffsetCommitRequest, txn_offset_commit),
    _entry(messages.DescribeAclsRequest, describe_acls),
    _entry(messages.CreateAclsRequest, create_acls),
    _entry(messages.DeleteAclsRequest, delete_acls),
    _entry(messages.DescribeConfigsRequest, describe_configs),
    _entry(messages.AlterConfigsRequest, alter_configs),
    _entry(messages.AlterReplicaLogDirsRequest, alter_replica_log_dirs),
    _entry(messages.DescribeLogDirsRequest, describe_log_dirs),
    _entry(messages.SaslAuthenticateRequest, sasl_authenticate),
    _entry(messages.CreatePartitionsRequest, create_partitions),
    _entry(messages.CreateDelegationTokenRequest, create_delegation_token),
    _entry(messages.RenewDelegationTokenRequest, renew_delegation_token),
    _entry(messages.ExpireDelegationTokenRequest, expire_delegation_token),
    _entry(messages.DescribeDelegationTokenRequest, describe_delegation_token),
    _entry(messages.DeleteGroupsRequest, delete_groups),
    _entry(messages.ElectLeadersRequest, elect_leaders),
    _entry(messages.IncrementalAlterConfigsRequest, incremental_alter_configs),
    _entry(messages.OffsetDeleteRequest, offset_delete),
    _entry(messages.DescribeClientQuotasRequest, describe_client_quotas),
    _entry(messages.AlterClientQuotasRequest, alter_client_quotas),
    _entry(messages.DescribeUserScramCredentialsRequest, describe_user_scram_credentials),
    _entry(messages.AlterUserScramCredentialsRequest, alter_user_scram_credentials),
    _entry(messages.DescribeClusterRequest, describe_cluster),
    _entry(messages.DescribeProducersRequest, describe_producers),
    _entry(messages.DescribeTransactionsRequest, describe_transactions),
    _entry(messages.ListTransactionsRequest, list_transactions),
    _entry(messages.AlterPartitionReassignmentsRequest, alter_partition_reassignments),
    _entry(messages.ListPartitionReassignmentsRequest, list_partition_reassignments),
    _entry(
        messages.AlterPartitionRequest, among_brokers(alter_partition, refused_with(messages.AlterPartitionResponse))
    ),
    _entry(
        messages.AllocateProducerIdsRequest,
        among_brokers(allocate_producer_ids, refused_with(messages.AllocateProducerIdsResponse)),
    ),
    _entry(messages.UpdateFeaturesRequest, update_features),
    _entry(messages.EnvelopeRequest, envelope),
    _entry(messages.ConsumerGroupHeartbeatRequest, consumer_group_heartbeat),
    _entry(messages.ConsumerGroupDescribeRequest, consumer_group_describe),
)
check_complete(TABLE)
