"""DescribeProducers: the producers that a partition knows, and their open transactions."""

import pytest

from leadline.model import TopicPartition
from leadline.wire.messages import DescribeProducersRequest, DescribeProducersResponse
from tests.support.in_memory_broker import InMemoryClient, run
from tests.support.logs import batch

TP = TopicPartition("orders", 0)


async def describe(client: InMemoryClient, tp: TopicPartition = TP) -> DescribeProducersResponse.PartitionResponse:
    topic = DescribeProducersRequest.TopicRequest(name=tp.topic, partition_indexes=[tp.partition])
    response = await client.send(DescribeProducersRequest(topics=[topic]), DescribeProducersResponse, 0)
    (result,) = response.topics[0].partitions
    assert (response.topics[0].name, result.partition_index) == tp
    return result


def test_an_idempotent_producer_is_described_and_others_are_not() -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        await client.produce(TP, batch(1))
        assert (await describe(client)).active_producers == []
        await client.produce(TP, batch(3, producer_id=7, producer_epoch=2, sequence=0))
        (producer,) = (await describe(client)).active_producers
        assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (7, 2, 2)
        assert producer.current_txn_start_offset == -1

    run(test)


def test_an_open_transaction_has_its_first_offset() -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        await client.produce(TP, batch(2))
        await client.produce(TP, batch(1, producer_id=7, transactional=True), transactional_id="shop")
        (producer,) = (await describe(client)).active_producers
        assert producer.current_txn_start_offset == 2

    run(test, transaction_partition_verification_enable="false")


@pytest.mark.parametrize(("topic", "code"), [("missing", 3), ("not a name", 17)])
def test_a_missing_partition_is_an_error(topic: str, code: int) -> None:
    async def test(client: InMemoryClient) -> None:
        result = await describe(client, TopicPartition(topic, 0))
        assert (result.error_code, result.active_producers) == (code, [])
        assert result.error_message

    run(test)
