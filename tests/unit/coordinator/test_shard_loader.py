"""Loading of a shard: every record of the log is replayed once, in order, whatever the size of one read."""

import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path
from uuid import UUID

import pytest

from leadline.coordinator.shard_loader import YIELD_BYTES, replay_log
from leadline.log.producer_state import AppendOrigin
from leadline.model import TopicPartition
from leadline.records.batch import Header
from leadline.records.build import BatchFields, build_at
from leadline.records.record import Record
from leadline.replication.partition import LeaderAndIsr
from leadline.replication.replicas import Replicas
from tests.support import in_memory
from tests.support.dirs import log_dirs, opened

TP = TopicPartition("__journal", 0)


class Recorder:
    def __init__(self) -> None:
        self.offsets: list[int] = []

    def replay(self, header: Header, records: Iterable[Record]) -> None:
        self.offsets += [record.offset for record in records]


@pytest.fixture
def place() -> Iterator[Path]:
    yield from in_memory.directory()


@pytest.mark.parametrize("buffer_bytes", [1, 1000, 1 << 20])
@pytest.mark.parametrize("batches", [0, 1, 20])
def test_every_record_is_replayed_once_and_in_order(place: Path, batches: int, buffer_bytes: int) -> None:
    async def run() -> None:
        async with opened(log_dirs(place)) as dirs:
            replicas, shard = Replicas(dirs, 1), Recorder()
            hosted = await replicas.lead(TP, UUID(int=1), LeaderAndIsr(1, 0, (1,)), (1,))
            for n in range(batches):
                records = [(b"key %d" % n, b"x" * (YIELD_BYTES // 8)) for _ in range(2)]
                replicas.append(TP, build_at(5, records, BatchFields()), AppendOrigin.COORDINATOR)
            assert await replay_log(hosted, shard, buffer_bytes) == 2 * batches
            assert shard.offsets == list(range(2 * batches))

    asyncio.run(run())
