"""Metadata and DescribeCluster: who the brokers are, which topics there are, who leads their partitions."""

from collections.abc import Awaitable, Iterable
from uuid import UUID

from leadline.api.authorized_operations import ALL_CLUSTER_OPERATIONS, ALL_TOPIC_OPERATIONS, NOT_REQUESTED
from leadline.api.auto_create import auto_create
from leadline.api.context import Context
from leadline.cluster.metadata_cache import BrokerInfo, CachedPartition, CachedTopic, Endpoint
from leadline.cluster.peer_monitor import PeerMonitor
from leadline.controller.topics import INTERNAL, check_name
from leadline.errors import (
    InvalidRequest,
    InvalidTopic,
    LeaderNotAvailable,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
    WireError,
)
from leadline.model import NO_ID, NO_LEADER, NONE, BrokerId
from leadline.wire.messages import DescribeClusterRequest, DescribeClusterResponse, MetadataRequest, MetadataResponse

MISMATCHED_ENDPOINT_TYPE = 114
UNSUPPORTED_ENDPOINT_TYPE = 115
BROKERS, CONTROLLERS = 1, 2  # types of endpoints
BY_ID_FROM = 12

_Topic = MetadataResponse.MetadataResponseTopic


def metadata(request: MetadataRequest, ctx: Context) -> MetadataResponse | Awaitable[MetadataResponse]:
    """Metadata, v0-12.  v1 null: all, empty: none · v4 auto-creation · v8 operations · v10 topic ids · v12 by id.

    As soon as one topic is asked for by its id, those without one are not looked at.
    """
    known, asked, peer_monitor = ctx.services.metadata.topics, request.topics, ctx.services.peer_monitor
    if peer_monitor is not None and not peer_monitor.is_informed:
        return _once_informed(request, ctx, peer_monitor)
    if asked is None or (ctx.version == 0 and not asked):
        return _answer(request, ctx, [_describe(topic, ctx, request) for topic in known.values()])
    if ctx.version < BY_ID_FROM and any(topic.name is None or topic.topic_id != NO_ID for topic in asked):
        return MetadataResponse(topics=[_refused(topic) for topic in asked])
    ids = dict.fromkeys(topic.topic_id for topic in asked if topic.topic_id != NO_ID)
    if ids:
        return _answer(request, ctx, [_by_id(topic_id, ctx, request) for topic_id in ids])
    names = list(dict.fromkeys(topic.name for topic in asked if topic.name is not None))
    missing = [name for name in names if name not in known]
    if missing and request.allow_auto_topic_creation and ctx.services.config.auto_create_topics_enable:
        return _after_creation(request, ctx, names, missing)
    if peer_monitor is not None:
        return _once_settled(request, ctx, names, peer_monitor)
    return _answer(request, ctx, [_named(name, ctx, request, {}) for name in names])


async def _once_informed(request: MetadataRequest, ctx: Context, peer_monitor: PeerMonitor) -> MetadataResponse:
    await peer_monitor.informed()
    answer = metadata(request, ctx)
    return answer if isinstance(answer, MetadataResponse) else await answer


async def _once_settled(
    request: MetadataRequest, ctx: Context, names: list[str], peer_monitor: PeerMonitor
) -> MetadataResponse:
    """Who asks for certain topics may do so because their leaders are gone."""
    known = ctx.services.metadata.topics

    def leaders() -> set[BrokerId]:
        return {each.leader for name in names if name in known for each in known[name].partitions.values()}

    await peer_monitor.settled(leaders)
    return _answer(request, ctx, [_named(name, ctx, request, {}) for name in names])


async def _after_creation(
    request: MetadataRequest, ctx: Context, names: list[str], missing: list[str]
) -> MetadataResponse:
    refused: dict[str, WireError] = {}
    for name in missing:
        try:
            await auto_create(name, ctx)
        except TopicAlreadyExists:
            pass  # somebody else was quicker
        except WireError as error:
            refused[name] = error
    return _answer(request, ctx, [_named(name, ctx, request, refused) for name in names])


