"""OffsetCommit, OffsetFetch, OffsetDelete and TxnOffsetCommit: the committed offsets of groups."""

from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from typing import TypedDict, TypeVar

from leadline.api.context import Context
from leadline.api.verification import verify_offsets
from leadline.config.values import LONG_MAX
from leadline.coordinator.group_offsets import OffsetAndMetadata, is_longer
from leadline.coordinator.group_shard import OFFSETS_TOPIC
from leadline.coordinator.offset_coordinator import ConsumerGroupMetadata, ErrorCodes, FetchedOffset, OffsetTransaction
from leadline.coordinator.transaction import ProducerIdAndEpoch
from leadline.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    OffsetMetadataTooLarge,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
    WireError,
)
from leadline.log.producer_state import Verification
from leadline.model import NONE, Offset, TopicPartition, by_topic
from leadline.wire.messages import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

MANY_GROUPS_FROM = 8  # versions of OffsetFetch
LOADING_FROM = 2  # of TxnOffsetCommit: older clients do not know the error of a loading coordinator
DEFAULT = -1  # in place of a time: the broker chooses it
NO_METADATA = ""
NO_COMMIT = OffsetAndMetadata(offset=-1, metadata=NO_METADATA, commit_ms=DEFAULT)

_Committed = OffsetCommitResponse.OffsetCommitResponsePartition
_Deleted = OffsetDeleteResponse.OffsetDeleteResponsePartition
_RequestedTopic = OffsetFetchRequest.OffsetFetchRequestTopic | OffsetFetchRequest.OffsetFetchRequestTopics
_Topic = OffsetFetchResponse.OffsetFetchResponseTopic
_Partition = OffsetFetchResponse.OffsetFetchResponsePartition
_Topics = OffsetFetchResponse.OffsetFetchResponseTopics
_Partitions = OffsetFetchResponse.OffsetFetchResponsePartitions
_Group = OffsetFetchResponse.OffsetFetchResponseGroup
_TxnCommitted = TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition

R = TypeVar("R")


def offset_commit(request: OffsetCommitRequest, ctx: Context) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    """OffsetCommit, v0-9.  v0 into the tree · v1 commit time · v2-4 retention · v6 leader epoch · v7 static members."""
    if (refusal := ctx.refused("group", request.group_id)) is not None:
        return committed(dict.fromkeys(_named_partitions(request), refusal.code))
    permitted = ctx.permitted("topics", (topic.name for topic in request.topics))
    if ctx.version == 0:
        return _commit_to_tree(request, permitted, ctx)
    now_ms = ctx.services.clock.now_ms()
    expire_ms = None if request.retention_time_ms == DEFAULT else min(now_ms + request.retention_time_ms, LONG_MAX)
    verdicts: ErrorCodes = {}
    commits: dict[TopicPartition, OffsetAndMetadata] = {}
    for topic in request.topics:
        name, count = topic.name, ctx.services.metadata.partition_count(topic.name) or 0
        for partition in topic.partitions:
            tp = TopicPartition(name, partition.partition_index)
            if name not in permitted:
                verdicts[tp] = TopicAuthorizationFailed.code
                continue
            if not 0 <= tp.partition < count:
                verdicts[tp] = UnknownTopicOrPartition.code
                continue
            commit_ms = now_ms if partition.commit_timestamp == DEFAULT else partition.commit_timestamp
            metadata = partition.committed_metadata or NO_METADATA
            commits[tp] = OffsetAndMetadata(
                partition.committed_offset, metadata, commit_ms, partition.committed_leader_epoch, expire_ms
            )
    if not commits:
        return committed(verdicts)
    generation = request.generation_id_or_member_epoch
    member = ConsumerGroupMetadata(request.group_id, request.member_id, request.group_instance_id, generation)
    return _respond(ctx.services.offsets.commit(member, commits), verdicts, committed)


def _named_partitions(request: OffsetCommitRequest | TxnOffsetCommitRequest) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    ]


def _respond(
    codes: ErrorCodes | Awaitable[ErrorCodes], others: ErrorCodes, shape: Callable[[ErrorCodes], R]
) -> R | Awaitable[R]:
    """Responds at once if the error codes are there already."""

    async def later(pending: Awaitable[ErrorCodes]) -> R:
        return shape(others | await pending)

    return shape(others | codes if others else codes) if isinstance(codes, dict) else later(codes)


