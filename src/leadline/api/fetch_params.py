"""The parameters of a Fetch: replica, limits, isolation; and the partitions that it names, with their positions.

Pure: reads the request only.
"""

from collections.abc import Iterator

from leadline.api.fetch_sessions import TopicIdPartition
from leadline.config.broker import BrokerConfig
from leadline.config.replication import RACK_AWARE
from leadline.log.log import Isolation
from leadline.model import BrokerId
from leadline.wire.fetch_position import FetchPosition
from leadline.wire.messages import FetchRequest

WHOLE_BATCHES_FROM = 3  # before it, limits cut the first batch too
SESSIONS_FROM = 7
RACKS_FROM = 11  # and with them reading from followers
TOPIC_IDS_FROM = 13
STATES_FROM = 15  # of replicas that fetch
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
CONSUMER = -1  # as a replica id; a follower has its broker's, from 0 on


class FetchParams:
    __slots__ = (
        "by_id", "cuts_batches", "is_follower", "isolation", "max_bytes", "max_wait_ms", "min_bytes", "only_leader",
        "rack", "replica", "replica_epoch", "version",
    )  # fmt: skip

    def __init__(self, request: FetchRequest, version: int, config: BrokerConfig) -> None:
        self.version, self.by_id = version, version >= TOPIC_IDS_FROM
        self.cuts_batches = version < WHOLE_BATCHES_FROM
        self.max_wait_ms, self.min_bytes, self.max_bytes = request.max_wait_ms, request.min_bytes, request.max_bytes
        state = request.replica_state
        self.replica: BrokerId = state.replica_id if version >= STATES_FROM else request.replica_id
        self.replica_epoch = state.replica_epoch
        self.is_follower = self.replica >= 0
        self.only_leader = self.is_follower or (self.replica == CONSUMER and version < RACKS_FROM)
        self.rack = ""  # of a consumer that may read from followers
        if not self.is_follower:
            self.max_bytes = min(self.max_bytes, config.fetch_max_bytes)
            if config.replica_selector_class == RACK_AWARE:
                self.rack = request.rack_id
        if self.replica != CONSUMER:
            self.isolation = Isolation.LOG_END
        elif request.isolation_level == READ_COMMITTED:
            self.isolation = Isolation.COMMITTED
        else:
            self.isolation = Isolation.HIGH_WATERMARK


def named_positions(request: FetchRequest) -> dict[TopicIdPartition, FetchPosition]:
    positions = {}
    for topic in request.topics:
        name, topic_id = topic.topic, topic.topic_id.bytes
        for part in topic.partitions:
            positions[TopicIdPartition(name, topic_id, part.partition)] = FetchPosition(
                topic_id,
                part.partition,
                part.current_leader_epoch,
                part.fetch_offset,
                part.last_fetched_epoch,
                part.log_start_offset,
                part.partition_max_bytes,
            )
    return positions


def forgotten_partitions(request: FetchRequest) -> Iterator[TopicIdPartition]:
    for topic in request.forgotten_topics_data:
        for partition in topic.partitions:
            yield TopicIdPartition(topic.topic, topic.topic_id.bytes, partition)
