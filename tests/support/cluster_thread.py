"""Brokers of one cluster in a thread of the test's process, for clients that block. Their sockets are real."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from leadline.broker.broker import Broker
from tests.support.in_process_cluster import cluster_in_process

START_S = 120
SETTINGS = {
    "listeners": "PLAINTEXT://localhost:0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.retention.ms": "-1",
}


@dataclass
class ClusterThread:
    brokers: list[Broker] = field(default_factory=list)
    loop: asyncio.AbstractEventLoop | None = None

    @property
    def bootstrap(self) -> str:
        addresses = [next(iter(broker.addresses.values())) for broker in self.brokers]
        return ",".join(f"localhost:{address.port}" for address in addresses)

    def stop_broker(self, id: int) -> None:
        """Stop one of them cleanly: others lead its partitions."""
        (broker,) = [broker for broker in self.brokers if broker.services.metadata.me.id == id]
        assert self.loop is not None
        asyncio.run_coroutine_threadsafe(broker.stop(), self.loop).result(START_S)
        self.brokers.remove(broker)


@contextmanager
def cluster_thread(path: Path, brokers: int = 1) -> Iterator[ClusterThread]:
    cluster, ready, errors = ClusterThread(), threading.Event(), list[BaseException]()
    factor = str(min(brokers, 3))
    replicated = {
        "default.replication.factor": factor,
        "offsets.topic.replication.factor": factor,
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.min.isr": "1",
    }

    async def run() -> None:
        stop = asyncio.Event()
        cluster.loop = asyncio.get_running_loop()
        try:
            async with cluster_in_process(path, lambda _: SETTINGS | replicated, brokers) as started:
                cluster.brokers = list(started)
                stopping.append(stop)
                ready.set()
                await stop.wait()
        except BaseException as error:
            errors.append(error)
            raise
        finally:
            ready.set()

    stopping: list[asyncio.Event] = []
    thread = threading.Thread(target=asyncio.run, args=(run(),), name="cluster")
    thread.start()
    assert ready.wait(START_S), "the brokers did not start"
    try:
        assert not errors, errors
        yield cluster
    finally:
        if stopping and cluster.loop is not None:
            cluster.loop.call_soon_threadsafe(stopping[0].set)
        thread.join(START_S)
        assert not thread.is_alive(), "the brokers did not stop"
