"""One transactional id: who its producer is, and how far its transaction has come.

    Empty, CompleteCommit, CompleteAbort  --add-->  Ongoing  --end-->  PrepareCommit, PrepareAbort
    PrepareCommit, PrepareAbort  --a marker in every partition-->  CompleteCommit, CompleteAbort

From the moment that it is prepared, a transaction has one outcome and no other. A producer that asks to begin anew gets
the next epoch, and whoever has an older one gets nothing through any longer; what that one left open is aborted first.

    what is decided is `pending` until it is committed to the journal: nothing else is decided meanwhile
    for one producer id the epoch only grows; at its end there is another producer id

Pure: decides over values, and hands back what is to be written.
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
EXHAUSTED_FROM = EPOCH_MAX - 1  # the last one is kept to fence the one before it


class TransactionState(IntEnum):
    """As numbered in the journal."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6  # expired: about to be forgotten
    PREPARE_EPOCH_FENCE = 7  # a newer producer came: a moment on the way to an abort, never written

    @property
    def label(self) -> str:
        """Kafka's name for it, as clients see it."""
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
    """Whom a producer says it is."""

    producer_id: ProducerId
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionMetadata:
    """All that is known of it at a time: what the journal holds."""

    producer_id: ProducerId
    producer_epoch: int = NO_PRODUCER_EPOCH  # -1: not handed to anybody yet
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()  # those whose marker is still to be written
    start_ms: int = NO_TIMESTAMP  # when its first partition came
    last_update_ms: int = NO_TIMESTAMP
    last_producer_id: ProducerId = NO_PRODUCER_ID  # those before the last init by a producer that named itself:
    last_producer_epoch: int = NO_PRODUCER_EPOCH  # asking again with them, it did not get its answer

    @property
    def is_exhausted(self) -> bool:
        """No epoch is left for a next producer."""
        return self.producer_epoch >= EXHAUSTED_FROM

    def to(self, state: TransactionState, **changes: object) -> "TransactionMetadata":
        assert state in MAY_FOLLOW[self.state], f"{state.label} does not follow {self.state.label}"
        return replace(self, state=state, **changes)  # type: ignore[arg-type]


