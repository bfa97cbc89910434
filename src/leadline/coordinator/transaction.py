"""One transactional id: its producer, and the state of its transaction.

    Empty, CompleteCommit, CompleteAbort  --add-->  Ongoing  --end-->  PrepareCommit, PrepareAbort
    PrepareCommit, PrepareAbort  --a marker in every partition-->  CompleteCommit, CompleteAbort

Once a transaction is prepared, its outcome is final. A producer that initializes gets the next epoch. Producers with an
older epoch are fenced, and the transaction that they left open is aborted first.

    a decision is `pending` until it is committed to the log: nothing else is decided meanwhile
    the epoch of a producer id only grows; after the last epoch a new producer id is used

Pure: decides over values, and returns the metadata to be written.
"""

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

from leadline.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidTxnState,
    ProducerFenced,
    TransactionAbortable,
    UnknownServerError,
    WireError,
)
from leadline.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, ProducerId, TopicPartition

EPOCH_MAX = (1 << 15) - 1
EXHAUSTED_FROM = EPOCH_MAX - 1  # the last epoch is reserved for fencing the one before it


class TransactionState(IntEnum):
    """As numbered in `__transaction_state`."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6  # expired: about to be deleted
    PREPARE_EPOCH_FENCE = 7  # a newer producer initializes: a step on the way to an abort, never written

    @property
    def label(self) -> str:
        """Kafka's name for the state, as clients see it."""
        return self.name.title().replace("_", "")


_AT_REST = frozenset({TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.DEAD})

MAY_FOLLOW: dict[TransactionState, frozenset[TransactionState]] = {
    TransactionState.EMPTY: _AT_REST,
    TransactionState.ONGOING: frozenset(
        {
            TransactionState.ONGOING,
            TransactionState.PREPARE_COMMIT,
            TransactionState.PREPARE_ABORT,
            TransactionState.PREPARE_EPOCH_FENCE,
        }
    ),
    TransactionState.PREPARE_EPOCH_FENCE: frozenset({TransactionState.PREPARE_ABORT}),
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.COMPLETE_COMMIT}),
    TransactionState.PREPARE_ABORT: frozenset({TransactionState.COMPLETE_ABORT}),
    TransactionState.COMPLETE_COMMIT: _AT_REST,
    TransactionState.COMPLETE_ABORT: _AT_REST,
    TransactionState.DEAD: frozenset(),
}

COMPLETED = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}


class ProducerIdAndEpoch(NamedTuple):
    """The producer id and epoch that a client claims."""

    producer_id: ProducerId
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionMetadata:
    """A transactional id at one point in time, as `__transaction_state` holds it."""

    producer_id: ProducerId
    producer_epoch: int = NO_PRODUCER_EPOCH  # -1: no producer has it yet
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()  # those whose marker is not written yet
    start_ms: int = NO_TIMESTAMP  # when its first partition was added
    last_update_ms: int = NO_TIMESTAMP
    last_producer_id: ProducerId = NO_PRODUCER_ID  # before the last init by a producer that named its id:
    last_producer_epoch: int = NO_PRODUCER_EPOCH  # a producer that still has these did not get the reply

    @property
    def is_exhausted(self) -> bool:
        """No epoch is left for the next producer."""
        return self.producer_epoch >= EXHAUSTED_FROM

    def to(self, state: TransactionState) -> "TransactionMetadata":
        assert state in MAY_FOLLOW[self.state], f"{state.label} does not follow {self.state.label}"
        return replace(self, state=state)


