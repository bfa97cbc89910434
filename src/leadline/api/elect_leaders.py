"""ElectLeaders: elects the preferred leader of partitions, or any leader."""

from leadline.api.context import Context
from leadline.cluster.metadata_cache import MetadataCache
from leadline.controller.cluster_admin import ClusterAdmin
from leadline.errors import ElectionNotNeeded, NotController, UnknownServerError, WireError
from leadline.model import NONE, BrokerId, TopicPartition
from leadline.wire.messages import ElectLeadersRequest, ElectLeadersResponse

PREFERRED, UNCLEAN = 0, 1  # types of elections
UNCLEAN_FROM = 1
ERROR_FROM = 1  # for the whole request


async def elect_leaders(request: ElectLeadersRequest, ctx: Context) -> ElectLeadersResponse:
    """ElectLeaders, v0-2.  v1 unclean elections. Null: all partitions, without those that need no election."""
    unclean = ctx.version >= UNCLEAN_FROM and request.election_type == UNCLEAN
    if (refusal := ctx.refused("cluster")) is not None:
        return _refused(request, refusal, ctx.version)
    if request.election_type not in (PREFERRED, UNCLEAN):
        error = UnknownServerError(f"election type {request.election_type} is unknown: 0 (preferred) or 1 (unclean)")
        return _refused(request, error, ctx.version)
    partitions = _partitions(request, ctx.services.metadata)
    try:
        elections = await ctx.services.controller.do_in_steps(
            lambda decisions: decisions.elect(partitions, unclean=unclean)
        )
    except NotController as error:
        elections = dict.fromkeys(partitions, error)
    results: dict[str, ElectLeadersResponse.ReplicaElectionResult] = {}
    for tp, leader in elections.items():
        if not (request.topic_partitions is None and isinstance(leader, ElectionNotNeeded)):
            topic = results.setdefault(tp.topic, ElectLeadersResponse.ReplicaElectionResult(topic=tp.topic))
            topic.partition_result.append(await _result(tp, leader, request.timeout_ms, ctx.services.cluster))
    return ElectLeadersResponse(replica_election_results=list(results.values()))


def _refused(request: ElectLeadersRequest, error: WireError, version: int) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        error_code=error.code if version >= ERROR_FROM else NONE,
        replica_election_results=[
            ElectLeadersResponse.ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    ElectLeadersResponse.PartitionResult(
                        partition_id=number, error_code=error.code, error_message=str(error)
                    )
                    for number in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


def _partitions(request: ElectLeadersRequest, metadata: MetadataCache) -> dict[TopicPartition, None]:
    if request.topic_partitions is None:
        topics = metadata.topics
        return {TopicPartition(name, number): None for name, topic in topics.items() for number in topic.partitions}
    return {
        TopicPartition(topic.topic, number): None for topic in request.topic_partitions for number in topic.partitions
    }


async def _result(
    tp: TopicPartition, elected: BrokerId | WireError, timeout_ms: int, cluster: ClusterAdmin
) -> ElectLeadersResponse.PartitionResult:
    """Waits until this broker's metadata has the elected leader."""
    result = ElectLeadersResponse.PartitionResult(partition_id=tp.partition, error_message=None)
    try:
        if isinstance(elected, WireError):
            raise elected
        await cluster.until_led(tp, lambda leader: leader == elected, timeout_ms)
    except WireError as error:
        result.error_code, result.error_message = error.code, str(error)
    return result
