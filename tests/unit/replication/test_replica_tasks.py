"""The periodic tasks: late followers leave the ISR, and high watermarks reach the disk."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from leadline.replication.replica_tasks import ReplicaTasks
from tests.support import in_memory
from tests.support.hosted import FOLLOWER, ME, TP, partition
from tests.support.in_process import broker_in_process
from tests.support.logs import ManualClock, batch
from tests.support.settings import live_settings
from tests.support.waiting import eventually

OFTEN = live_settings(
    {
        "replica.lag.time.max.ms": "20",
        "replica.fetch.wait.max.ms": "10",
        "replica.high.watermark.checkpoint.interval.ms": "10",
    }
)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    yield from in_memory.directory()


def test_a_late_follower_is_to_leave_and_high_watermarks_are_written(tmp_path: Path) -> None:
    async def main() -> None:
        async with partition(tmp_path) as at:
            at.lead(ME, FOLLOWER)
            at.hosted.append_as_leader(batch(2))
            at.fetched(2)
            at.hosted.append_as_leader(batch(1))
            clock = at.context.clock
            assert isinstance(clock, ManualClock)
            clock.ms += at.hosted.leader.lag_ms + 1
            tasks = ReplicaTasks({TP: at.hosted}, at.dirs, OFTEN)
            for _ in range(2):  # the second time they run already
                tasks.start_checkpoints()
                tasks.start_isr_expiration()
            file = next(iter(at.dirs.dirs.values())).file("replication-offset-checkpoint")
            await eventually(lambda: at.hosted.leader.pending is not None and "orders 0 2" in _text(file))
            assert at.hosted.leader.pending is not None
            assert at.hosted.leader.pending.proposed.isr == (ME,)
            await tasks.stop()

    asyncio.run(main())


def _text(path: str) -> str:
    return Path(path).read_text() if Path(path).exists() else ""


def test_high_watermarks_are_written_as_soon_as_there_is_a_partition(tmp_path: Path) -> None:
    async def main() -> None:
        async with partition(tmp_path) as at:
            at.lead(ME)
            tasks = ReplicaTasks({TP: at.hosted}, at.dirs, live_settings())  # the next time after 5 s
            tasks.start_checkpoints()
            file = next(iter(at.dirs.dirs.values())).file("replication-offset-checkpoint")
            await eventually(lambda: "orders 0 0" in _text(file))
            await tasks.stop()

    asyncio.run(main())


def test_the_high_watermark_of_a_partition_without_followers_is_written_while_the_broker_runs(tmp_path: Path) -> None:
    async def main() -> None:
        settings = {"replica.high.watermark.checkpoint.interval.ms": "10"}
        async with broker_in_process(tmp_path, settings=settings) as broker:
            cluster = broker.services.cluster
            await cluster.create_topic(TP.topic, ((cluster.metadata.me.id,),), {})
            broker.services.replicas.hosted[TP].append_as_leader(batch(3))
            await eventually(lambda: "orders 0 3" in _text(str(tmp_path / "replication-offset-checkpoint")))

    asyncio.run(main())
