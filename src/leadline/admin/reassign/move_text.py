"""The moves of a plan and their progress, as text.

Pure: moves in, text out.
"""

from collections.abc import Sequence

from leadline.admin.formatting import age_text, ids_text, size_text
from leadline.admin.reassign.plan import ReassignmentProgress, ReplicaMove
from leadline.model import TopicPartition

MOVE_HEADS = ("PARTITION", "NOW ON", "THEN ON", "TO COPY")


def summary(changes: Sequence[ReplicaMove]) -> str:
    """What a plan changes, and how much each broker has to copy."""
    copied = sum(move.copied_bytes for move in changes)
    incoming = {
        broker: sum(move.copied_bytes // len(move.adding) for move in changes if broker in move.adding)
        for broker in sorted({broker for move in changes for broker in move.adding})
    }
    by_broker = ", ".join(f"{size_text(size)} to broker {broker}" for broker, size in incoming.items())
    many = "1 partition changes" if len(changes) == 1 else f"{len(changes)} partitions change"
    return f"{many}; to be copied: {size_text(copied)}{f' ({by_broker})' if by_broker else ''}"


def move_row(move: ReplicaMove) -> list[str]:
    size = size_text(move.copied_bytes) if move.adding else "-"
    return [str(move.tp), ids_text(move.before), ids_text(move.after), size]


def state_text(tp: TopicPartition, state: ReassignmentProgress) -> str:
    """One line of kafka-reassign-partitions.sh --verify."""
    if tp in state.moving:
        return f"Reassignment of partition {tp} is still in progress."
    if tp in state.left_out:
        now = ids_text(state.left_out[tp]) or "nowhere"
        return f"There is no active reassignment of partition {tp}, but it is on {now}."
    return f"Reassignment of partition {tp} is completed."


def progress_text(changes: Sequence[ReplicaMove], done: int, copied_bytes: int, seconds: float) -> str:
    """`done`: partitions that have arrived. `copied_bytes`: bytes of all new replicas after `seconds`."""
    total = sum(move.copied_bytes for move in changes)
    copied = min(copied_bytes, total)
    text = f"{done} of {len(changes)} partitions, {size_text(copied)} of {size_text(total)}"
    if seconds >= 1 and 0 < copied < total:
        rate = copied / seconds
        text += f", {size_text(round(rate))}/s, about {age_text(round((total - copied) / rate * 1000))} left"
    return text
