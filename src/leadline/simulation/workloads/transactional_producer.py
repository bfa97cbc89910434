"""A transactional producer: it writes to several partitions at once, commits or aborts, and fences other instances.

It keeps to the rules of Kafka's client. A record whose fate is unknown makes it abort and continue with a new epoch,
so that a late copy of that record cannot become part of its next transaction.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import TypeVar

from leadline.errors import (
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    OffsetOutOfRange,
    ProducerFenced,
)
from leadline.model import Offset, TopicPartition
from leadline.records.build import BatchFields
from leadline.simulation.client import TRANSACTION, NoAnswer, NotServed, SimulatedClient, is_retriable, name_of
from leadline.simulation.client_history import Attempt, Poll, TransactionAttempt
from leadline.simulation.workloads.workload import ProducerWorkload, WorkloadContext
from leadline.wire.classes import Message
from leadline.wire.messages import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)

M = TypeVar("M", bound=Message)
PAUSE_S, FENCED_PAUSE_S = 0.8, 6.0
TIMEOUT_MS = 10_000  # after that the coordinator aborts a transaction
DELIVERY_S = 8.0  # after that the producer aborts it
DUPLICATE_SEQUENCE_NUMBER = 46
FENCED = frozenset(
    {ProducerFenced.code, InvalidProducerEpoch.code, InvalidProducerIdMapping.code, InvalidTxnState.code}
)


class BeginAgain(Exception):
    """Another instance has the transactional id now, or the coordinator has ended the transaction."""


class MustAbort(Exception):
    """A record was refused, or its fate is unknown."""


class TransactionalProducer(ProducerWorkload):
    """Its name is its transactional id, and a letter for the instance."""

    prefix = "transactions"

    def __init__(self, client: SimulatedClient, world: WorkloadContext) -> None:
        super().__init__(client, world)
        self.transactional_id = client.name[:-1]
        self._id = self._epoch = -1
        self._sequences: dict[TopicPartition, int] = {}
        self._is_begun = False  # for all that the coordinator may know
        self._positions: dict[TopicPartition, Offset] = {}  # of what it reads within transactions

    async def run(self) -> None:
        while not self.is_stopping:
            try:
                if self._id < 0:
                    await self._begin()
                await self._play()
            except BeginAgain:
                self._id = self._epoch = -1
                await self.pause(FENCED_PAUSE_S)
            await self.pause(PAUSE_S)

    async def _play(self) -> None:
        transaction = TransactionAttempt(self.transactional_id, self.name)
        self.history.transactions.append(transaction)
        self._is_begun = False
        try:
            await self.transact(transaction)
        except MustAbort:
            if self._is_begun:
                await self.end(is_commit=False)
                await self._begin()
            return
        if self.chance.random() < 0.05:  # it forgets about it: the coordinator aborts it in the end
            await self.pause(TIMEOUT_MS / 1000)
            raise BeginAgain
        transaction.is_commit_requested = self.chance.random() < 0.75
        await self.end(is_commit=transaction.is_commit_requested)
        transaction.is_committed = transaction.is_commit_requested

    async def transact(self, transaction: TransactionAttempt) -> None:
        partitions = self.chance.sample(self.partitions, self.chance.randint(1, min(3, len(self.partitions))))
        await self.add_partitions(partitions)
        for tp in partitions:
            await self._read(transaction)
            await self.send(self.new_attempts(tp, self.chance.randint(1, 4), transaction))

    async def _read(self, transaction: TransactionAttempt) -> None:
        """Some committed records, if they can be had at once."""
        tp = self.chance.choice(self.partitions)
        start = self._positions.get(tp, 0)
        try:
            part = await self.client.fetch(tp, start, is_committed=True, max_wait_ms=0)
        except (NoAnswer, NotServed):
            return
        if part.error_code:
            if part.error_code == OffsetOutOfRange.code:
                with suppress(NoAnswer, NotServed):
                    self._positions[tp] = max(start, await self.client.log_start(tp))
            self.client.forget_leader(tp)
            return
        values, end = self.client.records_of(part, start, is_committed=True)
        self._positions[tp] = end
        self.history.transaction_polls.append(Poll(self.name, tp, True, start, end, values))
        transaction.reads += values.values()

    # Requests

    async def _begin(self) -> None:
        """With an id of its own this is the next epoch. Without, all other instances are fenced."""
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=TIMEOUT_MS,
            producer_id=self._id,
            producer_epoch=self._epoch,
        )
        response = await self.ask(request, InitProducerIdResponse, 4)
        self._id, self._epoch = response.producer_id, response.producer_epoch
        self._sequences.clear()

    async def add_partitions(self, partitions: Sequence[TopicPartition]) -> None:
        """The coordinator's transaction begins with these."""
        self._is_begun = True
        topics: dict[str, list[int]] = {}
        for tp in partitions:
            topics.setdefault(tp.topic, []).append(tp.partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self._id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name, partitions=numbers)
                for name, numbers in topics.items()
            ],
        )
        await self.ask(request, AddPartitionsToTxnResponse, 3)

    async def end(self, *, is_commit: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._id,
            producer_epoch=self._epoch,
            committed=is_commit,
        )
        await self.ask(request, EndTxnResponse, 3)

    async def ask(self, request: Message, kind: type[M], version: int) -> M:
        """The coordinator, until it agrees. Raises BeginAgain."""
        coordinator, name = (TRANSACTION, self.transactional_id), type(request).__name__.removesuffix("Request")
        while True:
            try:
                response = await self.client.ask_coordinator(coordinator, request, kind, version)
            except (NoAnswer, NotServed) as error:
                self.history.count(f"{name}: {type(error).__name__}")
            else:
                code = code_of(response)
                if not code:
                    return response
                self.history.count(f"{name}: {name_of(code)}")
                if code in FENCED or not is_retriable(code):
                    raise BeginAgain(name_of(code))
                self.client.forget_coordinator(coordinator)
            await self.client.back_off()

    async def send(self, attempts: Sequence[Attempt]) -> None:
        """Sends to one partition. Raises MustAbort."""
        tp = attempts[0].tp
        sequence = self._sequences.get(tp, 0)
        fields = BatchFields(
            producer_id=self._id, producer_epoch=self._epoch, base_sequence=sequence, transactional=True
        )
        batch = self.batch_of(attempts, fields)
        give_up_s = self.clock.monotonic_s() + DELIVERY_S
        while self.clock.monotonic_s() < give_up_s:
            try:
                answer = await self.client.produce(tp, batch, self.transactional_id)
            except (NoAnswer, NotServed) as error:
                self.history.count(f"Produce: {type(error).__name__}")
            else:
                code = answer.error_code
                if not code or code == DUPLICATE_SEQUENCE_NUMBER:
                    self._sequences[tp] = sequence + len(attempts)
                    if not code:
                        self.acknowledged(tp, attempts, answer.base_offset)
                    return
                self.history.count(f"Produce: {name_of(code)}")
                if not is_retriable(code):
                    break
                self.client.forget_leader(tp)
            await self.client.back_off()
        self.give_up(attempts)
        raise MustAbort


def code_of(response: Message) -> int:
    """The first error of a response of a coordinator."""
    if isinstance(response, AddPartitionsToTxnResponse):
        results = (r for topic in response.results_by_topic_v3_and_below for r in topic.results_by_partition)
        codes = [result.partition_error_code for result in results]
        return max(codes, key=lambda code: (code != 0, code != OPERATION_NOT_ATTEMPTED), default=0)
    code: int = response.error_code  # type: ignore[attr-defined]
    return code


OPERATION_NOT_ATTEMPTED = 55  # another partition of the request was refused