def committed(verdicts: ErrorCodes, named_partitions: Iterable[TopicPartition] | None = None) -> OffsetCommitResponse:
    """`named_partitions`: those of the response, in which a partition may be twice; by default each is there once."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponse.OffsetCommitResponseTopic(
                name=topic,
                partitions=[_Committed(partition_index=tp.partition, error_code=verdicts[tp]) for tp in partitions],
            )
            for topic, partitions in by_topic(verdicts if named_partitions is None else named_partitions).items()
        ]
    )


async def _commit_to_tree(
    request: OffsetCommitRequest, permitted: Container[str], ctx: Context
) -> OffsetCommitResponse:
    """The oldest clients keep their offsets in the tree, without a group coordinator."""
    max_bytes = ctx.services.config.offset_metadata_max_bytes
    verdicts: ErrorCodes = {}
    for topic in request.topics:
        for partition in topic.partitions:
            tp = TopicPartition(topic.name, partition.partition_index)
            if tp.topic not in permitted:
                verdicts[tp] = TopicAuthorizationFailed.code
            elif not ctx.services.metadata.has_partition(tp):
                verdicts[tp] = UnknownTopicOrPartition.code
            elif is_longer(partition.committed_metadata or NO_METADATA, max_bytes):
                verdicts[tp] = OffsetMetadataTooLarge.code
            else:
                verdicts[tp] = await _into_tree(request.group_id, tp, partition.committed_offset, ctx)
    return committed(verdicts, _named_partitions(request))


async def _into_tree(group_id: str, tp: TopicPartition, offset: Offset, ctx: Context) -> int:
    try:
        await ctx.services.cluster.write_consumer_offset(group_id, tp, offset)
    except WireError as error:
        return error.code
    return NONE


async def _fetch_from_tree(request: OffsetFetchRequest, ctx: Context) -> OffsetFetchResponse:
    fetched: dict[TopicPartition, FetchedOffset] = {}
    refusal, topics = ctx.refused("groups", request.group_id), request.topics or []
    permitted = ctx.permitted("topics", (topic.name for topic in topics)) if refusal is None else ()
    for tp in _partitions(topics):
        if tp.topic in permitted:
            fetched[tp] = await _in_tree(request.group_id, tp, ctx)
        else:
            fetched[tp] = FetchedOffset(None, TopicAuthorizationFailed.code if refusal is None else refusal.code)
    return OffsetFetchResponse(topics=_fetched_topics(fetched))


async def _in_tree(group_id: str, tp: TopicPartition, ctx: Context) -> FetchedOffset:
    if not ctx.services.metadata.has_partition(tp):
        return FetchedOffset(None, UnknownTopicOrPartition.code)
    try:
        offset = await ctx.services.cluster.read_consumer_offset(group_id, tp)
    except WireError as error:
        return FetchedOffset(None, error.code)
    if offset is None:
        return FetchedOffset(None, UnknownTopicOrPartition.code)
    return FetchedOffset(OffsetAndMetadata(offset, NO_METADATA, DEFAULT))


def offset_fetch(request: OffsetFetchRequest, ctx: Context) -> OffsetFetchResponse | Awaitable[OffsetFetchResponse]:
    """OffsetFetch, v0-9.  v0 from the tree · v2 null: all · v7 stable offsets only · v8 many groups."""
    if ctx.version == 0:
        return _fetch_from_tree(request, ctx)
    if ctx.version >= MANY_GROUPS_FROM:
        return OffsetFetchResponse(
            groups=[_fetch_group(group, request.require_stable, ctx) for group in request.groups]
        )
    try:
        fetched = _fetch_permitted(request.group_id, request.topics, request.require_stable, ctx)
        return OffsetFetchResponse(topics=_fetched_topics(fetched))
    except WireError as error:
        return OffsetFetchResponse(error_code=error.code)


def _fetch_permitted(
    group_id: str, topics: Sequence[_RequestedTopic] | None, require_stable: bool, ctx: Context
) -> Mapping[TopicPartition, FetchedOffset]:
    """A topic that the client may not describe gets an error if the request names it, and is left out otherwise."""
    if (refusal := ctx.refused("groups", group_id)) is not None:
        raise refusal
    if topics is None:
        fetched = ctx.services.offsets.fetch(group_id, None, require_stable=require_stable)
        described = ctx.permitted("all topics", by_topic(fetched))
        return {tp: offset for tp, offset in fetched.items() if tp.topic in described}
    permitted = ctx.permitted("topics", (topic.name for topic in topics))
    partitions = _partitions(topics)
    named = [tp for tp in partitions if tp.topic in permitted]
    refused = FetchedOffset(None, TopicAuthorizationFailed.code)
    return {
        **ctx.services.offsets.fetch(group_id, named, require_stable=require_stable),
        **{tp: refused for tp in partitions if tp.topic not in permitted},
    }


def _partitions(topics: Iterable[_RequestedTopic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, number) for topic in topics for number in topic.partition_indexes]


def _fetch_group(group: OffsetFetchRequest.OffsetFetchRequestGroup, require_stable: bool, ctx: Context) -> _Group:
    try:
        fetched = _fetch_permitted(group.group_id, group.topics, require_stable, ctx)
    except WireError as error:
        return _Group(group_id=group.group_id, error_code=error.code)
    topics = [
        _Topics(name=topic, partitions=[_Partitions(**_fields(tp, fetched[tp])) for tp in tps])
        for topic, tps in by_topic(fetched).items()
    ]
    return _Group(group_id=group.group_id, topics=topics)


def _fetched_topics(fetched: Mapping[TopicPartition, FetchedOffset]) -> list[_Topic]:
    return [
        _Topic(name=topic, partitions=[_Partition(**_fields(tp, fetched[tp])) for tp in partitions])
        for topic, partitions in by_topic(fetched).items()
    ]


class _PartitionFields(TypedDict):
    """The fields of a partition, which responses for one group and for many groups share."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    metadata: str
    error_code: int


