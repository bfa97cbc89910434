"""Markers in the partitions that this broker leads.

A marker commits or aborts, in one partition, everything that a producer wrote there in its open transaction. A marker
that is written twice does no harm: after the first one no transaction is open.
"""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from leadline.coordinator.group_shard import OFFSETS_TOPIC
from leadline.coordinator.transaction import ProducerIdAndEpoch
from leadline.errors import UnknownServerError, WireError
from leadline.log.producer_state import AppendOrigin
from leadline.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, LeaderEpoch, Offset, ProducerId, TopicPartition
from leadline.records.control import ControlType, EndMarker, end_marker
from leadline.replication.replicas import Replicas
from leadline.runtime.ports import Time

PartitionErrors = dict[TopicPartition, WireError | None]  # None: no error


class TransactionOutcome(NamedTuple):
    """How a transaction ended, and the epoch of the coordinator that says so."""

    producer: ProducerIdAndEpoch
    coordinator_epoch: LeaderEpoch
    committed: bool


class AppendedMarkers(NamedTuple):
    """Markers that were appended. They may not be committed yet."""

    outcome: TransactionOutcome
    ends: dict[TopicPartition, Offset]
    errors: PartitionErrors  # of partitions that did not take theirs


class PendingOffsets(Protocol):
    """The offsets that transactions have written to `__consumer_offsets`."""

    def transaction_ended(self, partition: int, producer_id: ProducerId, *, committed: bool) -> None: ...


class MarkerWriter:
    def __init__(self, replicas: Replicas, clock: Time, offsets: PendingOffsets) -> None:
        self._replicas, self._clock, self._offsets = replicas, clock, offsets

    async def write(self, outcome: TransactionOutcome, partitions: Iterable[TopicPartition]) -> PartitionErrors:
        """Write a marker to each partition. Returns once the markers are committed."""
        return await self.committed(self.append(outcome, partitions))

    def append(self, outcome: TransactionOutcome, partitions: Iterable[TopicPartition]) -> AppendedMarkers:
        """Append a marker to each partition, at once: no later record of the producer gets before it."""
        appended = AppendedMarkers(outcome, {}, {})
        for tp in partitions:
            try:
                appended.ends[tp] = self._append(outcome, tp)
            except WireError as error:
                appended.errors[tp] = error
        return appended

    async def committed(self, appended: AppendedMarkers) -> PartitionErrors:
        """Returns once the markers are committed. A pending offset is committed or dropped with its marker."""
        outcome, ends, errors = appended
        for tp, end in ends.items():
            try:
                await self._replicas.committed(tp, end)
                errors[tp] = None
            except WireError as error:
                errors[tp] = error
            else:
                if tp.topic == OFFSETS_TOPIC:
                    producer_id = outcome.producer.producer_id
                    self._offsets.transaction_ended(tp.partition, producer_id, committed=outcome.committed)
        return errors

    def _append(self, outcome: TransactionOutcome, tp: TopicPartition) -> Offset:
        if outcome.producer.producer_id == NO_PRODUCER_ID or outcome.producer.epoch == NO_PRODUCER_EPOCH:
            raise UnknownServerError(f"a marker in {tp} needs a producer and its epoch")
        kind = ControlType.COMMIT if outcome.committed else ControlType.ABORT
        marker = EndMarker(kind, outcome.coordinator_epoch, self._clock.now_ms())
        batch = end_marker(marker, outcome.producer.producer_id, outcome.producer.epoch)
        return self._replicas.append(tp, batch, AppendOrigin.COORDINATOR).last_offset + 1
