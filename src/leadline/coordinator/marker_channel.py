"""The channel from a transaction coordinator to the leaders of a transaction's partitions, for its markers.

The coordinator sends a marker to each partition, and retries until all have it. A coordinator that is killed meanwhile
starts again with all of them. No new transaction begins before the coordinator has noted that all markers are written.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from leadline.cluster.broker_client import PeerLost
from leadline.config.live_settings import LiveSettings
from leadline.coordinator.marker_writer import AppendedMarkers, MarkerWriter, PartitionErrors, TransactionOutcome
from leadline.errors import (
    InvalidProducerEpoch,
    LeaderNotAvailable,
    TransactionCoordinatorFenced,
    WireError,
    by_code,
)
from leadline.model import NO_LEADER, BrokerId, TopicPartition
from leadline.wire.classes import Message
from leadline.wire.messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse

log = logging.getLogger(__name__)

RETRY_S = 0.1
REQUEST_VERSION = 1

M = TypeVar("M", bound=Message)


class PartitionLeaders(Protocol):
    """The partitions of the cluster and their leaders."""

    def has_partition(self, tp: TopicPartition, /) -> bool: ...
    def leader_of(self, tp: TopicPartition, /) -> BrokerId: ...


class BrokerRequests(Protocol):
    """Requests to other brokers."""

    async def ask(self, broker: BrokerId, request: Message, kind: type[M], version: int, timeout_s: float, /) -> M: ...


class MarkerChannel:
    def __init__(
        self,
        me: BrokerId,
        writer: MarkerWriter,
        leaders: PartitionLeaders,
        brokers: BrokerRequests,
        settings: LiveSettings,
    ) -> None:
        """`me`: this broker. Its own partitions get their markers from `writer`."""
        self._me, self._writer = me, writer
        self._leaders, self._brokers, self._settings = leaders, brokers, settings

    def append_own(self, outcome: TransactionOutcome, partitions: Iterable[TopicPartition]) -> AppendedMarkers:
        """Append the markers of the partitions that are led here, at once."""
        leaders = self._leaders
        own = [tp for tp in sorted(partitions) if leaders.has_partition(tp) and leaders.leader_of(tp) == self._me]
        return self._writer.append(outcome, own)

    async def send(
        self,
        own: AppendedMarkers,
        partitions: Iterable[TopicPartition],
        marked: Callable[[TopicPartition], None],
    ) -> None:
        """Get a marker into each partition, however long it takes. `own`: see `append_own`.

        `marked` is called with each partition that has its marker, or is deleted. TransactionCoordinatorFenced if a
        newer coordinator has taken over.
        """
        outcome, remaining = own.outcome, set(partitions)
        others = remaining - own.ends.keys() - own.errors.keys()
        ours, theirs = await asyncio.gather(self._writer.committed(own), self._send_once(outcome, others))
        errors, logged = ours | theirs, False
        while True:
            for tp, error in errors.items():
                if _is_done(error):
                    remaining.remove(tp)
                    marked(tp)
                elif not logged:
                    log.warning("%s is retried in %s until it is written: %s", outcome, tp, error)
                    logged = True
            if not remaining:
                return
            await asyncio.sleep(RETRY_S)
            errors = await self._send_once(outcome, remaining)

    async def _send_once(self, outcome: TransactionOutcome, partitions: Iterable[TopicPartition]) -> PartitionErrors:
        """A partition that is deleted needs no marker."""
        errors: PartitionErrors = {}
        by_leader: dict[BrokerId, list[TopicPartition]] = {}
        for tp in sorted(partitions):
            if self._leaders.has_partition(tp):
                by_leader.setdefault(self._leaders.leader_of(tp), []).append(tp)
            else:
                log.info("%s is deleted: it needs no marker of %s", tp, outcome)
                errors[tp] = None
        sends = [self._send_to(leader, outcome, led) for leader, led in by_leader.items()]
        for result in await asyncio.gather(*sends):
            errors |= result
        return errors

    async def _send_to(
        self, leader: BrokerId, outcome: TransactionOutcome, partitions: list[TopicPartition]
    ) -> PartitionErrors:
        if leader == self._me:
            return await self._writer.write(outcome, partitions)
        if leader == NO_LEADER:
            return {tp: LeaderNotAvailable(f"{tp} has no leader") for tp in partitions}
        request = _request(outcome, partitions)
        try:
            response = await self._brokers.ask(
                leader, request, WriteTxnMarkersResponse, REQUEST_VERSION, self._settings.request_timeout_s
            )
        except PeerLost as error:
            return {tp: LeaderNotAvailable(f"broker {leader}, which leads {tp}: {error}") for tp in partitions}
        return _errors(response, partitions)


def _is_done(error: WireError | None) -> bool:
    """Whether nothing is left to do for a partition.

    A partition that has seen a newer epoch of the producer needs no marker: the epoch only grows after the transaction
    has ended.
    """
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


def _errors(response: WriteTxnMarkersResponse, partitions: Iterable[TopicPartition]) -> PartitionErrors:
    """A partition that is not in the response has no marker yet."""
    errors: PartitionErrors = {tp: LeaderNotAvailable(f"the response has no entry for {tp}") for tp in partitions}
    for marker in response.markers:
        for topic in marker.topics:
            for partition in topic.partitions:
                tp, code = TopicPartition(topic.name, partition.partition_index), partition.error_code
                if tp in errors:
                    errors[tp] = by_code(code, f"error {code} from the leader of {tp}") if code else None
    return errors
