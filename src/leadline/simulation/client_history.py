"""What clients did and saw. The checkers read it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain

from leadline.model import Offset, TopicPartition


class Delivery(Enum):
    """What a producer may expect of a record that it sent."""

    AT_MOST_ONCE = "acknowledged by the leader alone: it may be lost"
    AT_LEAST_ONCE = "acknowledged by all in sync, without sequence numbers: it may be there twice"
    EXACTLY_ONCE = "idempotent"


@dataclass(eq=False, slots=True)
class TransactionAttempt:
    """One transaction. As long as no commit was requested, it can only be aborted."""

    transactional_id: str
    producer: str  # which instance
    is_commit_requested: bool = False
    is_committed: bool = False  # the coordinator said so
    attempts: list["Attempt"] = field(default_factory=list)
    reads: list[bytes] = field(default_factory=list)  # values that it read, committed ones only


@dataclass(slots=True)
class Attempt:
    """One record that a producer sent. `offset` is None as long as it is not acknowledged."""

    producer: str
    number: int  # counts the records of this producer in this partition
    value: bytes
    tp: TopicPartition
    offset: Offset | None = None
    is_given_up: bool = False  # the client does not know whether it was written
    delivery: Delivery = Delivery.EXACTLY_ONCE
    transaction: TransactionAttempt | None = None
    source: tuple[TopicPartition, Offset] | None = None  # the record that it was made of
    sent_s: float = 0.0  # for the first time
    acknowledged_s: float | None = None


@dataclass(slots=True)
class Poll:
    """One fetch of a reader: it was at `start`, and continued at `end`."""

    reader: str
    tp: TopicPartition
    is_committed: bool  # it sees committed records only
    start: Offset
    end: Offset
    values: dict[Offset, bytes]


@dataclass(slots=True)
class GroupAssignment:
    """What a member was assigned in one generation."""

    group: str
    member: str
    generation: int
    partitions: list[TopicPartition]
    joined_s: float  # when it asked to join
    synced_s: float  # when it had its assignment


@dataclass(slots=True)
class OffsetCommitAttempt:
    group: str
    tp: TopicPartition
    offset: Offset
    requested_s: float
    answered_s: float | None = None  # None: it is unknown whether it took effect
    is_committed: bool = False


@dataclass(slots=True)
class TopicAttempt:
    """A topic of an administrator."""

    name: str
    partitions: int  # at least
    is_created: bool = False  # the cluster said so
    is_deletion_requested: bool = False
    is_deleted: bool = False  # the cluster said so


@dataclass(slots=True)
class ClientHistory:
    attempts: list[Attempt] = field(default_factory=list)
    transactions: list[TransactionAttempt] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    assignments: list[GroupAssignment] = field(default_factory=list)
    group_polls: list[Poll] = field(default_factory=list)  # of members, by the name of their group
    transaction_polls: list[Poll] = field(default_factory=list)  # within transactions
    commits: list[OffsetCommitAttempt] = field(default_factory=list)
    topics: list[TopicAttempt] = field(default_factory=list)
    acknowledged_s: dict[TopicPartition, float] = field(default_factory=dict)  # when the last record was
    slowest_s: dict[TopicPartition, float] = field(default_factory=dict)  # from a send to its acknowledgement
    deleted_before: dict[TopicPartition, Offset] = field(default_factory=dict)  # what an administrator asked for
    errors: dict[str, int] = field(default_factory=dict)  # answers that were not a success, by name
    on_acknowledged: Callable[[TopicPartition, Offset], None] = lambda tp, offset: (
        None
    )  # with acks=all, up to an offset

    @property
    def all_polls(self) -> Iterator[Poll]:
        return chain(self.polls, self.group_polls, self.transaction_polls)

    def count(self, name: str) -> None:
        self.errors[name] = self.errors.get(name, 0) + 1
