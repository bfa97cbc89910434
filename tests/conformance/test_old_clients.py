"""Clients as they were before Kafka 0.11: with Leadline they store and read what they do with Kafka."""

import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer  # type: ignore[import-untyped]
from kafka import TopicPartition as KafkaTopicPartition
from kafka.record.legacy_records import (  # type: ignore[import-untyped]
    LegacyRecordBatch,
    LegacyRecordBatchBuilder,
)

from leadline.records.compression import Codec
from leadline.wire.messages import FetchRequest, FetchResponse, ProduceRequest, ProduceResponse
from tests.conformance.both import Both, Side, produced
from tests.support.logs import START_MS

pytestmark = pytest.mark.conformance

COUNT = 200
PATIENCE_S = 90
CODECS = ["none", "gzip", "snappy", "lz4"]
Read = tuple[int, bytes | None, bytes | None]  # offset, key, value
EXPECTED: list[Read] = [(n, f"k{n}".encode(), f"v{n}".encode() * 20) for n in range(COUNT)]


def old_librdkafka(side: Side, fallback: str, **more: object) -> dict[str, object]:
    """It sends no ApiVersions, and Produce and Fetch in v0."""
    return {
        "bootstrap.servers": side.bootstrap,
        "api.version.request": False,
        "broker.version.fallback": fallback,
        "log_level": 2,
        **more,
    }


def stored(producer: Producer, topic: str) -> list[int | None]:
    """The offsets that it was told."""
    offsets: list[int | None] = []
    for _, key, value in EXPECTED:
        producer.produce(topic, value, key, on_delivery=lambda error, message: offsets.append(message.offset()))
    assert producer.flush(PATIENCE_S) == 0
    return offsets


def read_all(consumer: Consumer) -> list[Read]:
    records: list[Read] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(records) < COUNT and time.monotonic() < deadline:
        for message in consumer.consume(COUNT, 1):
            assert message.error() is None, message.error()
            assert message.timestamp()[1] == 0  # format 0 has no times
            offset = message.offset()
            assert offset is not None
            records.append((offset, message.key(), message.value()))
    return records


@pytest.mark.parametrize("fallback", ["0.8.2", "0.9.0"])
def test_librdkafka_of_before_api_versions_stores_and_reads(both: Both, fallback: str) -> None:
    for codec in CODECS:
        topic = both.create(f"rdkafka-{fallback}-{codec}")
        for side in both.sides:
            producer = Producer(old_librdkafka(side, fallback, **{"compression.type": codec, "linger.ms": 50}))
            assert stored(producer, topic) == list(range(COUNT))
            consumer = Consumer(old_librdkafka(side, fallback, **{"group.id": "old", "check.crcs": True}))
            consumer.assign([TopicPartition(topic, 0, 0)])
            assert read_all(consumer) == EXPECTED, side
            consumer.close()


def test_a_group_of_librdkafka_0_9_reads_and_commits(both: Both) -> None:
    topic = both.create("rdkafka-group")
    for side in both.sides:
        assert stored(Producer(old_librdkafka(side, "0.9.0")), topic) == list(range(COUNT))
        settings = {"group.id": "old-group", "auto.offset.reset": "earliest", "session.timeout.ms": 45_000}
        consumer = Consumer(old_librdkafka(side, "0.9.0", **settings))
        consumer.subscribe([topic])
        assert read_all(consumer) == EXPECTED, side
        consumer.commit(asynchronous=False)
        (committed,) = consumer.committed([TopicPartition(topic, 0)], timeout=PATIENCE_S)
        assert committed.offset == COUNT
        consumer.close()


@pytest.mark.parametrize("version", [(0, 8, 2), (0, 9), (0, 10, 0), (0, 10, 1)])
def test_kafka_python_of_old_versions_stores_and_reads(both: Both, version: tuple[int, ...]) -> None:
    topic = both.create(f"kafka-python-{'.'.join(map(str, version))}")
    for side in both.sides:
        producer = KafkaProducer(bootstrap_servers=side.bootstrap, api_version=version, compression_type="gzip")
        futures = [producer.send(topic, value, key, partition=0) for _, key, value in EXPECTED]
        assert [future.get(PATIENCE_S).offset for future in futures] == list(range(COUNT))
        producer.close()
        consumer = KafkaConsumer(bootstrap_servers=side.bootstrap, api_version=version, group_id=None)
        consumer.assign([KafkaTopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        records: list[Read] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(records) < COUNT and time.monotonic() < deadline:
            for batch in consumer.poll(1000).values():
                records += [(record.offset, record.key, record.value) for record in batch]
        assert records == EXPECTED, side
        consumer.close()


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY])
@pytest.mark.parametrize("magic", [0, 1])
def test_what_kafka_pythons_builder_of_old_messages_builds_is_read_by_its_reader(
    both: Both, magic: int, codec: Codec
) -> None:
    topic = both.create(f"built-{magic}-{codec.name.lower()}")
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=codec, batch_size=1 << 20)
    for offset, key, value in EXPECTED:
        builder.append(offset, timestamp=START_MS + offset, key=key, value=value)
    version = 2 * magic
    request = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[produced(topic, bytes(builder.build()))])
    answer = both.ask_and_compare(ProduceResponse, request, version)
    assert answer.responses[0].partition_responses[0].error_code == 0
    part = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    fetch = FetchRequest(max_wait_ms=0, topics=[FetchRequest.FetchTopic(topic=topic, partitions=[part])])

    def records(side: Side) -> list[tuple[int, int | None, bytes | None, bytes | None]]:
        data = side.ask(FetchResponse, fetch, version).responses[0].partitions[0].records
        assert isinstance(data, memoryview)
        read = [record for entry in whole(bytes(data)) for record in LegacyRecordBatch(entry, magic)]
        return [(record.offset, record.timestamp, record.key, record.value) for record in read]

    theirs, ours = both.map(records)
    assert theirs == ours
    assert ours == [(n, START_MS + n if magic else None, key, value) for n, key, value in EXPECTED[: len(ours)]]


def whole(data: bytes) -> list[bytes]:
    """The entries that are not cut off."""
    entries = []
    while len(data) > 12 and len(data) >= (size := 12 + int.from_bytes(data[8:12], "big")):
        entries.append(data[:size])
        data = data[size:]
    return entries
