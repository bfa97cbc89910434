"""DescribeLogDirs and AlterReplicaLogDirs: the replicas in each directory, and their move to another."""

import asyncio
from pathlib import Path

import pytest

from leadline.model import TopicPartition
from leadline.wire.messages import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from tests.support.in_memory_broker import InMemoryClient, in_memory_broker, run
from tests.support.waiting import eventually

TP = TopicPartition("orders", 0)
UNKNOWN_TOPIC, STORAGE_ERROR, DIR_NOT_FOUND = 3, 56, 57


async def describe(
    client: InMemoryClient, topics: dict[str, list[int]] | None
) -> list[DescribeLogDirsResponse.DescribeLogDirsResult]:
    requested = None
    if topics is not None:
        requested = [
            DescribeLogDirsRequest.DescribableLogDirTopic(topic=name, partitions=numbers)
            for name, numbers in topics.items()
        ]
    return (await client.send(DescribeLogDirsRequest(topics=requested), DescribeLogDirsResponse, 4)).results


async def move(client: InMemoryClient, tp: TopicPartition, path: str) -> int:
    topic = AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=tp.topic, partitions=[tp.partition])
    directory = AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=path, topics=[topic])
    response = await client.send(AlterReplicaLogDirsRequest(dirs=[directory]), AlterReplicaLogDirsResponse, 2)
    (result,) = response.results[0].partitions
    return result.error_code


@pytest.mark.parametrize(
    ("topics", "partitions"), [(None, {0, 1}), ({"orders": [1]}, {1}), ({"missing": [0]}, set()), ({}, set())]
)
def test_a_directory_has_the_requested_partitions(topics: dict[str, list[int]] | None, partitions: set[int]) -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders", 2)
        await client.produce(TP)
        (directory,) = await describe(client, topics)
        described = {
            partition.partition_index: partition for topic in directory.topics for partition in topic.partitions
        }
        assert (directory.error_code, set(described)) == (0, partitions)
        assert directory.total_bytes >= directory.usable_bytes > 0
        for number, partition in described.items():
            assert (partition.partition_size > 0) is (number == 0)
            assert (partition.offset_lag, partition.is_future_key) == (0, False)

    run(test)


def test_an_offline_directory_is_a_storage_error() -> None:
    async def test(client: InMemoryClient) -> None:
        client.broker.dirs.offline["/gone"] = "unplugged"
        results = {result.log_dir: result.error_code for result in await describe(client, None)}
        assert results.pop("/gone") == STORAGE_ERROR
        assert list(results.values()) == [0]
        assert await move(client, TP, "/gone") == STORAGE_ERROR

    run(test)


def test_a_replica_moves_to_another_directory_with_its_records(tmp_path: Path) -> None:
    async def test() -> None:
        dirs = [str(tmp_path / "a"), str(tmp_path / "b")]
        async with asyncio.timeout(120), in_memory_broker(tmp_path, log_dirs=",".join(dirs)) as client:
            await client.create("orders")
            await client.produce(TP)
            log = client.broker.dirs.logs[TP]
            (target,) = (path for path in client.broker.dirs.dirs if path != log.parent)
            assert await move(client, TP, target) == 0
            await eventually(lambda: client.broker.dirs.logs[TP].parent == target)
            assert client.broker.dirs.logs[TP].log_end == 1

    asyncio.run(test())


@pytest.mark.parametrize("topic", ["orders", "missing"])
def test_a_move_needs_a_directory_and_a_replica(topic: str) -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        (path,) = client.broker.dirs.dirs
        tp = TopicPartition(topic, 0)
        assert await move(client, tp, "/elsewhere") == DIR_NOT_FOUND
        assert await move(client, tp, path) == (0 if topic == "orders" else UNKNOWN_TOPIC)

    run(test)
