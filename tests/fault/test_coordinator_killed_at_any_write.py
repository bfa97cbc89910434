"""A coordinator that is killed before any one of its writes: whole transactions or none, and none stays open."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from leadline.coordinator.transaction import ProducerIdAndEpoch
from leadline.errors import WireError
from leadline.model import TopicPartition
from tests.support import in_memory
from tests.support.logs import ManualClock
from tests.support.transactions import JOURNAL, Ended, Node, coordinator, ended_in, init

PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)]
NAME = "id"
BEFORE_PREPARE = 5  # writes: init, partitions, three of data
IN_ALL = BEFORE_PREPARE + 1 + len(PARTITIONS) + 1  # prepare, markers, complete


@pytest.fixture
def place() -> Iterator[Path]:
    yield from in_memory.directory()


class Life:
    """A coordinator's lives on one disk, one after the other."""

    def __init__(self, place: Path) -> None:
        self.place, self.clock, self.producer_ids, self.epoch = place, ManualClock(), list[int](), -1
        self.writes: int | None = None  # that the next life has, from its start

    def run(self, *tests: Callable[[Node], Awaitable[None]]) -> None:
        async def main() -> None:
            for test in tests:
                self.epoch += 1
                async with coordinator(
                    self.place, self.clock, self.producer_ids, PARTITIONS, epoch=self.epoch, writes=self.writes
                ) as node:
                    await test(node)

        asyncio.run(main())


async def transact(node: Node, *, commit: bool) -> None:
    producer = await init(node, NAME)
    await node.transactions.add_partitions(NAME, producer, PARTITIONS)
    for tp in PARTITIONS:
        node.write(NAME, producer, tp, 0, b"x")
    await node.transactions.end(NAME, producer, commit=commit)
    await node.settled()


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("writes", range(IN_ALL + 1))
def test_killed_before_any_of_its_writes(place: Path, writes: int, commit: bool) -> None:
    async def first(node: Node) -> None:
        node.kill_after(writes)
        with suppress(WireError):
            await transact(node, commit=commit)

    async def then(node: Node) -> None:
        if writes > BEFORE_PREPARE:  # its outcome stood: it was completed without anybody asking
            assert all(map(node.is_stable, PARTITIONS))
        await init(node, NAME)
        await node.settled()
        assert all(map(node.is_stable, PARTITIONS))
        outcome = commit and writes > BEFORE_PREPARE
        for n, tp in enumerate(PARTITIONS):
            written = writes > 2 + n
            assert ended_in(node, tp) == ([Ended(0, (b"x",), outcome)] if written else [])

    Life(place).run(first, then)


def test_killed_again_and_again_while_it_completes(place: Path) -> None:
    async def first(node: Node) -> None:
        node.kill_after(BEFORE_PREPARE + 1)
        with suppress(WireError):
            await transact(node, commit=True)
        life.writes = 2

    async def killed_once_more(node: Node) -> None:
        """Two markers were written before anybody was served."""
        assert node.replicas.writes_left == 0
        assert node.replicas.hosted[PARTITIONS[0]].log.log_end == 1 + node.replicas.hosted[JOURNAL].leader.epoch

    async def last(node: Node) -> None:
        assert all(ended_in(node, tp) == [Ended(0, (b"x",), True)] for tp in PARTITIONS)
        assert await init(node, NAME) == (0, 1)

    life = Life(place)
    life.run(first, killed_once_more, killed_once_more)
    life.writes = None
    life.run(last)


def test_a_producer_that_timed_out_is_fenced_after_a_crash_too(place: Path) -> None:
    async def first(node: Node) -> None:
        producer = await init(node, NAME)
        await node.transactions.add_partitions(NAME, producer, PARTITIONS)
        node.write(NAME, producer, PARTITIONS[0], 0, b"x")
        node.clock.ms += 10_000
        node.kill_after(1)  # the abort is noted, no marker is written
        node.transactions.abort_timed_out()
        await node.settled()

    async def then(node: Node) -> None:
        assert ended_in(node, PARTITIONS[0]) == [Ended(0, (b"x",), False)]
        for tp in PARTITIONS:
            with pytest.raises(WireError):
                node.write(NAME, ProducerIdAndEpoch(0, 0), tp, 1, b"late")
        assert await init(node, NAME) == (0, 2)

    Life(place).run(first, then)
