"""The coordinator of transactions on real logs, with a clock to set, in a process that can be killed at any write."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple, Never
from uuid import UUID

from leadline.coordinator.marker_channel import MarkerChannel
from leadline.coordinator.marker_writer import MarkerWriter
from leadline.coordinator.transaction import ProducerIdAndEpoch
from leadline.coordinator.transaction_coordinator import TransactionCoordinator
from leadline.coordinator.transaction_shard import TRANSACTIONS_TOPIC
from leadline.errors import NotLeaderOrFollower, WireError
from leadline.log.log import AppendResult
from leadline.log.log_dirs import LogDirs
from leadline.log.producer_state import TRUSTED, AppendOrigin, Verification
from leadline.model import Buffer, TopicPartition
from leadline.records.batch import walk
from leadline.records.build import BatchFields, build
from leadline.records.control import ControlType, read_end_marker
from leadline.records.record import Record, records_of
from leadline.replication.partition import LeaderAndIsr
from leadline.replication.replicas import Replicas
from tests.support.dirs import log_dirs, opened
from tests.support.logs import ManualClock, whole_log
from tests.support.settings import live_settings

JOURNAL = TopicPartition(TRANSACTIONS_TOPIC, 0)
SETTINGS = live_settings()


class MortalReplicas(Replicas):
    """Counts what is written; killed before one of the writes, nothing is written any more."""

    def __init__(self, dirs: LogDirs) -> None:
        super().__init__(dirs, 1, SETTINGS)
        self.writes_left: int | None = None

    def append(
        self,
        tp: TopicPartition,
        batch: Buffer,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        verified: Verification | None = TRUSTED,
        acks: int = 1,
    ) -> AppendResult:
        if self.writes_left is not None:
            if self.writes_left == 0:
                raise NotLeaderOrFollower("the process was killed")
            self.writes_left -= 1
        return super().append(tp, batch, origin, verified, acks)


class NobodyElse:
    async def ask(self, *request: object) -> Never:
        raise AssertionError("there is no other broker")


class Node:
    def __init__(self, replicas: MortalReplicas, clock: ManualClock, producer_ids: list[int]) -> None:
        self.replicas, self.clock = replicas, clock
        self.deleted: set[TopicPartition] = set()
        self.offsets_ended: list[tuple[int, int, bool]] = []

        async def next_producer_id() -> int:
            producer_ids.append(len(producer_ids))
            return producer_ids[-1]

        self.markers = MarkerWriter(replicas, clock, self)
        markers = MarkerChannel(replicas.me, self.markers, self, NobodyElse(), SETTINGS)
        self.transactions = TransactionCoordinator(replicas, clock, SETTINGS, markers, lambda: 1, next_producer_id)

    def transaction_ended(self, partition: int, producer_id: int, *, committed: bool) -> None:
        self.offsets_ended.append((partition, producer_id, committed))

    def has_partition(self, tp: TopicPartition) -> bool:
        return tp not in self.deleted

    def leader_of(self, tp: TopicPartition) -> int:
        return self.replicas.me

    def hold_commits(self) -> asyncio.Event:
        """Until the event is set, nothing that is written from now on is committed."""
        runtime, replicated = self.transactions.runtime, asyncio.Event()
        is_committed, committed = runtime.is_committed, runtime.committed

        async def slowly(partition: int, offset: int) -> None:
            await replicated.wait()
            await committed(partition, offset)

        def in_time(partition: int, offset: int) -> bool:
            return replicated.is_set() and is_committed(partition, offset)

        runtime.is_committed, runtime.committed = in_time, slowly  # type: ignore[method-assign]
        return replicated

    def kill_after(self, writes: int) -> None:
        left = self.replicas.writes_left
        self.replicas.writes_left = writes if left is None else min(left, writes)

    def write(self, name: str, producer: ProducerIdAndEpoch, tp: TopicPartition, sequence: int, value: bytes) -> None:
        """A transactional record, verified first, as Produce does it."""
        verified = self.replicas.leading(tp).log.producer_state.begin_verification(
            *producer, sequence, self.clock.now_ms()
        )
        if verified is not None and (refused := self.transactions.verify(name, producer, [tp])[tp]) is not None:
            raise refused
        fields = BatchFields(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        data = build([Record(0, self.clock.now_ms(), None, value)], fields)
        self.replicas.append(tp, data, AppendOrigin.CLIENT, verified)

    async def settled(self) -> None:
        """Nothing is under way any more; once killed, nothing but what tries in vain."""
        while tasks := self._under_way():
            await asyncio.wait(tasks, timeout=None if self.replicas.writes_left is None else 0.01)
            if self.replicas.writes_left == 0:
                return

    def _under_way(self) -> list[asyncio.Task[None]]:
        runtime = self.transactions.runtime
        completing = [task for shard in runtime.shards.values() for task in shard.completing.values()]
        return [*runtime._loading.values(), *runtime._commit_waits, *completing]

    def is_stable(self, tp: TopicPartition) -> bool:
        """No transaction is open there."""
        log = self.replicas.hosted[tp].log
        return log.last_stable_offset == log.high_watermark == log.log_end


@asynccontextmanager
async def coordinator(
    place: Path,
    clock: ManualClock,
    producer_ids: list[int],
    partitions: Iterable[TopicPartition],
    *,
    epoch: int,
    writes: int | None = None,
) -> AsyncIterator[Node]:
    """Until the block ends, as if it were killed there; `writes`: or after so many."""
    async with opened(log_dirs(place, clock=clock)) as dirs:
        node = Node(MortalReplicas(dirs), clock, producer_ids)
        node.replicas.writes_left = writes
        for tp in (JOURNAL, *partitions):
            await node.replicas.lead(tp, UUID(int=abs(hash(tp.topic))), LeaderAndIsr(1, epoch, (1,)), (1,))
        await node.settled()
        try:
            yield node
        finally:
            node.kill_after(0)
            await node.transactions.stop()


class Ended(NamedTuple):
    """What a marker ended in a partition."""

    producer_id: int
    values: tuple[bytes, ...]
    committed: bool


def ended_in(node: Node, tp: TopicPartition) -> list[Ended]:
    """What readers of committed records make of a partition, and of what was aborted; empty ones left out."""
    data = whole_log(node.replicas.hosted[tp].log)
    open_ones: dict[int, list[bytes]] = defaultdict(list)
    transactions = []
    for position, header in walk(data):
        if header.is_control:
            marker = read_end_marker(data, position, header)
            assert marker is not None
            if values := open_ones.pop(header.producer_id, None):
                transactions.append(Ended(header.producer_id, tuple(values), marker.type is ControlType.COMMIT))
        else:
            records = records_of(data, position, header)
            open_ones[header.producer_id] += [record.value or b"" for record in records]
    assert not open_ones
    return transactions


async def init(node: Node, name: str, timeout_ms: int = 1000) -> ProducerIdAndEpoch:
    """Until what was left open is aborted."""
    for _ in range(20):
        try:
            return await node.transactions.init(name, timeout_ms, None)
        except WireError as error:
            if node.replicas.writes_left == 0:
                raise
            last = error
            await node.settled()
    raise last
