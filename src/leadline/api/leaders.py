"""ElectLeaders and FindCoordinator: who is responsible for what."""

from leadline.api.context import NONE, Context
from leadline.api.metadata import endpoints
from leadline.errors import ElectionNotNeeded, InvalidRequest, NotController, WireError
from leadline.model import BrokerId, TopicPartition
from leadline.wire.messages import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

UNCLEAN = 1  # a type of election; 0: for the preferred leader
UNCLEAN_FROM = 1
MANY_KEYS_FROM = 4
GROUP, TRANSACTION = 0, 1
NO_ERROR = "NONE"  # what Kafka says when nothing went wrong


async def elect_leaders(request: ElectLeadersRequest, ctx: Context) -> ElectLeadersResponse:
    """ElectLeaders, v0-2.  v1 unclean elections. Null: all partitions; then those that need none are not told of."""
    unclean = ctx.version >= UNCLEAN_FROM and request.election_type == UNCLEAN
    everything = request.topic_partitions is None
    asked = [
        TopicPartition(topic.topic, number)
        for topic in request.topic_partitions or ()
        for number in dict.fromkeys(topic.partitions)
    ]
    if everything:
        known = ctx.services.metadata.topics
        asked = [TopicPartition(name, number) for name, topic in known.items() for number in topic.partitions]
    wanted = dict.fromkeys(asked)
    try:
        answers = await ctx.services.controller.do(lambda decisions: decisions.elect(wanted, unclean=unclean))
    except NotController as error:
        answers = dict.fromkeys(wanted, error)
    results: dict[str, ElectLeadersResponse.ReplicaElectionResult] = {}
    for tp, answer in answers.items():
        if not (everything and isinstance(answer, ElectionNotNeeded)):
            result = results.setdefault(tp.topic, ElectLeadersResponse.ReplicaElectionResult(topic=tp.topic))
            result.partition_result.append(await _elected(tp, answer, request.timeout_ms, ctx))
    return ElectLeadersResponse(replica_election_results=list(results.values()))


async def _elected(
    tp: TopicPartition, answer: BrokerId | WireError, timeout_ms: int, ctx: Context
) -> ElectLeadersResponse.PartitionResult:
    """Once this broker knows it, too."""
    told = ElectLeadersResponse.PartitionResult(partition_id=tp.partition, error_message=None)
    try:
        if isinstance(answer, WireError):
            raise answer
        await ctx.services.cluster.until_led(tp, lambda leader: leader == answer, timeout_ms)
    except WireError as error:
        told.error_code, told.error_message = error.code, str(error)
    return told


def find_coordinator(request: FindCoordinatorRequest, ctx: Context) -> FindCoordinatorResponse:
    """FindCoordinator, v0-5.  v1 groups and transactions · v4 many keys. On a single node it is this one."""
    broker, at, _ = endpoints(ctx)[0]
    wrong = None
    if request.key_type not in (GROUP, TRANSACTION):
        wrong = f"key type {request.key_type} is not known: 0 (group) and 1 (transaction) are"
    code = NONE if wrong is None else InvalidRequest.code
    if ctx.version < MANY_KEYS_FROM:
        if wrong is not None:
            return FindCoordinatorResponse(error_code=code, error_message=wrong, node_id=-1, port=-1)
        return FindCoordinatorResponse(error_message=NO_ERROR, node_id=broker, host=at.host, port=at.port)
    return FindCoordinatorResponse(
        coordinators=[
            FindCoordinatorResponse.Coordinator(
                key=key,
                node_id=-1 if wrong else broker,
                host="" if wrong else at.host,
                port=-1 if wrong else at.port,
                error_code=code,
                error_message=wrong or "",
            )
            for key in request.coordinator_keys
        ]
    )
