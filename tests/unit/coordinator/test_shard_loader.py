"""Loading of a shard: every record is replayed once, in order, whatever the size of a read; or the log is damaged."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import pytest

from leadline.coordinator.shard_loader import YIELD_BYTES, replay_log
from leadline.errors import CorruptFile, CorruptMessage
from leadline.log import names
from leadline.log.log import Log
from leadline.log.producer_state import AppendOrigin
from leadline.log.segment import BatchPosition, Segment
from leadline.model import TopicPartition
from leadline.records.batch import Header
from leadline.records.build import BatchFields, build_at
from leadline.records.record import Record
from leadline.replication.partition import LeaderAndIsr
from leadline.replication.replicas import Replicas
from tests.support import in_memory
from tests.support.dirs import log_dirs, opened
from tests.support.settings import live_settings

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
            replicas, shard = Replicas(dirs, 1, live_settings()), Recorder()
            hosted = await replicas.lead(TP, UUID(int=1), LeaderAndIsr(1, 0, (1,)), (1,))
            for n in range(batches):
                records = [(b"key %d" % n, b"x" * (YIELD_BYTES // 8)) for _ in range(2)]
                replicas.append(TP, build_at(5, records, BatchFields()), AppendOrigin.COORDINATOR)
            assert await replay_log(hosted.log, shard, buffer_bytes) == 2 * batches
            assert shard.offsets == list(range(2 * batches))

    asyncio.run(run())


BATCHES, DAMAGED, RECORDS_OF_A_BATCH = 9, 4, 2
PlacedBatch = tuple[Segment, BatchPosition]
LEADER_EPOCH = range(12, 16)  # what a leader writes into a batch: its CRC does not cover that


@asynccontextmanager
async def filled(place: Path, segment_bytes: str = "1000000") -> AsyncIterator[tuple[Log, list[PlacedBatch]]]:
    """A log with some batches, and where each of them lies."""
    async with opened(log_dirs(place, topic={"segment.bytes": segment_bytes})) as dirs:
        replicas = Replicas(dirs, 1, live_settings())
        hosted = await replicas.lead(TP, UUID(int=1), LeaderAndIsr(1, 0, (1,)), (1,))
        for n in range(BATCHES):
            records = [(b"key %d" % n, b"value") for _ in range(RECORDS_OF_A_BATCH)]
            replicas.append(TP, build_at(5, records, BatchFields()), AppendOrigin.COORDINATOR)
        log = hosted.log
        yield log, [(segment, batch) for segment in log.segments for batch in segment.batches()]


def overwrite(segment: Segment, position: int, data: bytes) -> None:
    with open(segment.path(names.LOG), "r+b") as file:
        file.seek(position)
        file.write(data)


@pytest.mark.parametrize("buffer_bytes", [1, 1 << 20])
@pytest.mark.parametrize("segment_bytes", ["200", "1000000"])
def test_any_changed_byte_of_a_batch_is_damage_at_its_position(
    place: Path, segment_bytes: str, buffer_bytes: int
) -> None:
    async def run() -> None:
        async with filled(place, segment_bytes) as (log, batches):
            segment, batch = batches[DAMAGED]
            assert (len(log.segments) > 3) is (segment_bytes == "200")
            intact = segment.file.pread(batch.size, batch.position)
            for at, byte in enumerate(intact):
                overwrite(segment, batch.position + at, bytes([byte ^ 0x40]))
                shard = Recorder()
                if at in LEADER_EPOCH:
                    assert await replay_log(log, shard, buffer_bytes) == BATCHES * RECORDS_OF_A_BATCH
                else:
                    with pytest.raises(CorruptFile) as raised:
                        await replay_log(log, shard, buffer_bytes)
                    assert (raised.value.path, raised.value.position) == (segment.path(names.LOG), batch.position), at
                overwrite(segment, batch.position + at, bytes([byte]))
            assert await replay_log(log, Recorder(), buffer_bytes) == BATCHES * RECORDS_OF_A_BATCH

    asyncio.run(run())


def test_a_file_that_ends_early_is_damage_where_it_ends(place: Path) -> None:
    async def run() -> None:
        async with filled(place) as (log, batches):
            segment, batch = batches[-1]
            os.truncate(segment.path(names.LOG), batch.position + batch.size - 1)
            with pytest.raises(CorruptFile, match=f"at byte {batch.position}: .* bytes instead of"):
                await replay_log(log, Recorder(), 1)

    asyncio.run(run())


def test_a_batch_that_the_shard_cannot_take_is_damage_at_its_position(place: Path) -> None:
    class Refusing(Recorder):
        def replay(self, header: Header, records: Iterable[Record]) -> None:
            if header.base_offset == DAMAGED * RECORDS_OF_A_BATCH:
                raise CorruptMessage("nonsense")

    async def run() -> None:
        async with filled(place) as (log, batches):
            with pytest.raises(CorruptFile, match=f"at byte {batches[DAMAGED][1].position}: nonsense"):
                await replay_log(log, Refusing(), 1 << 20)

    asyncio.run(run())
