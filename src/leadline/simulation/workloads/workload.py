"""What all workloads have: a client, the history that they write, and when to end."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from leadline.model import TopicPartition
from leadline.records.build import BatchFields, build
from leadline.records.record import Record
from leadline.runtime.ports import Time
from leadline.simulation.client import SimulatedClient
from leadline.simulation.client_history import Attempt, ClientHistory, Delivery, TransactionAttempt

LONGEST_KEY = 200  # so that batches lie across sectors of the disk


@dataclass(slots=True)
class WorkloadContext:
    """What workloads share."""

    history: ClientHistory
    clock: Time
    partitions: Sequence[TopicPartition]  # that producers write to and readers read
    outputs: Sequence[TopicPartition] = ()  # of those that transform
    is_calm: bool = False  # the faults are over, and no process starts or ends any more


class Workload:
    """`run` continues until `stop()`, and then finishes its work."""

    prefix = ""  # of the names of such clients

    def __init__(self, client: SimulatedClient, world: WorkloadContext) -> None:
        self.client, self.history, self.clock, self.partitions = client, world.history, world.clock, world.partitions
        self.chance = client.chance
        self._stopping = asyncio.Event()

    @property
    def name(self) -> str:
        return self.client.name

    async def run(self) -> None:
        raise NotImplementedError

    async def pause(self, mean_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self.chance.uniform(0, 2 * mean_s)):
                await self._stopping.wait()

    def stop(self) -> None:
        self._stopping.set()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()


class ProducerWorkload(Workload):
    """It numbers its records by partition, so that a checker sees their order."""

    delivery = Delivery.EXACTLY_ONCE

    def __init__(self, client: SimulatedClient, world: WorkloadContext) -> None:
        super().__init__(client, world)
        self._numbers: dict[TopicPartition, int] = {}
        self._sent_s = 0.0  # when the last records were sent first

    def new_attempts(
        self, tp: TopicPartition, count: int, transaction: TransactionAttempt | None = None
    ) -> list[Attempt]:
        attempts = []
        for _ in range(count):
            number = self._numbers.get(tp, 0)
            self._numbers[tp] = number + 1
            value = f"{self.name} {tp} {number}".encode()
            attempt = Attempt(self.name, number, value, tp, delivery=self.delivery, transaction=transaction)
            attempt.sent_s = self.clock.monotonic_s()
            attempts.append(attempt)
        self._sent_s = self.clock.monotonic_s()
        self.history.attempts += attempts
        if transaction is not None:
            transaction.attempts += attempts
        return attempts

    def batch_of(self, attempts: Sequence[Attempt], fields: BatchFields) -> bytes:
        now_ms, key = self.clock.now_ms(), b"k" * self.chance.randint(1, LONGEST_KEY)
        return bytes(build([Record(n, now_ms, key, a.value) for n, a in enumerate(attempts)], fields))

    def acknowledged(self, tp: TopicPartition, attempts: Sequence[Attempt], base_offset: int) -> None:
        for n, attempt in enumerate(attempts):
            attempt.offset = base_offset + n
            attempt.acknowledged_s = self.clock.monotonic_s()
        now_s = self.history.acknowledged_s[tp] = self.clock.monotonic_s()
        self.history.slowest_s[tp] = max(self.history.slowest_s.get(tp, 0.0), now_s - self._sent_s)
        if self.delivery is not Delivery.AT_MOST_ONCE:
            self.history.on_acknowledged(tp, base_offset + len(attempts) - 1)

    @staticmethod
    def give_up(attempts: Sequence[Attempt]) -> None:
        for attempt in attempts:
            attempt.is_given_up = True
