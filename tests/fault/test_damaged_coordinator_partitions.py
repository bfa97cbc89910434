"""A damaged partition of an internal topic: it is offline and said to be, and another replica coordinates in its place.

Apache Kafka 3.8 loads such a partition as if it were empty behind the damage, or altogether: groups have no offsets,
and their consumers start where auto.offset.reset says.
"""

import asyncio
import logging
import shlex
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ElectionType, Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient

from leadline.coordinator.runtime import partition_for
from leadline.records.batch import walk
from leadline.testing import LocalCluster
from leadline.wire import messages as m
from tests.support import in_memory
from tests.support.forked_commands import run_forked
from tests.support.in_memory_broker import PATIENCE_S, InMemoryClient, in_memory_broker

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
PARTITIONS = 2
SETTINGS = {
    "offsets_topic_num_partitions": str(PARTITIONS),
    "transaction_state_log_num_partitions": str(PARTITIONS),
}
LEADER_NOT_AVAILABLE, LOADING, NOT_AVAILABLE, NOT_COORDINATOR = 5, 14, 15, 16
KEYS = [f"key {n}" for n in range(8)]  # of groups and transactional ids
DAMAGED = 0  # the partition; the keys of the other are served
LOST = [key for key in KEYS if partition_for(key, PARTITIONS) == DAMAGED]
KEPT = [key for key in KEYS if key not in LOST]


@pytest.fixture
def place() -> Iterator[Path]:
    yield from in_memory.directory()


def session(place: Path, test: Callable[[InMemoryClient], Awaitable[None]]) -> None:
    """From the start of the broker to its clean stop."""

    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S), in_memory_broker(place, **SETTINGS) as client:
            await test(client)

    asyncio.run(main())


def damage(directory: Path, fraction: float = 0.5) -> tuple[Path, int]:
    """Change a byte in a value, in the middle of the log. Returns the file, and the position of the batch."""
    (path,) = directory.glob("*.log")
    data = bytearray(path.read_bytes())
    batches = list(walk(data))
    position, header = batches[int(len(batches) * fraction)]
    data[position + header.size - 12] ^= 0x40
    path.write_bytes(data)
    return path, position


async def settled(ask: Callable[[], Awaitable[int]]) -> int:
    while (code := await ask()) == LOADING:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    return code


async def find(client: InMemoryClient, key: str, kind: int) -> int:
    request = m.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
    return (await client.send(request, m.FindCoordinatorResponse, 4)).coordinators[0].error_code


async def commit(client: InMemoryClient, group: str, offset: int = 5) -> int:
    partition = m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = m.OffsetCommitRequest.OffsetCommitRequestTopic(name="orders", partitions=[partition])
    request = m.OffsetCommitRequest(group_id=group, topics=[topic])
    return (await client.send(request, m.OffsetCommitResponse, 8)).topics[0].partitions[0].error_code


async def committed(client: InMemoryClient, group: str) -> tuple[int, int]:
    topic = m.OffsetFetchRequest.OffsetFetchRequestTopic(name="orders", partition_indexes=[0])

    async def fetch() -> m.OffsetFetchResponse:
        return await client.send(m.OffsetFetchRequest(group_id=group, topics=[topic]), m.OffsetFetchResponse, 5)

    code = await settled(lambda: _code_of(fetch()))
    response = await fetch()
    return code, response.topics[0].partitions[0].committed_offset if response.topics else -1


async def _code_of(response: Awaitable[m.OffsetFetchResponse]) -> int:
    return (await response).error_code


async def leaders(client: InMemoryClient) -> dict[int, tuple[int, int, list[int]]]:
    """Of the partitions that keep groups: error code, leader and offline replicas."""
    request = m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name=OFFSETS)])
    response = await client.send(request, m.MetadataResponse, 9)
    return {
        partition.partition_index: (partition.error_code, partition.leader_id, partition.offline_replicas)
        for partition in response.topics[0].partitions
    }


async def init(client: InMemoryClient, transactional_id: str) -> int:
    request = m.InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    return (await client.send(request, m.InitProducerIdResponse, 4)).error_code


async def fill(client: InMemoryClient) -> None:
    await client.create("orders")
    for key in KEYS:
        for kind, write in ((0, commit), (1, init)):
            await find(client, key, kind)  # which creates the topic
            while await write(client, key) in (LOADING, NOT_COORDINATOR):  # noqa: ASYNC110
                await asyncio.sleep(0.001)


def offline_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


