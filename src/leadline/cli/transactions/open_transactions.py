"""Transactions that are open in a partition, and whether anybody will ever end them.

Pure: what leaders and coordinators say comes in, judgements come out.

A partition's leader knows producers with an open transaction, by their ids. A coordinator knows transactional ids, with
the partitions that it has yet to write markers to. A transaction hangs if it is open in a partition where no
coordinator is going to write: then the last stable offset stays where it begins, until an operator aborts it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from leadline.model import Offset, ProducerId, TopicPartition

NOT_OPEN = -1  # as a start offset: the leader knows no open transaction


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """As the leader of a partition knows it."""

    tp: TopicPartition
    producer_id: ProducerId
    epoch: int
    coordinator_epoch: int  # of the last marker that this producer got there; -1: none yet
    start_offset: Offset
    last_ms: int  # time of its last record

    @property
    def key(self) -> tuple[TopicPartition, ProducerId, Offset]:
        """By which it is known again."""
        return self.tp, self.producer_id, self.start_offset

    @property
    def marker_epoch(self) -> int:
        """The coordinator epoch for an abort marker that the leader takes; 0 is below that of every coordinator."""
        return max(self.coordinator_epoch, 0)


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """As its coordinator knows it."""

    transactional_id: str
    coordinator: int
    state: str
    producer_id: ProducerId
    epoch: int
    timeout_ms: int
    started_ms: int | None  # the one under way, or the last one; None: there was none yet
    partitions: frozenset[TopicPartition]  # where markers are still to be written


def hangs(opened: OpenTransaction, described: TransactionDescription | None) -> bool:
    """`known`: what a coordinator knows of the same producer, if one does."""
    return described is None or opened.tp not in described.partitions


def hanging(
    opened: Iterable[OpenTransaction],
    described: Mapping[ProducerId, TransactionDescription],
    now_ms: int,
    max_timeout_ms: int,
) -> list[OpenTransaction]:
    """Those that hang and are older than any transaction may become: a younger one may be about to be registered."""
    return [
        transaction
        for transaction in opened
        if now_ms - transaction.last_ms > max_timeout_ms and hangs(transaction, described.get(transaction.producer_id))
    ]


@dataclass(frozen=True, slots=True)
class BlockedPartition:
    """What a partition's readers of committed records see, and what keeps the rest from them."""

    tp: TopicPartition
    last_stable: Offset
    high_watermark: Offset
    open: tuple[OpenTransaction, ...]  # the first one holds the last stable offset

    @property
    def waiting(self) -> int:
        return self.high_watermark - self.last_stable

    @property
    def holder(self) -> OpenTransaction | None:
        """None where nothing waits, or where only the end of a transaction has yet to be replicated."""
        first = min(self.open, key=lambda transaction: transaction.start_offset, default=None)
        return first if first is not None and self.waiting > 0 and first.start_offset <= self.last_stable else None