@dataclass(slots=True)
class TransactionalId:
    name: str
    metadata: TransactionMetadata  # committed
    pending: TransactionMetadata | None = None  # written, not committed yet

    # Deciding: the next state, or None where there is nothing to be written

    def init(
        self, timeout_ms: int, expected: ProducerIdAndEpoch | None, now_ms: int, new_id: ProducerId | None
    ) -> TransactionMetadata:
        """A producer begins. What comes back is Empty with its epoch, or the abort of what the last one left open."""
        txn = self.metadata
        self._check_not_pending()
        if expected is not None and not self._is_known(expected):
            raise ProducerFenced(f"{self.name}: {_described(expected)} is not of this id any longer: {self._producer}")
        self._check_not_completing()
        if txn.state is TransactionState.ONGOING:
            return self.fence(now_ms)
        producer_id = txn.producer_id
        if self.needs_producer_id(expected):
            assert new_id is not None
            producer_id, epoch, last = new_id, 0, txn.producer_epoch if expected is not None else NO_PRODUCER_EPOCH
        else:
            epoch, last = self._next_epoch(expected)
        return txn.to(
            TransactionState.EMPTY,
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
        """Whether whoever begins now gets another producer id."""
        return self.metadata.is_exhausted and (expected is None or expected.epoch == self.metadata.producer_epoch)

    def _is_known(self, expected: ProducerIdAndEpoch) -> bool:
        """The epoch is another question. An id of before is known if it was given up for want of epochs."""
        return (
            self.metadata.producer_epoch == NO_PRODUCER_EPOCH
            or expected.producer_id == self.metadata.producer_id
            or (expected.producer_id == self.metadata.last_producer_id and expected.epoch >= EXHAUSTED_FROM)
        )

    def _next_epoch(self, expected: ProducerIdAndEpoch | None) -> tuple[int, int]:
        """The epoch for whoever begins, and the one to be known as the last."""
        txn = self.metadata
        if expected is None:
            return txn.producer_epoch + 1, NO_PRODUCER_EPOCH
        if txn.producer_epoch == NO_PRODUCER_EPOCH or expected.epoch == txn.producer_epoch:
            return txn.producer_epoch + 1, txn.producer_epoch
        if expected.epoch == txn.last_producer_epoch:  # it asks once more, and nobody else has begun since
            return txn.producer_epoch, txn.last_producer_epoch
        raise ProducerFenced(f"{self.name}: {_described(expected)} is not the last one: {self._producer}")

    def fence(self, now_ms: int) -> TransactionMetadata:
        """Abort what is open, under an epoch that nobody has: its producer is gone, or too slow."""
        if self.metadata.producer_epoch >= EPOCH_MAX:
            raise UnknownServerError(f"{self.name}: {self._producer} cannot be fenced, there is no epoch behind it")
        fenced = self.metadata.to(
            TransactionState.PREPARE_EPOCH_FENCE,
            producer_epoch=self.metadata.producer_epoch + 1,
            last_producer_epoch=NO_PRODUCER_EPOCH,
        )
        return fenced.to(TransactionState.PREPARE_ABORT, last_update_ms=now_ms)

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
        return txn.to(
            TransactionState.ONGOING, partitions=txn.partitions | partitions, start_ms=start_ms, last_update_ms=now_ms
        )

    def end(self, producer: ProducerIdAndEpoch, *, commit: bool, now_ms: int) -> TransactionMetadata | None:
        self._check_producer(producer)
        self._check_not_pending()
        prepared = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
        if self.metadata.state is TransactionState.ONGOING:
            return self.metadata.to(prepared, last_update_ms=now_ms)
        if self.metadata.state is COMPLETED[prepared]:
            return None  # it asks once more
        if self.metadata.state is prepared:
            raise ConcurrentTransactions(f"{self.name} is still completing: {self.metadata.state.label}")
        wanted = "committed" if commit else "aborted"
        raise InvalidTxnState(f"{self.name} cannot be {wanted} in state {self.metadata.state.label}")

    def complete(self, now_ms: int) -> TransactionMetadata:
        """There is a marker in every partition."""
        return self.metadata.to(COMPLETED[self.metadata.state], partitions=frozenset(), last_update_ms=now_ms)

    def expire(self) -> TransactionMetadata:
        return self.metadata.to(TransactionState.DEAD, partitions=frozenset())

    # Asking

    def verify(self, producer: ProducerIdAndEpoch, partition: TopicPartition) -> WireError | None:
        """What speaks against a partition being part of the transaction now."""
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
        """Nobody has used it for long, and nothing is open."""
        idle = TransactionState.DEAD in MAY_FOLLOW[self.metadata.state] and self.pending is None
        return idle and self.metadata.last_update_ms <= now_ms - expiration_ms

    # What happened

    def committed(self) -> None:
        """What was pending is so. Until the next one begins, the start that is told is that of the last."""
        assert self.pending is not None
        begun = self.pending.state is TransactionState.EMPTY
        self.metadata = replace(self.pending, start_ms=self.metadata.start_ms) if begun else self.pending
        self.pending = None

    def marked(self, partition: TopicPartition) -> None:
        """Its marker is written, or the partition is gone."""
        self.metadata = replace(self.metadata, partitions=self.metadata.partitions - {partition})

    # Checks, in Kafka's order: the id, the epoch, what is under way

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
        """A fence counts from the moment that it is decided."""
        pending = self.pending
        fencing = pending is not None and pending.state is TransactionState.PREPARE_ABORT
        return pending.producer_epoch if pending is not None and fencing else self.metadata.producer_epoch

    @property
    def _producer(self) -> str:
        return _described(ProducerIdAndEpoch(self.metadata.producer_id, self._epoch))


def _described(producer: ProducerIdAndEpoch) -> str:
    return f"producer {producer.producer_id} in epoch {producer.epoch}"
