"""DescribeProducers: the idempotent producers of partitions, and their open transactions."""

from leadline.api.context import Context
from leadline.controller.topics import check_name
from leadline.errors import UnknownTopicOrPartition, WireError
from leadline.model import NO_SEQUENCE, NONE, TopicPartition
from leadline.replication.replicas import Replicas
from leadline.wire.messages import (
    DescribeProducersRequest,
    DescribeProducersResponse,
)

_Partition = DescribeProducersResponse.PartitionResponse


def describe_producers(request: DescribeProducersRequest, ctx: Context) -> DescribeProducersResponse:
    """DescribeProducers, v0: the producer state of partitions that this broker leads."""
    replicas = ctx.services.replicas
    return DescribeProducersResponse(
        topics=[
            DescribeProducersResponse.TopicResponse(
                name=topic.name,
                partitions=_describe_topic(topic, replicas, ctx),
            )
            for topic in request.topics
        ]
    )


def _describe_topic(topic: DescribeProducersRequest.TopicRequest, replicas: Replicas, ctx: Context) -> list[_Partition]:
    """The validity of the name is checked first, as in Kafka."""
    try:
        check_name(topic.name)
        if (refusal := ctx.refused("topics", topic.name)) is not None:
            raise refusal
        if topic.name not in ctx.services.metadata.topics:
            raise UnknownTopicOrPartition(UnknownTopicOrPartition.default_message)
    except WireError as error:
        return [_failed(number, error) for number in topic.partition_indexes]
    return [_describe(TopicPartition(topic.name, number), replicas) for number in topic.partition_indexes]


def _failed(partition: int, error: WireError) -> _Partition:
    return _Partition(partition_index=partition, error_code=error.code, error_message=str(error))


def _describe(tp: TopicPartition, replicas: Replicas) -> _Partition:
    try:
        producers = replicas.leading(tp).log.producer_state
    except WireError as error:
        return _failed(tp.partition, error)
    return _Partition(
        partition_index=tp.partition,
        error_code=NONE,
        active_producers=[
            DescribeProducersResponse.ProducerState(
                producer_id=producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.last_sequence if entry.batches else NO_SEQUENCE,
                last_timestamp=entry.last_timestamp,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=-1 if entry.txn_first_offset is None else entry.txn_first_offset,
            )
            for producer_id, entry in producers.by_id.items()
        ],
    )
