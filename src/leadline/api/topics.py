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
from leadline.controller.topics import (
    INTERNAL,
    Assignment,
    added_assignment,
    assign,
    check_name,
    manual_assignment,
)
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
    WireError,
)
from leadline.model import NO_ID, NONE, Offset, TopicPartition
from leadline.security.token_bucket import MutationQuota
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
DISABLED_FROM = 3  # the first version of DeleteTopics with an error code of its own for this
CLUSTER_METADATA = "__cluster_metadata"  # Kafka uses the name without ZooKeeper
HIGH_WATERMARK = -1  # as an offset to delete records up to

_CreatedTopic = CreateTopicsResponse.CreatableTopicResult
_CreatedPartitions = CreatePartitionsResponse.CreatePartitionsTopicResult
_DeletedTopic = DeleteTopicsResponse.DeletableTopicResult
_DeletedRecords = DeleteRecordsResponse.DeleteRecordsPartitionResult


async def create_topics(request: CreateTopicsRequest, ctx: Context) -> CreateTopicsResponse:
    """CreateTopics, v0-7.  v1 validate only, messages · v5 the created topic · v7 topic ids.

    Each topic fails by itself. A client that may not describe the settings of a topic may create it all the same.
    """
    counts, quota = Counter(topic.name for topic in request.topics), ctx.mutation_quota(request.API_KEY)
    results = [await _create(topic, counts[topic.name] > 1, request, quota, ctx) for topic in request.topics]
    return CreateTopicsResponse(topics=results, throttle_time_ms=quota.throttle_ms(ctx.services.clock.now_ms()))


async def _create(
    requested: CreateTopicsRequest.CreatableTopic,
    repeated: bool,
    request: CreateTopicsRequest,
    quota: MutationQuota,
    ctx: Context,
) -> _CreatedTopic:
    cluster = ctx.services.cluster
    try:
        cluster.check_controller()
        refusal: WireError | None = TopicAuthorizationFailed("Authorization failed.")
        if requested.name != CLUSTER_METADATA:
            refusal = ctx.refused("topics", requested.name)
        if repeated:
            raise InvalidRequest("Found multiple entries for this topic.")
        if refusal is not None:
            raise refusal
        check_name(requested.name, ctx.services.metadata.topics)
        assignment = _assignment(requested, ctx)
        config = _config({entry.name: entry.value for entry in requested.configs}, ctx)
        if request.validate_only:
            return _created(requested.name, assignment, config, None, ctx)
        quota.record(len(assignment), ctx.services.clock.now_ms())
        topic = await cluster.create_topic(requested.name, assignment, config, request.timeout_ms)
        return _created(requested.name, assignment, config, topic, ctx)
    except WireError as error:
        result = _CreatedTopic(
            name=requested.name, error_code=error.code, error_message=_message(requested.name, error, ctx)
        )
        is_hidden = requested.name == CLUSTER_METADATA or not ctx.permits("configs", requested.name)
        if is_hidden and (
            isinstance(error, TopicAuthorizationFailed) or (repeated and isinstance(error, InvalidRequest))
        ):
            result.topic_config_error_code = TopicAuthorizationFailed.code
        return result


def _message(topic: str, error: WireError, ctx: Context) -> str:
    """The message adds why this broker could not create a partition of the topic."""
    reasons = [reason for tp, reason in ctx.services.dirs.uncreated.items() if tp.topic == topic]
    return f"{error}. {reasons[0]}" if reasons and isinstance(error, StorageError) else str(error)


def _assignment(requested: CreateTopicsRequest.CreatableTopic, ctx: Context) -> Assignment:
    config, racks = ctx.services.config, ctx.services.metadata.racks
    if requested.assignments:
        if requested.num_partitions != BROKERS_CHOICE or requested.replication_factor != BROKERS_CHOICE:
            raise InvalidRequest(
                "Both numPartitions or replicationFactor and replicasAssignments were set. Both cannot be used at the "
                "same time."
            )
        replicas = {entry.partition_index: entry.broker_ids for entry in requested.assignments}
        return manual_assignment(replicas, racks if ctx.services.is_alone else None)
    partitions = config.num_partitions if requested.num_partitions == BROKERS_CHOICE else requested.num_partitions
    factor = requested.replication_factor
    if factor == BROKERS_CHOICE:
        factor = config.default_replication_factor
    return ctx.services.cluster.spread(racks, partitions, factor)


