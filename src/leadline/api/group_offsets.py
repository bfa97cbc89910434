"""OffsetCommit, OffsetFetch, OffsetDelete and TxnOffsetCommit: how far groups have read."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypedDict, TypeVar

from leadline.api.context import Context
from leadline.api.verification import verify_offsets
from leadline.coordination import znodes
from leadline.coordination.node_json import MalformedNode
from leadline.coordination.tree import TreeError, check_path
from leadline.coordinator.group_offsets import OffsetAndMetadata, is_longer
from leadline.coordinator.group_shard import OFFSETS_TOPIC
from leadline.coordinator.offset_coordinator import ConsumerGroupMetadata, ErrorCodes, FetchedOffset, OffsetTransaction
from leadline.coordinator.transaction import ProducerIdAndEpoch
from leadline.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    OffsetMetadataTooLarge,
    UnknownServerError,
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
LOADING_FROM = 2  # of TxnOffsetCommit: older clients do not know that a coordinator may be loading
DEFAULT = -1  # in place of a time: the broker's
NO_METADATA = ""
NO_COMMIT = OffsetAndMetadata(offset=-1, metadata=NO_METADATA, commit_ms=DEFAULT)

_Committed = OffsetCommitResponse.OffsetCommitResponsePartition
_Deleted = OffsetDeleteResponse.OffsetDeleteResponsePartition
_AskedTopic = OffsetFetchRequest.OffsetFetchRequestTopic | OffsetFetchRequest.OffsetFetchRequestTopics
_Topic = OffsetFetchResponse.OffsetFetchResponseTopic
_Partition = OffsetFetchResponse.OffsetFetchResponsePartition
_Topics = OffsetFetchResponse.OffsetFetchResponseTopics
_Partitions = OffsetFetchResponse.OffsetFetchResponsePartitions
_Group = OffsetFetchResponse.OffsetFetchResponseGroup
_InTxn = TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition

R = TypeVar("R")


def offset_commit(request: OffsetCommitRequest, ctx: Context) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    """OffsetCommit, v0-9.  v0 into the tree · v1 commit time · v2-4 retention · v6 leader epoch · v7 static members."""
    if ctx.version == 0:
        return _commit_to_tree(request, ctx)
    now_ms = ctx.services.clock.now_ms()
    expire_ms = None if request.retention_time_ms == DEFAULT else now_ms + request.retention_time_ms
    verdicts: ErrorCodes = {}
    commits: dict[TopicPartition, OffsetAndMetadata] = {}
    for topic in request.topics:
        name, count = topic.name, ctx.services.metadata.partition_count(topic.name) or 0
        for asked in topic.partitions:
            tp = TopicPartition(name, asked.partition_index)
            if not 0 <= tp.partition < count:
                verdicts[tp] = UnknownTopicOrPartition.code
                continue
            commit_ms = now_ms if asked.commit_timestamp == DEFAULT else asked.commit_timestamp
            metadata = asked.committed_metadata or NO_METADATA
            commits[tp] = OffsetAndMetadata(
                asked.committed_offset, metadata, commit_ms, asked.committed_leader_epoch, expire_ms
            )
    if not commits:
        return committed(verdicts)
    generation = request.generation_id_or_member_epoch
    who = ConsumerGroupMetadata(request.group_id, request.member_id, request.group_instance_id, generation)
    return _answered(ctx.services.offsets.commit(who, commits), verdicts, committed)


def _answered(
    found: ErrorCodes | Awaitable[ErrorCodes], others: ErrorCodes, shape: Callable[[ErrorCodes], R]
) -> R | Awaitable[R]:
    """At once, if the verdicts are known already."""

    async def later(waiting: Awaitable[ErrorCodes]) -> R:
        return shape(others | await waiting)

    return shape(others | found if others else found) if isinstance(found, dict) else later(found)


def committed(verdicts: ErrorCodes) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponse.OffsetCommitResponseTopic(
                name=topic,
                partitions=[_Committed(partition_index=tp.partition, error_code=verdicts[tp]) for tp in partitions],
            )
            for topic, partitions in by_topic(verdicts).items()
        ]
    )


async def _commit_to_tree(request: OffsetCommitRequest, ctx: Context) -> OffsetCommitResponse:
    """Where the oldest clients keep their offsets, without any group."""
    most = ctx.services.config.offset_metadata_max_bytes
    verdicts: ErrorCodes = {}
    for topic in request.topics:
        for asked in topic.partitions:
            tp = TopicPartition(topic.name, asked.partition_index)
            if not ctx.services.metadata.has_partition(tp):
                verdicts[tp] = UnknownTopicOrPartition.code
            elif is_longer(asked.committed_metadata or NO_METADATA, most):
                verdicts[tp] = OffsetMetadataTooLarge.code
            else:
                verdicts[tp] = await _into_tree(request.group_id, tp, asked.committed_offset, ctx)
    return committed(verdicts)


async def _into_tree(group_id: str, tp: TopicPartition, offset: Offset, ctx: Context) -> int:
    tree, path = ctx.services.cluster.tree, znodes.consumer_offset_path(group_id, tp)
    try:
        check_path(path)
        data = znodes.encode_consumer_offset(offset)
        if await tree.exists(path):
            await tree.set(path, data)
        else:
            await tree.create(path, data, make_parents=True)
    except (ValueError, TreeError):
        return UnknownServerError.code
    return NONE


async def _from_tree(request: OffsetFetchRequest, ctx: Context) -> OffsetFetchResponse:
    fetched: dict[TopicPartition, FetchedOffset] = {}
    for topic in request.topics or ():
        for number in topic.partition_indexes:
            tp = TopicPartition(topic.name, number)
            fetched[tp] = await _in_tree(request.group_id, tp, ctx)
    return OffsetFetchResponse(topics=_fetched_topics(fetched))


async def _in_tree(group_id: str, tp: TopicPartition, ctx: Context) -> FetchedOffset:
    path = znodes.consumer_offset_path(group_id, tp)
    if not ctx.services.metadata.has_partition(tp):
        return FetchedOffset(None, UnknownTopicOrPartition.code)
    try:
        check_path(path)
        node = await ctx.services.cluster.tree.get(path)
        if node is None:
            return FetchedOffset(None, UnknownTopicOrPartition.code)
        return FetchedOffset(OffsetAndMetadata(znodes.decode_consumer_offset(path, node.data), NO_METADATA, DEFAULT))
    except (ValueError, TreeError, MalformedNode):
        return FetchedOffset(None, UnknownServerError.code)


def offset_fetch(request: OffsetFetchRequest, ctx: Context) -> OffsetFetchResponse | Awaitable[OffsetFetchResponse]:
    """OffsetFetch, v0-9.  v0 from the tree · v2 null: all · v7 stable offsets only · v8 many groups."""
    if ctx.version == 0:
        return _from_tree(request, ctx)
    if ctx.version >= MANY_GROUPS_FROM:
        return OffsetFetchResponse(
            groups=[_fetch_group(asked, request.require_stable, ctx) for asked in request.groups]
        )
    wanted = None if request.topics is None else _wanted(request.topics)
    try:
        fetched = ctx.services.offsets.fetch(request.group_id, wanted, require_stable=request.require_stable)
        return OffsetFetchResponse(topics=_fetched_topics(fetched))
    except WireError as error:
        return OffsetFetchResponse(error_code=error.code)


def _wanted(topics: Iterable[_AskedTopic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, number) for topic in topics for number in topic.partition_indexes]


def _fetch_group(asked: OffsetFetchRequest.OffsetFetchRequestGroup, require_stable: bool, ctx: Context) -> _Group:
    wanted = None if asked.topics is None else _wanted(asked.topics)
    try:
        fetched = ctx.services.offsets.fetch(asked.group_id, wanted, require_stable=require_stable)
    except WireError as error:
        return _Group(group_id=asked.group_id, error_code=error.code)
    topics = [
        _Topics(name=topic, partitions=[_Partitions(**_told(tp, fetched[tp])) for tp in partitions])
        for topic, partitions in by_topic(fetched).items()
    ]
    return _Group(group_id=asked.group_id, topics=topics)


def _fetched_topics(fetched: Mapping[TopicPartition, FetchedOffset]) -> list[_Topic]:
    return [
        _Topic(name=topic, partitions=[_Partition(**_told(tp, fetched[tp])) for tp in partitions])
        for topic, partitions in by_topic(fetched).items()
    ]


class _Told(TypedDict):
    """The same fields, in the struct of one group and in that of many."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    metadata: str
    error_code: int


