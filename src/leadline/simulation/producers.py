"""Producers of a simulation: a value is sent by the rules of an idempotent producer, and repeated as these say."""

import asyncio

from leadline.errors import OutOfOrderSequence
from leadline.model import TopicPartition
from leadline.records.build import BatchFields, build
from leadline.records.record import Record
from leadline.runtime.ports import Time
from leadline.simulation.client import NoAnswer, NotServed, SimulatedClient, is_retriable, name_of
from leadline.simulation.client_history import Attempt, ClientHistory
from leadline.wire.messages import InitProducerIdRequest, InitProducerIdResponse

DUPLICATE_SEQUENCE_NUMBER = 46


class IdempotentProducer:
    """One batch at a time and partition. After an error that is not retriable it begins again with a new id."""

    def __init__(self, client: SimulatedClient, history: ClientHistory, clock: Time) -> None:
        self._client, self._history, self._clock = client, history, clock
        self.is_stopping = False
        self._id, self._epoch = -1, -1
        self._sequences: dict[TopicPartition, int] = {}
        self._numbers: dict[TopicPartition, int] = {}

    async def run(self, partitions: list[TopicPartition], pause_s: float) -> None:
        while not self.is_stopping:
            tp = self._client.chance.choice(partitions)
            await self.send(tp, self._client.chance.randint(1, 5))
            await asyncio.sleep(self._client.chance.uniform(0, 2 * pause_s))

    async def _begin(self) -> None:
        while True:
            try:
                request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
                response = await self._client.ask_any(request, InitProducerIdResponse, 4)
            except NoAnswer:
                self._history.count("InitProducerId: no answer")
            else:
                if not response.error_code:
                    self._id, self._epoch = response.producer_id, response.producer_epoch
                    self._sequences.clear()
                    return
                self._history.count(f"InitProducerId: {name_of(response.error_code)}")
            await self._client.back_off()

    async def send(self, tp: TopicPartition, count: int) -> None:
        """Until it is acknowledged, or refused for good."""
        if self._id < 0:
            await self._begin()
        attempts = []
        for _ in range(count):
            number = self._numbers.get(tp, 0)
            self._numbers[tp] = number + 1
            value = f"{self._client.name} {tp} {number}".encode()
            attempts.append(Attempt(self._client.name, number, value, tp))
        self._history.attempts += attempts
        sequence = self._sequences.get(tp, 0)
        fields = BatchFields(producer_id=self._id, producer_epoch=self._epoch, base_sequence=sequence)
        now_ms = self._clock.now_ms()
        batch = bytes(build([Record(n, now_ms, b"k", a.value) for n, a in enumerate(attempts)], fields))
        while True:
            try:
                answer = await self._client.produce(tp, batch)
            except (NoAnswer, NotServed) as error:
                self._history.count(f"Produce: {type(error).__name__}")
            else:
                code = answer.error_code
                if not code:
                    self._acknowledged(tp, attempts, answer.base_offset)
                    self._sequences[tp] = sequence + count
                    return
                self._history.count(f"Produce: {name_of(code)}")
                if code == DUPLICATE_SEQUENCE_NUMBER:  # it is there, and the broker no longer knows where
                    self._sequences[tp] = sequence + count
                    for attempt in attempts:
                        attempt.is_given_up = True
                    return
                if not is_retriable(code) or code == OutOfOrderSequence.code:
                    for attempt in attempts:
                        attempt.is_given_up = True
                    self._id = -1
                    return
                self._client.forget_leader(tp)
            await self._client.back_off()

    def _acknowledged(self, tp: TopicPartition, attempts: list[Attempt], base_offset: int) -> None:
        for n, attempt in enumerate(attempts):
            attempt.offset = base_offset + n
        self._history.acknowledged_s[tp] = self._clock.monotonic_s()
