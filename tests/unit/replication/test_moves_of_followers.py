"""A replica that moves to another log directory while it is copied from its leader, or becomes one."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from leadline.config.values import LONG_MAX
from tests.support import in_memory
from tests.support.brokers import PATIENCE_S, TP, Brokers, Node, brokers
from tests.support.logs import batch, whole_log
from tests.support.waiting import eventually


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    yield from in_memory.directory()


def run(path: Path, test: Callable[[Brokers], Awaitable[None]], segment_bytes: str = "20000") -> None:
    async def main() -> None:
        cluster = brokers(path, folders=",-two", segment_bytes=segment_bytes)
        async with cluster as started, asyncio.timeout(4 * PATIENCE_S):
            await test(started)

    asyncio.run(main())


def fill(node: Node, count: int) -> None:
    for _ in range(count):
        node.replicas.append(TP, batch(1, size=1000))


def elsewhere(node: Node) -> str:
    """The directory that its replica does not lie in."""
    return next(path for path in node.dirs.dirs if path != node.log.parent)


async def alike(cluster: Brokers) -> bool:
    await cluster.all_hold(cluster.leader.log.log_end)
    return len({whole_log(node.log) for node in cluster.nodes.values()}) == 1


def test_a_follower_moves_while_its_leader_is_written_to(tmp_path: Path) -> None:
    async def test(cluster: Brokers) -> None:
        mover, leader = cluster.nodes[3], cluster.leader
        fill(leader, 50)
        await cluster.all_hold(50)
        target = elsewhere(mover)
        mover.replicas.moves.move(TP, target)
        while mover.replicas.moves._moves:
            fill(leader, 1)
            await asyncio.sleep(0.001)
        fill(leader, 5)
        assert await alike(cluster)
        assert (mover.log.parent, mover.hosted.log) == (target, mover.log)
        assert cluster.isr == {1, 2, 3}

    run(tmp_path, test)


def test_what_is_truncated_on_the_way_is_not_in_the_copy(tmp_path: Path) -> None:
    """A leader moves with records that no replica copied. They are truncated when it follows another leader."""

    async def test(cluster: Brokers) -> None:
        old = cluster.leader
        fill(old, 20)
        await cluster.all_hold(20)
        cluster.cut_off.add(old.id)
        await eventually(lambda: not old.has_waiting_fetches)
        fill(old, 20)
        target, moves = elsewhere(old), old.replicas.throttles.moves
        moves.limit = 0
        old.replicas.moves.move(TP, target)
        await eventually(lambda: TP in old.dirs.future and old.dirs.future[TP].log_end == 40)
        assert cluster.controller is not None
        cluster.controller.failed(old.id)
        await cluster.tell()
        fill(cluster.leader, 40)
        cluster.cut_off.clear()
        cluster.controller.started(old.id, old.incarnation)
        await cluster.tell()
        await eventually(lambda: old.log.log_end == cluster.leader.log.log_end)
        moves.limit = LONG_MAX
        await eventually(lambda: not old.replicas.moves._moves)
        assert await alike(cluster)
        assert old.log.parent == target

    run(tmp_path, test, segment_bytes="1000000")  # copied at once: then the throttle holds it back
