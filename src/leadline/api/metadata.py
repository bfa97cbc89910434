"""Metadata and DescribeCluster: the brokers, the topics, and the leaders of their partitions."""

from collections.abc import Awaitable, Iterable, Mapping
from uuid import UUID

from leadline.api.authorized_operations import NOT_REQUESTED
from leadline.api.auto_create import auto_create
from leadline.api.context import Context, LongResponse
from leadline.cluster.metadata_cache import BrokerInfo, CachedPartition, CachedTopic, Endpoint
from leadline.cluster.peer_monitor import PeerMonitor
from leadline.controller.topics import INTERNAL, check_name
from leadline.errors import (
    InvalidRequest,
    InvalidTopic,
    LeaderNotAvailable,
    TopicAlreadyExists,
    TopicAuthorizationFailed,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
    WireError,
)
from leadline.model import NO_ID, NO_LEADER, NONE, BrokerId
from leadline.runtime.steps import PORTION, Steps, exhaust
from leadline.runtime.turns import Turns
from leadline.security.acls import ResourceType
from leadline.wire.messages import DescribeClusterRequest, DescribeClusterResponse, MetadataRequest, MetadataResponse

MISMATCHED_ENDPOINT_TYPE = 114
UNSUPPORTED_ENDPOINT_TYPE = 115
BROKERS, CONTROLLERS = 1, 2  # types of endpoints
WRONG_ENDPOINT = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
BY_ID_FROM = 12
LONG = 200  # partitions in a response: with more, it is made over several turns of the loop

_Topic = MetadataResponse.MetadataResponseTopic
_Row = CachedTopic | _Topic  # a topic to be described, or the answer why it is not
_Answer = MetadataResponse | Awaitable[MetadataResponse | LongResponse]


def metadata(request: MetadataRequest, ctx: Context) -> _Answer:
    """Metadata, v0-12.  v1 null: all, empty: none · v4 auto-creation · v8 operations · v10 topic ids · v12 by id.

    If a request has a topic id, topics without one are ignored.
    """
    peer_monitor, topics = ctx.services.peer_monitor, request.topics
    if peer_monitor is not None and not peer_monitor.is_informed:
        return _once_informed(request, ctx, peer_monitor)
    if topics is None or (ctx.version == 0 and not topics):
        return _describe_all(request, ctx)
    if ctx.version < BY_ID_FROM and any(topic.name is None or topic.topic_id != NO_ID for topic in topics):
        return _refused(topics, InvalidRequest.code)
    if any(topic.name is None and topic.topic_id == NO_ID for topic in topics):
        return _refused(topics, UnknownServerError.code)
    if ids := dict.fromkeys(topic.topic_id for topic in topics if topic.topic_id != NO_ID):
        return _describe_ids(request, ctx, list(ids))
    return _describe_names(request, ctx, list(dict.fromkeys(topic.name for topic in topics if topic.name is not None)))


def _describe_all(request: MetadataRequest, ctx: Context) -> _Answer:
    """Topics that the client may not describe are left out."""
    topics = ctx.services.metadata.topics
    permitted = ctx.permitted("all topics", topics)
    return _answer(request, ctx, [topic for name, topic in topics.items() if name in permitted])


def _describe_names(request: MetadataRequest, ctx: Context, names: list[str]) -> _Answer:
    """Nothing is looked up about a topic that the client may not describe, not even whether it exists."""
    described = ctx.permitted("topics", names)
    unauthorized = {name: _unauthorized(name, is_internal=False) for name in names if name not in described}
    cached = ctx.services.metadata.topics
    if request.allow_auto_topic_creation and ctx.services.config.auto_create_topics_enable:
        missing = [name for name in names if name not in cached and name not in unauthorized]
        creatable = ctx.permitted("auto-creation", missing)
        for name in missing:
            if name not in creatable:
                unauthorized[name] = _unauthorized(name, is_internal=name in INTERNAL)
        if created := [name for name in missing if name in creatable]:
            return _after_creation(request, ctx, names, created, unauthorized)
    if ctx.services.peer_monitor is not None:
        return _once_settled(request, ctx, names, ctx.services.peer_monitor, unauthorized)
    return _answer(request, ctx, _rows(names, ctx, request, unauthorized, {}))


def _unauthorized(name: str, *, is_internal: bool) -> _Topic:
    return _Topic(
        error_code=TopicAuthorizationFailed.code,
        name=name,
        is_internal=is_internal,
        topic_authorized_operations=NOT_REQUESTED,
    )


