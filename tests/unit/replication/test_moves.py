"""Partitions that move to another log directory while they are in use: nothing acknowledged stays behind."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from leadline.broker.broker import Broker
from leadline.errors import NotLeaderOrFollower
from leadline.model import TopicPartition
from tests.support import in_memory
from tests.support.in_process import broker_in_process
from tests.support.logs import batch, offsets_in, whole_log

TP = TopicPartition("moving", 0)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    yield from in_memory.directory()


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await test()

    asyncio.run(main())


async def filled(broker: Broker, records: int = 50) -> str:
    """A partition with some records; the directory that it does not lie in."""
    cluster = broker.services.cluster
    await cluster.create_topic(TP.topic, ((cluster.metadata.me.id,),), {"segment.bytes": "20000"})
    for _ in range(records):
        broker.services.replicas.append(TP, batch(size=1000))
    here = broker.dirs.logs[TP].parent
    return next(path for path in broker.dirs.dirs if path != here)


async def settled(broker: Broker) -> None:
    await asyncio.gather(*(move.task for move in broker.services.replicas.moves._moves.values()))


def test_what_comes_while_it_moves_moves_along(tmp_path: Path) -> None:
    async def test() -> None:
        refused = 0
        async with broker_in_process(tmp_path / "one", tmp_path / "two") as broker:
            replicas, other = broker.services.replicas, await filled(broker)
            count = 50
            replicas.moves.move(TP, other)
            while replicas.moves._moves:
                try:
                    replicas.append(TP, batch(size=1000))
                    count += 1
                except NotLeaderOrFollower:  # to be tried again
                    refused += 1
                await asyncio.sleep(0)
            moved = broker.dirs.logs[TP]
            assert (moved.parent, replicas.hosted[TP].log) == (other, moved)
            assert offsets_in(whole_log(moved)) == list(range(count))
            assert moved.high_watermark == moved.log_end == count
            replicas.append(TP, batch())
        async with broker_in_process(tmp_path / "one", tmp_path / "two") as broker:
            assert broker.dirs.logs[TP].parent == other
            assert offsets_in(whole_log(broker.dirs.logs[TP])) == list(range(count + 1))

    run(test)


@pytest.mark.parametrize("turns", [0, 1, 3, 10, 30])
def test_a_move_that_is_called_back_leaves_nothing(tmp_path: Path, turns: int) -> None:
    async def test() -> None:
        async with broker_in_process(tmp_path / "one", tmp_path / "two") as broker:
            replicas, other = broker.services.replicas, await filled(broker)
            home = broker.dirs.logs[TP].parent
            replicas.moves.move(TP, other)
            for _ in range(turns):
                await asyncio.sleep(0)
            replicas.moves.move(TP, home)
            await settled(broker)
            assert broker.dirs.logs[TP].parent == home
            assert not broker.dirs.future
            assert offsets_in(whole_log(broker.dirs.logs[TP])) == list(range(50))

    run(test)


@pytest.mark.parametrize("turns", [0, 2, 5, 10, 20, 50, 200])
@pytest.mark.parametrize("crash", [False, True])
def test_a_move_goes_on_after_a_restart(tmp_path: Path, turns: int, crash: bool) -> None:
    async def test() -> None:
        directories = (tmp_path / "one", tmp_path / "two")
        async with broker_in_process(*directories, crash=crash) as broker:
            other = await filled(broker)
            broker.services.replicas.moves.move(TP, other)
            moves = broker.services.replicas.moves._moves.values()
            for _ in range(turns):
                await asyncio.sleep(0)
            began = TP in broker.dirs.future or broker.dirs.logs[TP].parent == other
            for move in moves if crash else ():
                move.task.cancel()
        async with broker_in_process(*directories) as broker:
            await settled(broker)
            assert broker.dirs.logs[TP].parent == other or not began or crash  # killed half-way, it may lie in both
            assert not broker.dirs.future
            assert offsets_in(whole_log(broker.dirs.logs[TP])) == list(range(50))

    run(test)


def test_a_topic_may_be_deleted_while_it_moves(tmp_path: Path) -> None:
    async def test() -> None:
        async with broker_in_process(tmp_path / "one", tmp_path / "two") as broker:
            other = await filled(broker)
            broker.services.replicas.moves.move(TP, other)
            await asyncio.sleep(0)
            await broker.services.cluster.delete_topic(TP.topic)
            assert not broker.dirs.logs
            assert not broker.dirs.future
            await filled(broker)

    run(test)
