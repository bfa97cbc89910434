"""The fast path of Produce: it answers as the handler does, and leaves to the handler what it cannot decide."""

import asyncio
from collections.abc import Awaitable

import pytest

from leadline.api.fast.produce import FLEXIBLE, Reply, produce_by_template
from leadline.api.fast.produce_templates import NEWEST, OLDEST
from leadline.log.write_pressure import PressureLevel
from leadline.model import TopicPartition
from leadline.records.compression import Codec
from leadline.wire.frames import parse_response, request_frame
from leadline.wire.messages import ProduceRequest, ProduceResponse
from tests.support.bad_batches import bad_batches
from tests.support.brokers import joined
from tests.support.in_memory_broker import InMemoryClient, run
from tests.support.logs import batch

TP = TopicPartition("orders", 0)
VERSIONS = [OLDEST, FLEXIBLE - 1, FLEXIBLE, NEWEST]  # the first ones and the last ones with either encoding
Part = ProduceResponse.PartitionProduceResponse


def serve(client: InMemoryClient, records: bytes, version: int = 9, acks: int = -1) -> Reply | Awaitable[Reply] | None:
    data = ProduceRequest.PartitionProduceData(index=0, records=records)
    topic = ProduceRequest.TopicProduceData(name=TP.topic, partition_data=[data])
    request = ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[topic])
    frame = bytearray(joined(request_frame(request, version, 7, client.client_id)))
    return produce_by_template(memoryview(frame)[4:], version, 7, client.client, client.broker.services)


def part_of(reply: Reply | Awaitable[Reply] | None, version: int = 9) -> Part:
    assert isinstance(reply, bytes | list)
    data = bytearray(joined([reply] if isinstance(reply, bytes) else reply))
    correlation_id, response = parse_response(ProduceResponse, data[4:], version)
    assert correlation_id == 7
    return response.responses[0].partition_responses[0]


async def learned(client: InMemoryClient, version: int = 9, acks: int = -1, **configs: str) -> None:
    """A topic with one record, whose request is a template from now on."""
    await client.create(TP.topic, 1, **configs)
    assert (await client.produce(TP, acks=acks, version=version)).error_code == 0


def log_end(client: InMemoryClient) -> int:
    return client.broker.replicas.hosted[TP].log.log_end


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_like_an_earlier_one_is_appended_and_answered(version: int, acks: int) -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create(TP.topic)
        assert serve(client, bytes(batch(2)), version, acks) is None
        await client.produce(TP, acks=acks, version=version)
        part = part_of(serve(client, bytes(batch(2)), version, acks), version)
        assert (part.error_code, part.base_offset, part.log_append_time_ms) == (0, 1, -1)
        assert log_end(client) == 3

    run(test)


@pytest.mark.parametrize(
    "records",
    [
        bytes(batch())[:-1] + b"x",
        bytes(batch(1, size=2_000_000)),
        bytes(100),
        bytes(batch()[:16]) + b"\3" + bytes(batch()[17:]),
        bytes(batch()[:16]) + b"\1" + bytes(batch()[17:]),
    ],
    ids=["corrupt", "large", "zeros", "no format", "an old format"],
)
def test_a_refusal_is_the_one_of_the_handler(records: bytes) -> None:
    async def test(client: InMemoryClient) -> None:
        await learned(client)
        refused = part_of(serve(client, records))
        client.broker.services.produce_templates.by_version[9].clear()
        assert refused == await client.produce(TP, records)
        assert refused.error_code != 0
        assert log_end(client) == 1

    run(test)


def test_bad_batches_are_judged_as_the_handler_does() -> None:
    async def test(client: InMemoryClient) -> None:
        await learned(client)
        templates = client.broker.services.produce_templates.by_version[9]
        for name, records in bad_batches():
            before = dict(templates)
            if (reply := serve(client, records)) is None:  # the handler alone judges it
                continue
            part = part_of(reply)
            templates.clear()
            by_handler = await client.produce(TP, records)
            templates.update(before)
            assert part.error_code == by_handler.error_code, name
            assert part.error_code == 0 or part == by_handler, name

    run(test)


def test_a_refusal_is_counted() -> None:
    async def test(client: InMemoryClient) -> None:
        await learned(client)
        code = part_of(serve(client, bytes(batch())[:-1] + b"x")).error_code
        assert client.broker.services.request_metrics.errors[0, code] == 1

    run(test)


def test_a_partition_that_is_offline_or_gone_is_left_to_the_handler() -> None:
    async def test(client: InMemoryClient) -> None:
        await learned(client)
        hosted = client.broker.replicas.hosted
        partition = hosted.pop(TP)
        assert serve(client, bytes(batch())) is None
        hosted[TP] = partition
        assert serve(client, bytes(batch())) is not None

    run(test)


def test_a_partition_that_is_led_elsewhere_is_left_to_the_handler() -> None:
    async def test(client: InMemoryClient) -> None:
        await learned(client)
        partition = client.broker.replicas.hosted[TP]
        leader_state, partition.leader_state = partition.leader_state, None
        assert serve(client, bytes(batch())) is None
        assert log_end(client) == 1
        partition.leader_state = leader_state

    run(test)


def test_a_batch_that_a_thread_has_to_check_is_left_to_the_handler() -> None:
    async def test(client: InMemoryClient) -> None:
        await learned(client)
        assert serve(client, bytes(batch(3000, size=200, codec=Codec.GZIP))) is None
        assert log_end(client) == 1

    run(test)


def test_with_flush_messages_the_reply_waits_for_the_flush() -> None:
    async def test(client: InMemoryClient) -> None:
        await learned(client, acks=1, flush_messages="1")
        reply = serve(client, bytes(batch()), acks=1)
        assert isinstance(reply, asyncio.Future)
        assert not reply.done()
        assert part_of(await reply).base_offset == 1

    run(test)


def test_a_request_whose_connection_is_closed_gets_no_reply() -> None:
    async def test(client: InMemoryClient) -> None:
        await learned(client, acks=1, flush_messages="1")
        reply = serve(client, bytes(batch()), acks=1)
        assert isinstance(reply, asyncio.Future)
        reply.cancel()
        assert (await client.produce(TP, acks=1)).base_offset == 2

    run(test)


def test_under_write_pressure_the_reply_to_a_large_request_waits_for_the_disk() -> None:
    async def test(client: InMemoryClient) -> None:
        await learned(client)
        client.broker.replicas.pressure.level = PressureLevel.HIGH
        assert isinstance(serve(client, bytes(batch())), bytes)
        delayed = serve(client, bytes(batch(1, size=500_000)))
        assert isinstance(delayed, Awaitable)
        client.broker.replicas.pressure.level = PressureLevel.CALM
        assert part_of(await delayed).base_offset == 2

    run(test)
