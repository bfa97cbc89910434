"""Leadline on the data directory of a Kafka broker, and Kafka on it again: what one wrote, the other serves."""

import json
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest

from leadline.records.compression import Codec
from leadline.wire.classes import Message
from leadline.wire.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
)
from tests.conformance.both import Connection, produced
from tests.conformance.kafka.broker import broker, zookeeper
from tests.support.broker import leadline
from tests.support.logs import START_MS, batch
from tests.support.waiting import until

pytestmark = pytest.mark.conformance

SETTINGS = {"broker.id": 3, "log.retention.ms": -1, "log.segment.bytes": 5000, "log.index.interval.bytes": 200}
NOW_MS = int(time.time() * 1000)


class Client:
    """What the test does to either broker."""

    def __init__(self, host: str, port: int) -> None:
        self.connection = Connection(host, port)

    def close(self) -> None:
        self.connection.close()

    def create(self, *topics: tuple[str, int], **configs: str) -> None:
        settings = [
            CreateTopicsRequest.CreateableTopicConfig(name=name.replace("_", "."), value=value)
            for name, value in configs.items()
        ]
        new_topics = [
            CreateTopicsRequest.CreatableTopic(name=name, num_partitions=count, replication_factor=1, configs=settings)
            for name, count in topics
        ]
        request = CreateTopicsRequest(topics=new_topics, timeout_ms=60_000)
        answer = self.connection.ask(CreateTopicsResponse, request, 7)
        assert {result.error_code for result in answer.topics} == {0}, answer

    def grow(self, name: str, count: int) -> None:
        topic = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=None)
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=60_000)
        assert self.connection.ask(CreatePartitionsResponse, request, 3).results[0].error_code == 0

    def delete(self, name: str) -> None:
        state = DeleteTopicsRequest.DeleteTopicState(name=name)
        request = DeleteTopicsRequest(topics=[state], timeout_ms=60_000)
        assert self.connection.ask(DeleteTopicsResponse, request, 6).responses[0].error_code == 0

    def send(self, topic: str, *batches: bytes, partition: int = 0) -> list[int]:
        offsets: list[int] = []
        for data in batches:
            request = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[produced(topic, data, partition)])
            until(partial(self._produce, request, offsets))
        return offsets

    def _produce(self, request: ProduceRequest, offsets: list[int]) -> bool:
        part = self.connection.ask(ProduceResponse, request, 9).responses[0].partition_responses[0]
        assert part.error_code in (0, 3, 5, 6), part
        if part.error_code == 0:
            offsets.append(part.base_offset)
        return part.error_code == 0

    def topics(self) -> dict[str, tuple[UUID, int]]:
        answer = self.connection.ask(MetadataResponse, MetadataRequest(topics=None), 12)
        return {str(topic.name): (topic.topic_id, len(topic.partitions)) for topic in answer.topics}

    def records(self, topic: str, partition: int = 0) -> bytes:
        part = FetchRequest.FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 24)
        data, offset = b"", 0
        while True:
            part.fetch_offset = offset
            request = FetchRequest(topics=[FetchRequest.FetchTopic(topic=topic, partitions=[part])])
            answer = self.connection.ask(FetchResponse, request, 11).responses[0].partitions[0]
            assert answer.error_code == 0, answer
            assert isinstance(answer.records, memoryview)
            if not answer.records:
                return data
            data += bytes(answer.records)
            offset = _end(data)

    def at_times(self, topic: str, *timestamps: int) -> list[tuple[int, int]]:
        positions = []
        for timestamp in timestamps:
            part = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
            topics = [ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[part])]
            request = ListOffsetsRequest(replica_id=-1, topics=topics)
            answer = self.connection.ask(ListOffsetsResponse, request, 7).topics[0].partitions[0]
            positions.append((answer.timestamp, answer.offset))
        return positions

    def setting(self, topic: str, name: str) -> str | None:
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=2, resource_name=topic, configuration_keys=[name]
        )
        answer = self.connection.ask(DescribeConfigsResponse, DescribeConfigsRequest(resources=[resource]), 4)
        return answer.results[0].configs[0].value

    def producers(self, topic: str) -> list[tuple[int, int, int]]:
        partitions = DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[0])
        answer = self.connection.ask(DescribeProducersResponse, DescribeProducersRequest(topics=[partitions]), 0)
        active = answer.topics[0].partitions[0].active_producers
        return sorted((producer.producer_id, producer.producer_epoch, producer.last_sequence) for producer in active)


