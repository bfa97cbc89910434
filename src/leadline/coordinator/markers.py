"""Markers: how the outcome of a transaction gets into its partitions.

A marker commits or aborts, in one partition, all that a producer wrote there in its open transaction. Who coordinates a
transaction brings one to each of its partitions and does not stop before all are there: a broker that is killed on the
way begins again with all of them. That one may come twice does no harm, as it ends what is open: after the first
nothing is, and nothing new can be, as long as the coordinator has not noted that all of them are there.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple

from leadline.coordinator.group_shard import OFFSETS_TOPIC
from leadline.coordinator.transaction import Identity
from leadline.errors import InvalidProducerEpoch, TransactionCoordinatorFenced, WireError
from leadline.log.producers import Origin
from leadline.model import LeaderEpoch, Offset, ProducerId, TopicPartition
from leadline.ports import Clock
from leadline.records.control import ControlType, EndMarker, end_marker
from leadline.replication.replicas import Replicas

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.1

Verdicts = dict[TopicPartition, WireError | None]


class Outcome(NamedTuple):
    """How a transaction ended, and on whose word."""

    producer: Identity
    coordinator_epoch: LeaderEpoch
    committed: bool


class Markers:
    def __init__(
        self,
        replicas: Replicas,
        clock: Clock,
        is_known: Callable[[TopicPartition], bool],
        offsets_ended: Callable[[int, ProducerId, bool], None],
    ) -> None:
        self.replicas, self.clock = replicas, clock
        self.is_known = is_known  # whether there is such a partition, here or elsewhere
        self.offsets_ended = offsets_ended  # offsets that a partition keeps for a producer's transaction count, or not

    async def bring(
        self, outcome: Outcome, partitions: Iterable[TopicPartition], marked: Callable[[TopicPartition], None]
    ) -> None:
        """A marker into each partition, however long it takes; `marked` with each that has it, or is deleted.

        TransactionCoordinatorFenced if a newer coordinator is at it.
        """
        left, noted = set(partitions), False
        while True:
            for tp in [tp for tp in left if not self.is_known(tp)]:
                log.info("%s is deleted: no marker of %s is needed there", tp, outcome)
                left.remove(tp)
                marked(tp)
            for tp, error in (await self.write(outcome, sorted(left))).items():
                if _is_over(error):
                    left.remove(tp)
                    marked(tp)
                elif not noted:
                    log.warning("%s is tried again in %s until it is there: %s", outcome, tp, error)
                    noted = True
            if not left:
                return
            await asyncio.sleep(RETRY_SECONDS)

    async def write(self, outcome: Outcome, partitions: Iterable[TopicPartition]) -> Verdicts:
        """A marker into each of these partitions, which this broker leads; back when it is on all in-sync replicas."""
        written: dict[TopicPartition, Offset] = {}
        verdicts: Verdicts = {}
        for tp in partitions:
            try:
                written[tp] = self._append(outcome, tp)
            except WireError as error:
                verdicts[tp] = error
        for tp, offset in written.items():
            try:
                await self.replicas.committed(tp, offset)
                verdicts[tp] = None
            except WireError as error:
                verdicts[tp] = error
            else:
                if tp.topic == OFFSETS_TOPIC:
                    self.offsets_ended(tp.partition, outcome.producer.producer_id, outcome.committed)
        return verdicts

    def _append(self, outcome: Outcome, tp: TopicPartition) -> Offset:
        kind = ControlType.COMMIT if outcome.committed else ControlType.ABORT
        marker = EndMarker(kind, outcome.coordinator_epoch, self.clock.now_ms())
        batch = end_marker(marker, outcome.producer.producer_id, outcome.producer.epoch)
        return self.replicas.append(tp, batch, Origin.COORDINATOR).last_offset + 1


def _is_over(error: WireError | None) -> bool:
    """Whether nothing is left to be done. A partition that has seen a newer epoch of the producer needs no marker of
    this one: the epoch only moved on because the transaction had ended."""
    if isinstance(error, TransactionCoordinatorFenced):
        raise error
    return error is None or isinstance(error, InvalidProducerEpoch)
