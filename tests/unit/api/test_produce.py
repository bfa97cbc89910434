"""Produce: what is appended, acknowledged and refused."""

import pytest

from leadline.broker.connection_state import CloseConnection
from leadline.model import TopicPartition
from leadline.records.compression import Codec
from leadline.wire.messages import ProduceRequest, ProduceResponse
from tests.support.in_memory_broker import InMemoryClient, run
from tests.support.logs import batch

TP = TopicPartition("orders", 0)
VERSIONS = range(12)


def request(acks: int, records: bytes, topic: str = TP.topic) -> ProduceRequest:
    data = ProduceRequest.PartitionProduceData(index=0, records=records)
    named = ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[named])


def test_offsets_go_on_in_every_version_and_with_all_acks() -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        expected = 0
        for version in VERSIONS:
            for acks in (1, -1, -1):  # the last one takes the fast path
                part = await client.produce(TP, acks=acks, version=version)
                assert (part.error_code, part.base_offset, part.log_append_time_ms) == (0, expected, -1)
                assert part.log_start_offset == (0 if version >= 5 else -1)
                expected += 1

    run(test)


def test_a_failed_produce_without_acks_closes_the_connection() -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        sent = request(0, bytes(batch()))
        assert await client.send_silent(sent, ProduceResponse, 9) is None
        assert (await client.produce(TP)).base_offset == 1
        with pytest.raises(CloseConnection, match="a request without a response failed"):
            await client.send_silent(request(0, bytes(batch()), "missing"), ProduceResponse, 9)

    run(test)


@pytest.mark.parametrize(
    ("records", "acks", "version", "code"),
    [
        (bytes(batch()), 2, 9, 21),  # INVALID_REQUIRED_ACKS
        (bytes(batch(codec=Codec.ZSTD)), 1, 6, 76),  # UNSUPPORTED_COMPRESSION_TYPE
        (bytes(batch())[:-1] + b"x", 1, 9, 2),  # CORRUPT_MESSAGE
        (bytes(batch(1, size=2_000_000)), 1, 9, 10),  # MESSAGE_TOO_LARGE
        (bytes(batch(producer_id=1, transactional=True)), -1, 9, 53),  # TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    ],
    ids=["acks", "zstd", "corrupt", "large", "transactional"],
)
def test_refused_records_leave_nothing_behind(records: bytes, acks: int, version: int, code: int) -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        part = await client.produce(TP, records, acks=acks, version=version)
        assert (part.error_code, part.base_offset) == (code, -1)
        assert client.broker.replicas.hosted[TP].log.log_end == 0

    run(test)


def test_each_partition_has_its_own_error() -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        data = [ProduceRequest.PartitionProduceData(index=n, records=bytes(batch())) for n in (0, 7)]
        sent = ProduceRequest(acks=1, topic_data=[ProduceRequest.TopicProduceData(name="orders", partition_data=data)])
        response = await client.send(sent, ProduceResponse, 10)
        parts = response.responses[0].partition_responses
        assert [(part.index, part.error_code) for part in parts] == [(0, 0), (7, 3)]

    run(test)


def test_an_internal_topic_is_written_by_the_admin_client_alone() -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("__consumer_offsets")
        tp = TopicPartition("__consumer_offsets", 0)
        assert (await client.produce(tp)).error_code == 17  # INVALID_TOPIC_EXCEPTION
        assert (await InMemoryClient(client.broker, "__admin_client").produce(tp)).error_code == 0

    run(test, offsets_topic_num_partitions="1")


def test_a_duplicate_batch_is_acknowledged_with_its_first_offset() -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        records = bytes(batch(2, producer_id=9, sequence=0))
        offsets = [(await client.produce(TP, records)).base_offset for _ in range(2)]
        assert offsets == [0, 0]
        assert (await client.produce(TP, bytes(batch(1, producer_id=9, sequence=5)))).error_code == 45

    run(test)


def test_a_partition_needs_no_more_in_sync_replicas_than_it_has() -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders", min_insync_replicas="2")
        codes = [(await client.produce(TP, acks=acks)).error_code for acks in (1, -1)]
        assert codes == [0, 0]

    run(test)
