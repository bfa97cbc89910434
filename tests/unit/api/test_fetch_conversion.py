"""Fetches from before v4: whether records are converted, and what an old consumer learns of failures."""

import errno

import pytest

from leadline.model import TopicPartition
from leadline.records.compression import Codec
from leadline.records.message_set import entries
from leadline.wire.messages import FetchRequest, FetchResponse
from tests.support.in_memory_broker import InMemoryClient, run
from tests.support.logs import batch
from tests.support.message_sets import plain, wrapped

TP = TopicPartition("orders", 0)
OLD = range(4)
NOT_LEADER, UNSUPPORTED_VERSION, UNSUPPORTED_COMPRESSION = 6, 35, 76


async def read(
    client: InMemoryClient, version: int, offset: int = 0, limit: int = 1 << 20, replica: int = -1
) -> FetchResponse.PartitionData:
    part = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=limit)
    topic = FetchRequest.FetchTopic(topic="orders", partitions=[part])
    request = FetchRequest(replica_id=replica, max_wait_ms=0, topics=[topic])
    return (await client.send(request, FetchResponse, version)).responses[0].partitions[0]


def offsets(part: FetchResponse.PartitionData) -> list[int]:
    assert isinstance(part.records, memoryview)
    return [entry.offset for entry in entries(part.records)]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_what_an_old_producer_sent_comes_back_to_an_old_consumer(codec: Codec) -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        for version in range(3):
            magic = version // 2
            sent = plain(magic) if codec is Codec.NONE else wrapped(magic, plain(magic), codec)
            produced = await client.produce(TP, sent, version=version)
            assert (produced.error_code, produced.base_offset) == (0, 3 * version)
        for version in OLD:
            expected = [0, 1, 2, 3] if codec is Codec.NONE else [2, 5]  # as much as the size of the batches allows
            assert offsets(await read(client, version))[: len(expected)] == expected

    run(test)


@pytest.mark.parametrize("version", range(3))
def test_bytes_without_a_whole_message_append_nothing_and_are_no_error(version: int) -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        produced = await client.produce(TP, plain(1)[:20], version=version)
        assert (produced.error_code, produced.base_offset) == (0, -1)
        assert client.broker.replicas.hosted[TP].log.log_end == 0

    run(test)


def test_consumers_are_refused_where_conversion_is_off_and_newer_ones_are_not() -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders", message_downconversion_enable="false")
        await client.produce(TP)
        for version in OLD:
            part = await read(client, version)
            assert (part.error_code, part.high_watermark, part.records) == (UNSUPPORTED_VERSION, -1, None)
        assert (await read(client, 4)).error_code == 0

    run(test)


def test_zstd_is_refused_where_it_begins() -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        await client.produce(TP)
        await client.produce(TP, batch(codec=Codec.ZSTD))
        for version in OLD:
            assert offsets(await read(client, version)) == [0]
            part = await read(client, version, 1)
            assert (part.error_code, part.high_watermark, part.records) == (UNSUPPORTED_COMPRESSION, -1, None)

    run(test)


def test_limits_cut_the_first_batch_before_v3() -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        await client.produce(TP, batch(3, size=100))
        assert [offsets(await read(client, version, limit=50)) for version in OLD] == [[], [], [], [0, 1, 2]]

    run(test)


@pytest.mark.parametrize(("version", "code"), [(0, NOT_LEADER), (3, NOT_LEADER), (5, NOT_LEADER), (6, 56)])
def test_an_old_consumer_looks_for_another_leader_when_a_disk_has_failed(version: int, code: int) -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        await client.produce(TP)
        client.broker.replicas.hosted[TP].log.offline = True
        assert (await read(client, version)).error_code == code

    run(test)


def test_a_disk_that_fails_during_the_conversion_takes_the_log_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        await client.produce(TP)

        async def fail(*_: object) -> bytes:
            raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr(client.broker.services.down_conversions, "convert", fail)
        assert (await read(client, 1)).error_code == NOT_LEADER
        assert client.broker.replicas.hosted[TP].log.offline

    run(test)
