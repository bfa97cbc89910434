"""Open transactions of a partition, and whether a coordinator will end them.

The leader of a partition knows the producer ids with an open transaction. A coordinator knows transactional ids, each
with the partitions that still need a marker. A transaction hangs if it is open in a partition and no coordinator will
write a marker there. Then the last stable offset stays at its first record until an operator aborts it.

Pure: descriptions in, decisions out.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from leadline.model import Offset, ProducerId, TopicPartition

NOT_OPEN = -1  # start offset of a producer without an open transaction


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction as the leader of a partition knows it."""

    tp: TopicPartition
    producer_id: ProducerId
    epoch: int
    coordinator_epoch: int  # of the producer's last marker in the partition; -1: none yet
    start_offset: Offset
    last_ms: int  # time of its last record

    @property
    def key(self) -> tuple[TopicPartition, ProducerId, Offset]:
        """Identifies the transaction in two responses."""
        return self.tp, self.producer_id, self.start_offset

    @property
    def marker_epoch(self) -> int:
        """A coordinator epoch that the leader accepts in an abort marker. Without an earlier marker it is 0."""
        return max(self.coordinator_epoch, 0)


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transaction as its coordinator knows it."""

    transactional_id: str
    coordinator: int
    state: str
    producer_id: ProducerId
    epoch: int
    timeout_ms: int
    started_ms: int | None  # of the ongoing or the last transaction; None: there was none
    partitions: frozenset[TopicPartition]  # that still need a marker


def hangs(opened: OpenTransaction, described: TransactionDescription | None) -> bool:
    """`described`: the coordinator's description of the same producer, if there is one."""
    return described is None or opened.tp not in described.partitions


def hanging(
    opened: Iterable[OpenTransaction],
    described: Mapping[ProducerId, TransactionDescription],
    now_ms: int,
    max_timeout_ms: int,
) -> list[OpenTransaction]:
    """The hanging ones older than `max_timeout_ms`. The coordinator may not know a younger one yet."""
    return [
        transaction
        for transaction in opened
        if now_ms - transaction.last_ms > max_timeout_ms and hangs(transaction, described.get(transaction.producer_id))
    ]


@dataclass(frozen=True, slots=True)
class BlockedPartition:
    """The end of a partition for read_committed consumers, and the transactions that hold it."""

    tp: TopicPartition
    last_stable: Offset
    high_watermark: Offset
    open: tuple[OpenTransaction, ...]  # the one with the lowest start offset holds the last stable offset

    @property
    def waiting(self) -> int:
        return self.high_watermark - self.last_stable

    @property
    def holder(self) -> OpenTransaction | None:
        """None if no record waits, or only the marker of a transaction has to be replicated."""
        first = min(self.open, key=lambda transaction: transaction.start_offset, default=None)
        return first if first is not None and self.waiting > 0 and first.start_offset <= self.last_stable else None
