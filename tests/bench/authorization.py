"""What the authorizer adds to a request that is served all the time: CPU, in one process, with a broker in memory.

The same broker serves the same frames in turns: without an authorizer, with one that has an ALLOW for each right of the
client, and with one that has a thousand ACLs more, among them DENY rules of others that apply to the topic. A turn is
short, and the best of many counts: the rest of the machine adds to a turn, and never takes from it.
"""

import asyncio
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import cast

from leadline.broker.connection import Connection
from leadline.broker.frame_reader import SIZE_BYTES
from leadline.model import TopicPartition
from leadline.runtime.ports import SystemChance, SystemTime
from leadline.security.acl_store import AclStore
from leadline.security.acls import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from leadline.security.authorizer import Authorizer
from leadline.wire.classes import Message
from leadline.wire.frames import request_frame
from leadline.wire.messages import FetchRequest, FetchResponse, ProduceRequest
from tests.bench.results import Goal, Row
from tests.bench.run import Run
from tests.support import in_memory
from tests.support.authorized_broker import ALICE, rule
from tests.support.brokers import joined
from tests.support.in_memory_broker import InMemoryClient, in_memory_broker
from tests.support.logs import batch

TP = TopicPartition("orders", 0)
PRODUCE_VERSION, FETCH_VERSION = 9, 12
MOST_ADDED_US = 1.0
IN_A_TURN = 100  # requests
OPEN, ALLOWED, CROWDED = "no authorizer", "an ALLOW", "1,000 ACLs, some DENY"

RIGHTS = [rule(operation, ResourceType.TOPIC, TP.topic) for operation in (AclOperation.READ, AclOperation.WRITE)]


def _others() -> Iterator[AclBinding]:
    """Of other users: for this topic, by its name, by a prefix of it and by the wildcard, and for many other topics."""
    for n in range(250):
        denied = AccessControlEntry(f"User:user-{n}", "*", AclOperation.ALL, AclPermission.DENY)
        yield AclBinding(ResourcePattern(ResourceType.TOPIC, TP.topic), denied)
        yield AclBinding(ResourcePattern(ResourceType.TOPIC, "or", PatternType.PREFIXED), denied)
        yield AclBinding(ResourcePattern(ResourceType.TOPIC, "*"), denied)
        yield AclBinding(ResourcePattern(ResourceType.TOPIC, f"another-{n}"), denied._replace(principal=str(ALICE)))


OTHERS = [*RIGHTS, *_others()]


class Requests:
    """Frames that one connection sends again and again, to a broker with these ACLs."""

    def __init__(self, client: InMemoryClient, acls: AclStore | None) -> None:
        self._client, self._acls, self._session, self._epoch = client, acls, 0, 0

    async def prepare(self) -> None:
        """The broker knows what the connection may do, and what its requests look like."""
        self.serve(self.produce(2))
        opened = await self._client.send(self._fetch(), FetchResponse, FETCH_VERSION)
        self._session, self._epoch = opened.session_id, 1
        self.serve(self.fetch(2))

    def produce(self, count: int) -> list[memoryview]:
        data = ProduceRequest.PartitionProduceData(index=TP.partition, records=bytes(batch(1, size=100)))
        topic = ProduceRequest.TopicProduceData(name=TP.topic, partition_data=[data])
        return [self._frame(ProduceRequest(acks=1, timeout_ms=10_000, topic_data=[topic]), PRODUCE_VERSION)] * count

    def fetch(self, count: int) -> list[memoryview]:
        """Each is the next one of a session, and names the partition, as after records have arrived."""
        frames = []
        for _ in range(count):
            frames.append(self._frame(self._fetch(), FETCH_VERSION))
            self._epoch += 1
        return frames

    def _fetch(self) -> FetchRequest:
        part = FetchRequest.FetchPartition(partition=TP.partition, fetch_offset=0, partition_max_bytes=1 << 20)
        topics = [FetchRequest.FetchTopic(topic=TP.topic, partitions=[part])]
        return FetchRequest(
            max_wait_ms=0, max_bytes=1 << 20, session_id=self._session, session_epoch=self._epoch, topics=topics
        )

    @staticmethod
    def _frame(request: Message, version: int) -> memoryview:
        return memoryview(bytearray(joined(request_frame(request, version, 7, "bench"))))[SIZE_BYTES:]

    def serve(self, frames: Sequence[memoryview]) -> float:
        """The CPU of one of them, in microseconds."""
        broker, connection = self._client.broker, cast(Connection, self._client)
        broker.services.acls, serve = self._acls, broker.requests.serve
        began = time.process_time()
        for frame in frames:
            served = serve(connection, frame)
        spent = time.process_time() - began
        assert isinstance(served, bytes | list), f"not answered at once: {served}"
        return spent / len(frames) * 1e6


def measure(run: Run) -> list[Row]:
    rows = {
        (kind, name): Row(f"{kind}, {name}" + ("" if name is OPEN else ": added"), "us", _goal(name))
        for kind in ("produce", "fetch")
        for name in (OPEN, ALLOWED, CROWDED)
    }

    async def rounds(client: InMemoryClient) -> None:
        await client.create(TP.topic)
        requests = [Requests(_alice(client), acls) for acls in (None, _acls(client, RIGHTS), _acls(client, OTHERS))]
        for one in requests:
            await one.prepare()
        for n in run.each_round("authorization"):
            for kind in ("produce", "fetch"):
                values = _best(requests, kind, run.sized(100, 4))
                for name, value in zip((OPEN, ALLOWED, CROWDED), values, strict=True):
                    rows[kind, name].leadline += [value if name is OPEN else max(value - values[0], 0.0)] if n else []

    async def main() -> None:
        with contextmanager(in_memory.directory)() as folder:
            async with in_memory_broker(folder) as client:
                await rounds(client)

    logging.disable()  # requests that took long, on a busy machine
    asyncio.run(main())
    logging.disable(logging.NOTSET)
    return list(rows.values())


def _goal(name: str) -> Goal | None:
    return None if name is OPEN else Goal(below=MOST_ADDED_US)


def _alice(client: InMemoryClient) -> InMemoryClient:
    alice = InMemoryClient(client.broker)
    alice.client.principal = ALICE
    return alice


def _acls(client: InMemoryClient, bindings: Iterable[AclBinding]) -> AclStore:
    authorizer = Authorizer()
    for pattern, entry in bindings:
        authorizer.put(pattern, (*authorizer.entries(pattern), entry))
    return AclStore(client.broker.tree, authorizer, SystemTime(), SystemChance())


def _best(requests: Sequence[Requests], kind: str, turns: int) -> list[float]:
    best = [float("inf")] * len(requests)
    for _ in range(turns):
        for at, one in enumerate(requests):
            frames = one.produce(IN_A_TURN) if kind == "produce" else one.fetch(IN_A_TURN)
            best[at] = min(best[at], one.serve(frames))
    return best
