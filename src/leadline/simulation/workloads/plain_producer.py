"""A producer without sequence numbers: retries may duplicate records, and records with acks=1 may be lost."""

from leadline.model import ACKS_ALL, TopicPartition
from leadline.records.build import BatchFields
from leadline.simulation.client import NoAnswer, NotServed, is_retriable, name_of
from leadline.simulation.client_history import Delivery
from leadline.simulation.workloads.workload import ProducerWorkload

PAUSE_S = 0.6
ACKS_LEADER = 1


class PlainProducer(ProducerWorkload):
    prefix = "plain"

    async def run(self) -> None:
        acks = self.chance.choice([ACKS_ALL, ACKS_LEADER])
        self.delivery = Delivery.AT_LEAST_ONCE if acks == ACKS_ALL else Delivery.AT_MOST_ONCE
        while not self.is_stopping:
            await self._send(self.chance.choice(self.partitions), self.chance.randint(1, 5), acks)
            await self.pause(PAUSE_S)

    async def _send(self, tp: TopicPartition, count: int, acks: int) -> None:
        attempts = self.new_attempts(tp, count)
        batch = self.batch_of(attempts, BatchFields())
        while True:
            try:
                answer = await self.client.produce(tp, batch, acks=acks)
            except (NoAnswer, NotServed) as error:
                self.history.count(f"Produce: {type(error).__name__}")
            else:
                if not answer.error_code:
                    self.acknowledged(tp, attempts, answer.base_offset)
                    return
                self.history.count(f"Produce: {name_of(answer.error_code)}")
                self.client.forget_leader(tp)
                if not is_retriable(answer.error_code):
                    self.give_up(attempts)
                    return
            await self.client.back_off()
