"""What the authorizer adds to a request that is served all the time: CPU, in one process, with a broker in memory.

The same broker serves the same frames in turns: without an authorizer, with one that has an ALLOW for each right of the
client, and with one that has 1,500 ACLs more, among them DENY rules of others that apply to its resources. A turn is
short, and the best of many counts: the rest of the machine adds to a turn, and never takes from it.

The requests are those with a fast path: produce, a fetch in a session, a commit, and the fetch of a follower.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import cast

from leadline.api.fast.offset_commit import OffsetCommitRequestTemplate
from leadline.broker.connection import Connection
from leadline.broker.frame_reader import SIZE_BYTES
from leadline.model import TopicPartition
from leadline.replication.partition import LeaderAndIsr
from leadline.runtime.ports import SystemChance, SystemTime
from leadline.security.acl_store import AclStore
from leadline.security.acls import (
    CLUSTER_NAME,
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
from leadline.wire.messages import (
    FetchRequest,
    FetchResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    ProduceRequest,
)
from tests.bench.results import Goal, Row
from tests.bench.run import Run
from tests.support import in_memory
from tests.support.authorized_broker import ALICE, rule
from tests.support.brokers import joined
from tests.support.in_memory_broker import InMemoryClient, in_memory_broker
from tests.support.logs import batch

TP, COPIED, GROUP = TopicPartition("orders", 0), TopicPartition("copied", 0), "readers"
PRODUCE_VERSION, FETCH_VERSION, COMMIT_VERSION, FOLLOWER_VERSION = 9, 12, 8, 16
GROUP_KEY = 0  # of FindCoordinator
KINDS = ("produce", "fetch", "commit", "fetch of a follower")
LATER_EPOCH = 100  # of the partition: above what it has
MOST_ADDED_US = 1.0
IN_A_TURN = 100  # requests
OPEN, ALLOWED, CROWDED = "no authorizer", "an ALLOW", "1,500 ACLs, some DENY"

RIGHTS = [
    *(rule(operation, ResourceType.TOPIC, TP.topic) for operation in (AclOperation.READ, AclOperation.WRITE)),
    rule(AclOperation.READ, ResourceType.GROUP, GROUP),
    rule(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER),
]


def _others() -> Iterator[AclBinding]:
    """Of other users: for this topic, by its name, by a prefix of it and by the wildcard, and for many other topics.

    And for the group and the cluster.
    """
    for n in range(250):
        denied = AccessControlEntry(f"User:user-{n}", "*", AclOperation.ALL, AclPermission.DENY)
        yield AclBinding(ResourcePattern(ResourceType.TOPIC, TP.topic), denied)
        yield AclBinding(ResourcePattern(ResourceType.TOPIC, "or", PatternType.PREFIXED), denied)
        yield AclBinding(ResourcePattern(ResourceType.TOPIC, "*"), denied)
        yield AclBinding(ResourcePattern(ResourceType.TOPIC, f"another-{n}"), denied._replace(principal=str(ALICE)))
        yield AclBinding(ResourcePattern(ResourceType.GROUP, GROUP), denied)
        yield AclBinding(ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME), denied)


OTHERS = [*RIGHTS, *_others()]


class Requests:
    """Frames that one connection sends again and again, to a broker with these ACLs."""

    def __init__(self, client: InMemoryClient, acls: AclStore | None) -> None:
        self._client, self._acls, self._session, self._epoch = client, acls, 0, 0
        self._follower_session, self._follower_epoch, self._committed = 0, 0, 0
        self.kinds: dict[str, Callable[[int], list[memoryview]]] = {
            "produce": self.produce,
            "fetch": self.fetch,
            "commit": self.commit,
            "fetch of a follower": self.follower_fetch,
        }

    async def prepare(self) -> None:
        """The broker knows what the connection may do, and what its requests look like."""
        self.serve(self.produce(2))
        opened = await self._client.send(self._fetch(), FetchResponse, FETCH_VERSION)
        self._session, self._epoch = opened.session_id, 1
        self.serve(self.fetch(2))
        await self._client.send(self._commit(), OffsetCommitResponse, COMMIT_VERSION)
        self.serve(self.commit(2))
        assert isinstance(self._client.client.last_commit, OffsetCommitRequestTemplate), "no fast path"
        opened = await self._client.send(self._follower_fetch(), FetchResponse, FOLLOWER_VERSION)
        self._follower_session, self._follower_epoch = opened.session_id, 1
        self.serve(self.follower_fetch(2))
        assert self._client.client.is_follower, "no fast path"

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

    def commit(self, count: int) -> list[memoryview]:
        """Each of another offset."""
        return [self._frame(self._commit(), COMMIT_VERSION) for _ in range(count)]

    def _commit(self) -> OffsetCommitRequest:
        self._committed += 1
        part = OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=TP.partition, committed_offset=self._committed, committed_leader_epoch=0
        )
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(name=TP.topic, partitions=[part])
        return OffsetCommitRequest(group_id=GROUP, topics=[topic])

    def follower_fetch(self, count: int) -> list[memoryview]:
        """Each is the next one of a session, and names the partition."""
        frames = []
        for _ in range(count):
            frames.append(self._frame(self._follower_fetch(), FOLLOWER_VERSION))
            self._follower_epoch += 1
        return frames

    def _follower_fetch(self) -> FetchRequest:
        broker = self._client.broker
        hosted = broker.replicas.hosted[COPIED]
        assert hosted.log.topic_id is not None
        part = FetchRequest.FetchPartition(
            partition=COPIED.partition,
            current_leader_epoch=hosted.epoch,
            last_fetched_epoch=hosted.log.epochs.entries[-1].epoch,
            fetch_offset=0,
            log_start_offset=0,
            partition_max_bytes=1 << 20,
        )
        return FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1 << 20,
            session_id=self._follower_session,
            session_epoch=self._follower_epoch,
            topics=[FetchRequest.FetchTopic(topic_id=hosted.log.topic_id, partitions=[part])],
            replica_state=FetchRequest.ReplicaState(replica_id=broker.replicas.me + 1, replica_epoch=-1),
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
        for kind in KINDS
        for name in (OPEN, ALLOWED, CROWDED)
    }

    async def rounds(client: InMemoryClient) -> None:
        await client.create(TP.topic)
        await _lead_with_a_follower(client)
        find = FindCoordinatorRequest(key_type=GROUP_KEY, coordinator_keys=[GROUP])
        await client.send(find, FindCoordinatorResponse, 4)
        requests = [Requests(_alice(client), acls) for acls in (None, _acls(client, RIGHTS), _acls(client, OTHERS))]
        for one in requests:
            await one.prepare()
        for n in run.each_round("authorization"):
            for kind in KINDS:
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


async def _lead_with_a_follower(client: InMemoryClient) -> None:
    """One record, and a replica on another broker, which is not in sync."""
    await client.create(COPIED.topic)
    assert (await client.produce(COPIED, acks=1)).error_code == 0
    replicas = client.broker.replicas
    hosted = replicas.hosted[COPIED]
    decision = LeaderAndIsr(replicas.me, hosted.epoch, (replicas.me,), LATER_EPOCH)
    await replicas.lead(COPIED, hosted.log.topic_id, decision, (replicas.me, replicas.me + 1))


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
            best[at] = min(best[at], one.serve(one.kinds[kind](IN_A_TURN)))
    return best
