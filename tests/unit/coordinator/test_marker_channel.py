"""The way of a transaction's markers to the leaders of its partitions."""

import asyncio
from collections.abc import Collection
from typing import Any, cast

import pytest

from leadline.cluster.broker_client import PeerLost
from leadline.coordinator import marker_channel
from leadline.coordinator.marker_channel import MarkerChannel
from leadline.coordinator.marker_writer import AppendedMarkers, MarkerWriter, PartitionErrors, TransactionOutcome
from leadline.coordinator.transaction import ProducerIdAndEpoch
from leadline.errors import InvalidProducerEpoch, NotLeaderOrFollower, TransactionCoordinatorFenced
from leadline.model import BrokerId, TopicPartition
from leadline.wire.messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from tests.support.settings import live_settings

ONE, TWO, THREE = (TopicPartition("t", n) for n in range(3))
OUTCOME = TransactionOutcome(ProducerIdAndEpoch(7, 2), 4, True)
ME, OTHER, NO_LEADER = 1, 2, -1
_Result = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult


class Cluster:
    """Leaders, this broker's own log and another broker, with the errors that they return, first one first."""

    def __init__(self, leaders: dict[TopicPartition, BrokerId]) -> None:
        self.leaders = leaders
        self.own_errors: list[type[Exception] | None] = []
        self.codes: list[int | None] = []  # None: the connection is lost
        self.written: list[list[TopicPartition]] = []
        self.requests: list[WriteTxnMarkersRequest] = []

    def has_partition(self, tp: TopicPartition, /) -> bool:
        return tp in self.leaders

    def leader_of(self, tp: TopicPartition, /) -> BrokerId:
        return self.leaders[tp]

    def append(self, outcome: TransactionOutcome, partitions: Collection[TopicPartition]) -> AppendedMarkers:
        if not partitions:
            return AppendedMarkers(outcome, {}, {})
        self.written.append(list(partitions))
        error = self.own_errors.pop(0) if self.own_errors else None
        errors = {} if error is None else {tp: cast(Any, error("refused")) for tp in partitions}
        return AppendedMarkers(outcome, {tp: 1 for tp in partitions if tp not in errors}, errors)

    async def committed(self, appended: AppendedMarkers) -> PartitionErrors:
        return appended.errors | dict.fromkeys(appended.ends)

    async def write(self, outcome: TransactionOutcome, partitions: Collection[TopicPartition]) -> PartitionErrors:
        return await self.committed(self.append(outcome, partitions))

    async def ask(self, broker: BrokerId, request: Any, kind: Any, version: int, timeout_s: float, /) -> Any:
        assert broker == OTHER
        self.requests.append(request)
        code = self.codes.pop(0) if self.codes else 0
        if code is None:
            raise PeerLost("gone")
        topics = [
            WriteTxnMarkersResponse.WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[_Result(partition_index=number, error_code=code) for number in topic.partition_indexes],
            )
            for topic in request.markers[0].topics
        ]
        marker = WriteTxnMarkersResponse.WritableTxnMarkerResult(producer_id=7, topics=topics)
        return WriteTxnMarkersResponse(markers=[marker])


@pytest.fixture(autouse=True)
def retry_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marker_channel, "RETRY_S", 0)


def send(cluster: Cluster, *partitions: TopicPartition) -> list[TopicPartition]:
    """The partitions in the order in which they got their marker."""
    marked: list[TopicPartition] = []
    channel = MarkerChannel(ME, cast(MarkerWriter, cluster), cluster, cluster, live_settings())
    own = channel.append_own(OUTCOME, partitions)
    asyncio.run(asyncio.wait_for(channel.send(own, partitions, marked.append), 60))
    return marked


def test_each_leader_gets_the_markers_of_its_partitions() -> None:
    cluster = Cluster({ONE: ME, TWO: OTHER, THREE: OTHER})
    assert sorted(send(cluster, ONE, TWO, THREE)) == [ONE, TWO, THREE]
    assert cluster.written == [[ONE]]
    (marker,) = cluster.requests[0].markers
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 2, 4)
    assert marker.transaction_result
    assert [(topic.name, topic.partition_indexes) for topic in marker.topics] == [("t", [1, 2])]


def test_a_deleted_partition_needs_no_marker() -> None:
    cluster = Cluster({ONE: ME})
    assert send(cluster, ONE, TWO) == [ONE, TWO]
    assert cluster.written == [[ONE]]


def test_a_marker_is_retried_until_its_leader_has_it() -> None:
    cluster = Cluster({ONE: ME, TWO: OTHER})
    cluster.own_errors = [NotLeaderOrFollower, None]
    cluster.codes = [None, NotLeaderOrFollower.code, 0]
    assert send(cluster, ONE, TWO) == [ONE, TWO]
    assert len(cluster.written) == 2
    assert len(cluster.requests) == 3


def test_a_partition_without_a_leader_waits_for_one() -> None:
    class Electing(Cluster):
        def leader_of(self, tp: TopicPartition, /) -> BrokerId:
            leader, self.leaders[tp] = self.leaders[tp], ME
            return leader

    cluster = Electing({ONE: NO_LEADER})
    assert send(cluster, ONE) == [ONE]
    assert cluster.written == [[ONE]]


def test_a_partition_that_has_seen_a_newer_epoch_is_done() -> None:
    cluster = Cluster({ONE: ME, TWO: OTHER})
    cluster.own_errors, cluster.codes = [InvalidProducerEpoch], [InvalidProducerEpoch.code]
    assert send(cluster, ONE, TWO) == [ONE, TWO]
    assert len(cluster.written) == len(cluster.requests) == 1


def test_a_newer_coordinator_ends_it() -> None:
    cluster = Cluster({ONE: OTHER})
    cluster.codes = [TransactionCoordinatorFenced.code]
    with pytest.raises(TransactionCoordinatorFenced):
        send(cluster, ONE)


def test_partitions_that_are_led_here_have_their_marker_before_anything_is_awaited() -> None:
    cluster = Cluster({ONE: ME, TWO: OTHER})
    channel = MarkerChannel(ME, cast(MarkerWriter, cluster), cluster, cluster, live_settings())
    channel.append_own(OUTCOME, [ONE, TWO])
    assert cluster.written == [[ONE]]
    assert not cluster.requests
