"""The fast path of OffsetCommit serves a commit as the handler does."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from leadline.api.context import ClientConnection
from leadline.api.fast.offset_commit import MOST_BYTES, OLDEST, OffsetCommitRequestTemplate
from leadline.broker.broker import Broker
from leadline.broker.connection import Connection
from leadline.broker.reply_queue import PendingReply
from leadline.controller.topics import assign
from leadline.coordinator.group_member import JoinRequest, MemberProtocol
from leadline.coordinator.group_shard import OFFSETS_TOPIC
from leadline.log.log import Isolation
from leadline.model import TopicPartition
from leadline.records.batch import walk
from leadline.records.record import Record, records_of
from leadline.replication.partition import ANY_EPOCH, LeaderAndIsr
from leadline.wire.fetch_position import NO_TOPIC_ID, FetchPosition
from leadline.wire.frames import parse_response, request_frame
from leadline.wire.messages import OffsetCommitRequest, OffsetCommitResponse
from leadline.wire.primitives import BUFFERS, Piece
from leadline.wire.templates import INT
from tests.support import in_memory
from tests.support.in_process import broker_in_process
from tests.support.waiting import eventually

PARTITION, TOPIC = OffsetCommitRequest.OffsetCommitRequestPartition, OffsetCommitRequest.OffsetCommitRequestTopic
VERSIONS = range(OLDEST, OffsetCommitRequest.VERSIONS[-1] + 1)
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}
UNKNOWN_TOPIC_OR_PARTITION, ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, NOT_COORDINATOR = 3, 22, 25, 16
JOURNAL = TopicPartition(OFFSETS_TOPIC, 0)
LATER_EPOCH = 100  # of the partition: above what it has


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    yield from in_memory.directory()


def bytes_of(pieces: Iterable[Piece]) -> bytes:
    return b"".join(bytes(piece) for piece in pieces if isinstance(piece, BUFFERS))


class Client(Connection):
    """A connection, as handlers see it."""

    def __init__(self, broker: Broker) -> None:
        self.host, self.port, self.listener = "127.0.0.1", 1, "PLAINTEXT"
        self.broker, self.client = broker, ClientConnection(self.host, self.listener)

    async def commit(self, request: OffsetCommitRequest, version: int = 8, correlation_id: int = 5) -> bytes:
        pieces = request_frame(request, version, correlation_id, "me")
        frame = bytes_of(pieces)[4:]
        reply = self.broker.requests.serve(self, memoryview(bytearray(frame)))
        if isinstance(reply, Awaitable):
            reply = await reply
        assert reply is not None
        assert not isinstance(reply, PendingReply)
        return bytes_of([reply] if isinstance(reply, bytes) else reply)

    async def codes(self, request: OffsetCommitRequest) -> list[int]:
        _, answer = parse_response(OffsetCommitResponse, (await self.commit(request))[4:], 8)
        return [part.error_code for topic in answer.topics for part in topic.partitions]

    @property
    def has_template(self) -> bool:
        return isinstance(self.client.last_commit, OffsetCommitRequestTemplate)


def request(
    offset: int = 1, indexes: tuple[int, ...] = (0, 1), topics: tuple[str, ...] = ("t",), metadata: str | None = "",
    group: str = "g", member: str = "", generation: int = -1,
) -> OffsetCommitRequest:  # fmt: skip
    named = [
        TOPIC(
            name=topic,
            partitions=[
                PARTITION(
                    partition_index=n,
                    committed_offset=offset + n,
                    committed_leader_epoch=n - 1,
                    committed_metadata=metadata,
                )
                for n in indexes
            ],
        )
        for topic in topics
    ]
    return OffsetCommitRequest(group_id=group, member_id=member, generation_id_or_member_epoch=generation, topics=named)


@asynccontextmanager
async def started(directory: Path, settings: dict[str, str] | None = None) -> AsyncIterator[Broker]:
    async with broker_in_process(directory, settings=SETTINGS | (settings or {})) as broker:
        for name, count in ((OFFSETS_TOPIC, 1), ("t", 3), ("u", 2)):
            await broker.cluster.create_topic(name, assign(broker.cluster.metadata.racks, count, 1), {})
        await eventually(lambda: not broker.services.groups.is_loading)
        yield broker


async def with_template(broker: Broker, commit: OffsetCommitRequest, version: int = 8) -> Client:
    """A client that has committed twice."""
    client = Client(broker)
    for _ in range(2):
        assert not client.has_template
        await client.commit(commit, version)
    return client


def offset_of(broker: Broker, tp: TopicPartition, group: str = "g") -> int | None:
    (fetched,) = broker.services.offsets.fetch(group, [tp], require_stable=False).values()
    return None if fetched.committed is None else fetched.committed.offset


def written(broker: Broker) -> list[tuple[int, list[Record]]]:
    """Each batch of the journal by its attributes, with its records."""
    log = broker.replicas.hosted[JOURNAL].log
    at = log.read(0, 1 << 20, Isolation.LOG_END).slice
    assert at is not None
    data = Path(at.file.path).read_bytes()
    return [(header.attributes, list(records_of(data, position, header))) for position, header in walk(data)]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("metadata", [None, "", "a note: ü"])
def test_a_commit_by_template_is_answered_and_written_as_by_the_handler(
    tmp_path: Path, version: int, metadata: str | None
) -> None:
    async def scenario() -> None:
        async with started(tmp_path) as broker:
            commit = request(1, (2, 0, 1), ("u", "t"), metadata)
            commit.topics[0].partitions.pop(0)
            client = await with_template(broker, commit, version)
            assert client.has_template
            for part in (part for topic in commit.topics for part in topic.partitions):
                part.committed_offset, part.committed_leader_epoch = 1 << 62, 12
            replies = [await sender.commit(commit, version, 99) for sender in (client, Client(broker))]
            assert replies[0] == replies[1]
            mine, other = written(broker)[-2:]
            assert [(record.key, record.value[:-8]) for record in mine[1] if record.value] == [
                (record.key, record.value[:-8]) for record in other[1] if record.value
            ]
            assert mine[0] == other[0]
            fetched = broker.services.offsets.fetch("g", None, require_stable=False)
            assert [
                offset.committed and (offset.committed.offset, offset.committed.leader_epoch)
                for offset in fetched.values()
            ] == [(1 << 62, 12)] * 5

    asyncio.run(scenario())


OTHERS: dict[str, Callable[[], OffsetCommitRequest]] = {
    "another group": lambda: request(group="h"),
    "another member": lambda: request(member="m"),
    "another partition": lambda: request(indexes=(0, 2)),
    "fewer partitions": lambda: request(indexes=(0,)),
    "another topic": lambda: request(topics=("u",)),
    "metadata": lambda: request(metadata="x"),
    "no metadata": lambda: request(metadata=None),
}


@pytest.mark.parametrize("other", OTHERS)
def test_another_commit_does_not_match(tmp_path: Path, other: str) -> None:
    async def scenario() -> None:
        async with started(tmp_path) as broker:
            client = await with_template(broker, request())
            commit = OTHERS[other]()
            assert await client.commit(commit) == await Client(broker).commit(commit)
            assert not client.has_template
            mine, outside = written(broker)[-2:]
            assert [record.key for record in mine[1]] == [record.key for record in outside[1]]

    asyncio.run(scenario())


NO_TEMPLATES: dict[str, Callable[[], OffsetCommitRequest]] = {
    "a partition twice": lambda: request(indexes=(0, 0)),
    "no partition": lambda: request(indexes=()),
    "no topic": lambda: request(topics=()),
    "a negative partition": lambda: request(indexes=(-1,)),
    "a number that looks like a blank": lambda: request(generation=INT),
    "metadata that is too long": lambda: request(metadata="x" * 101),
    "a partition that looks like a blank": lambda: request(indexes=(INT,)),
    "too much": lambda: request(metadata="x" * 90, indexes=(0, 1, 2) * (MOST_BYTES // 300)),
}


@pytest.mark.parametrize("unusual", NO_TEMPLATES)
def test_an_unusual_commit_becomes_no_template(tmp_path: Path, unusual: str) -> None:
    async def scenario() -> None:
        async with started(tmp_path, {"offset.metadata.max.bytes": "100"}) as broker:
            client = Client(broker)
            replies = {await client.commit(NO_TEMPLATES[unusual]()) for _ in range(3)}
            assert len(replies) == 1
            assert not client.has_template

    asyncio.run(scenario())


@pytest.mark.parametrize("version", [5, 6])
def test_versions_without_leader_epochs_have_no_templates(tmp_path: Path, version: int) -> None:
    async def scenario() -> None:
        async with started(tmp_path) as broker:
            commit = request()
            for part in commit.topics[0].partitions:
                part.committed_leader_epoch = -1
            assert (await with_template(broker, commit, version)).has_template == (version == 6)

    asyncio.run(scenario())


def test_the_fast_path_misses_a_deleted_topic(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with started(tmp_path) as broker:
            assert broker.cluster is not None
            client = await with_template(broker, request(topics=("t", "u")))
            await broker.cluster.delete_topic("u")
            gone = UNKNOWN_TOPIC_OR_PARTITION
            assert sorted(await client.codes(request(topics=("t", "u")))) == [0, 0, gone, gone]

    asyncio.run(scenario())


def test_the_fast_path_refuses_a_member_that_was_replaced(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with started(tmp_path) as broker:
            groups = broker.services.groups
            join = JoinRequest("", None, "client", "/h", 10_000, 10_000, "consumer", (MemberProtocol("range", b""),))
            joined = await groups.join("g", join)
            await groups.sync("g", joined.member_id, None, 1, (None, None), {joined.member_id: b""})
            mine = request(member=joined.member_id, generation=1)
            client = await with_template(broker, mine)
            assert client.has_template
            assert await client.codes(mine) == [0, 0]
            again = await groups.join("g", join._replace(member_id=joined.member_id))
            await groups.sync("g", joined.member_id, None, again.generation, (None, None), {joined.member_id: b""})
            assert await client.codes(mine) == [ILLEGAL_GENERATION] * 2
            assert client.has_template

    asyncio.run(scenario())


def test_the_fast_path_refuses_once_the_coordinator_resigned(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with started(tmp_path) as broker:
            client = await with_template(broker, request())
            await broker.services.groups.runtime.stop()
            assert await client.codes(request(7)) == [NOT_COORDINATOR] * 2

    asyncio.run(scenario())


def test_a_batch_that_is_refused_leaves_the_offsets_as_they_were(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with started(tmp_path) as broker:
            assert broker.replicas is not None
            client = await with_template(broker, request(1))
            before = broker.services.offsets.fetch("g", None, require_stable=False)
            broker.replicas.hosted[JOURNAL].is_switching = True
            assert await client.codes(request(7)) == [NOT_COORDINATOR] * 2
            assert broker.services.offsets.fetch("g", None, require_stable=False) == before

    asyncio.run(scenario())


def test_the_answer_waits_for_the_other_replicas(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with started(tmp_path) as broker:
            assert broker.replicas is not None
            client = await with_template(broker, request(1))
            hosted, me = broker.replicas.hosted[JOURNAL], broker.replicas.me
            both = me, me + 1
            decision = LeaderAndIsr(me, hosted.epoch, both, LATER_EPOCH)
            await broker.replicas.lead(JOURNAL, hosted.log.topic_id, decision, both)
            answer = asyncio.create_task(client.codes(request(7)))
            for _ in range(3):
                await asyncio.sleep(0)
            assert not answer.done()
            tp = TopicPartition("t", 0)
            assert offset_of(broker, tp) == 1
            position = FetchPosition(NO_TOPIC_ID, 0, hosted.epoch, hosted.log.log_end, -1, 0, 0)
            hosted.follower_fetched(me + 1, position, ANY_EPOCH, None, broker.clock.now_ms())
            assert await answer == [0, 0]
            assert offset_of(broker, tp) == 7

    asyncio.run(scenario())
