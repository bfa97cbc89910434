"""One transaction of one producer: the driver makes the batches of many tasks visible at once.

    begin   raises the producer's epoch: an earlier producer of the id is fenced, and its open transaction is aborted
    add     registers the partitions with the coordinator
    send    sends the batches of each partition in order, with sequence numbers: one that is sent twice is stored once
    commit_offsets   commits offsets and metadata for a group, together with the records
    commit  or abort

The state of a transaction is the coordinator's; a crash between any two of these steps leaves no visible record.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from leadline.errors import InvalidProducerEpoch, ProducerFenced, TransactionCoordinatorFenced
from leadline.model import NO_PRODUCER_ID, Offset, TopicPartition, by_topic
from leadline.records.batch import sequence_after
from leadline.spark.batches.encode import signed
from leadline.spark.client.cluster import GROUP, TRANSACTION, ClusterClient, GroupOffset
from leadline.spark.client.connection import AccessRefused, BlockingConnection, Unreachable
from leadline.spark.client.failures import RequestFailed
from leadline.spark.client.retries import Retries
from leadline.spark.errors import JobFailed
from leadline.wire.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

REQUEST_BYTES = 8 << 20  # of batches in one request
DUPLICATE_SEQUENCE = 46
FENCED = {InvalidProducerEpoch.code, ProducerFenced.code, TransactionCoordinatorFenced.code}


class Fenced(JobFailed):
    """Another producer has taken over the transactional id."""


@dataclass(frozen=True, slots=True)
class StagedBatch:
    """A batch to be sent. Its bytes are loaded just before."""

    tp: TopicPartition
    size: int
    count: int
    load: Callable[[], bytes]
    tag: object = None  # the caller's own, for `on_stored`


@dataclass(slots=True)
class ClientTransaction:
    cluster: ClusterClient
    transactional_id: str
    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    epoch: int = -1
    sequences: dict[TopicPartition, int] = field(default_factory=dict)  # the next of each partition
    ends: dict[TopicPartition, Offset] = field(default_factory=dict)  # after the last record of each
    on_stored: Callable[[StagedBatch, Offset], None] | None = None  # called with each stored batch and its base offset

    def begin(self) -> None:
        def ask(connection: BlockingConnection) -> None:
            request = InitProducerIdRequest(
                transactional_id=self.transactional_id, transaction_timeout_ms=self.timeout_ms
            )
            answer = connection.ask(request, InitProducerIdResponse)
            self._check("begin", answer.error_code)
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

        self.cluster.ask_coordinator(TRANSACTION, self.transactional_id, ask)

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        topics = [
            AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name, partitions=[tp.partition for tp in tps])
            for name, tps in by_topic(partitions).items()
        ]

        def ask(connection: BlockingConnection) -> None:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=topics,
            )
            answer = connection.ask(request, AddPartitionsToTxnResponse)
            for topic in answer.results_by_topic_v3_and_below:
                for part in topic.results_by_partition:
                    self._check(f"{topic.name}-{part.partition_index}", part.partition_error_code)

        self.cluster.ask_coordinator(TRANSACTION, self.transactional_id, ask)

    # Records

    def send(self, batches: Iterable[StagedBatch]) -> None:
        """Sends all batches, those of a partition in order."""
        queues: dict[TopicPartition, deque[StagedBatch]] = defaultdict(deque)
        for batch in batches:
            queues[batch.tp].append(batch)
        patience = Retries(self.cluster.timeout_s)
        while queues:
            try:
                for connection, round_ in self._rounds(queues):
                    self.cluster.using(connection, partial(self._produce, connection, round_, queues))
                    patience = Retries(self.cluster.timeout_s)
            except (Unreachable, RequestFailed) as error:
                if isinstance(error, RequestFailed) and not error.retriable:
                    raise
                patience.wait(error)
                for tp in queues:
                    self.cluster.forget_leaders(tp.topic)

    def _rounds(
        self, queues: Mapping[TopicPartition, deque[StagedBatch]]
    ) -> list[tuple[BlockingConnection, list[StagedBatch]]]:
        """Rounds of requests: for each leader, one batch of each of its partitions, as many as fit into a request."""
        rounds: dict[BlockingConnection, list[list[StagedBatch]]] = defaultdict(lambda: [[]])
        for tp, queue in queues.items():
            requests = rounds[self.cluster.leader(tp)]
            if requests[-1] and sum(batch.size for batch in requests[-1]) + queue[0].size > REQUEST_BYTES:
                requests.append([])
            requests[-1].append(queue[0])
        return [(connection, request) for connection, requests in rounds.items() for request in requests]

    def _produce(
        self,
        connection: BlockingConnection,
        batches: list[StagedBatch],
        queues: dict[TopicPartition, deque[StagedBatch]],
    ) -> None:
        by_tp = {batch.tp: batch for batch in batches}
        topics = [
            ProduceRequest.TopicProduceData(
                name=name,
                partition_data=[
                    ProduceRequest.PartitionProduceData(index=tp.partition, records=self._signed(by_tp[tp]))
                    for tp in tps
                ],
            )
            for name, tps in by_topic(by_tp).items()
        ]
        timeout_ms = round(self.cluster.security.timeout_s * 1000)
        request = ProduceRequest(
            transactional_id=self.transactional_id, acks=-1, timeout_ms=timeout_ms, topic_data=topics
        )
        answer = connection.ask(request, ProduceResponse)
        failed: RequestFailed | None = None
        for topic in answer.responses:
            for part in topic.partition_responses:
                tp = TopicPartition(topic.name, part.index)
                if part.error_code in (0, DUPLICATE_SEQUENCE):
                    self._stored(queues, by_tp[tp], part.base_offset)
                else:
                    failed = self._error(f"{tp}", part.error_code, part.error_message)
        if failed is not None:
            raise failed

    def _signed(self, batch: StagedBatch) -> bytearray:
        return signed(batch.load(), self.producer_id, self.epoch, self.sequences.get(batch.tp, 0))

    def _stored(
        self, queues: dict[TopicPartition, deque[StagedBatch]], batch: StagedBatch, base_offset: Offset
    ) -> None:
        tp = batch.tp
        self.sequences[tp] = sequence_after(self.sequences.get(tp, 0), batch.count)
        self.ends[tp] = base_offset + batch.count
        queues[tp].popleft()
        if not queues[tp]:
            del queues[tp]
        if self.on_stored is not None:
            self.on_stored(batch, base_offset)

    # Commit and abort

    def commit_offsets(self, group: str, notes: Mapping[TopicPartition, GroupOffset]) -> None:
        """Offsets that the group commits if the transaction commits."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group,
        )

        def add(connection: BlockingConnection) -> None:
            self._check(f"group {group}", connection.ask(request, AddOffsetsToTxnResponse).error_code)

        def commit(connection: BlockingConnection) -> None:
            answer = connection.ask(self._offsets(group, notes), TxnOffsetCommitResponse)
            for topic in answer.topics:
                for part in topic.partitions:
                    self._check(f"group {group}: {topic.name}-{part.partition_index}", part.error_code)

        self.cluster.ask_coordinator(TRANSACTION, self.transactional_id, add)
        self.cluster.ask_coordinator(GROUP, group, commit)

    def _offsets(self, group: str, notes: Mapping[TopicPartition, GroupOffset]) -> TxnOffsetCommitRequest:
        return TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[
                TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
                    name=name,
                    partitions=[
                        TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
                            partition_index=tp.partition,
                            committed_offset=notes[tp].offset,
                            committed_metadata=notes[tp].metadata,
                        )
                        for tp in tps
                    ],
                )
                for name, tps in by_topic(notes).items()
            ],
        )

    def commit(self) -> None:
        self._end(committed=True)

    def abort(self) -> None:
        """Best effort: the next `begin`, or the transaction timeout, aborts an open transaction."""
        with suppress(RequestFailed, Fenced, Unreachable, AccessRefused):
            self._end(committed=False)

    def _end(self, *, committed: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=committed,
        )

        def ask(connection: BlockingConnection) -> None:
            self._check("commit" if committed else "abort", connection.ask(request, EndTxnResponse).error_code)

        self.cluster.ask_coordinator(TRANSACTION, self.transactional_id, ask)

    def _check(self, what: str, code: int) -> None:
        if code:
            raise self._error(what, code)

    def _error(self, what: str, code: int, more: str | None = None) -> RequestFailed:
        if code in FENCED and what != "begin":
            raise Fenced(f"another producer took over the transactional id {self.transactional_id}: {what} is refused")
        return RequestFailed(f"transaction {self.transactional_id}: {what}", code, more)
