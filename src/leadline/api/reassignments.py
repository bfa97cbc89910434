"""AlterPartitionReassignments and ListPartitionReassignments: partitions on their way to other brokers."""

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
_OnItsWay = ListPartitionReassignmentsResponse.OngoingPartitionReassignment


async def alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, ctx: Context
) -> AlterPartitionReassignmentsResponse:
    """AlterPartitionReassignments, v0: other replicas, or null for the way back. Answered when it is begun."""
    targets: dict[TopicPartition, Target] = {
        TopicPartition(topic.name, each.partition_index): None if each.replicas is None else tuple(each.replicas)
        for topic in request.topics
        for each in topic.partitions
    }
    try:
        answers = await ctx.services.controller.do(lambda decisions: decisions.reassignments.alter(targets))
    except WireError as error:
        return AlterPartitionReassignmentsResponse(error_code=error.code, error_message=str(error))
    topics: dict[str, _Topic] = {}
    for tp, answer in answers.items():
        topic = topics.setdefault(tp.topic, _Topic(name=tp.topic))
        told = _Partition(partition_index=tp.partition, error_message=None)
        if answer is not None:
            told.error_code, told.error_message = answer.code, str(answer)
        topic.partitions.append(told)
    return AlterPartitionReassignmentsResponse(error_message=None, responses=list(topics.values()))


async def list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, ctx: Context
) -> ListPartitionReassignmentsResponse:
    """ListPartitionReassignments, v0: of some partitions, or null for all."""
    asked = None
    if request.topics is not None:
        asked = [TopicPartition(topic.name, number) for topic in request.topics for number in topic.partition_indexes]
    try:
        found = await ctx.services.controller.do(lambda decisions: decisions.reassignments.under_way(asked))
    except WireError as error:
        return ListPartitionReassignmentsResponse(error_code=error.code, error_message=str(error))
    topics: dict[str, ListPartitionReassignmentsResponse.OngoingTopicReassignment] = {}
    for tp, assigned in found.items():
        if tp.topic not in topics:
            topics[tp.topic] = ListPartitionReassignmentsResponse.OngoingTopicReassignment(name=tp.topic)
        topics[tp.topic].partitions.append(
            _OnItsWay(
                partition_index=tp.partition,
                replicas=list(assigned.replicas),
                adding_replicas=list(assigned.adding),
                removing_replicas=list(assigned.removing),
            )
        )
    return ListPartitionReassignmentsResponse(error_message=None, topics=list(topics.values()))