def test_groups_of_a_damaged_partition_are_told_so_and_those_of_others_are_served(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    session(place, fill)
    path, position = damage(place / f"{OFFSETS}-{DAMAGED}")

    async def test(client: InMemoryClient) -> None:
        for group in KEPT:
            assert await committed(client, group) == (0, 5)
        for group in LOST:
            assert (await committed(client, group))[0] == NOT_COORDINATOR
            assert await commit(client, group) == NOT_COORDINATOR
            assert await find(client, group, 0) == NOT_AVAILABLE
        listing = await client.send(m.ListGroupsRequest(), m.ListGroupsResponse, 4)
        assert (listing.error_code, sorted(group.group_id for group in listing.groups)) == (0, sorted(KEPT))
        me = client.broker.metadata.me.id
        expected = {DAMAGED: (LEADER_NOT_AVAILABLE, -1, [me]), 1: (0, me, [])}
        while await leaders(client) != expected:  # noqa: ASYNC110  until the controller has heard of it
            await asyncio.sleep(0.001)

    session(place, test)
    (line,) = offline_lines(caplog)
    assert line.startswith(
        f"{OFFSETS}-{DAMAGED} is offline: {path}: at byte {position}: the CRC of the batch at offset "
    )
    assert f"truncate -s {position} {path}" in line


def test_transactional_ids_of_a_damaged_partition_are_told_so_and_those_of_others_are_served(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    session(place, fill)
    path, position = damage(place / f"{TRANSACTIONS}-{DAMAGED}")

    async def test(client: InMemoryClient) -> None:
        for name in KEPT:
            assert await settled(partial(init, client, name)) == 0
        for name in LOST:
            assert await settled(partial(init, client, name)) == NOT_COORDINATOR
            assert await find(client, name, 1) == NOT_AVAILABLE
        listing = await client.send(m.ListTransactionsRequest(), m.ListTransactionsResponse, 0)
        assert listing.error_code == 0
        assert sorted(state.transactional_id for state in listing.transaction_states) == sorted(KEPT)

    session(place, test)
    (line,) = offline_lines(caplog)
    assert line.startswith(f"{TRANSACTIONS}-{DAMAGED} is offline: {path}: at byte {position}: ")


def test_the_cure_that_is_named_keeps_what_lies_before_the_damage(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    session(place, fill)
    _, position = damage(place / f"{OFFSETS}-{DAMAGED}")

    async def notice(client: InMemoryClient) -> None:
        assert (await committed(client, LOST[0]))[0] == NOT_COORDINATOR

    session(place, notice)
    (line,) = offline_lines(caplog)
    command = line.partition("by '")[2].partition("'")[0]
    assert command.startswith(f"truncate -s {position} ")
    subprocess.run(shlex.split(command), check=True)

    async def test(client: InMemoryClient) -> None:
        offsets = [await committed(client, group) for group in LOST]
        half = len(LOST) // 2
        assert offsets == [(0, 5)] * half + [(0, -1)] * (len(LOST) - half)
        assert await commit(client, LOST[-1], 7) == 0

    session(place, test)


def test_a_list_says_that_groups_are_missing() -> None:
    with LocalCluster(brokers=1) as cluster:
        cluster.create_topic("orders")
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "log_level": 0})
        consumer.commit(offsets=[Position("orders", 0, 1)], asynchronous=False)
        consumer.close()
        broker = cluster.broker(1)
        broker.stop()
        damage(Path(broker.settings["log.dirs"]) / f"{OFFSETS}-0")
        broker.start()
        cluster.wait_for(lambda: cluster.leader(OFFSETS) is None)
        calls = [["groups", "list"], ["transactions", "list"]]
        groups, transactions = run_forked([[*call, "--bootstrap-server", cluster.bootstrap_servers] for call in calls])
    reason = f"{OFFSETS}:0 has no leader though broker 1 runs: its log says why"
    assert (groups.code, groups.err) == (1, f"leadline: {reason}; groups that it holds are not listed\n")
    assert (transactions.code, transactions.err) == (0, "")


@pytest.mark.parametrize("topic", [OFFSETS, TRANSACTIONS])
def test_in_a_cluster_an_intact_replica_takes_over(topic: str) -> None:
    with LocalCluster(brokers=3) as cluster:
        cluster.create_topic("orders")
        client: dict[str, str | int | float | bool] = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}
        for number in range(4):
            with_group = Consumer({**client, "group.id": f"g{number}"})
            with_group.commit(offsets=[Position("orders", 0, 10 + number)], asynchronous=False)
            with_group.close()
            producer = Producer({**client, "transactional.id": f"t{number}"})
            producer.init_transactions(PATIENCE_S)
        cluster.wait_for(lambda: len(cluster.in_sync(topic)) == 3)
        preferred = cluster.leader(topic)
        assert preferred is not None
        broken = cluster.broker(preferred)
        directory = Path(broken.settings["log.dirs"])
        broken.stop()
        path, position = damage(directory / f"{topic}-0")
        broken.start()
        cluster.wait_for(lambda: len(cluster.in_sync(topic)) == 3)
        lead_again(client, topic)
        cluster.wait_for(
            lambda: cluster.leader(topic) not in (None, preferred) and preferred not in cluster.in_sync(topic),
            "another replica leads",
        )
        for number in range(4):
            reader = Consumer({**client, "group.id": f"g{number}"})
            (offset,) = reader.committed([Position("orders", 0)], timeout=PATIENCE_S)
            reader.close()
            assert offset.offset == 10 + number
            Producer({**client, "transactional.id": f"t{number}"}).init_transactions(PATIENCE_S)
        lines = [line for line in cluster.log_lines.last(10_000) if f"{topic}-0 is offline" in line]
        assert len(lines) == 1, lines
        assert f"{path}: at byte {position}: " in lines[0]


def lead_again(client: dict[str, str | int | float | bool], topic: str) -> None:
    """The preferred leader is the one that led first."""
    admin = AdminClient(client)
    elected = admin.elect_leaders(ElectionType.PREFERRED, [Position(topic, 0)]).result()
    assert [error for error in elected.values() if error is not None] == []
