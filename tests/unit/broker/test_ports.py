"""A whole broker runs on other ports: its network and its disk are the test's, and nothing is patched to make it so.

The network is in memory, and no socket is opened. The disk is in memory, too, where no path and no descriptor is one of
the system's; or it is a disk whose power can fail.
"""

import asyncio
import socket
from pathlib import Path
from random import Random
from typing import Any

import pytest

from leadline.broker.broker import Broker
from leadline.broker.ports import Ports
from leadline.cluster.broker_client import PeerGone, TcpBrokerClient
from leadline.config.broker import BrokerConfig, broker_settings
from leadline.coordination.embedded import EmbeddedTree
from leadline.coordination.tree import Tree
from leadline.runtime.ports import Files, OsFiles
from leadline.wire.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    FetchRequest,
    FetchResponse,
    ProduceRequest,
    ProduceResponse,
)
from tests.support.crash_disk import CrashDisk
from tests.support.logs import batch
from tests.support.memory_files import TOTAL_BYTES, MemoryFiles
from tests.support.memory_network import FIRST_PORT, MemoryNetwork

SECONDS = 60.0
TOPIC = "orders"
RECORDS = bytes(batch(400, size=1000))


class NoSocket(socket.socket):
    def __init__(self, *_: Any, **__: Any) -> None:
        raise AssertionError("a broker on another network opened a socket")


async def produce(client: TcpBrokerClient) -> None:
    topic = CreateTopicsRequest.CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
    created = await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), CreateTopicsResponse, 4, SECONDS)
    assert [topic.error_code for topic in created.topics] == [0]
    part = ProduceRequest.PartitionProduceData(index=0, records=RECORDS)
    data = ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[part])
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data])
    produced = await client.ask(request, ProduceResponse, 7, SECONDS)
    assert [partition.error_code for part in produced.responses for partition in part.partition_responses] == [0]


async def fetch(client: TcpBrokerClient) -> None:
    part = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10_000_000)
    topic = FetchRequest.FetchTopic(topic=TOPIC, partitions=[part])
    request = FetchRequest(replica_id=-1, max_wait_ms=1000, min_bytes=1, max_bytes=10_000_000, topics=[topic])
    fetched = await client.ask(request, FetchResponse, 11, SECONDS)
    (records,) = [partition.records for part in fetched.responses for partition in part.partitions]
    assert isinstance(records, memoryview | bytes | bytearray)
    assert bytes(records)[61:] == RECORDS[61:]


async def total_bytes(client: TcpBrokerClient) -> int:
    response = await client.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse, 4, SECONDS)
    (directory,) = response.results
    return directory.total_bytes


class OtherPorts:
    """A broker on these files and on a network in memory, for as long as a block lasts. Its tree is a real one."""

    def __init__(self, path: str, files: Files, tree: Path) -> None:
        async def open_tree(config: BrokerConfig, directory: str, ports: Ports) -> Tree:
            return await EmbeddedTree.open(str(tree), ports.time)

        network = MemoryNetwork(files)
        settings = broker_settings({"log.dirs": path, "listeners": "PLAINTEXT://localhost:0"})
        self.broker = Broker(settings, Ports(files=files, network=network, open_tree=open_tree))
        self.client = TcpBrokerClient(("localhost", FIRST_PORT), "test", network)

    async def __aenter__(self) -> TcpBrokerClient:
        await self.broker.start()
        return self.client

    async def __aexit__(self, *_: object) -> None:
        await self.broker.stop()
        with pytest.raises(PeerGone):
            await fetch(self.client)
        self.client.close()


def test_a_broker_serves_its_clients_on_another_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(socket, "socket", NoSocket)
        async with asyncio.timeout(SECONDS), OtherPorts(str(tmp_path), OsFiles(), tmp_path) as client:
            await produce(client)
            await fetch(client)

    asyncio.run(main())


def test_a_broker_keeps_its_logs_on_another_disk_and_starts_on_it_again(tmp_path: Path) -> None:
    path, files = "/in-memory/logs", MemoryFiles()

    async def main() -> None:
        async with asyncio.timeout(SECONDS):
            async with OtherPorts(path, files, tmp_path) as client:
                await produce(client)
                await fetch(client)
                assert await total_bytes(client) == TOTAL_BYTES
            assert {"meta.properties", ".kafka_cleanshutdown", f"{TOPIC}-0"} <= set(files.listdir(path))
            async with OtherPorts(path, files, tmp_path) as client:
                await fetch(client)

    asyncio.run(main())
    assert not Path(path).exists()


def test_a_broker_that_stopped_on_a_disk_whose_power_fails_then_has_lost_nothing(tmp_path: Path) -> None:
    disk, tree = CrashDisk(tmp_path / "disk"), tmp_path / "tree"
    tree.mkdir()

    async def main() -> None:
        async with asyncio.timeout(SECONDS), OtherPorts(str(tmp_path / "disk"), disk, tree) as client:
            await produce(client)
            await fetch(client)

    asyncio.run(main())
    disk.after_power_failure(tmp_path / "after", len(disk.journal), Random(1))
    written, kept = (tmp_path / place / f"{TOPIC}-0" / f"{0:020d}.log" for place in ("disk", "after"))
    assert kept.read_bytes() == written.read_bytes()
    assert (tmp_path / "after" / ".kafka_cleanshutdown").exists()
