"""The note that a batch of a query is written: it is seen even while its transaction is about to end."""

import pytest

from leadline.errors import UnstableOffsetCommit
from leadline.spark.topics.sink import BatchNote
from leadline.wire.messages import OffsetFetchRequest, OffsetFetchResponse
from tests.support.scripted_brokers import ScriptedBrokers


class PendingNote:
    """A group whose first commit for partition 1 is pending until it is asked for the second time, as in Kafka."""

    def __init__(self, note: BatchNote) -> None:
        self.note = note
        self.requests = 0
        self.brokers = ScriptedBrokers({"orders": 2}, {OffsetFetchRequest: self._fetch})

    def _fetch(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        self.requests += 1
        parts = [self._offset(index) for topic in request.topics or () for index in topic.partition_indexes]
        return OffsetFetchResponse(
            topics=[OffsetFetchResponse.OffsetFetchResponseTopic(name="orders", partitions=parts)]
        )

    def _offset(self, index: int) -> OffsetFetchResponse.OffsetFetchResponsePartition:
        if index == 0:
            return OffsetFetchResponse.OffsetFetchResponsePartition(partition_index=0, committed_offset=-1)
        if self.requests == 1:
            return OffsetFetchResponse.OffsetFetchResponsePartition(
                partition_index=1, committed_offset=-1, error_code=UnstableOffsetCommit.code
            )
        return OffsetFetchResponse.OffsetFetchResponsePartition(
            partition_index=1, committed_offset=10, metadata=self.note.remark
        )


def test_a_note_whose_transaction_is_about_to_end_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    note = BatchNote("query", 7)
    group = PendingNote(note)
    with group.brokers.client(monkeypatch) as cluster:
        assert note.is_committed(cluster, {"orders"})
    assert group.requests == 2


@pytest.mark.parametrize(("batch", "expected"), [(6, True), (7, True), (8, False)])
def test_a_note_stands_for_its_batch_and_earlier_ones(
    batch: int, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = PendingNote(BatchNote("query", 7))
    with group.brokers.client(monkeypatch) as cluster:
        assert BatchNote("query", batch).is_committed(cluster, {"orders"}) is expected
