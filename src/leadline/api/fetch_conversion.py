"""The response to a fetch from before v4: its records become message sets, of format 0 in v0 and v1, of 1 in v2 and v3.

Limits and quotas count what was read of the log, before it is converted, as in Kafka.
"""

from collections.abc import Awaitable, Mapping

from leadline.api.context import Context
from leadline.api.fetch_response import FetchedPartition, failed
from leadline.api.fetch_sessions import TopicIdPartition
from leadline.errors import NotLeaderOrFollower, StorageError, WireError
from leadline.log.segment import FileSlice
from leadline.model import NO_ID, Offset, TopicPartition
from leadline.wire.fetch_position import FetchPosition
from leadline.wire.messages import FetchResponse

FORMAT_1_FROM = 2


async def down_converted(
    answer: FetchResponse | Awaitable[FetchResponse], positions: Mapping[TopicIdPartition, FetchPosition], ctx: Context
) -> FetchResponse:
    response = await answer if isinstance(answer, Awaitable) else answer
    for topic in response.responses:
        for n, part in enumerate(topic.partitions):
            if isinstance(part.records, FileSlice):
                key = TopicIdPartition(topic.topic, NO_ID.bytes, part.partition_index)
                tp = TopicPartition(topic.topic, part.partition_index)
                topic.partitions[n] = await _converted(part, part.records, tp, positions[key].fetch_offset, ctx)
    return response


async def _converted(
    part: FetchedPartition, records: FileSlice, tp: TopicPartition, first_offset: Offset, ctx: Context
) -> FetchedPartition:
    services, magic = ctx.services, int(ctx.version >= FORMAT_1_FROM)
    try:
        with services.replicas.holding(tp).log.guard("reading"):
            part.records = await services.down_conversions.convert(records, magic, first_offset)
        return part
    except StorageError:
        return failed(tp.partition, NotLeaderOrFollower(f"{tp} cannot be read here"))
    except WireError as error:
        return failed(tp.partition, error)
