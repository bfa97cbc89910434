"""The states of a group, and which may follow which.

Pure: values only.
"""

from enum import Enum


class GroupState(Enum):
    EMPTY = "Empty"  # no members; it may have offsets
    PREPARING = "PreparingRebalance"  # members join again
    COMPLETING = "CompletingRebalance"  # waits for the leader's assignment
    STABLE = "Stable"
    DEAD = "Dead"  # deleted, or moved to another coordinator


MAY_FOLLOW: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING, GroupState.DEAD}),
    GroupState.PREPARING: frozenset({GroupState.COMPLETING, GroupState.EMPTY, GroupState.DEAD}),
    GroupState.COMPLETING: frozenset({GroupState.STABLE, GroupState.PREPARING, GroupState.DEAD}),
    GroupState.STABLE: frozenset({GroupState.PREPARING, GroupState.DEAD}),
    GroupState.DEAD: frozenset({GroupState.DEAD}),
}
