"""What a follower fetches, said as a whole; a session itself wants to hear only what changed."""

from collections.abc import Mapping

from leadline.model import TopicPartition
from leadline.replication.fetch_session import FetchSession, FetchSessionRequest
from leadline.wire.fetch_position import FetchPosition


def next_request(
    session: FetchSession, positions: Mapping[TopicPartition, FetchPosition]
) -> FetchSessionRequest | None:
    """The session's next request, if exactly these partitions are to be fetched."""
    if session.is_full:
        session.next_request(dict.fromkeys(list(session.positions)))
    before = session.positions
    changes: dict[TopicPartition, FetchPosition | None] = {tp: None for tp in before if tp not in positions}
    changes.update((tp, position) for tp, position in positions.items() if tp not in before)
    changes.update((tp, positions[tp]) for tp, position in before.items() if positions.get(tp, position) != position)
    return session.next_request(changes)
