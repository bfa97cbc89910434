"""Which replica a consumer should read from: Kafka's RackAwareReplicaSelector.

Pure: decides only.
"""

from collections.abc import Mapping

from leadline.model import BrokerId, Offset
from leadline.replication.partition import LeaderState

NO_REPLICA: BrokerId = -1


def closer_replica(leader: LeaderState, racks: Mapping[BrokerId, str | None], rack: str, offset: Offset) -> BrokerId:
    """An in-sync replica in the rack of the consumer that has the offset; NO_REPLICA if the leader is as good."""
    if racks.get(leader.me) == rack:
        return NO_REPLICA
    near = [
        (follower.log_end, follower.caught_up_ms, replica)
        for replica, follower in leader.followers.items()
        if racks.get(replica) == rack and replica in leader.isr and follower.log_start <= offset <= follower.log_end
    ]
    return max(near)[-1] if near else NO_REPLICA
