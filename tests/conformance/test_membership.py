"""Joining the cluster of a real Kafka: it has an id already, it keeps its own brokers, and it knows ours."""

import asyncio
from pathlib import Path

import pytest

from leadline.coordination.membership import agree_on_cluster_id, make_persistent_nodes, register
from leadline.coordination.registration import RegisteredEndpoint, Registration
from leadline.coordination.tree import NodeExists
from leadline.coordination.zookeeper.client import ZooKeeperTree
from tests.conformance.kafka.broker import Broker, ZooKeeper, _brokers_known_to, broker, zookeeper
from tests.support.waiting import eventually

pytestmark = pytest.mark.conformance

WAIT_S = 60
OURS = Registration((RegisteredEndpoint("PLAINTEXT", "127.0.0.1", 1, "PLAINTEXT"),), timestamp_ms=1)


async def known_to(kafka: Broker, brokers: set[int]) -> None:
    async def are_known() -> bool:
        return await asyncio.to_thread(_brokers_known_to, kafka.port) == brokers

    await eventually(are_known)


async def join(server: ZooKeeper, kafka: Broker) -> None:
    tree = await ZooKeeperTree.open(
        f"{server.connect}/kafka", session_timeout_ms=18_000, connection_timeout_ms=18_000, max_in_flight=10
    )
    await make_persistent_nodes(tree)
    assert (
        await agree_on_cluster_id(tree, "ours")
        == (kafka.log_dir / "meta.properties").read_text().split("cluster.id=")[1].split("\n")[0]
    )
    with pytest.raises(NodeExists, match="broker 1 is alive"):
        await register(tree, 1, OURS, ())
    await register(tree, 2, OURS, ())
    await known_to(kafka, {1, 2})
    await tree.close()
    await known_to(kafka, {1})


def test_a_real_kafka_takes_us_for_one_of_its_brokers_until_we_leave(tmp_path: Path) -> None:
    with zookeeper(tmp_path / "zk") as server, broker(tmp_path / "k", f"{server.connect}/kafka", broker_id=1) as kafka:
        asyncio.run(join(server, kafka))
