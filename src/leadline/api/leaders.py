"""ElectLeaders: who leads a partition."""

from leadline.api.context import Context
from leadline.errors import UnknownTopicOrPartition
from leadline.model import TopicPartition
from leadline.wire.messages import ElectLeadersRequest, ElectLeadersResponse

ELECTION_NOT_NEEDED = 84


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