@dataclass(slots=True)
class TransactionalId:
    name: str
    metadata: TransactionMetadata  # committed
    pending: TransactionMetadata | None = None  # written, not committed yet

    # Decisions: the next metadata, or None if there is nothing to write

    def init(
        self, timeout_ms: int, expected: ProducerIdAndEpoch | None, now_ms: int, new_id: ProducerId | None
    ) -> TransactionMetadata:
        """A producer initializes. Returns Empty with its epoch, or the abort of the transaction that was left open."""
        txn = self.metadata
        self._check_not_pending()
        if expected is not None and not self._is_recognized(expected):
            raise ProducerFenced(f"{self.name}: {_described(expected)} no longer belongs to this id: {self._producer}")
        self._check_not_completing()
        if txn.state is TransactionState.ONGOING:
            return self.fence(now_ms)
        producer_id = txn.producer_id
        if self.needs_producer_id(expected):
            assert new_id is not None
            producer_id, epoch, last = new_id, 0, txn.producer_epoch if expected is not None else NO_PRODUCER_EPOCH
        else:
            epoch, last = self._next_epoch(expected)
        return replace(
            txn.to(TransactionState.EMPTY),
            producer_id=producer_id,
            producer_epoch=epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=NO_TIMESTAMP,
            last_update_ms=now_ms,
            last_producer_id=txn.producer_id,
            last_producer_epoch=last,
        )

    def needs_producer_id(self, expected: ProducerIdAndEpoch | None) -> bool:
        """Whether a producer that initializes now gets a new producer id."""
        return self.metadata.is_exhausted and (expected is None or expected.epoch == self.metadata.producer_epoch)

    def _is_recognized(self, expected: ProducerIdAndEpoch) -> bool:
        """Whether the producer id belongs here. A former id is recognized if it was replaced for lack of epochs."""
        return (
            self.metadata.producer_epoch == NO_PRODUCER_EPOCH
            or expected.producer_id == self.metadata.producer_id
            or (expected.producer_id == self.metadata.last_producer_id and expected.epoch >= EXHAUSTED_FROM)
        )

    def _next_epoch(self, expected: ProducerIdAndEpoch | None) -> tuple[int, int]:
        """The epoch for the producer that initializes, and the one to remember as the last."""
        txn = self.metadata
        if expected is None:
            return txn.producer_epoch + 1, NO_PRODUCER_EPOCH
        if txn.producer_epoch == NO_PRODUCER_EPOCH or expected.epoch == txn.producer_epoch:
            return txn.producer_epoch + 1, txn.producer_epoch
        if expected.epoch == txn.last_producer_epoch:  # it retries, and no other producer has initialized since
            return txn.producer_epoch, txn.last_producer_epoch
        raise ProducerFenced(f"{self.name}: {_described(expected)} is not the last one: {self._producer}")

    def fence(self, now_ms: int) -> TransactionMetadata:
        """Abort the open transaction under an epoch that no producer has: its producer is gone, or too slow."""
        if self.metadata.producer_epoch >= EPOCH_MAX:
            raise UnknownServerError(f"{self.name}: {self._producer} cannot be fenced, it has the last epoch")
        fenced = replace(
            self.metadata.to(TransactionState.PREPARE_EPOCH_FENCE),
            producer_epoch=self.metadata.producer_epoch + 1,
            last_producer_epoch=NO_PRODUCER_EPOCH,
        )
        return replace(fenced.to(TransactionState.PREPARE_ABORT), last_update_ms=now_ms)

    def add(
        self, producer: ProducerIdAndEpoch, partitions: frozenset[TopicPartition], now_ms: int
    ) -> TransactionMetadata | None:
        txn = self.metadata
        self._check_producer(producer)
        self._check_not_pending()
        self._check_not_completing()
        if txn.state is TransactionState.ONGOING and partitions <= txn.partitions:
            return None
        start_ms = txn.start_ms if txn.state is TransactionState.ONGOING else now_ms
        ongoing = txn.to(TransactionState.ONGOING)
        return replace(ongoing, partitions=txn.partitions | partitions, start_ms=start_ms, last_update_ms=now_ms)

    def end(self, producer: ProducerIdAndEpoch, *, commit: bool, now_ms: int) -> TransactionMetadata | None:
        self._check_producer(producer)
        self._check_not_pending()
        prepared = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
        if self.metadata.state is TransactionState.ONGOING:
            return replace(self.metadata.to(prepared), last_update_ms=now_ms)
        if self.metadata.state is COMPLETED[prepared]:
            return None  # a retry
        if self.metadata.state is prepared:
            raise ConcurrentTransactions(f"{self.name} is still completing: {self.metadata.state.label}")
        outcome = "committed" if commit else "aborted"
        raise InvalidTxnState(f"{self.name} cannot be {outcome} in state {self.metadata.state.label}")

    def complete(self, now_ms: int) -> TransactionMetadata:
        """The metadata once every partition has its marker."""
        return replace(self.metadata.to(COMPLETED[self.metadata.state]), partitions=frozenset(), last_update_ms=now_ms)

    def expire(self) -> TransactionMetadata:
        return replace(self.metadata.to(TransactionState.DEAD), partitions=frozenset())

    # Queries

    def verify(self, producer: ProducerIdAndEpoch, partition: TopicPartition) -> WireError | None:
        """The error if a partition does not belong to the producer's open transaction."""
        try:
            self._check_producer(producer)
            self._check_not_completing()
        except WireError as error:
            return error
        if partition in self.metadata.partitions:
            return None
        return TransactionAbortable(f"{partition} was not added to the transaction of {self.name}")

    def is_timed_out(self, now_ms: int) -> bool:
        txn = self.metadata
        return self.pending is None and txn.state is TransactionState.ONGOING and txn.start_ms + txn.timeout_ms < now_ms

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        """Whether it was idle for long, and no transaction is open."""
        idle = TransactionState.DEAD in MAY_FOLLOW[self.metadata.state] and self.pending is None
        return idle and self.metadata.last_update_ms <= now_ms - expiration_ms

    # Events

    def committed(self) -> None:
        """The pending decision is committed. After an init the start time of the last transaction is still shown."""
        assert self.pending is not None
        initialized = self.pending.state is TransactionState.EMPTY
        self.metadata = replace(self.pending, start_ms=self.metadata.start_ms) if initialized else self.pending
        self.pending = None

    def marked(self, partition: TopicPartition) -> None:
        """The marker of a partition is written, or the partition is deleted."""
        self.metadata = replace(self.metadata, partitions=self.metadata.partitions - {partition})

    # Checks, in Kafka's order: the id, the epoch, pending decisions

    def _check_producer(self, producer: ProducerIdAndEpoch) -> None:
        if producer.producer_id != self.metadata.producer_id:
            raise InvalidProducerIdMapping(f"{self.name}: {_described(producer)} has another id than {self._producer}")
        if producer.epoch != self._epoch:
            raise ProducerFenced(f"{self.name}: {_described(producer)} is fenced by {self._producer}")

    def _check_not_pending(self) -> None:
        if self.pending is not None:
            raise ConcurrentTransactions(f"{self.name} is on its way to {self.pending.state.label}")

    def _check_not_completing(self) -> None:
        if self.metadata.state in COMPLETED:
            raise ConcurrentTransactions(f"{self.name} is still completing: {self.metadata.state.label}")

    @property
    def _epoch(self) -> int:
        """A fence counts as soon as it is decided."""
        pending = self.pending
        fencing = pending is not None and pending.state is TransactionState.PREPARE_ABORT
        return pending.producer_epoch if pending is not None and fencing else self.metadata.producer_epoch

    @property
    def _producer(self) -> str:
        return _described(ProducerIdAndEpoch(self.metadata.producer_id, self._epoch))


def _described(producer: ProducerIdAndEpoch) -> str:
    return f"producer {producer.producer_id} in epoch {producer.epoch}"
