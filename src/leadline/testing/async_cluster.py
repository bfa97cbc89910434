"""A cluster for tests that run on an event loop: `async with LocalCluster(brokers=3) as cluster`.

Its calls are those of `LocalCluster`, awaited: they run in a thread, so the loop of the test continues.
"""

import asyncio
import inspect
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from leadline.testing.broker_network import ClusterNetwork
from leadline.testing.cluster import POLL_S, TIMEOUT_S, LocalCluster
from leadline.testing.errors import ClusterError
from leadline.testing.local_broker import LocalBroker
from leadline.testing.records import ConsumedRecord
from leadline.testing.requests import ClusterRequests
from leadline.testing.topic_schema import TopicSchema


class AsyncBroker:
    def __init__(self, broker: LocalBroker) -> None:
        self.sync = broker
        self.id, self.address = broker.id, broker.address

    def __repr__(self) -> str:
        return repr(self.sync)

    @property
    def is_running(self) -> bool:
        return self.sync.is_running

    async def start(self) -> None:
        await asyncio.to_thread(self.sync.start)

    async def stop(self) -> None:
        await asyncio.to_thread(self.sync.stop)

    async def restart(self) -> None:
        await asyncio.to_thread(self.sync.restart)

    async def kill(self) -> None:
        await asyncio.to_thread(self.sync.kill)

    async def pause(self) -> None:
        await asyncio.to_thread(self.sync.pause)

    async def resume(self) -> None:
        await asyncio.to_thread(self.sync.resume)


class AsyncClock:
    def __init__(self, cluster: LocalCluster) -> None:
        self.sync = cluster.clock

    async def advance(self, **duration: float) -> None:
        await asyncio.to_thread(self.sync.advance, **duration)


class AsyncCluster:
    """`sync` is the cluster itself."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.sync = cluster
        self.clock = AsyncClock(cluster)

    def __repr__(self) -> str:
        return repr(self.sync)

    @property
    def bootstrap_servers(self) -> str:
        return self.sync.bootstrap_servers

    @property
    def network(self) -> ClusterNetwork:
        return self.sync.network

    @property
    def requests(self) -> ClusterRequests:
        return self.sync.requests

    def broker(self, id: int) -> AsyncBroker:
        return AsyncBroker(self.sync.broker(id))

    async def wait_for(
        self, condition: Callable[[], object | Awaitable[object]], what: str = "", timeout_s: float = TIMEOUT_S
    ) -> None:
        """The condition is called on the loop of the test, and may be a coroutine function."""
        deadline = time.monotonic() + timeout_s
        while True:
            holds = condition()
            if inspect.isawaitable(holds):
                holds = await holds
            if holds:
                return
            if time.monotonic() >= deadline:
                raise ClusterError(f"not so after {timeout_s:g} s: {what or 'the condition'}\n{self.sync.story()}")
            await asyncio.sleep(POLL_S)

    @property
    def ids(self) -> list[int]:
        return self.sync.ids

    @property
    def brokers(self) -> list[AsyncBroker]:
        return [AsyncBroker(broker) for broker in self.sync.brokers]

    async def controller(self) -> AsyncBroker:
        return AsyncBroker(await asyncio.to_thread(lambda: self.sync.controller))

    async def topics(self) -> list[str]:
        return await asyncio.to_thread(lambda: self.sync.topics)

    async def create_topic(
        self,
        topic: str,
        partitions: int = 1,
        replication_factor: int = -1,
        configs: Mapping[str, object] | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
    ) -> str:
        return await asyncio.to_thread(
            self.sync.create_topic, topic, partitions, replication_factor, configs, timeout_s=timeout_s
        )

    async def topic(self, name: str, partitions: int = 1, **options: Any) -> str:
        return await asyncio.to_thread(self.sync.topic, name, partitions, **options)

    async def delete_topics(self, *topics: str, timeout_s: float = TIMEOUT_S) -> None:
        await asyncio.to_thread(self.sync.delete_topics, *topics, timeout_s=timeout_s)

    async def produce(self, topic: str, records: Sequence[Any], **options: Any) -> dict[int, int]:
        return await asyncio.to_thread(self.sync.produce, topic, records, **options)

    async def records(self, topic: str, count: int | None = None, **options: Any) -> list[ConsumedRecord]:
        return await asyncio.to_thread(self.sync.records, topic, count, **options)

    async def values(self, topic: str, count: int | None = None, **options: Any) -> list[str | None]:
        return await asyncio.to_thread(self.sync.values, topic, count, **options)

    async def start_offsets(self, topic: str, *, timeout_s: float = TIMEOUT_S) -> dict[int, int]:
        return await asyncio.to_thread(self.sync.start_offsets, topic, timeout_s=timeout_s)

    async def end_offsets(self, topic: str, **options: Any) -> dict[int, int]:
        return await asyncio.to_thread(self.sync.end_offsets, topic, **options)

    async def leader(self, topic: str, partition: int = 0) -> int | None:
        return await asyncio.to_thread(self.sync.leader, topic, partition)

    async def in_sync(self, topic: str, partition: int = 0) -> list[int]:
        return await asyncio.to_thread(self.sync.in_sync, topic, partition)

    async def schema(self, topic: str) -> TopicSchema:
        return await asyncio.to_thread(self.sync.schema, topic)

    async def explain(self, topic: str, partition: int | None = None) -> str:
        return await asyncio.to_thread(self.sync.explain, topic, partition)

    async def snapshot(self, path: str | os.PathLike[str]) -> None:
        await asyncio.to_thread(self.sync.snapshot, path)

    async def recover(self) -> None:
        await asyncio.to_thread(self.sync.recover)

    def story(self) -> str:
        return self.sync.story()
