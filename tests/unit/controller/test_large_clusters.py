"""The controller of a large cluster: how requests, writes and calls grow with partitions and brokers.

Nothing here is measured in seconds. Calls are those of Python functions, which a profiler counts: they hardly vary.
"""

import asyncio
import cProfile
import pstats
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import pytest

from leadline.controller import effects
from leadline.controller.effects import AT_ONCE
from leadline.coordination import znodes
from leadline.coordination.znodes import PartitionStateNode
from leadline.model import TopicPartition
from leadline.wire.codec import decode
from leadline.wire.frames import request_head
from leadline.wire.messages import UpdateMetadataRequest
from tests.support.large_cluster import FIRST_EPOCH, PARTITIONS_PER_TOPIC, REPLICATION_FACTOR, LargeCluster

FEW, MANY = 2_000, 8_000
BROKERS = 20
TEST_S = 300
LINEAR = 1.15  # times as many calls for each partition, at most

Event = Callable[[LargeCluster], Awaitable[None]]


class Costs(NamedTuple):
    calls: int
    requests: dict[str, int]
    request_bytes: int
    reads: int
    writes: int
    transactions: int


async def take_over(cluster: LargeCluster) -> None:
    await cluster.take_over()


async def fail(cluster: LargeCluster) -> None:
    await cluster.fail(7)


async def reassign(cluster: LargeCluster) -> None:
    await cluster.reassign({tp: cluster.replicas(tp, shift=1) for tp in cluster.all_partitions()})


def costs(partitions: int, brokers: int, *before: Event, event: Event) -> Costs:
    async def main() -> Costs:
        async with asyncio.timeout(TEST_S):
            cluster = LargeCluster(partitions, brokers)
            for earlier in before:
                await earlier(cluster)
            cluster.forget_counts()
            profile = cProfile.Profile()
            profile.enable()
            await event(cluster)
            profile.disable()
            counts, calls = cluster.tree.counts, pstats.Stats(profile).total_calls  # type: ignore[attr-defined]
            await cluster.controller.stop()
            return Costs(
                calls,
                dict(cluster.requests),
                cluster.request_bytes,
                counts["get"],
                counts["writes"],
                counts["multi"],
            )

    return asyncio.run(main())


def updates(partitions: int) -> int:
    """How many UpdateMetadata one broker gets."""
    return -(-partitions // AT_ONCE)


@pytest.mark.parametrize("before", [(), (take_over,)], ids=["take-over", "reassignment"])
def test_calls_and_bytes_grow_with_the_partitions_and_hardly_with_the_brokers(before: tuple[Event, ...]) -> None:
    event = reassign if before else take_over
    small = costs(FEW, BROKERS, *before, event=event)
    large = costs(MANY, BROKERS, *before, event=event)
    spread = costs(FEW, 4 * BROKERS, *before, event=event)
    assert large.calls / small.calls <= MANY / FEW * LINEAR
    assert large.request_bytes / small.request_bytes <= MANY / FEW * LINEAR
    assert spread.calls / small.calls <= 1.5, "each partition is built and encoded once, not once for each broker"


def test_a_new_controller_reads_each_node_once_and_sends_each_broker_its_states_once() -> None:
    taken_over = costs(MANY, BROKERS, event=take_over)
    assert taken_over.requests == {
        "LeaderAndIsrRequest": BROKERS,
        "UpdateMetadataRequest": BROKERS * (1 + updates(MANY)),  # the brokers first
    }
    topics = MANY // PARTITIONS_PER_TOPIC
    assert MANY + topics + BROKERS <= taken_over.reads <= MANY + topics + BROKERS + 10
    assert taken_over.writes < 10


def test_a_failure_costs_what_the_broker_had_whatever_the_size_of_the_cluster() -> None:
    small = costs(FEW, BROKERS, take_over, event=fail)
    large = costs(MANY, 4 * BROKERS, take_over, event=fail)
    lost = FEW * REPLICATION_FACTOR // BROKERS
    for failed, brokers in ((small, BROKERS), (large, 4 * BROKERS)):
        assert abs(failed.writes - lost) <= 10, "each partition is written once, although its ISR and its leader change"
        assert failed.requests["UpdateMetadataRequest"] == brokers - 1
        assert failed.requests["LeaderAndIsrRequest"] <= brokers - 1
        assert failed.transactions <= 5
    assert large.calls <= 2.5 * small.calls, "four times as many brokers are told"


def test_every_partition_of_a_failed_broker_is_led_by_another() -> None:
    async def main() -> None:
        async with asyncio.timeout(TEST_S):
            cluster = LargeCluster(FEW, BROKERS)
            await cluster.take_over()
            before = cluster.leaders()
            await cluster.fail(7)
            for tp, leader in cluster.leaders().items():
                replicas = cluster.replicas(tp)
                assert leader == (before[tp] if before[tp] != 7 else replicas[1])
            tp = next(tp for tp in before if before[tp] == 7)
            node = await cluster.tree.get(znodes.state_path(tp))
            assert node is not None
            in_sync = cluster.replicas(tp)[1:]
            state = PartitionStateNode(in_sync[0], FIRST_EPOCH + 1, in_sync, 1)
            assert (node.version, znodes.decode_state(tp, node.data)) == (1, state)
            await cluster.controller.stop()

    asyncio.run(main())


def test_leaders_of_internal_topics_reach_all_brokers_before_those_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "AT_ONCE", 100)
    names: list[str] = []

    async def main() -> None:
        async with asyncio.timeout(TEST_S):
            cluster = LargeCluster(FEW, BROKERS)
            await cluster.take_over()
            names.extend(topic for update in cluster.updates for topic in _topics(update))
            await cluster.controller.stop()

    asyncio.run(main())
    assert names[0] == "__consumer_offsets"
    assert len(set(names)) == FEW // PARTITIONS_PER_TOPIC


def _topics(frame: bytes) -> list[str]:
    head = request_head(frame)
    request = decode(UpdateMetadataRequest, frame, head.version, head.body_at)
    return [topic.topic_name for topic in request.topic_states]


def test_the_partitions_of_the_model_are_spread_evenly() -> None:
    async def main() -> None:
        cluster = LargeCluster(FEW, BROKERS)
        replicas = [cluster.replicas(tp) for tp in cluster.all_partitions()]
        assert all(len(set(brokers)) == REPLICATION_FACTOR for brokers in replicas)
        assert len({brokers[0] for brokers in replicas}) == BROKERS
        assert cluster.replicas(TopicPartition("topic-00001", 3))[0] == (PARTITIONS_PER_TOPIC + 3) % BROKERS

    asyncio.run(main())
