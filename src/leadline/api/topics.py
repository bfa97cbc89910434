"""CreateTopics, DeleteTopics, CreatePartitions and DeleteRecords."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Coroutine, Mapping
from functools import partial

from leadline.api.context import Context
from leadline.cluster.metadata_cache import CachedTopic
from leadline.config.alter import check_topic
from leadline.config.describe import describe_topic
from leadline.config.values import InvalidSetting
from leadline.controller.topics import INTERNAL, Assignment, assign, check_name, given_assignment
from leadline.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidRequest,
    InvalidTopic,
    OffsetOutOfRange,
    PolicyViolation,
    RequestTimedOut,
    StorageError,
    TopicAuthorizationFailed,
    TopicDeletionDisabled,
    UnknownTopicId,
    WireError,
)
from leadline.model import NO_ID, NONE, TopicPartition
from leadline.wire.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

BROKERS_CHOICE = -1
DISABLED_FROM = 3  # DeleteTopics has an error of its own for it from this version on
CLUSTER_METADATA = "__cluster_metadata"  # has another meaning without ZooKeeper
HIGH_WATERMARK = -1  # as an offset to delete records up to

_Created = CreateTopicsResponse.CreatableTopicResult
_Grown = CreatePartitionsResponse.CreatePartitionsTopicResult
_Deleted = DeleteTopicsResponse.DeletableTopicResult
_Cut = DeleteRecordsResponse.DeleteRecordsPartitionResult


async def create_topics(request: CreateTopicsRequest, ctx: Context) -> CreateTopicsResponse:
    """CreateTopics, v0-7.  v1 validate only, messages · v5 what was created · v7 topic ids. Each topic on its own."""
    often = Counter(topic.name for topic in request.topics)
    results = [await _create(topic, often[topic.name] > 1, request, ctx) for topic in request.topics]
    return CreateTopicsResponse(topics=results)


async def _create(
    asked: CreateTopicsRequest.CreatableTopic, repeated: bool, request: CreateTopicsRequest, ctx: Context
) -> _Created:
    cluster = ctx.services.cluster
    try:
        cluster.check_controller()
        if repeated:
            raise InvalidRequest(f"the request names topic '{asked.name}' more than once")
        if asked.name == CLUSTER_METADATA:
            raise TopicAuthorizationFailed(f"topic '{asked.name}' is Kafka's own, and no topic like others")
        check_name(asked.name, ctx.services.metadata.topics)
        assignment = _assignment(asked, ctx)
        config = _config({entry.name: entry.value for entry in asked.configs}, ctx)
        if request.validate_only:
            return _told(asked.name, assignment, config, None, ctx)
        topic = await cluster.create_topic(asked.name, assignment, config, request.timeout_ms)
        return _told(asked.name, assignment, config, topic, ctx)
    except WireError as error:
        told = _Created(name=asked.name, error_code=error.code, error_message=_explained(asked.name, error, ctx))
        if isinstance(error, TopicAuthorizationFailed):
            told.topic_config_error_code = error.code
        return told


def _explained(topic: str, error: WireError, ctx: Context) -> str:
    """With what this broker itself knows of partitions that could not be created."""
    own = [why for tp, why in ctx.services.dirs.uncreated.items() if tp.topic == topic]
    return f"{error}. {own[0]}" if own and isinstance(error, StorageError) else str(error)


def _assignment(asked: CreateTopicsRequest.CreatableTopic, ctx: Context) -> Assignment:
    config, racks = ctx.services.config, ctx.services.metadata.racks
    if asked.assignments:
        if asked.num_partitions != BROKERS_CHOICE or asked.replication_factor != BROKERS_CHOICE:
            raise InvalidRequest(
                "Both numPartitions or replicationFactor and replicasAssignments were set. Both cannot be used at the "
                "same time."
            )
        given = {entry.partition_index: entry.broker_ids for entry in asked.assignments}
        return given_assignment(given, racks if ctx.services.is_alone else None)
    partitions = config.num_partitions if asked.num_partitions == BROKERS_CHOICE else asked.num_partitions
    factor = asked.replication_factor
    wanted = config.default_replication_factor if factor == BROKERS_CHOICE else factor
    return ctx.services.cluster.spread(racks, partitions, wanted)


def _config(given: Mapping[str, str | None], ctx: Context) -> dict[str, str]:
    """The settings of a new topic, checked together with the broker's."""
    config: dict[str, str] = {}
    for name, value in given.items():
        if value is None:
            raise InvalidConfig(f"Null value not supported for topic configs: {name}")
        config[name] = value
    try:
        check_topic(ctx.services.layers(), config)
    except InvalidSetting as error:
        raise InvalidConfig(str(error)) from None
    return config


