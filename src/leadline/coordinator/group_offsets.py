"""The offsets that one group has committed, and when they expire.

An offset counts once its record is committed. Until then it is *staged*. An offset within a transaction is *pending*:
the marker that ends the transaction commits or discards it. Of two offsets of one partition, the one whose record has
the higher offset counts. So a transaction that ends late does not undo a later commit.

Pure: no clock, no log.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from leadline.model import NO_EPOCH, Offset, ProducerId, TopicPartition

MAX_STRING_BYTES = 0x7FFF  # of a string in the records of groups


class OffsetAndMetadata(NamedTuple):
    """How far a group has read a partition."""

    offset: Offset
    metadata: str
    commit_ms: int  # by the coordinator's clock, or from an old client's request
    leader_epoch: int = NO_EPOCH
    expire_ms: int | None = None  # chosen by an old client; None: offsets.retention.minutes decides
    record_offset: Offset = -1  # the base offset of the batch that holds its record

    def written_at(self, base_offset: Offset) -> "OffsetAndMetadata":
        offset, metadata, commit_ms, leader_epoch, expire_ms, _ = self
        return OffsetAndMetadata(offset, metadata, commit_ms, leader_epoch, expire_ms, base_offset)


def is_longer(metadata: str, max_length: int) -> bool:
    """Whether metadata exceeds offset.metadata.max.bytes, counted in UTF-16 units as Java does, or its record."""
    length = len(metadata) if metadata.isascii() else len(metadata.encode("utf-16-le", "surrogatepass")) // 2
    return length > max_length or len(metadata.encode()) > MAX_STRING_BYTES


Offsets = dict[TopicPartition, OffsetAndMetadata]


@dataclass(slots=True)
class GroupOffsets:
    """The committed offsets of one group."""

    committed: Offsets = field(default_factory=dict)
    staged: Offsets = field(default_factory=dict)  # written, not committed yet; the latest of each partition
    pending: dict[ProducerId, Offsets] = field(default_factory=dict)  # of open transactions

    def __bool__(self) -> bool:
        return bool(self.committed or self.staged or self.pending)

    def stage(self, commits: Offsets) -> None:
        self.staged.update(commits)

    def commit(self, commits: Offsets) -> None:
        """Staged offsets are committed. Those no longer staged were deleted meanwhile."""
        self.apply({tp: commit for tp, commit in commits.items() if tp in self.staged})
        self.unstage(commits)

    def apply_latest(self, commits: Offsets) -> None:
        """Apply offsets that were just written and are committed at once, without other replicas."""
        self.committed.update(commits)

    def apply(self, commits: Offsets) -> None:
        """Apply committed offsets, except where a later one was committed meanwhile."""
        committed = self.committed
        for tp, commit in commits.items():
            before = committed.get(tp)
            if before is None or before.record_offset < commit.record_offset:
                committed[tp] = commit

    def unstage(self, commits: Offsets) -> None:
        for tp, commit in commits.items():
            if self.staged.get(tp) == commit:
                del self.staged[tp]

    def add_pending(self, producer: ProducerId, commits: Offsets) -> None:
        """Add offsets that a transaction commits."""
        self.pending.setdefault(producer, {}).update(commits)

    def withdraw(self, producer: ProducerId, commits: Offsets) -> None:
        """Remove pending offsets that could not be committed; their producer got an error."""
        pending = self.pending.get(producer, {})
        for tp, commit in commits.items():
            if pending.get(tp) == commit:
                del pending[tp]
        if not pending:
            self.pending.pop(producer, None)

    def end_transaction(self, producer: ProducerId, *, committed: bool) -> None:
        """Commit or discard the pending offsets of a producer."""
        pending = self.pending.pop(producer, {})
        if committed:
            self.apply(pending)

    def is_unstable(self, tp: TopicPartition) -> bool:
        """Whether an offset of this partition is staged or pending."""
        return tp in self.staged or any(tp in pending for pending in self.pending.values())

    def partitions(self) -> set[TopicPartition]:
        """All partitions with a committed, staged or pending offset."""
        return self.committed.keys() | self.staged.keys() | {tp for pending in self.pending.values() for tp in pending}

    def delete(self, partitions: Iterable[TopicPartition]) -> None:
        """Delete committed, staged and pending offsets. A transaction that ends later does not bring them back."""
        for tp in partitions:
            self.committed.pop(tp, None)
            self.staged.pop(tp, None)
            for pending in self.pending.values():
                pending.pop(tp, None)

    def expired(
        self, now_ms: int, retention_ms: int, *, empty_since_ms: int | None = None, subscribed: Collection[str] = ()
    ) -> list[TopicPartition]:
        """Partitions whose offset has expired: no member subscribes to the topic, and the retention time is over.

        The time counts from when the group became empty, or from the commit if that is not known.
        """
        return [
            tp
            for tp, commit in self.committed.items()
            if tp.topic not in subscribed
            and tp not in self.staged
            and _is_expired(commit, now_ms, retention_ms, empty_since_ms)
        ]


def _is_expired(commit: OffsetAndMetadata, now_ms: int, retention_ms: int, empty_since_ms: int | None) -> bool:
    if commit.expire_ms is not None:
        return now_ms >= commit.expire_ms
    return now_ms - (commit.commit_ms if empty_since_ms is None else empty_since_ms) >= retention_ms
