"""AlterPartitionReassignments and ListPartitionReassignments: partitions move to other brokers."""

from leadline.api.context import Context
from leadline.controller.reassignments import Target
from leadline.errors import WireError
from leadline.model import TopicPartition
from leadline.wire.messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

_Topic = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
_Partition = AlterPartitionReassignmentsResponse.ReassignablePartitionResponse
_Ongoing = ListPartitionReassignmentsResponse.OngoingPartitionReassignment


async def alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, ctx: Context
) -> AlterPartitionReassignmentsResponse:
    """AlterPartitionReassignments, v0: sets new replicas; null cancels. The response follows the start of the move."""
    if (refusal := ctx.refused("cluster")) is not None:
        return _refused_alteration(request, refusal)
    targets: dict[TopicPartition, Target] = {
        TopicPartition(topic.name, partition.partition_index): None
        if partition.replicas is None
        else tuple(partition.replicas)
        for topic in request.topics
        for partition in topic.partitions
    }
    try:
        errors = await ctx.services.controller.do_in_steps(lambda decisions: decisions.reassignments.alter(targets))
    except WireError as error:
        return AlterPartitionReassignmentsResponse(error_code=error.code, error_message=str(error))
    topics: dict[str, _Topic] = {}
    for tp, refusal in errors.items():
        topic = topics.setdefault(tp.topic, _Topic(name=tp.topic))
        result = _Partition(partition_index=tp.partition, error_message=None)
        if refusal is not None:
            result.error_code, result.error_message = refusal.code, str(refusal)
        topic.partitions.append(result)
    return AlterPartitionReassignmentsResponse(responses=list(topics.values()))


def _refused_alteration(
    request: AlterPartitionReassignmentsRequest, error: WireError
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        error_code=error.code,
        error_message=str(error),
        responses=[
            _Topic(
                name=topic.name,
                partitions=[
                    _Partition(
                        partition_index=partition.partition_index, error_code=error.code, error_message=str(error)
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


async def list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, ctx: Context
) -> ListPartitionReassignmentsResponse:
    """ListPartitionReassignments, v0: the moves of some partitions, or of all if null."""
    if (refusal := ctx.refused("cluster")) is not None:
        return _refused_list(request, refusal)
    partitions = None
    if request.topics is not None:
        partitions = [
            TopicPartition(topic.name, number) for topic in request.topics for number in topic.partition_indexes
        ]
    try:
        moves = await ctx.services.controller.do(lambda decisions: decisions.reassignments.under_way(partitions))
    except WireError as error:
        return ListPartitionReassignmentsResponse(error_code=error.code, error_message=str(error))
    topics: dict[str, ListPartitionReassignmentsResponse.OngoingTopicReassignment] = {}
    for tp, assignment in moves.items():
        if tp.topic not in topics:
            topics[tp.topic] = ListPartitionReassignmentsResponse.OngoingTopicReassignment(name=tp.topic)
        topics[tp.topic].partitions.append(
            _Ongoing(
                partition_index=tp.partition,
                replicas=list(assignment.replicas),
                adding_replicas=list(assignment.adding),
                removing_replicas=list(assignment.removing),
            )
        )
    return ListPartitionReassignmentsResponse(topics=list(topics.values()))


def _refused_list(request: ListPartitionReassignmentsRequest, error: WireError) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(
        error_code=error.code,
        error_message=str(error),
        topics=[
            ListPartitionReassignmentsResponse.OngoingTopicReassignment(
                name=topic.name, partitions=[_Ongoing(partition_index=number) for number in topic.partition_indexes]
            )
            for topic in request.topics or ()
        ],
    )
