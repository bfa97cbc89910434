"""The offsets that a group has committed, and when they are forgotten.

A commit counts once its record is on every in-sync replica; until then it is *staged*. A commit within a transaction is
*pending*: the marker that ends the transaction makes it a commit or lets it vanish. Two commits of one partition are
ordered by where they stand in the journal, so that a transaction that ends late does not undo what came after it.

Pure: no clock, no journal.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from leadline.model import NO_EPOCH, Offset, ProducerId, TopicPartition

MAX_STRING_BYTES = 0x7FFF  # bytes of a text in the records of groups


class OffsetAndMetadata(NamedTuple):
    """How far a group has read a partition, in its own words."""

    offset: Offset
    metadata: str
    commit_ms: int  # by the clock of the coordinator, or as an old client said
    leader_epoch: int = NO_EPOCH
    expire_ms: int | None = None  # an old client chose it; otherwise the broker's retention decides
    record_offset: Offset = -1  # of its batch in the journal

    def written_at(self, at: Offset) -> "OffsetAndMetadata":
        offset, metadata, commit_ms, leader_epoch, expire_ms, _ = self
        return OffsetAndMetadata(offset, metadata, commit_ms, leader_epoch, expire_ms, at)


def is_longer(metadata: str, most: int) -> bool:
    """As offset.metadata.max.bytes counts: units of UTF-16, what Java's strings consist of. It must fit its record."""
    length = len(metadata) if metadata.isascii() else len(metadata.encode("utf-16-le", "surrogatepass")) // 2
    return length > most or len(metadata.encode()) > MAX_STRING_BYTES


@dataclass(slots=True)
class GroupOffsets:
    """The committed offsets of one group."""

    committed: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    staged: dict[TopicPartition, OffsetAndMetadata] = field(
        default_factory=dict
    )  # the latest that is written, not yet safe
    pending: dict[ProducerId, dict[TopicPartition, OffsetAndMetadata]] = field(
        default_factory=dict
    )  # of open transactions

    def __bool__(self) -> bool:
        return bool(self.committed or self.staged or self.pending)

    def stage(self, commits: dict[TopicPartition, OffsetAndMetadata]) -> None:
        self.staged.update(commits)

    def commit(self, commits: dict[TopicPartition, OffsetAndMetadata]) -> None:
        """They are safe. What is no longer staged was deleted meanwhile."""
        self.settle({tp: commit for tp, commit in commits.items() if tp in self.staged})
        self.unstage(commits)

    def settle_latest(self, commits: dict[TopicPartition, OffsetAndMetadata]) -> None:
        """They were just written, and are safe at once: nobody else has to agree."""
        self.committed.update(commits)

    def settle(self, commits: dict[TopicPartition, OffsetAndMetadata]) -> None:
        """They are safe; what was written behind them meanwhile stays."""
        known = self.committed
        for tp, commit in commits.items():
            before = known.get(tp)
            if before is None or before.record_offset < commit.record_offset:
                known[tp] = commit

    def unstage(self, commits: dict[TopicPartition, OffsetAndMetadata]) -> None:
        for tp, commit in commits.items():
            if self.staged.get(tp) == commit:
                del self.staged[tp]

    def begin(self, producer: ProducerId, commits: dict[TopicPartition, OffsetAndMetadata]) -> None:
        """Commits within a transaction."""
        self.pending.setdefault(producer, {}).update(commits)

    def withdraw(self, producer: ProducerId, commits: dict[TopicPartition, OffsetAndMetadata]) -> None:
        """They could not be made safe, and whoever made them was told so."""
        mine = self.pending.get(producer, {})
        for tp, commit in commits.items():
            if mine.get(tp) == commit:
                del mine[tp]
        if not mine:
            self.pending.pop(producer, None)

    def end(self, producer: ProducerId, *, committed: bool) -> None:
        """The transaction is over."""
        mine = self.pending.pop(producer, {})
        if committed:
            self.settle(mine)

    def is_unstable(self, tp: TopicPartition) -> bool:
        """Something about this partition is written, and not yet decided."""
        return tp in self.staged or any(tp in mine for mine in self.pending.values())

    def partitions(self) -> set[TopicPartition]:
        """All that there are records of, whatever stage they are in."""
        return self.committed.keys() | self.staged.keys() | {tp for mine in self.pending.values() for tp in mine}

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Whatever stage they are in: what a transaction holds does not come back when it ends."""
        for tp in partitions:
            self.committed.pop(tp, None)
            self.staged.pop(tp, None)
            for mine in self.pending.values():
                mine.pop(tp, None)

    def expired(
        self, now_ms: int, retention_ms: int, *, empty_since_ms: int | None = None, subscribed: Collection[str] = ()
    ) -> list[TopicPartition]:
        """What need not be kept: nobody reads it, and its time is up.

        That counts from when the group became empty, where that is known, and from the commit elsewhere.
        """
        return [
            tp
            for tp, commit in self.committed.items()
            if tp.topic not in subscribed
            and tp not in self.staged
            and _is_over(commit, now_ms, retention_ms, empty_since_ms)
        ]


def _is_over(commit: OffsetAndMetadata, now_ms: int, retention_ms: int, empty_since_ms: int | None) -> bool:
    if commit.expire_ms is not None:
        return now_ms >= commit.expire_ms
    return now_ms - (commit.commit_ms if empty_since_ms is None else empty_since_ms) >= retention_ms