def _told(
    name: str, assignment: Assignment, config: dict[str, str], topic: CachedTopic | None, ctx: Context
) -> _Created:
    told = _Created(
        name=name,
        error_code=NONE,
        error_message=None,
        num_partitions=len(assignment),
        replication_factor=len(assignment[0]),
        configs=[
            CreateTopicsResponse.CreatableTopicConfigs(
                name=entry.name, value=entry.value, config_source=entry.source, is_sensitive=entry.sensitive
            )
            for entry in describe_topic(ctx.services.layers(), config)
        ],
    )
    if topic is not None:
        told.topic_id = topic.id
    return told


async def delete_topics(request: DeleteTopicsRequest, ctx: Context) -> DeleteTopicsResponse:
    """DeleteTopics, v0-6.  v5 messages · v6 by topic id. A topic that is named twice is deleted once."""
    asked = request.topics or [DeleteTopicsRequest.DeleteTopicState(name=name) for name in request.topic_names]
    if (refusal := _deletion_refused(asked, ctx)) is not None:
        told = [_Deleted(name=topic.name, topic_id=topic.topic_id) for topic in asked]
        for each in told:
            each.error_code, each.error_message = refusal.code, str(refusal)
        return DeleteTopicsResponse(responses=told)
    deleted: set[str] = set()
    return DeleteTopicsResponse(responses=[await _delete(topic, deleted, request.timeout_ms, ctx) for topic in asked])


def _deletion_refused(asked: list[DeleteTopicsRequest.DeleteTopicState], ctx: Context) -> WireError | None:
    if not ctx.services.config.delete_topic_enable:
        why = "topics cannot be deleted: delete.topic.enable=false"
        return TopicDeletionDisabled(why) if ctx.version >= DISABLED_FROM else InvalidRequest(why)
    if any(topic.name is not None and topic.topic_id != NO_ID for topic in asked):
        return InvalidRequest("Topic name and topic ID can not both be specified.")
    return None


async def _delete(
    asked: DeleteTopicsRequest.DeleteTopicState, deleted: set[str], timeout_ms: int, ctx: Context
) -> _Deleted:
    """`deleted`: what this request has already deleted."""
    told = _Deleted(name=asked.name, topic_id=asked.topic_id, error_message=None)
    try:
        ctx.services.cluster.check_controller()
        if asked.name is None:
            topic = ctx.services.metadata.by_id.get(asked.topic_id)
            if topic is None:
                raise UnknownTopicId(f"there is no topic with id {asked.topic_id}")
            told.name = topic.name
        if told.name not in deleted:
            topic = ctx.services.metadata.topic(told.name or "")
            await ctx.services.cluster.delete_topic(topic.name, timeout_ms)
            deleted.add(topic.name)
    except WireError as error:
        told.error_code, told.error_message = error.code, str(error)
    return told


async def create_partitions(request: CreatePartitionsRequest, ctx: Context) -> CreatePartitionsResponse:
    """CreatePartitions, v0-3: more partitions for topics that exist. The count is the new total."""
    often = Counter(topic.name for topic in request.topics)
    results = []
    for asked in {topic.name: topic for topic in request.topics}.values():
        told = _Grown(name=asked.name)
        try:
            ctx.services.cluster.check_controller()
            if often[asked.name] > 1:
                raise InvalidRequest(f"the request names topic '{asked.name}' more than once")
            more = partial(_more, asked, ctx)
            if request.validate_only:
                more(ctx.services.metadata.topic(asked.name))
            else:
                await ctx.services.cluster.add_partitions(asked.name, more, request.timeout_ms)
        except WireError as error:
            told.error_code, told.error_message = error.code, _explained(asked.name, error, ctx)
        results.append(told)
    return CreatePartitionsResponse(results=results)


