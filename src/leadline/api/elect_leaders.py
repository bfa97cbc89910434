"""ElectLeaders: who leads a partition."""

from leadline.api.context import Context
from leadline.errors import ElectionNotNeeded, NotController, WireError
from leadline.model import BrokerId, TopicPartition
from leadline.wire.messages import ElectLeadersRequest, ElectLeadersResponse

UNCLEAN = 1  # a type of election; 0: for the preferred leader
UNCLEAN_FROM = 1


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
