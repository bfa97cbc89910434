"""What brokers tell of a partition: the leader where its followers are, each what it saw itself."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from leadline.api.explanations import PREFIX, explanations
from leadline.errors import LogDirFailed
from leadline.wire.messages import ProduceRequest, ProduceResponse
from tests.support import in_memory
from tests.support.brokers import PATIENCE_S, TP, Brokers, Node, brokers
from tests.support.logs import batch
from tests.support.waiting import eventually


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    yield from in_memory.directory()


def run(path: Path, test: Callable[[Brokers], Awaitable[None]]) -> None:
    async def main() -> None:
        async with brokers(path) as cluster, asyncio.timeout(4 * PATIENCE_S):
            await test(cluster)

    asyncio.run(main())


def explanation(node: Node) -> dict[str, Any]:
    (entry,) = explanations([f"{PREFIX}{TP}"], node.replicas, node.services.clock.now_ms())
    assert (entry.name, entry.read_only) == (f"{PREFIX}{TP}", True)
    value: dict[str, Any] = json.loads(str(entry.value))
    return value


async def produce(node: Node, acks: int) -> None:
    data = ProduceRequest.PartitionProduceData(index=TP.partition, records=bytes(batch(2)))
    topic = ProduceRequest.TopicProduceData(name=TP.topic, partition_data=[data])
    request = ProduceRequest(acks=acks, timeout_ms=60_000, topic_data=[topic])
    (done,) = (await node.serve(request, ProduceResponse, 10)).responses[0].partition_responses
    assert done.error_code == 0


def test_a_leader_explains_its_followers_and_a_follower_itself(tmp_path: Path) -> None:
    async def test(cluster: Brokers) -> None:
        await produce(cluster.leader, acks=-1)
        await cluster.all_hold(2)
        await eventually(
            lambda: all(replica["log_end"] == 2 for replica in explanation(cluster.leader)["leads"]["followers"])
        )
        leader, follower = explanation(cluster.nodes[1]), explanation(cluster.nodes[3])
        assert (leader["broker"], leader["leader"], leader["high_watermark"], leader["epochs"]) == (1, 1, 2, [[0, 0]])
        assert (leader["leads"]["isr"], leader["leads"]["asked_isr"]) == ([1, 2, 3], None)
        assert [replica["id"] for replica in leader["leads"]["followers"]] == [2, 3]
        before = leader["leads"]["followers"][0]["fetched_ms"]
        await eventually(
            lambda: explanation(cluster.leader)["leads"]["followers"][0]["caught_up_ms"] > before
        )  # idle, but there
        assert (follower["leads"], follower["follows"]["state"], follower["follows"]["offset"]) == (None, "FETCHING", 2)
        assert [election["leader"] for election in follower["history"]["elections"]] == [1]

    run(tmp_path, test)


def test_a_former_leader_keeps_its_truncations_and_the_new_one_its_isr_changes(tmp_path: Path) -> None:
    async def test(cluster: Brokers) -> None:
        old = cluster.leader
        await produce(old, acks=-1)
        await cluster.all_hold(2)
        cluster.cut_off.add(old.id)
        await eventually(lambda: not old.has_waiting_fetches)  # fetches under way would still carry it out
        await produce(old, acks=1)
        await cluster.kill(old.id)
        cluster.cut_off.clear()
        await cluster.restart(old.id)
        await eventually(lambda: cluster.isr == {1, 2, 3})
        (truncation,) = explanation(cluster.nodes[1])["history"]["truncations"]
        assert (truncation["log_end"], truncation["to_offset"], truncation["leader"]) == (4, 2, 2)
        assert truncation["warning"] is None
        history = explanation(cluster.nodes[2])["history"]
        assert [election["leader"] for election in history["elections"]][:2] == [1, 2]
        assert history["isr_changes"][-1]["why"] == "replica 1 holds all records up to 2"

    run(tmp_path, test)


def test_the_removal_of_a_late_replica_is_explained_with_its_reason(tmp_path: Path) -> None:
    async def test(cluster: Brokers) -> None:
        leader = cluster.leader
        await cluster.kill(3, noticed=False)
        leader.hosted.leader.lag_ms = 3000  # one that lives is never so late
        await produce(leader, acks=1)

        async def is_removed() -> bool:
            await leader.replicas.tasks.expire_isrs()
            return cluster.isr == {1, 2}

        await eventually(is_removed)
        await eventually(lambda: bool(explanation(leader)["history"]["isr_changes"]))
        (change,) = explanation(leader)["history"]["isr_changes"]
        assert (change["before"], change["after"]) == ([1, 2, 3], [1, 2])
        assert "replica 3 is at 0, the log ends at 2" in change["why"]

    run(tmp_path, test)


@pytest.mark.parametrize("name", ["orders-0", f"{PREFIX}orders-7", f"{PREFIX}orders", f"{PREFIX}-"])
def test_partitions_that_are_not_hosted_are_not_explained(tmp_path: Path, name: str) -> None:
    async def test(cluster: Brokers) -> None:
        assert list(explanations([name], cluster.leader.replicas, 0)) == []
        assert list(explanations(None, cluster.leader.replicas, 0)) == []

    run(tmp_path, test)


def test_a_replica_that_is_offline_says_why(tmp_path: Path) -> None:
    async def test(cluster: Brokers) -> None:
        node = next(node for node in cluster.nodes.values() if TP in node.replicas.hosted)
        assert explanation(node)["offline"] is None
        directory = next(iter(node.replicas.dirs.dirs))
        node.replicas.dirs.take_offline(LogDirFailed(directory, "writing", OSError("it is gone")))
        assert explanation(node)["offline"].startswith(f"{TP} is offline: ")
        assert "it is gone" in explanation(node)["offline"]

    run(tmp_path, test)