def _end(data: bytes) -> int:
    """The offset behind the last batch."""
    at, end = 0, 0
    while at < len(data):
        end = int.from_bytes(data[at : at + 8], "big") + int.from_bytes(data[at + 23 : at + 27], "big") + 1
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    return end


def sequences(*numbers: int) -> list[bytes]:
    """Of now: a producer that was not heard of for a day is forgotten at the next start."""
    return [bytes(batch(2, producer_id=4000, sequence=n, timestamp=NOW_MS + n)) for n in numbers]


def test_from_kafka_to_leadline_and_back_again(tmp_path: Path) -> None:
    with zookeeper(tmp_path / "zookeeper") as coordinator:
        with (
            broker(tmp_path / "kafka", coordinator, **SETTINGS) as kafka,
            closing(Client("127.0.0.1", kafka.port)) as theirs,
        ):
            theirs.create(("orders", 3), ("doomed", 1), ("again", 1))
            theirs.create(("keyed", 1), cleanup_policy="compact")
            theirs.send("orders", *(bytes(batch(3, size=400, timestamp=START_MS + n)) for n in range(20)))
            theirs.send("orders", bytes(batch(2, codec=Codec.ZSTD)), partition=2)
            theirs.send("orders", *sequences(0, 2, 4))
            theirs.send("keyed", bytes(batch(5)))
            topics, before = theirs.topics(), theirs.records("orders")
            times = theirs.at_times("orders", -2, -1, -3, START_MS, START_MS + 7)
            producers = theirs.producers("orders")
            kafka.stop()
        directory = kafka.log_dir

        with leadline(directory, **SETTINGS) as ours, closing(Client("localhost", ours.port)) as us:
            assert us.topics() == topics
            assert us.records("orders") == before
            assert us.records("orders", 2) != b""
            assert us.at_times("orders", -2, -1, -3, START_MS, START_MS + 7) == times
            assert us.producers("orders") == producers
            assert us.setting("orders", "retention.ms") == "-1"  # what is not known is kept
            assert us.send("orders", *sequences(4)) == [64]  # known since Kafka
            assert us.send("orders", *sequences(6, 8)) == [66, 68]
            us.send("orders", *(bytes(batch(3, size=400, timestamp=START_MS + n)) for n in range(20)))
            middle = us.records("orders")
            assert middle.startswith(before)
            assert ours.stop() == 0
        assert json.loads((directory / ".kafka_cleanshutdown").read_text())["version"] == 0

        with (
            broker(tmp_path / "kafka", coordinator, **SETTINGS) as kafka,
            closing(Client("127.0.0.1", kafka.port)) as theirs,
        ):
            until(lambda: theirs.topics() == topics)
            until(lambda: _answers(lambda: theirs.records("orders")))
            assert theirs.records("orders") == middle
            assert theirs.send("orders", *sequences(8, 10)) == [68, 130]
            theirs.delete("doomed")
            theirs.delete("again")
            until(lambda: "again" not in theirs.topics() and "doomed" not in theirs.topics())
            theirs.create(("later", 2))
            theirs.grow("orders", 5)
            until(lambda: theirs.topics()["orders"][1] == 5)
            until(lambda: _created(theirs))
            theirs.send("again", bytes(batch(1)))
            theirs.send("orders", bytes(batch(1)), partition=4)
            topics, after = theirs.topics(), theirs.records("orders")
            kafka.stop()
            log = kafka.log.read_text()
        assert " ERROR " not in log, log

        with leadline(directory, **SETTINGS) as ours, closing(Client("localhost", ours.port)) as us:
            assert us.topics() == topics  # as Kafka left them: one gone, one anew, one that has grown
            assert us.records("orders") == after
            assert us.records("again") != b""
            assert us.send("orders", *sequences(12)) == [132]


def _created(client: Client) -> bool:
    """A name is free a moment after its topic is deleted."""
    topic = CreateTopicsRequest.CreatableTopic(name="again", num_partitions=1, replication_factor=1)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=60_000)
    return client.connection.ask(CreateTopicsResponse, request, 7).topics[0].error_code == 0


def _answers(call: Callable[[], Message | bytes]) -> bool:
    try:
        call()
    except AssertionError:
        return False
    return True
