"""A follower that was away comes back no faster than its throttle lets it; who is in sync is not held back."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from leadline.replication.throttle import Throttle
from leadline.runtime.ports import SystemTime
from tests.support import in_memory
from tests.support.brokers import PATIENCE_S, TP, Brokers, Node, brokers
from tests.support.logs import batch, whole_log
from tests.support.waiting import eventually

BYTES, LIMIT = 200_000, 200_000  # to be copied; and how many of them in a second
AT_ONCE = 20_000
LEAST_S = BYTES / LIMIT / 2  # some are let through at first


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    yield from in_memory.directory()


def limit(throttle: Throttle) -> None:
    throttle.limit, throttle.windows, throttle.window_ms = LIMIT, 3, 100


async def filled_while_one_is_away(cluster: Brokers) -> Node:
    await cluster.kill(3)
    leader = cluster.leader
    await eventually(lambda: cluster.isr == {1, 2})
    while leader.log.size < BYTES:
        leader.replicas.append(TP, batch(1, size=10_000))
    await cluster.all_hold(leader.log.log_end)
    return leader


@pytest.mark.parametrize("side", ["leader", "follower"])
@pytest.mark.parametrize("replicas", ["*", "0:1,0:3"])
def test_a_returning_replica_copies_at_the_throttled_rate(tmp_path: Path, side: str, replicas: str) -> None:
    async def test() -> None:
        named = brokers(tmp_path, leader_replication_throttled_replicas=replicas)
        if side == "follower":
            named = brokers(tmp_path, follower_replication_throttled_replicas=replicas)
        async with named as cluster, asyncio.timeout(4 * PATIENCE_S):
            cluster.settings["replica.fetch.max.bytes"] = str(AT_ONCE)
            leader = await filled_while_one_is_away(cluster)
            limit(leader.replicas.throttles.leader)
            began = time.monotonic()
            await cluster.restart(3)
            late = cluster.nodes[3]
            limit(late.replicas.throttles.follower)
            leader.replicas.append(TP, batch(1, size=10_000))
            await eventually(lambda: leader.log.high_watermark == leader.log.log_end)
            assert late.log.size < BYTES / 2, "who was in sync all the time had to wait"
            await cluster.all_hold(leader.log.log_end)
            assert time.monotonic() - began > LEAST_S
            await eventually(lambda: cluster.isr == {1, 2, 3})
            assert whole_log(late.log) == whole_log(leader.log)

    asyncio.run(test())


def set_back_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ms = SystemTime.now_ms
    monkeypatch.setattr(SystemTime, "now_ms", lambda clock: now_ms(clock) - 3_600_000)


def test_a_wall_clock_that_is_set_back_holds_no_replica_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        named = brokers(tmp_path, leader_replication_throttled_replicas="*")
        async with named as cluster, asyncio.timeout(4 * PATIENCE_S):
            cluster.settings["replica.fetch.max.bytes"] = str(AT_ONCE)
            leader = await filled_while_one_is_away(cluster)
            limit(leader.replicas.throttles.leader)
            await cluster.restart(3)
            await eventually(lambda: leader.hosted.is_held_back(3))
            set_back_an_hour(monkeypatch)
            await cluster.all_hold(leader.log.log_end)

    asyncio.run(test())


def test_a_wall_clock_that_is_set_back_stops_no_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        at_once = BYTES // 2  # in one step, which exceeds the limit
        named = brokers(tmp_path, folders=",-two", segment_bytes=str(at_once + 1000))
        async with named as cluster, asyncio.timeout(4 * PATIENCE_S):
            leader = cluster.leader
            while leader.log.size < BYTES:
                leader.replicas.append(TP, batch(1, size=at_once))
            limit(leader.replicas.throttles.moves)
            target = next(path for path in leader.dirs.dirs if path != leader.log.parent)
            leader.replicas.moves.move(TP, target)
            await eventually(lambda: TP in leader.dirs.future and leader.dirs.future[TP].log_end > 0)
            set_back_an_hour(monkeypatch)
            await eventually(lambda: leader.log.parent == target)

    asyncio.run(test())


def test_a_throttle_holds_back_only_the_replicas_that_the_topic_names(tmp_path: Path) -> None:
    async def test() -> None:
        named = brokers(tmp_path, leader_replication_throttled_replicas="1:1,0:2")
        async with named as cluster, asyncio.timeout(4 * PATIENCE_S):
            leader = await filled_while_one_is_away(cluster)
            await cluster.restart(3)
            leader.replicas.throttles.leader.limit = 1
            await cluster.all_hold(leader.log.log_end)

    asyncio.run(test())
