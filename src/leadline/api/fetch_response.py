"""The parts of a FetchResponse: a partition with its watermarks, or refused; and partitions by topic.

Pure: values in, values out.
"""

from collections.abc import Iterable

from leadline.api.fetch_sessions import TopicIdPartition
from leadline.errors import (
    TopicAuthorizationFailed,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedCompressionType,
    UnsupportedVersion,
    WireError,
)
from leadline.log.log import Log
from leadline.wire.messages import FetchResponse
from leadline.wire.primitives import id_of, piece_length

FetchedPartition = FetchResponse.PartitionData
FetchedPair = tuple[TopicIdPartition, FetchedPartition]  # a partition by its name or id, and its part of the response


# Kafka answers with these before it reads the partition, or instead of what it read.
_INSTEAD = (UnsupportedCompressionType, UnsupportedVersion)
_WITHOUT_CONTEXT = (UnknownTopicId, UnknownTopicOrPartition, TopicAuthorizationFailed, *_INSTEAD)


def without_records(partition: int, log: Log) -> FetchedPartition:
    return FetchedPartition(
        partition_index=partition,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start,
        aborted_transactions=None,
        records=b"",
    )


def refused(partition: int, code: int) -> FetchedPartition:
    return FetchedPartition(partition_index=partition, error_code=code, high_watermark=-1, records=b"")


def failed(partition: int, error: WireError) -> FetchedPartition:
    """As `refused`. Which fields are null depends on the error, as in Kafka."""
    part = refused(partition, error.code)
    if not isinstance(error, _WITHOUT_CONTEXT):
        part.aborted_transactions = None
    if isinstance(error, _INSTEAD):
        part.records = None
    return part


def length_of(part: FetchedPartition) -> int:
    return 0 if part.records is None else piece_length(part.records)


def has_diverged(part: FetchedPartition) -> bool:
    return part.diverging_epoch.end_offset >= 0


def redirects(part: FetchedPartition) -> bool:
    """Whether the client has to truncate first, or to read elsewhere."""
    return part.diverging_epoch.end_offset >= 0 or part.preferred_read_replica >= 0


def by_topic(partitions: Iterable[FetchedPair]) -> list[FetchResponse.FetchableTopicResponse]:
    """Partitions under their topics, in their order. A topic that comes again after another one appears twice."""
    topics: list[FetchResponse.FetchableTopicResponse] = []
    last: tuple[str, bytes] | None = None  # the topic of the last entry
    for key, part in partitions:
        if key[:2] != last:
            last = key[:2]
            topics.append(FetchResponse.FetchableTopicResponse(topic=key.topic, topic_id=id_of(key.topic_id)))
        topics[-1].partitions.append(part)
    return topics
