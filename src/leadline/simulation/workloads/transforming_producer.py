"""Consume, transform, produce: each committed record of the input becomes one record of the output, exactly once.

Its position in the input is committed by the transaction that writes the output.
"""

from leadline.errors import OffsetOutOfRange
from leadline.model import Offset, TopicPartition
from leadline.simulation.client import GROUP, NoAnswer, NotServed, SimulatedClient, is_retriable, name_of
from leadline.simulation.client_history import TransactionAttempt
from leadline.simulation.group_offsets import committed_offsets
from leadline.simulation.workloads.transactional_producer import MustAbort, TransactionalProducer
from leadline.simulation.workloads.workload import WorkloadContext
from leadline.wire.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)


class TransformingProducer(TransactionalProducer):
    prefix = "transform"

    def __init__(self, client: SimulatedClient, world: WorkloadContext) -> None:
        super().__init__(client, world)
        self._inputs, self.partitions = world.partitions, world.outputs
        self.group = self.transactional_id

    async def transact(self, transaction: TransactionAttempt) -> None:
        tp = self.chance.choice(self._inputs)
        start = max((await committed_offsets(self.client, self.history, self.group, [tp]))[tp], 0)
        try:
            part = await self.client.fetch(tp, start, is_committed=True)
            log_start = await self.client.log_start(tp) if part.error_code == OffsetOutOfRange.code else -1
        except (NoAnswer, NotServed) as error:
            raise MustAbort from error
        if part.error_code and log_start <= start:
            self.client.forget_leader(tp)
            raise MustAbort
        values: dict[Offset, bytes] = {}
        end = log_start
        if not part.error_code:
            values, end = self.client.records_of(part, start, is_committed=True)
        limit = self.chance.randint(1, 20)
        if len(values) > limit:
            values = dict(sorted(values.items())[:limit])
            end = max(values) + 1
        output = self.chance.choice(self.partitions)
        await self.add_partitions([output])
        if values:
            attempts = self.new_attempts(output, len(values), transaction)
            for attempt, offset in zip(attempts, sorted(values), strict=True):
                attempt.source = (tp, offset)
            await self.send(attempts)
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._id,
            producer_epoch=self._epoch,
            group_id=self.group,
        )
        await self.ask(request, AddOffsetsToTxnResponse, 3)
        await self._commit_offset(tp, end)

    async def _commit_offset(self, tp: TopicPartition, offset: Offset) -> None:
        """Raises MustAbort."""
        partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
            partition_index=tp.partition, committed_offset=offset
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=self.group,
            producer_id=self._id,
            producer_epoch=self._epoch,
            topics=[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=tp.topic, partitions=[partition])],
        )
        while True:
            try:
                response = await self.client.ask_coordinator((GROUP, self.group), request, TxnOffsetCommitResponse, 3)
            except (NoAnswer, NotServed) as error:
                self.history.count(f"TxnOffsetCommit: {type(error).__name__}")
            else:
                code = response.topics[0].partitions[0].error_code
                if not code:
                    return
                self.history.count(f"TxnOffsetCommit: {name_of(code)}")
                if not is_retriable(code):
                    raise MustAbort
                self.client.forget_coordinator((GROUP, self.group))
            await self.client.back_off()