def _told(tp: TopicPartition, fetched: FetchedOffset) -> _Told:
    commit = fetched.committed or NO_COMMIT
    return {
        "partition_index": tp.partition,
        "committed_offset": commit.offset,
        "committed_leader_epoch": commit.leader_epoch,
        "metadata": commit.metadata,
        "error_code": fetched.error,
    }


async def offset_delete(request: OffsetDeleteRequest, ctx: Context) -> OffsetDeleteResponse:
    """OffsetDelete, v0: of partitions that no member of the group reads."""
    wanted = [TopicPartition(topic.name, each.partition_index) for topic in request.topics for each in topic.partitions]
    known = [tp for tp in wanted if ctx.services.metadata.has_partition(tp)]
    verdicts = dict.fromkeys(wanted, UnknownTopicOrPartition.code)
    try:
        verdicts |= await ctx.services.offsets.delete_offsets(request.group_id, known)
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
    """TxnOffsetCommit, v0-4.  v2 leader epoch · v3 members · v4 abortable. It counts if its transaction does."""
    now_ms = ctx.services.clock.now_ms()
    commits = {
        TopicPartition(topic.name, asked.partition_index): OffsetAndMetadata(
            asked.committed_offset, asked.committed_metadata or NO_METADATA, now_ms, asked.committed_leader_epoch
        )
        for topic in request.topics
        for asked in topic.partitions
    }
    known = {tp: commit for tp, commit in commits.items() if ctx.services.metadata.has_partition(tp)}
    others = {tp: UnknownTopicOrPartition.code for tp in commits if tp not in known}
    if not known:
        return _in_txn(others)
    try:
        found = _commit_in_transaction(request, known, ctx)
    except WireError as error:
        return _in_txn(others | dict.fromkeys(known, _in_txn_code(error, ctx)))
    return _answered(found, others, _in_txn)


