"""Batches whose check would hold the loop: a thread checks them, other requests go on, and the result is the same."""

import asyncio

import pytest

from leadline.config.topic import LogConfig
from leadline.log.content_checks import ContentChecks
from leadline.log.validation import INLINE_BYTES, INLINE_REBUILT_BYTES, CheckedBatch, Writable
from leadline.model import TopicPartition
from leadline.records.batch import header_at
from leadline.records.compression import MAX_DECOMPRESSED_BYTES, Codec
from leadline.wire.messages import ProduceRequest, ProduceResponse
from tests.support.bad_batches import batch_of, packed, record
from tests.support.in_memory_broker import InMemoryClient, run
from tests.support.logs import batch, records_in, whole_log

TP, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)
CODECS = [codec for codec in Codec if codec is not Codec.NONE]
LARGE_VALUE = max(INLINE_BYTES.values()) + 1
NONE, MESSAGE_TOO_LARGE, INVALID_RECORD, UNKNOWN = 0, 10, 87, -1


class HeldChecks(ContentChecks):
    """Checks that do not begin before they may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_begin, self.is_asked, self.count = asyncio.Event(), asyncio.Event(), 0

    async def check(self, batch: Writable, config: LogConfig, tp: TopicPartition, now_ms: int) -> CheckedBatch:
        self.count += 1
        self.is_asked.set()
        await self.may_begin.wait()
        return await super().check(batch, config, tp, now_ms)


@pytest.mark.parametrize("codec", CODECS)
def test_others_are_served_while_a_large_batch_is_checked(codec: Codec) -> None:
    async def test(client: InMemoryClient) -> None:
        checks = client.broker.services.content_checks = HeldChecks()
        await client.create("orders", 2)
        large = asyncio.create_task(client.produce(TP, batch(2, size=LARGE_VALUE, codec=codec)))
        await checks.is_asked.wait()
        for n in range(3):
            assert (await client.produce(OTHER)).base_offset == n
        assert (await client.produce(TP)).base_offset == 0
        assert (checks.count, large.done()) == (1, False)
        checks.may_begin.set()
        assert (await large).base_offset == 1
        log = client.broker.replicas.hosted[TP].log
        assert [len(one.value or b"") for one in records_in(whole_log(log, log.context.files))[1:]] == [LARGE_VALUE] * 2

    run(test)


@pytest.mark.parametrize("codec", Codec)
def test_many_records_are_checked_beside_the_loop_too(codec: Codec) -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        many = packed(codec, [record(n) for n in range(25_000)])
        assert (await client.produce(TP, many)).error_code == NONE
        many = packed(codec, [record(n) for n in range(25_000)], 24_999)
        assert (await client.produce(TP, many)).error_code == INVALID_RECORD
        assert client.broker.replicas.hosted[TP].log.log_end == 25_000

    run(test)


@pytest.mark.parametrize("codec", CODECS)
def test_a_large_batch_that_is_bad_leaves_nothing_behind(codec: Codec) -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        good = batch(3, size=LARGE_VALUE, codec=codec)
        payload = bytes(good[61:])
        for bad, code in (
            (batch_of(payload[: len(payload) // 2], 3, codec), UNKNOWN),
            (batch_of(payload, 2, codec), INVALID_RECORD),
            (batch_of(payload, 4, codec), INVALID_RECORD),
        ):
            assert (await client.produce(TP, bad)).error_code == code
        assert client.broker.replicas.hosted[TP].log.log_end == 0

    run(test)


def test_large_and_small_batches_of_one_request_are_answered_each() -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders", 3)
        large = batch(1, size=LARGE_VALUE, codec=Codec.GZIP)
        sent = [large, batch(), batch_of(bytes(large[61:]), 5, Codec.GZIP)]
        data = [ProduceRequest.PartitionProduceData(index=n, records=bytes(one)) for n, one in enumerate(sent)]
        request = ProduceRequest(
            acks=1, topic_data=[ProduceRequest.TopicProduceData(name="orders", partition_data=data)]
        )
        for offset in (0, 1):
            parts = (await client.send(request, ProduceResponse, 9)).responses[0].partition_responses
            answers = [(part.index, part.error_code, part.base_offset) for part in parts]
            assert answers == [(0, NONE, offset), (1, NONE, offset), (2, INVALID_RECORD, -1)]

    run(test)


def test_a_topics_own_compression_is_applied_beside_the_loop() -> None:
    async def test(client: InMemoryClient) -> None:
        checks = client.broker.services.content_checks = HeldChecks()
        checks.may_begin.set()
        await client.create("orders", compression_type="zstd")
        assert (await client.produce(TP, batch(9, size=INLINE_REBUILT_BYTES))).error_code == NONE
        assert checks.count == 1
        log = client.broker.replicas.hosted[TP].log
        data = whole_log(log, log.context.files)
        assert (header_at(data).codec, len(records_in(data))) == (Codec.ZSTD, 9)

    run(test)


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_more_than_a_cleaner_unpacks_is_refused_on_compacted_topics_alone(policy: str) -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders", cleanup_policy=policy)
        bomb = batch(1, size=MAX_DECOMPRESSED_BYTES, codec=Codec.ZSTD)
        expected = MESSAGE_TOO_LARGE if policy == "compact" else NONE
        assert (await client.produce(TP, bomb)).error_code == expected

    run(test)
