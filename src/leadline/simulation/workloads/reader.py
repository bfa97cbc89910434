"""A consumer without a group: it polls all partitions, from their beginning, during faults."""

from contextlib import suppress

from leadline.errors import OffsetOutOfRange
from leadline.model import Offset, TopicPartition
from leadline.simulation.client import NoAnswer, NotServed, SimulatedClient, name_of
from leadline.simulation.client_history import Poll
from leadline.simulation.workloads.workload import Workload, WorkloadContext

PAUSE_S = 1.0
MAX_WAIT_MS = 500


class PollingReader(Workload):
    """Polls. In the end it reads up to where each partition ends."""

    prefix = "reader"

    def __init__(self, client: SimulatedClient, world: WorkloadContext, *, is_committed: bool = False) -> None:
        super().__init__(client, world)
        self._is_committed = is_committed
        self.positions = dict.fromkeys(world.partitions, 0)
        self._ends: dict[TopicPartition, Offset] = {}  # once it is stopping

    async def run(self) -> None:
        while not self.is_stopping:
            await self._poll(self.chance.choice(list(self.positions)))
            await self.pause(PAUSE_S)
        while unread := [tp for tp, position in self.positions.items() if self._ends.get(tp, -1) != position]:
            await self._poll(unread[0])

    async def _poll(self, tp: TopicPartition) -> None:
        start, is_last = self.positions[tp], self.is_stopping
        try:
            part = await self.client.fetch(tp, start, is_committed=self._is_committed, max_wait_ms=MAX_WAIT_MS)
        except (NoAnswer, NotServed) as error:
            self.history.count(f"Fetch: {type(error).__name__}")
            await self.client.back_off()
            return
        if part.error_code:
            self.history.count(f"Fetch: {name_of(part.error_code)}")
            if part.error_code == OffsetOutOfRange.code:  # the records there were deleted
                with suppress(NoAnswer, NotServed):
                    self.positions[tp] = max(start, await self.client.log_start(tp))
            self.client.forget_leader(tp)
            await self.client.back_off()
            return
        values, end = self.client.records_of(part, start, is_committed=self._is_committed)
        self.positions[tp] = end
        if end > start:
            self.history.polls.append(Poll(self.name, tp, self._is_committed, start, end, values))
        if is_last:
            self._ends[tp] = part.last_stable_offset if self._is_committed else part.high_watermark


class CommittedReader(PollingReader):
    prefix = "committed"

    def __init__(self, client: SimulatedClient, world: WorkloadContext) -> None:
        super().__init__(client, world, is_committed=True)
