"""The position of a fetch in one partition, and the numbers that name a fetch session.

Followers and consumers send positions; leaders keep them in fetch sessions. The fields stand in the order of the Fetch
request: topic id, then what FetchPartition holds from v12 on.

Pure: values.
"""

from typing import NamedTuple

from leadline.model import LeaderEpoch, Offset

NO_SESSION = 0  # session id: none
FULL_EPOCH = 0  # session epoch: a full fetch, which names every partition and opens a session
FINAL_EPOCH = -1  # session epoch: a full fetch without a session, or the end of one
FIRST_EPOCH = 1  # session epoch: the first incremental fetch
MAX_EPOCH = 2**31 - 1  # session epoch: FIRST_EPOCH comes next
NO_TOPIC_ID = bytes(16)


class FetchPosition(NamedTuple):
    """The position of a replica or a consumer in a partition, with its epochs and limits."""

    topic_id: bytes  # the 16 bytes of the id: hashing a UUID takes far longer; NO_TOPIC_ID: the topic goes by its name
    partition: int
    current_leader_epoch: LeaderEpoch
    fetch_offset: Offset
    last_fetched_epoch: LeaderEpoch  # of the last record before fetch_offset: the leader sees whether the logs diverge
    log_start_offset: Offset  # of a follower's own log
    max_bytes: int