def _rows(
    names: list[str],
    ctx: Context,
    request: MetadataRequest,
    unauthorized: Mapping[str, _Topic],
    refused: Mapping[str, WireError],
) -> list[_Row]:
    return [unauthorized.get(name) or _row(name, ctx, request, refused) for name in names]


async def _once_informed(
    request: MetadataRequest, ctx: Context, peer_monitor: PeerMonitor
) -> MetadataResponse | LongResponse:
    await peer_monitor.informed()
    return await _awaited(metadata(request, ctx))


async def _awaited(answer: _Answer) -> MetadataResponse | LongResponse:
    return answer if isinstance(answer, MetadataResponse) else await answer


async def _once_settled(
    request: MetadataRequest,
    ctx: Context,
    names: list[str],
    peer_monitor: PeerMonitor,
    unauthorized: Mapping[str, _Topic],
) -> MetadataResponse | LongResponse:
    """A client often requests single topics because their leaders are gone, and none because the controller is."""
    cluster = ctx.services.metadata

    def leaders() -> set[BrokerId]:
        if not names:
            return {cluster.controller}
        topics = [cluster.topics[name] for name in names if name in cluster.topics and name not in unauthorized]
        return {partition.leader for topic in topics for partition in topic.partitions.values()}

    await peer_monitor.settled(leaders)
    return await _awaited(_answer(request, ctx, _rows(names, ctx, request, unauthorized, {})))


async def _after_creation(
    request: MetadataRequest, ctx: Context, names: list[str], missing: list[str], unauthorized: Mapping[str, _Topic]
) -> MetadataResponse | LongResponse:
    """A topic that this request has created is reported without a leader, as Kafka does: the client asks again."""
    refused: dict[str, WireError] = {}
    for name in missing:
        try:
            await auto_create(name, ctx)
            refused[name] = LeaderNotAvailable(f"topic {name} is being created")
        except TopicAlreadyExists:
            pass  # another request created it first
        except WireError as error:
            refused[name] = error
    return await _awaited(_answer(request, ctx, _rows(names, ctx, request, unauthorized, refused)))


def _refused(topics: Iterable[MetadataRequest.MetadataRequestTopic], code: int) -> MetadataResponse:
    """Versions 10 and 11 have a field for ids, but reject requests that use it. A topic without either is a failure."""
    return MetadataResponse(
        topics=[_Topic(error_code=code, name=topic.name or "", topic_id=topic.topic_id) for topic in topics]
    )


def _describe_ids(request: MetadataRequest, ctx: Context, ids: list[UUID]) -> _Answer:
    """An id is not a secret, but the name is."""
    by_id = ctx.services.metadata.by_id
    permitted = ctx.permitted("topic ids", [by_id[topic_id].name for topic_id in ids if topic_id in by_id])

    def row(topic_id: UUID) -> _Row:
        topic = by_id.get(topic_id)
        if topic is None:
            return _Topic(error_code=UnknownTopicId.code, name=None, topic_id=topic_id)
        if topic.name not in permitted:
            return _Topic(error_code=TopicAuthorizationFailed.code, name=None, topic_id=topic_id)
        return topic

    return _answer(request, ctx, [row(topic_id) for topic_id in ids])


def _row(name: str, ctx: Context, request: MetadataRequest, refused: Mapping[str, WireError]) -> _Row:
    topic = ctx.services.metadata.topics.get(name)
    if topic is not None and name not in refused:
        return topic
    return _Topic(
        error_code=_why_missing(name, refused),
        name=name,
        is_internal=name in INTERNAL,
        topic_authorized_operations=_topic_operations(name, ctx, request),
    )


def _topic_operations(name: str, ctx: Context, request: MetadataRequest) -> int:
    is_requested = request.include_topic_authorized_operations
    return ctx.authorized_operations(ResourceType.TOPIC, name) if is_requested else NOT_REQUESTED


def _why_missing(name: str, refused: Mapping[str, WireError]) -> int:
    if name in refused:
        return refused[name].code
    try:
        check_name(name)
    except InvalidTopic as error:
        return error.code
    return UnknownTopicOrPartition.code


def _answer(request: MetadataRequest, ctx: Context, rows: list[_Row]) -> _Answer:
    steps = _describe(rows, ctx, request)
    if sum(len(row.partitions) for row in rows) > LONG:
        return _answer_in_turns(request, ctx, steps)
    return _response(request, ctx, exhaust(steps))


