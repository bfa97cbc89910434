"""DescribeLogDirs and AlterReplicaLogDirs, answered as Kafka does; and partitions that move while they are in use."""

from functools import partial

import pytest

from leadline.wire.messages import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    FetchRequest,
    FetchResponse,
)
from tests.conformance.both import Both, Side
from tests.support.logs import batch
from tests.support.waiting import until

pytestmark = pytest.mark.conformance

TOPIC = DescribeLogDirsRequest.DescribableLogDirTopic


def only(*topics: str) -> "list[DescribeLogDirsRequest.DescribableLogDirTopic]":
    return [TOPIC(topic=name, partitions=[0, 1, 2]) for name in topics]


def place(side: Side, topic: str) -> dict[int, str]:
    """In which directory each partition of a topic lies."""
    answer = side.ask(DescribeLogDirsResponse, DescribeLogDirsRequest(topics=only(topic)), 4)
    return {
        partition.partition_index: result.log_dir
        for result in answer.results
        for described in result.topics
        for partition in described.partitions
        if not partition.is_future_key
    }


def with_places_as_one(answer: DescribeLogDirsResponse) -> None:
    """Each broker chooses among empty directories itself: all are shown as the first one."""
    first, *others = answer.results
    for other in others:
        first.topics += other.topics
        other.topics = []
    merged: dict[str, DescribeLogDirsResponse.DescribeLogDirsTopic] = {}
    for topic in first.topics:
        merged.setdefault(topic.name, topic)
        if merged[topic.name] is not topic:
            merged[topic.name].partitions += topic.partitions
    first.topics = list(merged.values())


@pytest.mark.parametrize("version", DescribeLogDirsRequest.VERSIONS)
def test_what_lies_in_the_directories(both: Both, version: int) -> None:
    topic = both.create(f"lies-{version}", 3)
    both.produce(topic, bytes(batch(3)), bytes(batch(3)))
    both.produce(topic, bytes(batch(5)), partition=2)
    for topics in (
        only(topic),
        only(topic, "missing"),
        [TOPIC(topic=topic, partitions=[2, 9])],
        [],
        only("a b"),
    ):
        both.ask_and_compare(
            DescribeLogDirsResponse, DescribeLogDirsRequest(topics=topics), version, differ=with_places_as_one
        )
    everything = both.ours.ask(DescribeLogDirsResponse, DescribeLogDirsRequest(topics=None), version)
    assert [result.log_dir for result in everything.results] == both.ours.dirs


def move(side: Side, directory: str, *topics: tuple[str, list[int]]) -> AlterReplicaLogDirsRequest:
    path = {"other": side.dirs[1], "first": side.dirs[0], "relative": "somewhere", "missing": "/nowhere/at/all"}[
        directory
    ]
    moved = [
        AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=name, partitions=partitions)
        for name, partitions in topics
    ]
    return AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=path, topics=moved)])


def _lies_in(side: Side, topic: str, directory: str) -> bool:
    return set(place(side, topic).values()) == {directory}


@pytest.mark.parametrize("version", AlterReplicaLogDirsRequest.VERSIONS)
def test_partitions_move_to_another_directory(both: Both, version: int) -> None:
    topic = both.create(f"moves-{version}", 2)
    both.produce(topic, *(bytes(batch(3, size=1000)) for _ in range(5)))
    for directory in ("relative", "missing"):
        both.ask_and_compare(
            AlterReplicaLogDirsResponse,
            lambda side, to=directory: move(side, to, (topic, [0, 5])),  # type: ignore[misc]
            version,
        )
    moved = [(topic, [0, 1, 5]), ("missing", [0])]
    for index, directory in enumerate(("first", "other", "other", "first")):
        both.ask_and_compare(AlterReplicaLogDirsResponse, lambda side, to=directory: move(side, to, *moved), version)  # type: ignore[misc]
        for side in both.sides:
            until(partial(_lies_in, side, topic, side.dirs[1 if directory == "other" else 0]))
        both.produce(topic, bytes(batch(2, size=index)))
    both.ask_and_compare(AlterReplicaLogDirsResponse, AlterReplicaLogDirsRequest(), version)
    part = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(topics=[FetchRequest.FetchTopic(topic=topic, partitions=[part])])
    both.ask_and_compare(FetchResponse, request, 11)
