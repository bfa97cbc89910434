"""InitProducerId and DescribeProducers: who writes idempotently."""

from leadline.api.context import NONE, Context
from leadline.controller.topics import check_name
from leadline.errors import CoordinatorNotAvailable, InvalidRequest, WireError
from leadline.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, TopicPartition
from leadline.wire.messages import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)

_Partition = DescribeProducersResponse.PartitionResponse


async def init_producer_id(request: InitProducerIdRequest, ctx: Context) -> InitProducerIdResponse:
    """InitProducerId, v0-5: an id for an idempotent producer.  v3 the id and epoch that it has, both or none.

    Transactions have no coordinator here yet.
    """
    half = (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH)
    if half or request.transactional_id == "":
        return InitProducerIdResponse(error_code=InvalidRequest.code, producer_epoch=NO_PRODUCER_EPOCH)
    if request.transactional_id is not None:
        return InitProducerIdResponse(error_code=CoordinatorNotAvailable.code, producer_epoch=NO_PRODUCER_EPOCH)
    return InitProducerIdResponse(producer_id=await ctx.services.cluster.next_producer_id(), producer_epoch=0)


def describe_producers(request: DescribeProducersRequest, ctx: Context) -> DescribeProducersResponse:
    """DescribeProducers, v0: what partitions know of their producers."""
    return DescribeProducersResponse(
        topics=[
            DescribeProducersResponse.TopicResponse(
                name=topic.name,
                partitions=[_describe(TopicPartition(topic.name, n), ctx) for n in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _describe(tp: TopicPartition, ctx: Context) -> _Partition:
    try:
        check_name(tp.topic)
        producers = ctx.services.replicas.leading(tp).log.producers
    except WireError as error:
        return _Partition(partition_index=tp.partition, error_code=error.code, error_message=str(error))
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
