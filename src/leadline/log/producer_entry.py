"""One producer of a partition: its epoch, its open transaction and its last batches (Kafka: ProducerStateEntry).

Pure: values only.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from leadline.model import NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP, Offset
from leadline.records.batch import Header, sequence_after

BATCHES_KEPT = 5
SEQUENCE_MAX = (1 << 31) - 1


class BatchMetadata(NamedTuple):
    """A batch that a producer wrote, by its last sequence and offset."""

    last_sequence: int
    last_offset: Offset
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MAX

    @property
    def first_offset(self) -> Offset:
        return self.last_offset - self.offset_delta


@dataclass(slots=True)
class ProducerEntry:
    epoch: int = NO_PRODUCER_EPOCH
    coordinator_epoch: int = -1
    last_timestamp: int = NO_TIMESTAMP
    txn_first_offset: Offset | None = None  # set while a transaction is open
    batches: deque[BatchMetadata] = field(default_factory=lambda: deque(maxlen=BATCHES_KEPT))

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> Offset:
        return self.batches[-1].last_offset if self.batches else -1

    def copy(self) -> "ProducerEntry":
        return ProducerEntry(
            self.epoch, self.coordinator_epoch, self.last_timestamp, self.txn_first_offset,
            deque(self.batches, BATCHES_KEPT),
        )  # fmt: skip

    def duplicate_of(self, header: Header) -> BatchMetadata | None:
        """The batch that this one repeats."""
        if header.producer_epoch == self.epoch:
            first, last = header.base_sequence, header.last_sequence
            for batch in self.batches:
                if batch.last_sequence == last and batch.first_sequence == first:
                    return batch
        return None

    def add_batch(self, base_sequence: int, last_offset: Offset, delta: int, timestamp: int) -> None:
        """One more batch of the current epoch."""
        last_sequence = sequence_after(base_sequence, delta) if base_sequence >= 0 else NO_SEQUENCE
        self.batches.append(BatchMetadata(last_sequence, last_offset, delta, timestamp))
        self.last_timestamp = timestamp

    def enter_epoch(self, epoch: int) -> None:
        """The batches of another epoch do not count any more."""
        if epoch != self.epoch:
            self.batches.clear()
            self.epoch = epoch
