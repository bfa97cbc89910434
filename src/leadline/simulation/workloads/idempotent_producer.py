"""An idempotent producer: a batch is repeated with its sequence number until it is acknowledged."""

from leadline.errors import OutOfOrderSequence
from leadline.model import TopicPartition
from leadline.records.build import BatchFields
from leadline.simulation.client import NoAnswer, NotServed, is_retriable, name_of
from leadline.simulation.workloads.workload import ProducerWorkload
from leadline.wire.messages import InitProducerIdRequest, InitProducerIdResponse

DUPLICATE_SEQUENCE_NUMBER = 46
PAUSE_S = 0.3


class IdempotentProducer(ProducerWorkload):
    """One batch at a time and partition. After an error that is not retriable it begins again with a new id."""

    prefix = "producer"
    _id = _epoch = -1

    async def run(self) -> None:
        self._sequences: dict[TopicPartition, int] = {}
        while not self.is_stopping:
            await self._send(self.chance.choice(self.partitions), self.chance.randint(1, 5))
            await self.pause(PAUSE_S)

    async def _begin(self) -> None:
        while True:
            try:
                request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
                response = await self.client.ask_any(request, InitProducerIdResponse, 4)
            except NoAnswer:
                self.history.count("InitProducerId: no answer")
            else:
                if not response.error_code:
                    self._id, self._epoch = response.producer_id, response.producer_epoch
                    self._sequences.clear()
                    return
                self.history.count(f"InitProducerId: {name_of(response.error_code)}")
            await self.client.back_off()

    async def _send(self, tp: TopicPartition, count: int) -> None:
        """Until it is acknowledged, or refused for good."""
        if self._id < 0:
            await self._begin()
        attempts = self.new_attempts(tp, count)
        sequence = self._sequences.get(tp, 0)
        fields = BatchFields(producer_id=self._id, producer_epoch=self._epoch, base_sequence=sequence)
        batch = self.batch_of(attempts, fields)
        while True:
            try:
                answer = await self.client.produce(tp, batch)
            except (NoAnswer, NotServed) as error:
                self.history.count(f"Produce: {type(error).__name__}")
            else:
                code = answer.error_code
                if not code:
                    self.acknowledged(tp, attempts, answer.base_offset)
                    self._sequences[tp] = sequence + count
                    return
                self.history.count(f"Produce: {name_of(code)}")
                if code == DUPLICATE_SEQUENCE_NUMBER:  # it is there, and the broker no longer knows where
                    self._sequences[tp] = sequence + count
                    self.give_up(attempts)
                    return
                if not is_retriable(code) or code == OutOfOrderSequence.code:
                    self.give_up(attempts)
                    self._id = -1
                    return
                self.client.forget_leader(tp)
            await self.client.back_off()
