"""The requests of a follower to its leader: Fetch, and ListOffsets for where the leader's log ends or starts.

Pure: builds messages.
"""

from collections.abc import Mapping
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from leadline.config.replication import ReplicationConfig
from leadline.model import BrokerId, TopicId, TopicPartition, by_topic
from leadline.replication.fetch_session import FetchSessionRequest, ForgottenPartition
from leadline.replication.follower import AskOffset
from leadline.wire import follower_fetch
from leadline.wire.fetch_position import FULL_EPOCH, FetchPosition
from leadline.wire.messages import FetchRequest, ListOffsetsRequest


class FetchingBroker(NamedTuple):
    """The broker that fetches, as it names itself to the leader."""

    id: BrokerId
    epoch: int


def offsets_request(questions: Mapping[TopicPartition, AskOffset], me: FetchingBroker) -> ListOffsetsRequest:
    request = ListOffsetsRequest(replica_id=me.id)
    for name, partitions in by_topic(questions).items():
        topic = ListOffsetsRequest.ListOffsetsTopic(name=name)
        topic.partitions = [
            ListOffsetsRequest.ListOffsetsPartition(
                partition_index=tp.partition,
                current_leader_epoch=questions[tp].current_leader_epoch,
                timestamp=questions[tp].timestamp,
            )
            for tp in partitions
        ]
        request.topics.append(topic)
    return request


def fetch_request(
    request: FetchSessionRequest, me: FetchingBroker, config: ReplicationConfig, max_wait_ms: int
) -> FetchRequest:
    built = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=config.replica_fetch_min_bytes,
        max_bytes=config.replica_fetch_response_max_bytes,
        session_id=request.session_id,
        session_epoch=request.session_epoch,
    )
    if request.by_id:
        built.replica_state = FetchRequest.ReplicaState(replica_id=me.id, replica_epoch=me.epoch)
    else:
        built.replica_id = me.id
    for tp, position in request.named.items():  # in this order: it is the one in which they are served
        last = built.topics[-1] if built.topics else None
        if last is None or (last.topic, last.topic_id.bytes) != (tp.topic, position.topic_id):
            last = FetchRequest.FetchTopic(topic=tp.topic, topic_id=TopicId(bytes=position.topic_id))
            built.topics.append(last)
        last.partitions.append(_fetch_partition(position))
    forgotten = request.forgotten + (request.replaced if request.by_id else [])
    built.forgotten_topics_data = [_forgotten(partition) for partition in forgotten]
    return built


def _fetch_partition(position: FetchPosition) -> FetchRequest.FetchPartition:
    return FetchRequest.FetchPartition(
        partition=position.partition,
        current_leader_epoch=position.current_leader_epoch,
        fetch_offset=position.fetch_offset,
        last_fetched_epoch=position.last_fetched_epoch,
        log_start_offset=position.log_start_offset,
        partition_max_bytes=position.max_bytes,
    )


def _forgotten(forgotten: ForgottenPartition) -> FetchRequest.ForgottenTopic:
    topic_id = TopicId(bytes=forgotten.topic_id)
    return FetchRequest.ForgottenTopic(topic=forgotten.tp.topic, topic_id=topic_id, partitions=[forgotten.tp.partition])


def fits_fast_path(request: FetchSessionRequest) -> bool:
    """Whether `fast_frame` can write it."""
    if not request.by_id or request.session_epoch == FULL_EPOCH or request.forgotten or request.replaced:
        return False
    if len(request.named) <= follower_fetch.MOST_TOPICS:
        return True
    return sum(1 for _ in groupby(request.named.values(), attrgetter("topic_id"))) <= follower_fetch.MOST_TOPICS


def fast_frame(
    request: FetchSessionRequest,
    me: FetchingBroker,
    config: ReplicationConfig,
    max_wait_ms: int,
    correlation_id: int,
    client_id: str,
) -> bytes:
    """The bytes of `fetch_request`, without the codec, for a request that fits the fast path."""
    encoded = follower_fetch.FollowerFetchRequest(
        correlation_id,
        max_wait_ms,
        config.replica_fetch_min_bytes,
        config.replica_fetch_response_max_bytes,
        request.session_id,
        request.session_epoch,
        list(request.named.values()),
        me.id,
        me.epoch,
    )
    return follower_fetch.encode_request(encoded, client_id)
