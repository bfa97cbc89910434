"""Fetch: what a consumer reads, what it waits for, and what it is refused."""

import asyncio

import pytest

from leadline.model import TopicPartition
from leadline.records.message_set import entries
from leadline.wire.messages import FetchRequest, FetchResponse
from tests.support.in_memory_broker import InMemoryClient, run
from tests.support.logs import batch

TP = TopicPartition("orders", 0)
OLD, BY_NAME, BY_ID = range(4), range(4, 13), range(13, 17)


def fetch(client: InMemoryClient, version: int, offset: int = 0, partition: int = 0, **more: int) -> FetchRequest:
    part = FetchRequest.FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=-1
    )
    topic = FetchRequest.FetchTopic(topic="orders", partitions=[part])
    if version in BY_ID:
        topic_id = client.broker.services.metadata.topics["orders"].id
        topic = FetchRequest.FetchTopic(topic_id=topic_id, partitions=[part])
    options = {"min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1} | more
    return FetchRequest(replica_id=-1, topics=[topic], **options)  # type: ignore[arg-type]


async def read(client: InMemoryClient, version: int, **more: int) -> FetchResponse.PartitionData:
    response = await client.send(fetch(client, version, **more), FetchResponse, version)
    assert response.error_code == 0
    return response.responses[0].partitions[0]


@pytest.mark.parametrize("version", [*BY_NAME, *BY_ID])
def test_records_and_watermarks_come_in_every_version(version: int) -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        records = bytes(batch(3, size=100))
        await client.produce(TP, records)
        part = await read(client, version)
        assert (part.error_code, part.high_watermark, part.last_stable_offset) == (0, 3, 3)
        assert part.log_start_offset == (0 if version >= 5 else -1)
        assert isinstance(part.records, bytes | bytearray | memoryview)
        assert len(part.records) == len(records)

    run(test)


@pytest.mark.parametrize("version", OLD)
def test_old_versions_get_messages_of_their_format(version: int) -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        await client.produce(TP, batch(3, size=100))
        part = await read(client, version, offset=1)
        assert (part.error_code, part.high_watermark) == (0, 3)
        assert isinstance(part.records, memoryview)
        messages = list(entries(part.records))
        assert [(entry.offset, entry.magic) for entry in messages] == [(1, version // 2), (2, version // 2)]
        assert [tuple(map(bytes, entry.content())) for entry in messages] == [(b"k1", b"v" * 100), (b"k2", b"v" * 100)]  # type: ignore[arg-type]

    run(test)


@pytest.mark.parametrize("version", [12, 16])
def test_an_offset_that_is_not_in_the_log_is_refused(version: int) -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        part = await read(client, version, offset=1)
        assert (part.error_code, part.high_watermark) == (1, -1)  # OFFSET_OUT_OF_RANGE

    run(test)


@pytest.mark.parametrize("version", [12, 16])
def test_a_missing_partition_is_reported(version: int) -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        assert (await read(client, version, partition=5, max_wait_ms=60_000)).error_code == 3

    run(test)


def test_a_fetch_waits_for_records() -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        waiting = asyncio.create_task(read(client, 16, max_wait_ms=60_000))
        await asyncio.sleep(0)
        assert not waiting.done()
        await InMemoryClient(client.broker).produce(TP)
        assert (await waiting).high_watermark == 1

    run(test)


def test_a_session_reports_a_partition_again_only_when_it_changed() -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        opened = await client.send(fetch(client, 16, session_epoch=0), FetchResponse, 16)
        assert opened.session_id > 0
        again = FetchRequest(session_id=opened.session_id, session_epoch=1, max_bytes=1 << 20)
        assert (await client.send(again, FetchResponse, 16)).responses == []
        await client.produce(TP)
        again.session_epoch = 2
        response = await client.send(again, FetchResponse, 16)
        assert response.responses[0].partitions[0].high_watermark == 1

    run(test)


@pytest.mark.parametrize(("session_id", "epoch", "code"), [(12345, 1, 70), (None, 7, 71)])
def test_a_session_with_another_id_or_epoch_is_refused(session_id: int | None, epoch: int, code: int) -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        opened = await client.send(fetch(client, 16, session_epoch=0), FetchResponse, 16)
        again = FetchRequest(session_id=session_id or opened.session_id, session_epoch=epoch)
        assert (await client.send(again, FetchResponse, 16)).error_code == code

    run(test)


def test_the_first_batch_comes_whole_even_if_it_is_larger_than_the_limit() -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        for _ in range(2):
            await client.produce(TP, batch(1, size=1000))
        part = await read(client, 16, max_bytes=10)
        assert isinstance(part.records, bytes | bytearray | memoryview)
        assert len(part.records) == len(batch(1, size=1000))

    run(test)
