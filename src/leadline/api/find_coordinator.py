"""FindCoordinator: the broker that coordinates a group or a transactional id."""

from collections.abc import Awaitable, Mapping

from leadline.api.auto_create import auto_create
from leadline.api.context import Context
from leadline.cluster.metadata_cache import Endpoint
from leadline.coordinator.group_shard import OFFSETS_TOPIC
from leadline.coordinator.transaction_shard import TRANSACTIONS_TOPIC
from leadline.errors import CoordinatorNotAvailable, InvalidRequest, TopicAlreadyExists, WireError
from leadline.model import NO_LEADER, NONE, BrokerId, TopicPartition
from leadline.wire.messages import FindCoordinatorRequest, FindCoordinatorResponse

MANY_KEYS_FROM = 4
GROUP, TRANSACTION = 0, 1
TOPICS = {GROUP: OFFSETS_TOPIC, TRANSACTION: TRANSACTIONS_TOPIC}
PARTS = {GROUP: "groups", TRANSACTION: "transactional ids"}  # of the request, for the table of authorization
NO_ERROR = "NONE"  # Kafka's message for success
NOWHERE = -1, Endpoint("", -1)

_Coordinator = FindCoordinatorResponse.Coordinator


def find_coordinator(
    request: FindCoordinatorRequest, ctx: Context
) -> FindCoordinatorResponse | Awaitable[FindCoordinatorResponse]:
    """FindCoordinator, v0-5.  v1 groups and transactions · v4 many keys. The first request creates the topic."""
    topic, keys = TOPICS.get(request.key_type), _keys(request, ctx)
    refused = _unauthorized(request.key_type, keys, ctx)
    if topic is not None and topic not in ctx.services.metadata.topics and len(refused) < len(set(keys)):
        return _after_creation(topic, request, ctx, refused)
    return _response(request, ctx, refused)


def _keys(request: FindCoordinatorRequest, ctx: Context) -> list[str]:
    return request.coordinator_keys if ctx.version >= MANY_KEYS_FROM else [request.key]


def _unauthorized(key_type: int, keys: list[str], ctx: Context) -> dict[str, WireError]:
    """The keys that the client may not describe."""
    part = PARTS.get(key_type)
    if part is None:
        return {}
    return {key: error for key in keys if (error := ctx.refused(part, key)) is not None}


async def _after_creation(
    topic: str, request: FindCoordinatorRequest, ctx: Context, refused: dict[str, WireError]
) -> FindCoordinatorResponse:
    try:
        await auto_create(topic, ctx)
    except TopicAlreadyExists:
        pass  # another request created it first
    except WireError as error:
        failure = CoordinatorNotAvailable(f"{topic} cannot be created: {error}")
        return _response(request, ctx, dict.fromkeys(_keys(request, ctx), failure) | refused)
    return _response(request, ctx, refused)


def _response(
    request: FindCoordinatorRequest, ctx: Context, refused: Mapping[str, WireError]
) -> FindCoordinatorResponse:
    if ctx.version >= MANY_KEYS_FROM:
        return FindCoordinatorResponse(
            coordinators=[_find(request.key_type, key, ctx, refused.get(key)) for key in request.coordinator_keys]
        )
    coordinator = _find(request.key_type, request.key, ctx, refused.get(request.key))
    return FindCoordinatorResponse(
        error_code=coordinator.error_code,
        error_message=coordinator.error_message or NO_ERROR,
        node_id=coordinator.node_id,
        host=coordinator.host,
        port=coordinator.port,
    )


def _find(key_type: int, key: str, ctx: Context, refusal: WireError | None) -> _Coordinator:
    (broker, endpoint), code, message = NOWHERE, NONE, ""
    try:
        if refusal is not None:
            raise refusal
        broker, endpoint = _leader(key_type, key, ctx)
    except WireError as error:
        code, message = error.code, str(error)
    return _Coordinator(
        key=key, node_id=broker, host=endpoint.host, port=endpoint.port, error_code=code, error_message=message
    )


def _leader(key_type: int, key: str, ctx: Context) -> tuple[BrokerId, Endpoint]:
    """The coordinator is the leader of the partition that keeps the key."""
    services = ctx.services
    if key_type == GROUP:
        tp = TopicPartition(OFFSETS_TOPIC, services.groups.partition_of(key))
    elif key_type == TRANSACTION:
        tp = TopicPartition(TRANSACTIONS_TOPIC, services.transactions.partition_of(key))
    else:
        raise InvalidRequest(InvalidRequest.default_message)
    leader, hosted = services.metadata.leader_of(tp), services.replicas.hosted.get(tp)
    is_led = hosted is not None and not hosted.log.offline and not hosted.is_fenced
    if leader == NO_LEADER or (leader == services.metadata.me.id and not is_led):
        raise CoordinatorNotAvailable(f"{tp} has no leader")
    if (endpoint := services.metadata.reachable(leader, ctx.client.listener)) is not None:
        return leader, endpoint
    raise CoordinatorNotAvailable(
        f"broker {leader}, which leads {tp}, cannot be reached by listener {ctx.client.listener}"
    )