def _config(values: Mapping[str, str | None], ctx: Context) -> dict[str, str]:
    """Checks the settings of a new topic together with those of the broker."""
    config: dict[str, str] = {}
    for name, value in values.items():
        if value is None:
            raise InvalidConfig(f"Null value not supported for topic configs: {name}")
        config[name] = value
    try:
        check_topic(ctx.services.layers(), config)
    except InvalidSetting as error:
        raise InvalidConfig(str(error)) from None
    return config


def _created(
    name: str, assignment: Assignment, config: dict[str, str], topic: CachedTopic | None, ctx: Context
) -> _CreatedTopic:
    if not ctx.permits("configs", name):
        code = TopicAuthorizationFailed.code
        return _CreatedTopic(name=name, error_code=NONE, error_message=None, topic_config_error_code=code)
    result = _CreatedTopic(
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
        result.topic_id = topic.id
    return result


async def delete_topics(request: DeleteTopicsRequest, ctx: Context) -> DeleteTopicsResponse:
    """DeleteTopics, v0-6.  v5 messages · v6 by topic id. A topic that the request names twice is deleted once."""
    topics = request.topics or [DeleteTopicsRequest.DeleteTopicState(name=name) for name in request.topic_names]
    if (refusal := _deletion_refused(topics, ctx)) is not None:
        results = [_DeletedTopic(name=topic.name, topic_id=topic.topic_id) for topic in topics]
        for result in results:
            result.error_code, result.error_message = refusal.code, str(refusal)
        return DeleteTopicsResponse(responses=results)
    deleted, quota = set[str](), ctx.mutation_quota(request.API_KEY)
    results = [await _delete(topic, deleted, request.timeout_ms, quota, ctx) for topic in topics]
    return DeleteTopicsResponse(responses=results, throttle_time_ms=quota.throttle_ms(ctx.services.clock.now_ms()))


def _deletion_refused(topics: list[DeleteTopicsRequest.DeleteTopicState], ctx: Context) -> WireError | None:
    if not ctx.services.config.delete_topic_enable:
        message = "delete.topic.enable=false: topics cannot be deleted"
        return TopicDeletionDisabled(message) if ctx.version >= DISABLED_FROM else InvalidRequest(message)
    if any(topic.name is not None and topic.topic_id != NO_ID for topic in topics):
        return InvalidRequest("Topic name and topic ID can not both be specified.")
    return None


async def _delete(
    requested: DeleteTopicsRequest.DeleteTopicState,
    deleted: set[str],
    timeout_ms: int,
    quota: MutationQuota,
    ctx: Context,
) -> _DeletedTopic:
    """`deleted` has the topics that this request has already deleted."""
    result = _DeletedTopic(name=requested.name, topic_id=requested.topic_id, error_message=None)
    try:
        ctx.services.cluster.check_controller()
        if requested.name is None and requested.topic_id == NO_ID:
            raise TopicAuthorizationFailed("the request names a topic neither by its name nor by its id")
        if requested.name is None:
            topic = ctx.services.cluster.topic_by_id(requested.topic_id)
            if (refusal := ctx.refused("topic ids", topic.name)) is not None:
                raise refusal  # the name stays hidden
            result.name = topic.name
        if (refusal := ctx.refused("topics", result.name)) is not None:
            raise refusal
        if result.name not in deleted:
            topic = ctx.services.cluster.topic(result.name or "")
            quota.record(len(topic.partitions), ctx.services.clock.now_ms())
            await ctx.services.cluster.delete_topic(topic.name, timeout_ms)
            deleted.add(topic.name)
    except WireError as error:
        result.error_code, result.error_message = error.code, str(error)
    return result


async def create_partitions(request: CreatePartitionsRequest, ctx: Context) -> CreatePartitionsResponse:
    """CreatePartitions, v0-3: adds partitions to topics. The count is the new total."""
    counts, quota = Counter(topic.name for topic in request.topics), ctx.mutation_quota(request.API_KEY)
    results, now_ms = [], ctx.services.clock.now_ms
    for requested in {topic.name: topic for topic in request.topics}.values():
        result = _CreatedPartitions(name=requested.name)
        try:
            ctx.services.cluster.check_controller()
            if counts[requested.name] > 1:
                raise InvalidRequest("Duplicate topic in request.")
            if (refusal := ctx.refused("topics", requested.name)) is not None:
                raise refusal
            added = partial(_added_partitions, requested, ctx)
            if request.validate_only:
                added(ctx.services.cluster.topic(requested.name))
            else:
                quota.record(len(added(ctx.services.cluster.topic(requested.name))), now_ms())
                await ctx.services.cluster.add_partitions(requested.name, added, request.timeout_ms)
        except WireError as error:
            result.error_code, result.error_message = error.code, _message(requested.name, error, ctx)
        results.append(result)
    return CreatePartitionsResponse(results=results, throttle_time_ms=quota.throttle_ms(now_ms()))


def _added_partitions(
    requested: CreatePartitionsRequest.CreatePartitionsTopic, ctx: Context, topic: CachedTopic
) -> Assignment:
    racks = ctx.services.metadata.racks
    have = len(topic.partitions)
    if requested.count <= have:
        same = f"Topic already has {have} partitions."
        fewer = f"Topic currently has {have} partitions, which is higher than the requested {requested.count}."
        raise InvalidPartitions(same if requested.count == have else fewer)
    count = requested.count - have
    if requested.assignments is None:
        replicas = topic.partitions[0].replicas
        start = sum(broker < replicas[0] for broker in racks)  # the position of the first leader
        return assign(racks, count, len(replicas), first=have, start=start, shift=start)
    if len(requested.assignments) != count:
        raise InvalidReplicaAssignment(
            f"Increasing the number of partitions by {count} but {len(requested.assignments)} assignments provided."
        )
    return added_assignment(have, [entry.broker_ids for entry in requested.assignments], racks)


def delete_records(
    request: DeleteRecordsRequest, ctx: Context
) -> DeleteRecordsResponse | Awaitable[DeleteRecordsResponse]:
    """DeleteRecords, v0-2: moves the log start to an offset; -1 means the high watermark.

    The response waits until the live replicas have done the same, or the timeout is over.
    """
    permitted = ctx.permitted("topics", (topic.name for topic in request.topics))
    offsets: dict[str, dict[int, Offset]] = {}  # of a partition that is named twice, the last one counts
    for topic in request.topics:
        for requested in topic.partitions:
            offsets.setdefault(topic.name, {})[requested.partition_index] = requested.offset
    response = DeleteRecordsResponse(
        topics=[
            DeleteRecordsResponse.DeleteRecordsTopicResult(
                name=name,
                partitions=[
                    _delete_records(TopicPartition(name, number), offset, ctx)
                    if name in permitted
                    else _not_deleted(number, TopicAuthorizationFailed.code)
                    for number, offset in partitions.items()
                ],
            )
            for name, partitions in offsets.items()
        ]
    )
    waiting = [
        _await_followers(TopicPartition(topic.name, result.partition_index), result, request.timeout_ms, ctx)
        for topic in response.topics
        for result in topic.partitions
        if result.error_code == NONE and _has_followers(TopicPartition(topic.name, result.partition_index), ctx)
    ]
    return _after(waiting, response) if waiting else response


def _has_followers(tp: TopicPartition, ctx: Context) -> bool:
    return bool(ctx.services.replicas.leading(tp).leader.followers)


async def _after(waiting: list[Coroutine[None, None, None]], response: DeleteRecordsResponse) -> DeleteRecordsResponse:
    await asyncio.gather(*waiting)
    return response


async def _await_followers(tp: TopicPartition, result: _DeletedRecords, timeout_ms: int, ctx: Context) -> None:
    replicas = ctx.services.replicas
    hosted = replicas.leading(tp)
    try:
        async with asyncio.timeout(max(timeout_ms, 0) / 1000):
            await hosted.deleted(result.low_watermark)
    except TimeoutError:
        result.error_code = RequestTimedOut.code
    except WireError as error:
        result.error_code = error.code
    if hosted.leader_state is not None:
        result.low_watermark = hosted.leader_state.low_watermark(hosted.log.log_start)


def _delete_records(tp: TopicPartition, offset: Offset, ctx: Context) -> _DeletedRecords:
    try:
        log = ctx.services.replicas.leading(tp).log
        if tp.topic in INTERNAL:
            raise InvalidTopic(f"Cannot delete records of internal topic {tp.topic}")
        if not log.config.delete:
            raise PolicyViolation(f"Records of {tp} cannot be deleted: cleanup.policy=compact")
        before = log.high_watermark if offset == HIGH_WATERMARK else offset
        if before < 0:
            raise OffsetOutOfRange(f"offset {offset} of {tp} is out of range")
        log.delete_records(before)
        return _DeletedRecords(partition_index=tp.partition, low_watermark=log.log_start, error_code=NONE)
    except WireError as error:
        return _not_deleted(tp.partition, error.code)


def _not_deleted(partition: int, code: int) -> _DeletedRecords:
    return _DeletedRecords(partition_index=partition, low_watermark=-1, error_code=code)
