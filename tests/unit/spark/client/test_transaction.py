"""A transaction of the driver: what is sent, in which order, and what is sent again."""

from collections.abc import Iterator

import pytest

from leadline.errors import InvalidProducerEpoch, NotLeaderOrFollower, ProducerFenced
from leadline.model import Offset, TopicPartition
from leadline.records.batch import Header, crc_of, header_at
from leadline.spark.client import transaction as module
from leadline.spark.client.cluster import GROUP, TRANSACTION, GroupOffset
from leadline.spark.client.failures import RequestFailed
from leadline.spark.client.transaction import DUPLICATE_SEQUENCE, ClientTransaction, Fenced, StagedBatch
from leadline.wire.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from tests.support.logs import batch
from tests.support.scripted_brokers import ScriptedBrokers

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
MESSAGE_TOO_LARGE = 10


class TransactionBroker:
    """Appends what is produced, and answers with planned errors."""

    def __init__(self) -> None:
        self.errors: dict[TopicPartition, list[int]] = {A: [], B: []}  # of the next produces; 0: none
        self.begin_error = self.end_error = self.offsets_error = 0
        self.ends: dict[TopicPartition, Offset] = {A: 100, B: 200}
        self.sent: list[tuple[TopicPartition, Header]] = []
        self.brokers = ScriptedBrokers(
            {"orders": 2},
            {
                InitProducerIdRequest: lambda _: InitProducerIdResponse(
                    error_code=self.begin_error, producer_id=7, producer_epoch=3
                ),
                ProduceRequest: self._produce,
                AddOffsetsToTxnRequest: lambda _: AddOffsetsToTxnResponse(),
                TxnOffsetCommitRequest: self._commit_offsets,
                EndTxnRequest: lambda _: EndTxnResponse(error_code=self.end_error),
            },
        )

    def _produce(self, request: ProduceRequest) -> ProduceResponse:
        (topic,) = request.topic_data
        parts = [self._append(TopicPartition(topic.name, part.index), part.records) for part in topic.partition_data]
        return ProduceResponse(
            responses=[ProduceResponse.TopicProduceResponse(name=topic.name, partition_responses=parts)]
        )

    def _append(self, tp: TopicPartition, records: object) -> ProduceResponse.PartitionProduceResponse:
        assert isinstance(records, bytes | bytearray | memoryview)
        header = header_at(records)
        assert crc_of(records, 0, header.size) == header.crc
        self.sent.append((tp, header))
        code = self.errors[tp].pop(0) if self.errors[tp] else 0
        base_offset = self.ends[tp]
        if code in (0, DUPLICATE_SEQUENCE):
            self.ends[tp] += header.record_count
        return ProduceResponse.PartitionProduceResponse(index=tp.partition, error_code=code, base_offset=base_offset)

    def _commit_offsets(self, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
        (topic,) = request.topics
        parts = [
            TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition(
                partition_index=part.partition_index, error_code=self.offsets_error
            )
            for part in topic.partitions
        ]
        return TxnOffsetCommitResponse(
            topics=[TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic(name=topic.name, partitions=parts)]
        )

    def sequences(self, tp: TopicPartition) -> list[int]:
        return [header.base_sequence for sent_tp, header in self.sent if sent_tp == tp]


@pytest.fixture
def broker() -> TransactionBroker:
    return TransactionBroker()


@pytest.fixture
def transaction(broker: TransactionBroker, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClientTransaction]:
    with broker.brokers.client(monkeypatch) as cluster:
        transaction = ClientTransaction(cluster, "writer", 60_000)
        transaction.begin()
        yield transaction


def staged(tp: TopicPartition, count: int, tag: object = None) -> StagedBatch:
    data = bytes(batch(count))
    return StagedBatch(tp, len(data), count, lambda: data, tag)


def test_batches_of_a_partition_are_sent_in_order_with_sequences(
    broker: TransactionBroker, transaction: ClientTransaction
) -> None:
    transaction.send([staged(A, 3), staged(A, 2), staged(B, 4), staged(A, 1)])
    assert (broker.sequences(A), broker.sequences(B)) == ([0, 3, 5], [0])
    assert all((header.producer_id, header.producer_epoch) == (7, 3) for _, header in broker.sent)
    assert all(header.is_transactional for _, header in broker.sent)
    assert transaction.ends == {A: 106, B: 204}
    transaction.send([staged(A, 1)])
    assert broker.sequences(A) == [0, 3, 5, 6]


def test_partitions_of_a_leader_share_a_request_up_to_its_limit(
    broker: TransactionBroker, transaction: ClientTransaction, monkeypatch: pytest.MonkeyPatch
) -> None:
    transaction.send([staged(A, 1), staged(B, 1)])
    assert len(broker.brokers.of(ProduceRequest)) == 1
    monkeypatch.setattr(module, "REQUEST_BYTES", 100)
    transaction.send([staged(A, 1), staged(B, 1)])
    assert len(broker.brokers.of(ProduceRequest)) == 3


def test_only_a_partition_that_failed_is_sent_again(broker: TransactionBroker, transaction: ClientTransaction) -> None:
    broker.errors[A] = [NotLeaderOrFollower.code]
    stored: list[tuple[object, Offset]] = []
    transaction.on_stored = lambda batch_, offset: stored.append((batch_.tag, offset))
    transaction.send([staged(A, 2, "a"), staged(B, 1, "b")])
    assert (broker.sequences(A), broker.sequences(B)) == ([0, 0], [0])
    assert stored == [("b", 200), ("a", 100)]


def test_a_batch_that_the_broker_has_already_is_stored(
    broker: TransactionBroker, transaction: ClientTransaction
) -> None:
    broker.errors[A] = [DUPLICATE_SEQUENCE]
    transaction.send([staged(A, 2), staged(A, 2)])
    assert broker.sequences(A) == [0, 2]


def test_an_error_that_a_retry_does_not_mend_ends_the_send(
    broker: TransactionBroker, transaction: ClientTransaction
) -> None:
    broker.errors[A] = [MESSAGE_TOO_LARGE]
    with pytest.raises(RequestFailed, match="transaction writer: orders-0"):
        transaction.send([staged(A, 2)])
    assert len(broker.sent) == 1


@pytest.mark.parametrize("code", [InvalidProducerEpoch.code, ProducerFenced.code])
def test_a_producer_that_was_replaced_is_fenced(
    broker: TransactionBroker, transaction: ClientTransaction, code: int
) -> None:
    broker.errors[A], broker.end_error = [code], code
    with pytest.raises(Fenced, match="another producer took over the transactional id writer: orders-0 is refused"):
        transaction.send([staged(A, 1)])
    with pytest.raises(Fenced, match="commit is refused"):
        transaction.commit()
    transaction.abort()  # the new producer has aborted it
    assert [request.committed for request in broker.brokers.of(EndTxnRequest)] == [True, False]


def test_an_error_at_the_start_does_not_fence(broker: TransactionBroker, transaction: ClientTransaction) -> None:
    broker.begin_error = ProducerFenced.code
    with pytest.raises(RequestFailed, match="transaction writer: begin"):
        transaction.begin()


def test_offsets_go_through_both_coordinators(broker: TransactionBroker, transaction: ClientTransaction) -> None:
    transaction.commit_offsets("group", {A: GroupOffset(5, "note")})
    lookups = broker.brokers.of(FindCoordinatorRequest)
    assert [(lookup.key_type, lookup.key) for lookup in lookups] == [(TRANSACTION, "writer"), (GROUP, "group")]
    assert [type(request) for request in broker.brokers.requests if "Offset" in type(request).__name__] == [
        AddOffsetsToTxnRequest,
        TxnOffsetCommitRequest,
    ]
    (commit,) = broker.brokers.of(TxnOffsetCommitRequest)
    part = commit.topics[0].partitions[0]
    assert (part.committed_offset, part.committed_metadata) == (5, "note")
    assert (commit.producer_id, commit.producer_epoch) == (7, 3)


def test_offsets_that_the_group_refuses_are_an_error(broker: TransactionBroker, transaction: ClientTransaction) -> None:
    broker.offsets_error = MESSAGE_TOO_LARGE
    with pytest.raises(RequestFailed, match="group group: orders-0"):
        transaction.commit_offsets("group", {A: GroupOffset(5, "note")})
