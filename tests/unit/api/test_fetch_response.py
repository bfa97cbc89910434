"""The parts of a FetchResponse: which fields an error leaves null, what redirects a client, and partitions by topic."""

import pytest

from leadline.api.fetch_response import by_topic, failed, length_of, redirects, refused
from leadline.api.fetch_sessions import TopicIdPartition
from leadline.errors import NotLeaderOrFollower, UnknownTopicOrPartition, UnsupportedCompressionType, WireError
from leadline.model import NO_ID
from leadline.wire.messages import FetchResponse


@pytest.mark.parametrize(
    ("error", "aborted", "records"),
    [
        (UnknownTopicOrPartition("gone"), [], b""),
        (NotLeaderOrFollower("elsewhere"), None, b""),
        (UnsupportedCompressionType("zstd"), [], None),
    ],
)
def test_the_error_decides_which_fields_are_null(
    error: WireError, aborted: list[object] | None, records: bytes | None
) -> None:
    part = failed(3, error)
    assert (part.partition_index, part.error_code, part.high_watermark) == (3, error.code, -1)
    assert (part.aborted_transactions, part.records, length_of(part)) == (aborted, records, 0)


def test_a_client_is_redirected_where_its_log_diverges_or_a_replica_is_closer() -> None:
    part = refused(0, 0)
    assert not redirects(part)
    part.preferred_read_replica = 2
    assert redirects(part)
    part = refused(0, 0)
    part.diverging_epoch = FetchResponse.EpochEndOffset(epoch=1, end_offset=0)
    assert redirects(part)


def test_partitions_keep_their_order_under_their_topics() -> None:
    keys = [TopicIdPartition(topic, NO_ID.bytes, number) for topic, number in (("a", 1), ("a", 0), ("b", 2), ("a", 3))]
    topics = by_topic([(key, refused(key.partition, 0)) for key in keys])
    assert [(topic.topic, [part.partition_index for part in topic.partitions]) for topic in topics] == [
        ("a", [1, 0]),
        ("b", [2]),
        ("a", [3]),
    ]
