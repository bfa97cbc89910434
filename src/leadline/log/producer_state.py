"""The producer state of a partition: the last sequence numbers of each producer, and the open transactions.

An idempotent producer numbers its batches. A batch that is repeated gets its first offset as the answer; one that is
out of order is refused. The last five batches of each producer are kept, since that many may be in flight.
A transaction is open from its first record to its marker. Readers of committed records stop before the first
transaction that is open or whose marker is not yet replicated.

    the last stable offset never passes the first record of an open transaction
    the state covers exactly the log below `end_offset`

Pure: batches are validated against a copy (`ProducerAppend`), which becomes the state once they are written.
"""

from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from leadline import hash_order
from leadline.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequence,
    ResourceExhausted,
    TransactionCoordinatorFenced,
)
from leadline.hash_order import long_hash
from leadline.log.producer_entry import SEQUENCE_MAX, BatchMetadata, ProducerEntry
from leadline.log.txn_index import AbortedTxn
from leadline.model import NO_PRODUCER_EPOCH, NO_SEQUENCE, Buffer, Offset, ProducerId, TopicPartition
from leadline.records.batch import CONTROL, TRANSACTIONAL, Header
from leadline.records.control import ControlType, EndMarker, read_end_marker

IN_TRANSACTION = CONTROL | TRANSACTIONAL
MOST_REFUSALS = 1000


