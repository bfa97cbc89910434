"""A real Kafka leads, our fetcher copies: the same bytes, the same epochs, and what never was the leader's goes."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import UUID

import pytest

from leadline.cluster.broker_client import TcpBrokerClient
from leadline.config.topic import LogConfig
from leadline.log.log_dirs import LogDirs
from leadline.model import TopicPartition
from leadline.replication.partition import LeaderAndIsr
from leadline.replication.replicas import OtherBrokers, Replicas
from leadline.runtime.network import TcpNetwork
from leadline.runtime.ports import SystemChance, SystemTime
from leadline.wire.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    ProduceRequest,
    ProduceResponse,
)
from tests.conformance.both import CREATABLE, Side, _leads, produced
from tests.conformance.kafka.broker import broker, zookeeper
from tests.support.crash_disk import Unsynced
from tests.support.logs import batch, whole_log
from tests.support.settings import live_settings
from tests.support.waiting import eventually, until

pytestmark = pytest.mark.conformance

KAFKA, US = 1, 2
TOPIC, PARTITIONS = "copied-by-us", 3
SEGMENT_BYTES = 20_000


def created(kafka: Side) -> UUID:
    """A topic that is to be on Kafka's broker and on one that it has never seen: ours."""
    assignments = [
        CreateTopicsRequest.CreatableReplicaAssignment(partition_index=number, broker_ids=[KAFKA, US])
        for number in range(PARTITIONS)
    ]
    configs = [CreateTopicsRequest.CreateableTopicConfig(name="segment.bytes", value=str(SEGMENT_BYTES))]
    topic = CREATABLE(name=TOPIC, num_partitions=-1, replication_factor=-1, assignments=assignments, configs=configs)
    (result,) = kafka.ask(CreateTopicsResponse, CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7).topics
    assert result.error_code == 0, result
    until(lambda: _leads(kafka, TOPIC))
    return result.topic_id


def produce(kafka: Side, partition: int, count: int) -> None:
    for n in range(count):
        data = produced(TOPIC, bytes(batch(1 + n % 3, size=900)), partition)
        answer = kafka.ask(ProduceResponse, ProduceRequest(acks=1, timeout_ms=60_000, topic_data=[data]), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0


def bytes_of_kafka(kafka: Side, tp: TopicPartition) -> bytes:
    (directory,) = (Path(path) / str(tp) for path in kafka.dirs if (Path(path) / str(tp)).exists())
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


def delete_records(kafka: Side, tp: TopicPartition, before: int) -> None:
    """Kafka answers once all that live have followed: it does not know us, so at once."""
    part = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=tp.partition, offset=before)
    topic = DeleteRecordsRequest.DeleteRecordsTopic(name=tp.topic, partitions=[part])
    answer = kafka.ask(DeleteRecordsResponse, DeleteRecordsRequest(topics=[topic], timeout_ms=60_000), 2)
    assert answer.topics[0].partitions[0].error_code == 0


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[Side]:
    """One of its own: a topic with a replica on a broker that never comes cannot be deleted."""
    with zookeeper(tmp_path / "zookeeper") as zk, broker(tmp_path / "kafka", zk, broker_id=KAFKA) as running:
        side = Side("Kafka", "127.0.0.1", running.port, [str(running.log_dir)])
        with closing(side.connection):
            yield side


def test_our_copy_is_kafkas_log(kafka: Side, tmp_path: Path) -> None:
    topic_id = created(kafka)
    tps = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    decision = LeaderAndIsr(KAFKA, 0, (KAFKA,))

    async def main() -> None:
        config = LogConfig.parse({"segment.bytes": str(SEGMENT_BYTES)})
        settings = live_settings({"log.dirs": str(tmp_path / "ours"), "replica.fetch.backoff.ms": "50"})
        dirs = LogDirs(settings, SystemTime(), SystemChance(), Unsynced(), lambda _: config)
        await dirs.open()
        brokers = OtherBrokers(lambda _: TcpBrokerClient((kafka.host, kafka.port), "broker-2", TcpNetwork()))
        replicas = Replicas(dirs, US, settings, brokers)

        def holds(*counts: int) -> bool:
            return [dirs.logs[tp].high_watermark for tp in tps] == list(counts)

        try:
            for tp in tps:
                await replicas.follow(tp, topic_id, decision)
            for tp in tps:
                await asyncio.to_thread(produce, kafka, tp.partition, 30)
            await eventually(lambda: holds(60, 60, 60))
            for tp in tps:
                assert whole_log(dirs.logs[tp]) == bytes_of_kafka(kafka, tp)
                assert dirs.logs[tp].epochs.entries == [(0, 0)]

            await replicas.release(tps[0])
            log = dirs.logs[tps[0]]
            log.append_as_leader(batch(5), 0)  # which Kafka never saw
            await asyncio.to_thread(delete_records, kafka, tps[1], 25)
            await replicas.follow(tps[0], topic_id, decision)
            await eventually(lambda: log.log_end == 60 and dirs.logs[tps[1]].log_start == 25)
            await asyncio.to_thread(produce, kafka, 0, 3)
            await eventually(lambda: holds(66, 60, 60))
            assert whole_log(log) == bytes_of_kafka(kafka, tps[0])
        finally:
            await replicas.stop()
            await dirs.close()

    asyncio.run(main())