def _commit_in_transaction(
    request: TxnOffsetCommitRequest, commits: dict[TopicPartition, OffsetAndMetadata], ctx: Context
) -> ErrorCodes | Awaitable[ErrorCodes]:
    groups, producer = ctx.services.groups, ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    groups.shard(request.group_id)  # or we are not its coordinator
    tp = TopicPartition(OFFSETS_TOPIC, groups.partition_of(request.group_id))
    who = ConsumerGroupMetadata(request.group_id, request.member_id, request.group_instance_id, request.generation_id)

    def commit(verified: Verification | None) -> ErrorCodes | Awaitable[ErrorCodes]:
        return ctx.services.offsets.commit(
            who, commits, OffsetTransaction(producer.producer_id, producer.epoch, verified)
        )

    async def commit_later(waited_for: Awaitable[Verification | None]) -> ErrorCodes:
        try:
            found = commit(await waited_for)
        except WireError as error:
            return dict.fromkeys(commits, _in_txn_code(error, ctx))
        return found if isinstance(found, dict) else await found

    verified = verify_offsets(tp, request.transactional_id, producer, ctx)
    return commit_later(verified) if isinstance(verified, Awaitable) else commit(verified)


def _in_txn_code(error: WireError, ctx: Context) -> int:
    """If it was the transaction's coordinator, it is not the group's that must be looked for anew."""
    is_loading = isinstance(error, CoordinatorLoadInProgress) and ctx.version < LOADING_FROM
    return CoordinatorNotAvailable.code if is_loading else error.code


def _in_txn(verdicts: ErrorCodes) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic(
                name=topic,
                partitions=[_InTxn(partition_index=tp.partition, error_code=verdicts[tp]) for tp in partitions],
            )
            for topic, partitions in by_topic(verdicts).items()
        ]
    )