class AppendOrigin(Enum):
    """Where records come from. A follower does not check again what its leader accepted from a client."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"


class OpenTxn(NamedTuple):
    first_offset: Offset
    producer_id: ProducerId


class RefusedBatch(NamedTuple):
    """A batch that was not written because a resource was short. Its producer sends it again."""

    epoch: int
    sequence: int
    last_behind: int  # the last batch that was refused because it followed this one


class CompletedTxn(NamedTuple):
    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    aborted: bool


@dataclass(slots=True, eq=False)
class Verification:
    """The first write of a transaction, while the coordinator checks that the partition is part of the transaction.

    It ends with that write or with a marker: after a marker, an earlier verification is void.
    """

    begun_ms: int
    epoch: int
    lowest_sequence: int  # of the writes that wait for the verification: later ones are refused until then

    def add_write(self, epoch: int, sequence: int) -> None:
        """One more write that waits for this verification."""
        if epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence
        elif epoch == self.epoch and sequence < self.lowest_sequence:
            self.lowest_sequence = sequence


TRUSTED = Verification(0, NO_PRODUCER_EPOCH, NO_SEQUENCE)  # for writes that need no verification


class ProducerAppend:
    """The state of one producer once the batches at hand are written (Kafka: ProducerAppendInfo)."""

    def __init__(
        self,
        tp: TopicPartition,
        producer_id: ProducerId,
        current: ProducerEntry | None,
        origin: AppendOrigin,
        verification: Verification | None = None,
    ) -> None:
        self.tp, self.producer_id, self.origin, self.verification = tp, producer_id, origin, verification
        self.in_transaction = False  # whether any of the batches is
        self.has_epoch = current is not None and current.epoch != NO_PRODUCER_EPOCH
        self.updated = current.copy() if current else ProducerEntry()
        self.opened: list[OpenTxn] = []

    def append(self, header: Header) -> None:
        """A batch of data."""
        first, last = header.base_offset, header.last_offset
        self._check_epoch(header.producer_epoch, first)
        if self.origin is AppendOrigin.CLIENT:
            self._check_sequence(header.producer_epoch, header.base_sequence, first)
        entry = self.updated
        entry.enter_epoch(header.producer_epoch)
        entry.batches.append(BatchMetadata(header.last_sequence, last, last - first, header.max_timestamp))
        entry.last_timestamp = header.max_timestamp
        if header.is_transactional:
            self.in_transaction = True
            if entry.txn_first_offset is None:
                entry.txn_first_offset = first
                self.opened.append(OpenTxn(first, self.producer_id))
        elif entry.txn_first_offset is not None and self.origin is not AppendOrigin.REPLICATION:
            raise InvalidTxnState(
                f"producer {self.producer_id} wrote outside of its open transaction at offset {first} in {self.tp}"
            )

    def end_txn(self, marker: EndMarker, producer_epoch: int, offset: Offset) -> CompletedTxn | None:
        self._check_epoch(producer_epoch, offset)
        entry = self.updated
        if entry.coordinator_epoch > marker.coordinator_epoch and self.origin is not AppendOrigin.REPLICATION:
            raise TransactionCoordinatorFenced(
                f"a marker for producer {self.producer_id} at offset {offset} in {self.tp} comes from coordinator "
                f"epoch {marker.coordinator_epoch}, but {entry.coordinator_epoch} is known"
            )
        first = entry.txn_first_offset
        self.in_transaction = True
        entry.enter_epoch(producer_epoch)
        entry.coordinator_epoch, entry.last_timestamp = marker.coordinator_epoch, marker.timestamp
        entry.txn_first_offset = None
        if first is None:
            return None
        return CompletedTxn(self.producer_id, first, offset, marker.type is ControlType.ABORT)

    def _check_epoch(self, epoch: int, offset: Offset) -> None:
        if epoch < self.updated.epoch and self.origin is not AppendOrigin.REPLICATION:
            raise InvalidProducerEpoch(
                f"epoch {epoch} of producer {self.producer_id} at offset {offset} in {self.tp} is smaller than "
                f"the last seen epoch {self.updated.epoch}"
            )

    def _check_sequence(self, epoch: int, first: int, offset: Offset) -> None:
        entry = self.updated
        if self.verification is not None and first > self.verification.lowest_sequence:
            raise OutOfOrderSequence(
                f"out of order sequence number for producer {self.producer_id} at offset {offset} in {self.tp}: "
                f"{first} came, and {self.verification.lowest_sequence}, which was to open a transaction, did not yet"
            )
        if not self.has_epoch:
            return  # there is nothing to compare with: the producer may have expired
        starts_over = epoch != entry.epoch or entry.last_sequence == SEQUENCE_MAX
        expected = 0 if starts_over else entry.last_sequence + 1
        if first != expected:
            raise OutOfOrderSequence(
                f"out of order sequence number for producer {self.producer_id} at offset {offset} in {self.tp}: "
                f"{first} (epoch {epoch}) came, {expected} was due after {entry.last_sequence} (epoch {entry.epoch})"
            )


class ProducerChanges(NamedTuple):
    """The new state once the current batches are written."""

    appends: list[ProducerAppend]  # in the order of Java's hash map
    completed: list[CompletedTxn]


class ProducerState:
    def __init__(self, tp: TopicPartition, expiration_ms: int) -> None:
        self.tp, self.expiration_ms = tp, expiration_ms
        self.by_id: dict[ProducerId, ProducerEntry] = {}
        self.end_offset: Offset = 0  # the state covers the log below this offset
        self.most_entries = 0  # the largest number of producers so far
        self._open: list[OpenTxn] = []  # by first offset
        self._unreplicated: list[CompletedTxn] = []  # ended, the marker not yet replicated; by first offset
        self._verifications: dict[ProducerId, Verification] = {}
        self._refusals: dict[ProducerId, RefusedBatch] = {}  # the last of each producer

    def __len__(self) -> int:
        return len(self.by_id)

    @property
    def is_empty(self) -> bool:
        return not self.by_id and not self._unreplicated

    def next_in_sequence(self, header: Header) -> ProducerEntry | None:
        """The producer, if this batch is the next of its epoch and not transactional, as nearly every batch is."""
        entry = self.by_id.get(header.producer_id)
        if (
            entry is None
            or header.producer_epoch != entry.epoch
            or header.attributes & IN_TRANSACTION
            or entry.txn_first_offset is not None
            or not entry.batches
            or header.base_sequence != entry.batches[-1].last_sequence + 1
        ):
            return None
        return entry

    def refused(self, header: Header) -> None:
        """A batch was not written because a resource was short."""
        refusal = self._refusals.get(header.producer_id)
        if header.has_producer_id and (refusal is None or not self._is_behind(header, refusal)):
            if len(self._refusals) >= MOST_REFUSALS:
                self._refusals.clear()
            sequence = header.base_sequence
            self._refusals[header.producer_id] = RefusedBatch(header.producer_epoch, sequence, sequence)

    def check_refusal(self, header: Header) -> None:
        """A batch that was sent after a refused one is refused as well: its producer did not know of the refusal yet.

        If it were out of order instead, librdkafka would begin a new epoch, and send again in it what it has in flight
        to other partitions, although that may be written. A producer that sends it again without the refused one has
        given that up. Then it is out of order.
        """
        refusal = self._refusals.get(header.producer_id)
        if refusal is not None and header.base_sequence > refusal.last_behind and self._is_behind(header, refusal):
            self._refusals[header.producer_id] = refusal._replace(last_behind=header.base_sequence)
            raise ResourceExhausted(
                f"batch {header.base_sequence} of producer {header.producer_id} in {self.tp} followed batch "
                f"{refusal.sequence}, which was refused: send both again"
            )

    def _is_behind(self, header: Header, refusal: RefusedBatch) -> bool:
        """Whether it was sent after the refused batch, which is still missing."""
        if header.producer_epoch != refusal.epoch or header.base_sequence <= refusal.sequence:
            return False
        entry = self.by_id.get(header.producer_id)
        return entry is None or refusal.sequence == (entry.last_sequence + 1 if entry.epoch == refusal.epoch else 0)

    def begin_verification(
        self, producer_id: ProducerId, epoch: int, sequence: int, now_ms: int
    ) -> Verification | None:
        """What the write needs once the coordinator has agreed. None if the transaction is already open here."""
        if self._is_open(producer_id):
            return None
        verification = self._verifications.setdefault(producer_id, Verification(now_ms, epoch, sequence))
        verification.add_write(epoch, sequence)
        return verification

    def check_verified(self, header: Header, verified: Verification | None) -> None:
        """A transaction that the coordinator does not know must not begin here: no marker would ever end it."""
        producer_id = header.producer_id
        if verified is TRUSTED or not header.is_transactional or header.is_control or self._is_open(producer_id):
            return
        if verified is None or self._verifications.get(producer_id) is not verified:
            raise InvalidTxnState(f"a record of producer {producer_id} for {self.tp} is not part of its transaction")

    def _is_open(self, producer_id: ProducerId) -> bool:
        entry = self.by_id.get(producer_id)
        return entry is not None and entry.txn_first_offset is not None

    def duplicate_of(self, header: Header) -> BatchMetadata | None:
        """The batch that this one repeats."""
        entry = self.by_id.get(header.producer_id)
        return None if entry is None else entry.duplicate_of(header)

    def validate(
        self,
        data: Buffer,
        batches: Iterable[tuple[int, Header]],
        origin: AppendOrigin,
        verified: Verification | None,
    ) -> "ProducerChanges":
        """Check batches that are about to be written, given by their positions in `data`."""
        appends: dict[ProducerId, ProducerAppend] = {}
        completed: list[CompletedTxn] = []
        for position, header in batches:
            producer_id = header.producer_id
            self.check_verified(header, verified)
            append = appends.get(producer_id)
            if append is None:
                append = appends[producer_id] = self.prepare(producer_id, origin)
            if not header.is_control:
                append.append(header)
            elif (marker := read_end_marker(data, position, header)) is not None:
                done = append.end_txn(marker, header.producer_epoch, header.base_offset)
                if done is not None:
                    completed.append(done)
        order = hash_order.mutable(appends, long_hash)
        return ProducerChanges([appends[producer_id] for producer_id in order], completed)

    def apply(self, changes: "ProducerChanges") -> list[AbortedTxn]:
        """The batches are written. Returns the entries for the transaction index."""
        aborted: list[AbortedTxn] = []
        for append in changes.appends:
            self.update(append)
        for done in changes.completed:
            if done.aborted:
                aborted.append(self.aborted_entry(done))
            self.complete(done)
        return aborted

    def prepare(self, producer_id: ProducerId, origin: AppendOrigin) -> ProducerAppend:
        verification = self._verifications.get(producer_id)
        return ProducerAppend(self.tp, producer_id, self.by_id.get(producer_id), origin, verification)

    def update(self, pending: ProducerAppend) -> None:
        self.by_id[pending.producer_id] = pending.updated
        if pending.in_transaction:
            self._verifications.pop(pending.producer_id, None)
        if len(self.by_id) > self.most_entries:
            self.most_entries = len(self.by_id)
        for txn in pending.opened:
            insort(self._open, txn)

    def move_to_end(self, producer_ids: Iterable[ProducerId]) -> None:
        """Move these producers to the end, in this order: the insertion order decides the order within a snapshot."""
        for producer_id in producer_ids:
            self.by_id[producer_id] = self.by_id.pop(producer_id)

    def last_stable_offset_with(self, done: CompletedTxn) -> Offset:
        """The last stable offset once this transaction has ended, replication aside."""
        for txn in self._open:
            if txn.producer_id != done.producer_id:
                return txn.first_offset
        return done.last_offset + 1

    def complete(self, done: CompletedTxn) -> None:
        self._open.remove(OpenTxn(done.first_offset, done.producer_id))
        insort(self._unreplicated, done, key=lambda txn: txn.first_offset)

    def aborted_entry(self, done: CompletedTxn) -> AbortedTxn:
        return AbortedTxn(done.producer_id, done.first_offset, done.last_offset, self.last_stable_offset_with(done))

    def replay(self, header: Header, marker: EndMarker | None) -> AbortedTxn | None:
        """Apply a batch that is in the log already, for recovery. Returns the transaction if it aborts one."""
        aborted = None
        if header.has_producer_id:
            pending = self.prepare(header.producer_id, AppendOrigin.REPLICATION)
            done = None
            if not header.is_control:
                pending.append(header)
            elif marker is not None:
                done = pending.end_txn(marker, header.producer_epoch, header.base_offset)
            self.update(pending)
            if done is not None:
                aborted = self.aborted_entry(done) if done.aborted else None
                self.complete(done)
        self.end_offset = header.last_offset + 1
        return aborted

    def replay_next(self, fields: tuple[int, ...]) -> bool:
        """The same, by its fields, for a batch of the current epoch without a transaction: nearly every batch.

        False if it is another batch; then nothing was done.
        """
        first, _, _, _, _, attributes, delta, _, timestamp, producer_id, producer_epoch, base_sequence, _ = fields
        entry = self.by_id.get(producer_id)
        if entry is None or producer_epoch != entry.epoch or attributes & IN_TRANSACTION:
            return False
        entry.add_batch(base_sequence, first + delta, delta, timestamp)
        return True

    def first_unstable_offset(self) -> Offset | None:
        """The first record of a transaction that is open or whose marker is not yet replicated."""
        firsts = [txns[0].first_offset for txns in (self._open, self._unreplicated) if txns]
        return min(firsts) if firsts else None

    def open_transactions(self) -> Sequence[OpenTxn]:
        return tuple(self._open)

    def high_watermark_moved(self, high_watermark: Offset) -> bool:
        """Forget ended transactions whose marker is replicated. True if there were any."""
        if not self._unreplicated:
            return False
        kept = [txn for txn in self._unreplicated if txn.last_offset >= high_watermark]
        changed = len(kept) < len(self._unreplicated)
        self._unreplicated = kept
        return changed

    def log_start_moved(self, log_start: Offset) -> None:
        """Forget transactions that ended below the log start offset."""
        self.high_watermark_moved(log_start)
        self.end_offset = max(self.end_offset, log_start)

    def expire(self, now_ms: int) -> int:
        """Forget idle producers without an open transaction. Returns how many."""
        self._verifications = {
            producer_id: verification
            for producer_id, verification in self._verifications.items()
            if now_ms - verification.begun_ms < self.expiration_ms
        }
        expired = [
            producer_id
            for producer_id, entry in self.by_id.items()
            if entry.txn_first_offset is None and now_ms - entry.last_timestamp >= self.expiration_ms
        ]
        for producer_id in expired:
            del self.by_id[producer_id]
        return len(expired)

    def clear(self, end_offset: Offset) -> None:
        self.by_id.clear()
        self._open.clear()
        self._unreplicated.clear()
        self.end_offset = end_offset

    def load(self, snapshot: Iterable[tuple[ProducerId, ProducerEntry]], end_offset: Offset, now_ms: int) -> None:
        self.clear(end_offset)
        self.by_id.update(snapshot)
        self.expire(now_ms)
        self.most_entries = max(self.most_entries, len(self.by_id))
        for producer_id, entry in self.by_id.items():
            if entry.txn_first_offset is not None:
                insort(self._open, OpenTxn(entry.txn_first_offset, producer_id))