def _fields(tp: TopicPartition, fetched: FetchedOffset) -> _PartitionFields:
    commit = fetched.committed or NO_COMMIT
    return {
        "partition_index": tp.partition,
        "committed_offset": commit.offset,
        "committed_leader_epoch": commit.leader_epoch,
        "metadata": commit.metadata,
        "error_code": fetched.error,
    }


async def offset_delete(request: OffsetDeleteRequest, ctx: Context) -> OffsetDeleteResponse:
    """OffsetDelete, v0: deletes the offsets of partitions that no member of the group reads."""
    requested = [
        TopicPartition(topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    ]
    if (refusal := ctx.refused("group", request.group_id)) is not None:
        return OffsetDeleteResponse(error_code=refusal.code)
    permitted = ctx.permitted("topics", (topic.name for topic in request.topics))
    existing = [tp for tp in requested if tp.topic in permitted and ctx.services.metadata.has_partition(tp)]
    verdicts = {
        tp: UnknownTopicOrPartition.code if tp.topic in permitted else TopicAuthorizationFailed.code for tp in requested
    }
    try:
        verdicts |= await ctx.services.offsets.delete_offsets(request.group_id, existing)
    except WireError as error:
        return OffsetDeleteResponse(error_code=error.code)
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponse.OffsetDeleteResponseTopic(
                name=topic,
                partitions=[_Deleted(partition_index=tp.partition, error_code=verdicts[tp]) for tp in partitions],
            )
            for topic, partitions in by_topic(verdicts).items()
        ]
    )


def txn_offset_commit(
    request: TxnOffsetCommitRequest, ctx: Context
) -> TxnOffsetCommitResponse | Awaitable[TxnOffsetCommitResponse]:
    """TxnOffsetCommit, v0-4.  v2 leader epoch · v3 members · v4 abortable.

    The offsets take effect if the transaction commits.
    """
    refusal = ctx.refused("transactional id", request.transactional_id) or ctx.refused("group", request.group_id)
    if refusal is not None:
        return _txn_response(dict.fromkeys(_named_partitions(request), refusal.code))
    permitted = ctx.permitted("topics", (topic.name for topic in request.topics))
    now_ms = ctx.services.clock.now_ms()
    commits = {
        TopicPartition(topic.name, partition.partition_index): OffsetAndMetadata(
            partition.committed_offset,
            partition.committed_metadata or NO_METADATA,
            now_ms,
            partition.committed_leader_epoch,
        )
        for topic in request.topics
        for partition in topic.partitions
    }
    existing = {
        tp: commit
        for tp, commit in commits.items()
        if tp.topic in permitted and ctx.services.metadata.has_partition(tp)
    }
    others = {
        tp: UnknownTopicOrPartition.code if tp.topic in permitted else TopicAuthorizationFailed.code
        for tp in commits
        if tp not in existing
    }
    if not existing:
        return _txn_response(others)
    try:
        codes = _commit_in_transaction(request, existing, ctx)
    except WireError as error:
        return _txn_response(others | dict.fromkeys(existing, _txn_code(error, ctx)))
    return _respond(codes, others, _txn_response)


def _commit_in_transaction(
    request: TxnOffsetCommitRequest, commits: dict[TopicPartition, OffsetAndMetadata], ctx: Context
) -> ErrorCodes | Awaitable[ErrorCodes]:
    groups, producer = ctx.services.groups, ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    groups.shard(request.group_id)  # raises NotCoordinator
    tp = TopicPartition(OFFSETS_TOPIC, groups.partition_of(request.group_id))
    member = ConsumerGroupMetadata(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )

    def commit(verified: Verification | None) -> ErrorCodes | Awaitable[ErrorCodes]:
        return ctx.services.offsets.commit(
            member, commits, OffsetTransaction(producer.producer_id, producer.epoch, verified)
        )

    async def commit_later(verifying: Awaitable[Verification | None]) -> ErrorCodes:
        try:
            codes = commit(await verifying)
        except WireError as error:
            return dict.fromkeys(commits, _txn_code(error, ctx))
        return codes if isinstance(codes, dict) else await codes

    verified = verify_offsets(tp, request.transactional_id, producer, ctx)
    return commit_later(verified) if isinstance(verified, Awaitable) else commit(verified)


def _txn_code(error: WireError, ctx: Context) -> int:
    """Old clients do not know CoordinatorLoadInProgress."""
    is_loading = isinstance(error, CoordinatorLoadInProgress) and ctx.version < LOADING_FROM
    return CoordinatorNotAvailable.code if is_loading else error.code


def _txn_response(verdicts: ErrorCodes) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic(
                name=topic,
                partitions=[_TxnCommitted(partition_index=tp.partition, error_code=verdicts[tp]) for tp in partitions],
            )
            for topic, partitions in by_topic(verdicts).items()
        ]
    )
