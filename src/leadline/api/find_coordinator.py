"""FindCoordinator: which broker is responsible for a group, or for a transactional id."""

from collections.abc import Awaitable

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
JOURNALS = {GROUP: OFFSETS_TOPIC, TRANSACTION: TRANSACTIONS_TOPIC}
NO_ERROR = "NONE"  # what Kafka says when nothing went wrong
NOWHERE = -1, Endpoint("", -1)

_Coordinator = FindCoordinatorResponse.Coordinator


def find_coordinator(
    request: FindCoordinatorRequest, ctx: Context
) -> FindCoordinatorResponse | Awaitable[FindCoordinatorResponse]:
    """FindCoordinator, v0-5.  v1 groups and transactions · v4 many keys. The first call creates the journal's topic."""
    topic = JOURNALS.get(request.key_type)
    if topic is not None and topic not in ctx.services.metadata.topics:
        return _after_creation(topic, request, ctx)
    return _answer(request, ctx)


async def _after_creation(topic: str, request: FindCoordinatorRequest, ctx: Context) -> FindCoordinatorResponse:
    try:
        await auto_create(topic, ctx)
    except TopicAlreadyExists:
        pass  # somebody else was quicker
    except WireError as error:
        return _answer(request, ctx, CoordinatorNotAvailable(f"{topic} cannot be created: {error}"))
    return _answer(request, ctx)


def _answer(request: FindCoordinatorRequest, ctx: Context, refusal: WireError | None = None) -> FindCoordinatorResponse:
    if ctx.version >= MANY_KEYS_FROM:
        return FindCoordinatorResponse(
            coordinators=[_coordinator(request.key_type, key, ctx, refusal) for key in request.coordinator_keys]
        )
    found = _coordinator(request.key_type, request.key, ctx, refusal)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message or NO_ERROR,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _coordinator(key_type: int, key: str, ctx: Context, refusal: WireError | None) -> _Coordinator:
    (broker, at), code, message = NOWHERE, NONE, ""
    try:
        if refusal is not None:
            raise refusal
        broker, at = _locate(key_type, key, ctx)
    except WireError as error:
        code, message = error.code, str(error)
    return _Coordinator(key=key, node_id=broker, host=at.host, port=at.port, error_code=code, error_message=message)


def _locate(key_type: int, key: str, ctx: Context) -> tuple[BrokerId, Endpoint]:
    """Whoever leads the partition of the journal that the key belongs to."""
    services = ctx.services
    if key_type == GROUP:
        tp = TopicPartition(OFFSETS_TOPIC, services.groups.partition_of(key))
    elif key_type == TRANSACTION:
        tp = TopicPartition(TRANSACTIONS_TOPIC, services.transactions.partition_of(key))
    else:
        raise InvalidRequest(f"key type {key_type} is not known: 0 (group) and 1 (transaction) are")
    leader, hosted = services.metadata.leader_of(tp), services.replicas.hosted.get(tp)
    is_led = hosted is not None and not hosted.log.offline and not hosted.is_fenced
    if leader == NO_LEADER or (leader == services.metadata.me.id and not is_led):
        raise CoordinatorNotAvailable(f"{tp} has no leader")
    if (at := services.metadata.reachable(leader, ctx.client.listener)) is not None:
        return leader, at
    raise CoordinatorNotAvailable(
        f"broker {leader}, which leads {tp}, cannot be reached by listener {ctx.client.listener}"
    )
