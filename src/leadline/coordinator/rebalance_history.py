"""Why a group rebalanced: its last rebalances, for people to read.

The coordinator keeps the history in memory only. A new coordinator starts with an empty one.

Pure: values only.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

MAX_REBALANCES = 20  # kept for a group
MAX_CAUSES = 20  # kept for a rebalance; further ones are counted


class RebalanceReason(Enum):
    """Why a group rebalances."""

    JOINED = "joined"
    REJOINED = "rejoined"
    METADATA_CHANGED = "metadata changed"
    STATIC_MEMBER_REPLACED = "static member replaced"
    LEFT = "left"
    SESSION_TIMED_OUT = "session timed out"
    JOIN_TIMED_OUT = "join timed out"
    SYNC_TIMED_OUT = "sync timed out"
    OVER_CAPACITY = "over capacity"
    NOT_STORED = "assignment not stored"


class RebalanceOutcome(Enum):
    STABLE = "stable"
    EMPTY = "empty"
    INTERRUPTED = "interrupted"  # by the next one


class RebalanceCause(NamedTuple):
    what: RebalanceReason
    member_id: str = ""
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    reason: str | None = None  # from the client's request


@dataclass(slots=True)
class Rebalance:
    began_ms: int
    state: str  # of the group before it
    generation_before: int
    members_before: int
    causes: list[RebalanceCause] = field(default_factory=list)  # in order; the first one started the rebalance
    more_causes: int = 0
    ended_ms: int | None = None  # None, as all fields below: still under way
    outcome: RebalanceOutcome | None = None
    generation_after: int | None = None
    members_after: int | None = None

    def add(self, cause: RebalanceCause) -> None:
        if len(self.causes) < MAX_CAUSES:
            self.causes.append(cause)
        else:
            self.more_causes += 1

    def to_json(self) -> dict[str, object]:
        """As values that JSON can hold."""
        return {
            "began_ms": self.began_ms,
            "state": self.state,
            "causes": [cause._asdict() | {"what": cause.what.value} for cause in self.causes],
            "more_causes": self.more_causes,
            "took_ms": None if self.ended_ms is None else self.ended_ms - self.began_ms,
            "outcome": None if self.outcome is None else self.outcome.value,
            "generation_before": self.generation_before,
            "generation_after": self.generation_after,
            "members_before": self.members_before,
            "members_after": self.members_after,
        }


class RebalanceHistory:
    """The last rebalances of a group. The newest is last, and may be under way."""

    def __init__(self) -> None:
        self.rebalances: deque[Rebalance] = deque(maxlen=MAX_REBALANCES)

    @property
    def under_way(self) -> Rebalance | None:
        last = self.rebalances[-1] if self.rebalances else None
        return last if last is not None and last.outcome is None else None

    def begin(self, rebalance: Rebalance) -> None:
        self.rebalances.append(rebalance)

    def add(self, cause: RebalanceCause) -> None:
        if (current := self.under_way) is not None:
            current.add(cause)

    def end(self, outcome: RebalanceOutcome, generation: int, members: int, now_ms: int) -> None:
        if (current := self.under_way) is not None:
            current.outcome, current.ended_ms = outcome, now_ms
            current.generation_after, current.members_after = generation, members
