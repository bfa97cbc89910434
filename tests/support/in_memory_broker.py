"""A whole broker without a JVM, sockets or a disk: handlers are called through THE TABLE, with real logs in memory.

A request goes through the codec in both directions, as from a client. `run` gives a test its own broker and loop.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TypeVar, cast

from leadline.api.context import ClientConnection
from leadline.api.request_meter import ClientMeter
from leadline.broker.broker import Broker
from leadline.broker.connection import Connection
from leadline.broker.ports import Ports
from leadline.broker.reply_queue import PendingReply
from leadline.config.broker import broker_settings
from leadline.model import TopicPartition
from leadline.runtime.ports import SystemTime, Time
from leadline.wire.classes import Message
from leadline.wire.frames import parse_response, request_frame
from leadline.wire.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    ProduceRequest,
    ProduceResponse,
)
from tests.support import in_memory
from tests.support.brokers import joined
from tests.support.crash_disk import Unsynced
from tests.support.logs import batch
from tests.support.memory_network import MemoryNetwork

PATIENCE_S = 120
SETTINGS = {
    "listeners": "PLAINTEXT://localhost:0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
}
M = TypeVar("M", bound=Message)


class InMemoryClient:
    """One connection to the broker."""

    def __init__(self, broker: Broker, client_id: str = "test") -> None:
        self.broker, self.client_id = broker, client_id
        self.client = ClientConnection("127.0.0.1", "PLAINTEXT")  # all that requests know of a connection
        self.client_meter: ClientMeter | None = None
        self.muted_ms: list[int] = []

    def mute(self, throttle_ms: int) -> None:
        self.muted_ms.append(throttle_ms)

    async def send(self, request: Message, kind: type[M], version: int) -> M:
        response = await self.send_silent(request, kind, version)
        assert response is not None
        return response

    async def send_silent(self, request: Message, kind: type[M], version: int) -> M | None:
        """None if there is no response."""
        frame = bytearray(joined(request_frame(request, version, 7, self.client_id)))
        reply = self.broker.requests.serve(cast(Connection, self), memoryview(frame)[4:])
        if isinstance(reply, PendingReply):
            reply = reply.frame(await reply.answer)
        elif isinstance(reply, Awaitable):
            reply = await reply
        if reply is None:
            return None
        data = bytearray(joined([reply] if isinstance(reply, bytes) else reply))
        return parse_response(kind, data[4:], version)[1]

    async def create(self, topic: str, partitions: int = 1, **configs: str) -> None:
        named = CreateTopicsRequest.CreatableTopic(
            name=topic,
            num_partitions=partitions,
            replication_factor=1,
            configs=[
                CreateTopicsRequest.CreateableTopicConfig(name=name.replace("_", "."), value=value)
                for name, value in configs.items()
            ],
        )
        response = await self.send(CreateTopicsRequest(topics=[named], timeout_ms=10_000), CreateTopicsResponse, 7)
        assert [result.error_code for result in response.topics] == [0], response

    async def produce(
        self,
        tp: TopicPartition,
        records: bytes | bytearray | None = None,
        *,
        acks: int = -1,
        version: int = 9,
        transactional_id: str | None = None,
    ) -> ProduceResponse.PartitionProduceResponse:
        data = ProduceRequest.PartitionProduceData(
            index=tp.partition, records=bytes(batch(1, size=100) if records is None else records)
        )
        topic = ProduceRequest.TopicProduceData(name=tp.topic, partition_data=[data])
        request = ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=10_000, topic_data=[topic])
        response = await self.send(request, ProduceResponse, version)
        return response.responses[0].partition_responses[0]


@asynccontextmanager
async def in_memory_broker(path: Path, clock: Time | None = None, /, **settings: str) -> AsyncIterator[InMemoryClient]:
    broker_properties = (
        {"log.dirs": str(path)} | SETTINGS | {name.replace("_", "."): value for name, value in settings.items()}
    )
    ports = Ports(files=Unsynced(), network=MemoryNetwork(), time=clock or SystemTime())
    broker = Broker(broker_settings(broker_properties), ports)
    await broker.start()
    try:
        yield InMemoryClient(broker)
    finally:
        await broker.stop()


def run(test: Callable[[InMemoryClient], Awaitable[None]], clock: Time | None = None, /, **settings: str) -> None:
    async def main(path: Path) -> None:
        async with asyncio.timeout(PATIENCE_S), in_memory_broker(path, clock, **settings) as client:
            await test(client)

    with contextmanager(in_memory.directory)() as path:
        asyncio.run(main(path))