def _refused(asked: MetadataRequest.MetadataRequestTopic) -> _Topic:
    """Versions 10 and 11 have room for ids, but cannot be asked by them."""
    return _Topic(error_code=InvalidRequest.code, name=asked.name or "", topic_id=asked.topic_id)


def _by_id(topic_id: UUID, ctx: Context, request: MetadataRequest) -> _Topic:
    topic = ctx.services.metadata.by_id.get(topic_id)
    if topic is None:
        return _Topic(error_code=UnknownTopicId.code, name=None, topic_id=topic_id)
    return _describe(topic, ctx, request)


def _named(name: str, ctx: Context, request: MetadataRequest, refused: dict[str, WireError]) -> _Topic:
    topic = ctx.services.metadata.topics.get(name)
    if topic is not None:
        return _describe(topic, ctx, request)
    return _Topic(
        error_code=_why_missing(name, refused),
        name=name,
        is_internal=name in INTERNAL,
        topic_authorized_operations=_topic_operations(request),
    )


def _topic_operations(request: MetadataRequest) -> int:
    return ALL_TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_REQUESTED


def _why_missing(name: str, refused: dict[str, WireError]) -> int:
    if name in refused:
        return refused[name].code
    try:
        check_name(name)
    except InvalidTopic as error:
        return error.code
    return UnknownTopicOrPartition.code


def _describe(topic: CachedTopic, ctx: Context, request: MetadataRequest) -> _Topic:
    return _Topic(
        error_code=NONE,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL,
        topic_authorized_operations=_topic_operations(request),
        partitions=[_partition(number, partition, ctx) for number, partition in topic.partitions.items()],
    )


def _partition(number: int, partition: CachedPartition, ctx: Context) -> MetadataResponse.MetadataResponsePartition:
    cluster = ctx.services.metadata
    at = None if cluster.may_have_moved(partition) else cluster.reachable(partition.leader, ctx.client.listener)
    return MetadataResponse.MetadataResponsePartition(
        error_code=LeaderNotAvailable.code if at is None else NONE,
        partition_index=number,
        leader_id=NO_LEADER if at is None else partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=list(partition.offline),
    )


def _answer(request: MetadataRequest, ctx: Context, topics: list[_Topic]) -> MetadataResponse:
    """With brokers that have just departed: librdkafka loses a second if a leader changes as its broker leaves."""
    cluster = ctx.services.metadata
    brokers = [*cluster.brokers.values(), *cluster.departed.values()] or [cluster.me]
    asked = request.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=[
            MetadataResponse.MetadataResponseBroker(node_id=broker, host=at.host, port=at.port, rack=rack)
            for broker, at, rack in _endpoints(brokers, ctx)
        ],
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller,
        topics=topics,
        cluster_authorized_operations=ALL_CLUSTER_OPERATIONS if asked else NOT_REQUESTED,
    )


def endpoints(ctx: Context) -> list[tuple[int, Endpoint, str | None]]:
    """The brokers as who asks can reach them: by the listener that the request came through."""
    return _endpoints(ctx.services.metadata.brokers.values(), ctx)


def _endpoints(brokers: Iterable[BrokerInfo], ctx: Context) -> list[tuple[int, Endpoint, str | None]]:
    return [
        (broker.id, at, broker.rack)
        for broker in brokers
        if (at := broker.endpoints.get(ctx.client.listener)) is not None
    ]


def describe_cluster(request: DescribeClusterRequest, ctx: Context) -> DescribeClusterResponse:
    """DescribeCluster, v0-1.  v1 endpoint type: only brokers (1) can be told of, there are no separate controllers."""
    cluster = ctx.services.metadata
    if request.endpoint_type != BROKERS:
        known = request.endpoint_type == CONTROLLERS
        return DescribeClusterResponse(
            error_code=MISMATCHED_ENDPOINT_TYPE if known else UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"endpoint type {request.endpoint_type} cannot be told of here: 1 (brokers) can",
        )
    return DescribeClusterResponse(
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller,
        brokers=[
            DescribeClusterResponse.DescribeClusterBroker(broker_id=broker, host=at.host, port=at.port, rack=rack)
            for broker, at, rack in endpoints(ctx)
        ],
        cluster_authorized_operations=(
            ALL_CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_REQUESTED
        ),
    )
