"""Fetches of a range: what is requested next, and what becomes of offsets that are gone."""

from collections.abc import Callable

import pytest

from leadline.errors import NotLeaderOrFollower, OffsetOutOfRange
from leadline.model import Offset, TopicPartition
from leadline.records.batch import assign
from leadline.spark.client.connection import Unreachable
from leadline.spark.client.failures import RequestFailed
from leadline.spark.client.range_fetch import FetchOptions, fetch, rows
from leadline.spark.positions import DataLoss
from leadline.spark.ranges import Range
from leadline.wire.messages import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
)
from tests.support.logs import batch
from tests.support.scripted_brokers import ScriptedBrokers

TP = TopicPartition("orders", 0)
UNTIL = 9
NOT_AUTHORIZED = 29


class PartitionLog:
    """Batches of three records in one partition: the answers of its leader."""

    def __init__(self, *base_offsets: Offset, high_watermark: Offset = UNTIL) -> None:
        self.batches = dict[Offset, bytearray]()
        for base_offset in base_offsets:
            self.batches[base_offset] = batch(3)
            assign(self.batches[base_offset], 0, base_offset, 0)
        self.high_watermark = self.latest = high_watermark
        self.earliest: Offset = 0
        self.last_stable_offset = high_watermark
        self.errors: list[int] = []  # of the next fetches; 0: none
        self.brokers = ScriptedBrokers(
            {TP.topic: 1}, {FetchRequest: self._fetch, ListOffsetsRequest: self._list_offsets}
        )

    def _fetch(self, request: FetchRequest) -> FetchResponse:
        offset = request.topics[0].partitions[0].fetch_offset
        data = next((data for base, data in sorted(self.batches.items()) if base + 3 > offset), b"")
        part = FetchResponse.PartitionData(
            partition_index=0,
            error_code=self.errors.pop(0) if self.errors else 0,
            high_watermark=self.high_watermark,
            last_stable_offset=self.last_stable_offset,
            records=memoryview(data),
        )
        return FetchResponse(responses=[FetchResponse.FetchableTopicResponse(topic=TP.topic, partitions=[part])])

    def _list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        is_earliest = request.topics[0].partitions[0].timestamp == -2
        part = ListOffsetsResponse.ListOffsetsPartitionResponse(
            partition_index=0, offset=self.earliest if is_earliest else self.latest
        )
        return ListOffsetsResponse(
            topics=[ListOffsetsResponse.ListOffsetsTopicResponse(name=TP.topic, partitions=[part])]
        )

    @property
    def positions(self) -> list[Offset]:
        return [request.topics[0].partitions[0].fetch_offset for request in self.brokers.of(FetchRequest)]


@pytest.fixture
def offsets(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Offset]]:
    def read(log: PartitionLog, first: Offset = 0, timeout_ms: int = 60_000, **options: bool) -> list[Offset]:
        with log.brokers.client(monkeypatch, timeout_ms) as cluster:
            batches = rows(cluster, Range(TP, first, UNTIL), FetchOptions(**options), headers=False)
            return [offset for batch_ in batches for offset in batch_.column("offset").to_pylist()]

    return read


def test_the_next_fetch_is_sent_before_the_caller_works_on_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    log = PartitionLog(0, 3, 6)
    with log.brokers.client(monkeypatch) as cluster:
        batches = fetch(cluster, Range(TP, 0, UNTIL), FetchOptions())
        assert next(batches).first == 0
        assert log.positions == [0, 3]
        assert [fetched.first for fetched in batches] == [3, 6]
    assert log.positions == [0, 3, 6]


def test_a_connection_with_an_unread_answer_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    log = PartitionLog(0, 3, 6)
    with log.brokers.client(monkeypatch) as cluster:
        batches = fetch(cluster, Range(TP, 0, UNTIL), FetchOptions())
        next(batches)
        batches.close()  # type: ignore[attr-defined]
        assert log.brokers.closed == 1


def test_only_the_offsets_of_the_range_are_returned(offsets: Callable[..., list[Offset]]) -> None:
    assert offsets(PartitionLog(0, 3, 6, 9), first=4) == [4, 5, 6, 7, 8]


def test_a_range_whose_last_records_were_compacted_ends(offsets: Callable[..., list[Offset]]) -> None:
    assert offsets(PartitionLog(0, 3)) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("committed", [True, False])
def test_a_range_beyond_what_readers_see_is_awaited_until_the_deadline(
    offsets: Callable[..., list[Offset]], committed: bool
) -> None:
    log = PartitionLog(0, 3)
    log.high_watermark, log.last_stable_offset = (UNTIL, 6) if committed else (6, 6)
    with pytest.raises(Unreachable, match=r"orders-0 cannot be read up to 9: .* is 6"):
        offsets(log, timeout_ms=1, committed=committed)


def test_offsets_that_retention_deleted_are_a_loss(offsets: Callable[..., list[Offset]]) -> None:
    log = PartitionLog(6)
    log.earliest, log.errors = 6, [OffsetOutOfRange.code]
    with pytest.raises(DataLoss, match="offsets 0 to 5 are gone: the log now starts at 6"):
        offsets(log)


def test_offsets_that_are_gone_are_skipped_on_request(offsets: Callable[..., list[Offset]]) -> None:
    log = PartitionLog(6)
    log.earliest, log.errors = 6, [OffsetOutOfRange.code]
    assert offsets(log, fail_on_data_loss=False) == [6, 7, 8]
    assert log.positions == [0, 6]


def test_a_log_that_was_truncated_below_the_position_is_a_loss(offsets: Callable[..., list[Offset]]) -> None:
    log = PartitionLog()
    log.latest, log.errors = 2, [OffsetOutOfRange.code]
    with pytest.raises(DataLoss, match="offsets 4 to 8 are gone: the log now ends at 2"):
        offsets(log, first=4)


def test_a_topic_that_was_deleted_is_a_loss(offsets: Callable[..., list[Offset]]) -> None:
    log = PartitionLog(0)
    log.brokers.topics.clear()
    with pytest.raises(DataLoss, match="the topic or the partition no longer exists"):
        offsets(log)
    assert offsets(log, fail_on_data_loss=False) == []


def test_a_fetch_follows_the_leader(offsets: Callable[..., list[Offset]]) -> None:
    log = PartitionLog(0, 3, 6)
    log.errors = [0, NotLeaderOrFollower.code]
    assert offsets(log) == list(range(9))
    assert log.positions == [0, 3, 3, 6]
    assert len(log.brokers.of(MetadataRequest)) == 2


def test_an_error_that_a_retry_does_not_mend_is_raised(offsets: Callable[..., list[Offset]]) -> None:
    log = PartitionLog(0)
    log.errors = [NOT_AUTHORIZED]
    with pytest.raises(RequestFailed, match="fetch of orders-0 from offset 0"):
        offsets(log)
    assert log.positions == [0]
