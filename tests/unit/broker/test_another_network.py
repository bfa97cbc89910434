"""A whole broker runs on another network: it opens no socket, and those who talk to it do not either."""

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from leadline.broker.broker import Broker
from leadline.broker.ports import Ports
from leadline.cluster.broker_client import PeerGone, TcpBrokerClient
from leadline.config.broker import broker_settings
from leadline.wire.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    FetchRequest,
    FetchResponse,
    ProduceRequest,
    ProduceResponse,
)
from tests.support.logs import batch
from tests.support.memory_network import FIRST_PORT, MemoryNetwork

SECONDS = 60.0
TOPIC = "orders"


class NoSocket(socket.socket):
    def __init__(self, *_: Any, **__: Any) -> None:
        raise AssertionError("a broker on another network opened a socket")


def produce(records: bytes) -> ProduceRequest:
    part = ProduceRequest.PartitionProduceData(index=0, records=records)
    data = ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[part])
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data])


def fetch() -> FetchRequest:
    part = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10_000_000)
    topic = FetchRequest.FetchTopic(topic=TOPIC, partitions=[part])
    return FetchRequest(replica_id=-1, max_wait_ms=1000, min_bytes=1, max_bytes=10_000_000, topics=[topic])


async def scenario(broker: Broker, network: MemoryNetwork, records: bytes) -> None:
    await broker.start()
    client = TcpBrokerClient("localhost", FIRST_PORT, "test", network=network)
    topic = CreateTopicsRequest.CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
    created = await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), CreateTopicsResponse, 4, SECONDS)
    assert [it.error_code for it in created.topics] == [0]
    produced = await client.ask(produce(records), ProduceResponse, 7, SECONDS)
    assert [it.error_code for part in produced.responses for it in part.partition_responses] == [0]
    fetched = await client.ask(fetch(), FetchResponse, 11, SECONDS)
    (returned,) = [it.records for part in fetched.responses for it in part.partitions]
    assert isinstance(returned, memoryview | bytes | bytearray)
    assert bytes(returned)[61:] == records[61:]
    await broker.stop()
    with pytest.raises(PeerGone):
        await client.ask(fetch(), FetchResponse, 11, SECONDS)
    client.close()


def test_a_broker_serves_its_clients_on_another_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = bytes(batch(400, size=1000))

    async def main() -> None:
        monkeypatch.setattr(socket, "socket", NoSocket)
        network = MemoryNetwork()
        given = {"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://localhost:0"}
        async with asyncio.timeout(SECONDS):
            await scenario(Broker(broker_settings(given), Ports(network=network)), network, records)

    asyncio.run(main())