def _more(asked: CreatePartitionsRequest.CreatePartitionsTopic, ctx: Context, topic: CachedTopic) -> Assignment:
    racks = ctx.services.metadata.racks
    have = len(topic.partitions)
    if asked.count <= have:
        same = f"Topic already has {have} partitions."
        fewer = f"The topic {asked.name} currently has {have} partition(s); {asked.count} would not be an increase."
        raise InvalidPartitions(same if asked.count == have else fewer)
    more = asked.count - have
    if asked.assignments is None:
        replicas = topic.partitions[0].replicas
        start = sum(broker < replicas[0] for broker in racks)  # where the leader of the first one stands
        return assign(racks, more, len(replicas), first=have, start=start, shift=start)
    if len(asked.assignments) != more:
        raise InvalidReplicaAssignment(
            f"Increasing the number of partitions by {more} but {len(asked.assignments)} assignments provided."
        )
    given = {n: entry.broker_ids for n, entry in enumerate(asked.assignments)}
    return given_assignment(given, racks)


def delete_records(
    request: DeleteRecordsRequest, ctx: Context
) -> DeleteRecordsResponse | Awaitable[DeleteRecordsResponse]:
    """DeleteRecords, v0-2: the log starts at an offset from now on; -1 means the high watermark.

    Answered once the living replicas have done the same, or the time is over.
    """
    answer = DeleteRecordsResponse(
        topics=[
            DeleteRecordsResponse.DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[_cut(topic.name, asked, ctx) for asked in topic.partitions],
            )
            for topic in request.topics
            if topic.partitions
        ]
    )
    waits = [
        _cut_everywhere(TopicPartition(topic.name, cut.partition_index), cut, request.timeout_ms, ctx)
        for topic in answer.topics
        for cut in topic.partitions
        if cut.error_code == NONE and _has_followers(TopicPartition(topic.name, cut.partition_index), ctx)
    ]
    return _after(waits, answer) if waits else answer


def _has_followers(tp: TopicPartition, ctx: Context) -> bool:
    return bool(ctx.services.replicas.leading(tp).leader.followers)


async def _after(waits: list[Coroutine[None, None, None]], answer: DeleteRecordsResponse) -> DeleteRecordsResponse:
    await asyncio.gather(*waits)
    return answer


async def _cut_everywhere(tp: TopicPartition, cut: _Cut, timeout_ms: int, ctx: Context) -> None:
    replicas = ctx.services.replicas
    hosted = replicas.leading(tp)
    try:
        async with asyncio.timeout(max(timeout_ms, 0) / 1000):
            await hosted.deleted(cut.low_watermark)
    except TimeoutError:
        cut.error_code = RequestTimedOut.code
    except WireError as error:
        cut.error_code = error.code
    if hosted.leader_state is not None:
        cut.low_watermark = hosted.leader_state.low_watermark(hosted.log.log_start)


def _cut(topic: str, asked: DeleteRecordsRequest.DeleteRecordsPartition, ctx: Context) -> _Cut:
    tp = TopicPartition(topic, asked.partition_index)
    try:
        log = ctx.services.replicas.leading(tp).log
        if topic in INTERNAL:
            raise InvalidTopic(f"Cannot delete records of internal topic {topic}")
        if not log.config.delete:
            raise PolicyViolation(f"Records of {tp} cannot be deleted: cleanup.policy=compact")
        before = log.high_watermark if asked.offset == HIGH_WATERMARK else asked.offset
        if before < 0:
            raise OffsetOutOfRange(f"offset {asked.offset} of {tp} is out of range")
        log.delete_records(before)
        return _Cut(partition_index=tp.partition, low_watermark=log.log_start, error_code=NONE)
    except WireError as error:
        return _Cut(partition_index=tp.partition, low_watermark=-1, error_code=error.code)
