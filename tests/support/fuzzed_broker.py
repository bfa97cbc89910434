"""A broker in the process of the test that is handed the bytes of requests, without a socket."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from leadline.api.context import ClientConnection
from leadline.broker.broker import Broker
from leadline.broker.connection import Connection
from leadline.broker.connection_state import CloseConnection
from leadline.broker.ports import Ports
from leadline.config.broker import broker_settings


class Fake(Connection):
    """A connection. What is served does not depend on it."""

    def __init__(self) -> None:
        self.host, self.port, self.listener = "127.0.0.1", 1, "PLAINTEXT"
        self.client = ClientConnection(self.host, self.listener)


@asynccontextmanager
async def in_process(directory: Path) -> AsyncIterator[Broker]:
    properties = {
        "log.dirs": str(directory),
        "listeners": "PLAINTEXT://localhost:0",
        "log.segment.delete.delay.ms": "0",
        "num.partitions": "1",
        "log.segment.bytes": "100000",
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.num.partitions": "2",
        "group.initial.rebalance.delay.ms": "0",
    }
    broker = Broker(broker_settings(properties), Ports())
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


async def served(broker: Broker, data: bytes) -> bytes | None:
    """The answer as bytes; None if there is none or the connection would be closed."""
    try:
        answer = broker.requests.serve(Fake(), memoryview(bytearray(data)))
        if answer is not None and not isinstance(answer, Sequence):
            assert isinstance(answer, Awaitable)
            answer = await asyncio.wait_for(answer, 0.05)  # who waits longer goes away
    except (CloseConnection, TimeoutError):
        return None
    return b"".join(bytes(piece) for piece in answer or () if isinstance(piece, bytes | bytearray | memoryview))
