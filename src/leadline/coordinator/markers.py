"""Markers: how the outcome of a transaction gets into its partitions.

A marker commits or aborts, in one partition, all that a producer wrote there in its open transaction. Who coordinates a
transaction brings one to each of its partitions, itself or through the broker that leads it, and does not stop before
all are there: a broker that is killed on the way begins again with all of them. That one may come twice does no harm,
as it ends what is open: after the first nothing is, and nothing new can be, as long as the coordinator has not noted
that all of them are there.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol, TypeVar

from leadline.cluster.broker_client import PeerLost
from leadline.coordinator.group_shard import OFFSETS_TOPIC
from leadline.coordinator.transaction import ProducerIdAndEpoch
from leadline.errors import (
    InvalidProducerEpoch,
    LeaderNotAvailable,
    TransactionCoordinatorFenced,
    WireError,
    by_code,
)
from leadline.log.producer_state import AppendOrigin
from leadline.model import BrokerId, LeaderEpoch, Offset, ProducerId, TopicPartition
from leadline.records.control import ControlType, EndMarker, end_marker
from leadline.replication.replicas import NO_LEADER, Replicas
from leadline.runtime.ports import Clock
from leadline.wire.classes import Message
from leadline.wire.messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.1
ASK_VERSION = 1

M = TypeVar("M", bound=Message)
Verdicts = dict[TopicPartition, WireError | None]


class TransactionOutcome(NamedTuple):
    """How a transaction ended, and on whose word."""

    producer: ProducerIdAndEpoch
    coordinator_epoch: LeaderEpoch
    committed: bool


class Others(Protocol):
    """The other brokers."""

    async def ask(self, broker: BrokerId, request: Message, kind: type[M], version: int, timeout_s: float, /) -> M: ...


class Markers:
    def __init__(
        self,
        replicas: Replicas,
        clock: Clock,
        is_known: Callable[[TopicPartition], bool],
        offsets_ended: Callable[[int, ProducerId, bool], None],
        leader_of: Callable[[TopicPartition], BrokerId],
        others: Others,
        request_timeout_s: float = 30.0,
    ) -> None:
        self.replicas, self.clock = replicas, clock
        self.is_known = is_known  # whether there is such a partition, here or elsewhere
        self.offsets_ended = offsets_ended  # offsets that a partition keeps for a producer's transaction count, or not
        self.leader_of, self.others, self.request_timeout_s = leader_of, others, request_timeout_s

    async def bring(
        self,
        outcome: TransactionOutcome,
        partitions: Iterable[TopicPartition],
        marked: Callable[[TopicPartition], None],
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
            for tp, error in (await self._spread(outcome, sorted(left))).items():
                if _is_over(error):
                    left.remove(tp)
                    marked(tp)
                elif not noted:
                    log.warning("%s is tried again in %s until it is there: %s", outcome, tp, error)
                    noted = True
            if not left:
                return
            await asyncio.sleep(RETRY_SECONDS)

    async def _spread(self, outcome: TransactionOutcome, partitions: Iterable[TopicPartition]) -> Verdicts:
        """A marker into each of these partitions, whoever leads them."""
        by_leader: dict[BrokerId, list[TopicPartition]] = {}
        for tp in partitions:
            by_leader.setdefault(self.leader_of(tp), []).append(tp)
        work = [self._at(leader, outcome, some) for leader, some in by_leader.items()]
        return {tp: error for verdicts in await asyncio.gather(*work) for tp, error in verdicts.items()}

    async def _at(self, leader: BrokerId, outcome: TransactionOutcome, partitions: list[TopicPartition]) -> Verdicts:
        if leader == self.replicas.me:
            return await self.write(outcome, partitions)
        if leader == NO_LEADER:
            return {tp: LeaderNotAvailable(f"{tp} has no leader") for tp in partitions}
        try:
            answer = await self.others.ask(
                leader, _request(outcome, partitions), WriteTxnMarkersResponse, ASK_VERSION, self.request_timeout_s
            )
        except PeerLost as error:
            return {tp: LeaderNotAvailable(f"broker {leader}, which leads {tp}: {error}") for tp in partitions}
        return _verdicts(answer, partitions)

    async def write(self, outcome: TransactionOutcome, partitions: Iterable[TopicPartition]) -> Verdicts:
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

    def _append(self, outcome: TransactionOutcome, tp: TopicPartition) -> Offset:
        kind = ControlType.COMMIT if outcome.committed else ControlType.ABORT
        marker = EndMarker(kind, outcome.coordinator_epoch, self.clock.now_ms())
        batch = end_marker(marker, outcome.producer.producer_id, outcome.producer.epoch)
        return self.replicas.append(tp, batch, AppendOrigin.COORDINATOR).last_offset + 1


def _is_over(error: WireError | None) -> bool:
    """Whether nothing is left to be done. A partition that has seen a newer epoch of the producer needs no marker of
    this one: the epoch only moved on because the transaction had ended."""
    if isinstance(error, TransactionCoordinatorFenced):
        raise error
    return error is None or isinstance(error, InvalidProducerEpoch)


def _request(outcome: TransactionOutcome, partitions: Iterable[TopicPartition]) -> WriteTxnMarkersRequest:
    topics: dict[str, WriteTxnMarkersRequest.WritableTxnMarkerTopic] = {}
    for tp in partitions:
        topic = topics.setdefault(tp.topic, WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=tp.topic))
        topic.partition_indexes.append(tp.partition)
    marker = WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=outcome.producer.producer_id,
        producer_epoch=outcome.producer.epoch,
        transaction_result=outcome.committed,
        topics=list(topics.values()),
        coordinator_epoch=outcome.coordinator_epoch,
    )
    return WriteTxnMarkersRequest(markers=[marker])


def _verdicts(answer: WriteTxnMarkersResponse, partitions: Iterable[TopicPartition]) -> Verdicts:
    """A partition that the answer does not speak of has no marker yet."""
    verdicts: Verdicts = {tp: LeaderNotAvailable(f"nothing was said of {tp}") for tp in partitions}
    for marker in answer.markers:
        for topic in marker.topics:
            for each in topic.partitions:
                tp, code = TopicPartition(topic.name, each.partition_index), each.error_code
                if tp in verdicts:
                    verdicts[tp] = by_code(code, f"error {code} from the leader of {tp}") if code else None
    return verdicts