async def _answer_in_turns(request: MetadataRequest, ctx: Context, steps: Steps[list[_Topic]]) -> LongResponse:
    return LongResponse(_response(request, ctx, await Turns().run(steps)))


def _describe(rows: list[_Row], ctx: Context, request: MetadataRequest) -> Steps[list[_Topic]]:
    topics, described = list[_Topic](), 0
    for row in rows:
        topic = _describe_topic(row, ctx, request) if isinstance(row, CachedTopic) else row
        topics.append(topic)
        if isinstance(row, CachedTopic):
            for number, partition in row.partitions.items():
                topic.partitions.append(_partition(number, partition, ctx))
                described += 1
                if described % PORTION == 0:
                    yield
    return topics


def _describe_topic(topic: CachedTopic, ctx: Context, request: MetadataRequest) -> _Topic:
    """The topic without its partitions."""
    return _Topic(
        error_code=NONE,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL,
        topic_authorized_operations=_topic_operations(topic.name, ctx, request),
    )


def _partition(number: int, partition: CachedPartition, ctx: Context) -> MetadataResponse.MetadataResponsePartition:
    cluster = ctx.services.metadata
    endpoint = None if cluster.may_have_moved(partition) else cluster.reachable(partition.leader, ctx.client.listener)
    return MetadataResponse.MetadataResponsePartition(
        error_code=LeaderNotAvailable.code if endpoint is None else NONE,
        partition_index=number,
        leader_id=NO_LEADER if endpoint is None else partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=list(partition.offline),
    )


def _response(request: MetadataRequest, ctx: Context, topics: list[_Topic]) -> MetadataResponse:
    """Departed brokers are included: librdkafka loses a second if a leader changes as its broker leaves."""
    cluster = ctx.services.metadata
    brokers = [*cluster.brokers.values(), *cluster.departed.values()] or [cluster.me]
    return MetadataResponse(
        brokers=[
            MetadataResponse.MetadataResponseBroker(node_id=broker, host=endpoint.host, port=endpoint.port, rack=rack)
            for broker, endpoint, rack in _endpoints(brokers, ctx)
        ],
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller,
        topics=topics,
        cluster_authorized_operations=_cluster_operations(request, ctx),
    )


def _cluster_operations(request: MetadataRequest | DescribeClusterRequest, ctx: Context) -> int:
    """None at all for a client that may not describe the cluster."""
    if not request.include_cluster_authorized_operations:
        return NOT_REQUESTED
    is_permitted = ctx.permits("authorized operations of the cluster")
    return ctx.authorized_operations(ResourceType.CLUSTER) if is_permitted else 0


def endpoints(ctx: Context) -> list[tuple[int, Endpoint, str | None]]:
    """Clients reach the brokers by the listener that the request came through."""
    return _endpoints(ctx.services.metadata.brokers.values(), ctx)


def _endpoints(brokers: Iterable[BrokerInfo], ctx: Context) -> list[tuple[int, Endpoint, str | None]]:
    return [
        (broker.id, endpoint, broker.rack)
        for broker in brokers
        if (endpoint := broker.endpoints.get(ctx.client.listener)) is not None
    ]


async def describe_cluster(request: DescribeClusterRequest, ctx: Context) -> DescribeClusterResponse:
    """DescribeCluster, v0-1.  v1 endpoint type: brokers (1) only, as there are no separate controllers."""
    cluster, peer_monitor = ctx.services.metadata, ctx.services.peer_monitor
    if request.endpoint_type != BROKERS:
        is_controllers = request.endpoint_type == CONTROLLERS
        return DescribeClusterResponse(
            error_code=MISMATCHED_ENDPOINT_TYPE if is_controllers else UNSUPPORTED_ENDPOINT_TYPE,
            error_message=WRONG_ENDPOINT if is_controllers else f"Unsupported endpoint type {request.endpoint_type}",
        )
    if peer_monitor is not None:
        await peer_monitor.settled(lambda: {cluster.controller})
    return DescribeClusterResponse(
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller,
        brokers=[
            DescribeClusterResponse.DescribeClusterBroker(
                broker_id=broker, host=endpoint.host, port=endpoint.port, rack=rack
            )
            for broker, endpoint, rack in endpoints(ctx)
        ],
        cluster_authorized_operations=_cluster_operations(request, ctx),
    )
