"""ElectLeaders and FindCoordinator: who is responsible for what."""

from leadline.api.context import NONE, Context
from leadline.api.metadata import endpoints
from leadline.errors import InvalidRequest, UnknownTopicOrPartition
from leadline.model import TopicPartition
from leadline.wire.messages import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

ELECTION_NOT_NEEDED = 84
MANY_KEYS_FROM = 4
GROUP, TRANSACTION = 0, 1
NO_ERROR = "NONE"  # what Kafka says when nothing went wrong


def elect_leaders(request: ElectLeadersRequest, ctx: Context) -> ElectLeadersResponse:
    """ElectLeaders, v0-2: on a single node every partition already has the only leader there can be."""
    wanted: dict[str, dict[int, None]] = {}
    for topic in request.topic_partitions or ():
        if topic.partitions:
            wanted.setdefault(topic.topic, {}).update(dict.fromkeys(topic.partitions))
    return ElectLeadersResponse(
        replica_election_results=[
            ElectLeadersResponse.ReplicaElectionResult(
                topic=name, partition_result=[_not_elected(TopicPartition(name, number), ctx) for number in numbers]
            )
            for name, numbers in wanted.items()
        ]
    )


def _not_elected(tp: TopicPartition, ctx: Context) -> ElectLeadersResponse.PartitionResult:
    topic = ctx.services.cluster.topics.get(tp.topic)
    known = topic is not None and 0 <= tp.partition < len(topic.partitions)
    return ElectLeadersResponse.PartitionResult(
        partition_id=tp.partition,
        error_code=ELECTION_NOT_NEEDED if known else UnknownTopicOrPartition.code,
        error_message=f"{tp} is led by its preferred leader" if known else f"there is no partition {tp}",
    )


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
