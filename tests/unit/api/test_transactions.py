"""The requests of transactions: a producer id, partitions, an end; and what is refused on the way."""

import pytest

from leadline.model import TopicPartition
from leadline.wire.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    ProduceRequest,
    ProduceResponse,
)
from tests.support.in_memory_broker import InMemoryClient, run
from tests.support.logs import batch
from tests.support.waiting import eventually

TP = TopicPartition("orders", 0)
TRANSACTION = 1  # a kind of coordinator
RETRIABLE = {14, 15, 16, 51}  # the coordinator is loading, or a transaction is ending


async def begin(client: InMemoryClient, transactional_id: str | None = "shop") -> InitProducerIdResponse:
    """A producer id, once the coordinator is there."""
    if transactional_id is not None:
        await client.send(
            FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[transactional_id]),
            FindCoordinatorResponse,
            4,
        )
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    responses: list[InitProducerIdResponse] = []

    async def is_coordinator() -> bool:
        responses.append(await client.send(request, InitProducerIdResponse, 4))
        return responses[-1].error_code not in RETRIABLE

    await eventually(is_coordinator)
    return responses[-1]


def add(producer_id: int, epoch: int, partition: int = 0) -> AddPartitionsToTxnRequest:
    topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="orders", partitions=[partition])
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="shop",
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[topic],
    )


def end_of(producer: InitProducerIdResponse, *, committed: bool = True) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id="shop",
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        committed=committed,
    )


async def added(client: InMemoryClient, request: AddPartitionsToTxnRequest) -> int:
    response = await client.send(request, AddPartitionsToTxnResponse, 3)
    return response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code


async def write(client: InMemoryClient, producer_id: int, epoch: int) -> int:
    records = bytes(batch(producer_id=producer_id, producer_epoch=epoch, transactional=True))
    data = ProduceRequest.PartitionProduceData(index=0, records=records)
    topic = ProduceRequest.TopicProduceData(name="orders", partition_data=[data])
    request = ProduceRequest(transactional_id="shop", acks=-1, timeout_ms=10_000, topic_data=[topic])
    return (await client.send(request, ProduceResponse, 9)).responses[0].partition_responses[0].error_code


@pytest.mark.parametrize("version", range(5))
def test_an_idempotent_producer_gets_an_id_of_its_own(version: int) -> None:
    async def test(client: InMemoryClient) -> None:
        request = InitProducerIdRequest(transactional_id=None)
        first, second = [await client.send(request, InitProducerIdResponse, version) for _ in range(2)]
        assert (first.error_code, first.producer_epoch, second.producer_id) == (0, 0, first.producer_id + 1)

    run(test)


@pytest.mark.parametrize(("timeout_ms", "name", "code"), [(0, "shop", 50), (10**9, "shop", 50), (1000, "", 42)])
def test_a_producer_that_is_not_valid_is_refused(timeout_ms: int, name: str, code: int) -> None:
    async def test(client: InMemoryClient) -> None:
        await begin(client)
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms)
        assert (await client.send(request, InitProducerIdResponse, 4)).error_code == code

    run(test)


@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_ends_with_a_marker(committed: bool) -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        producer = await begin(client)
        assert await added(client, add(producer.producer_id, producer.producer_epoch)) == 0
        assert await write(client, producer.producer_id, producer.producer_epoch) == 0
        log = client.broker.replicas.hosted[TP].log
        assert (log.log_end, log.last_stable_offset) == (1, 0)
        end = end_of(producer, committed=committed)
        assert (await client.send(end, EndTxnResponse, 3)).error_code == 0
        again = await begin(client)  # waits for the markers
        assert (again.producer_id, again.producer_epoch) == (producer.producer_id, producer.producer_epoch + 1)
        assert (log.log_end, log.last_stable_offset) == (2, 2)

    run(test)


def test_records_of_a_partition_that_is_not_in_the_transaction_are_refused() -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        producer = await begin(client)
        assert await write(client, producer.producer_id, producer.producer_epoch) == 48  # INVALID_TXN_STATE

    run(test)


def test_a_fenced_producer_gets_nothing_through() -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        old, new = await begin(client), await begin(client)
        assert new.producer_epoch == old.producer_epoch + 1
        assert await added(client, add(old.producer_id, old.producer_epoch)) == 90  # PRODUCER_FENCED
        end = end_of(old)
        assert (await client.send(end, EndTxnResponse, 3)).error_code == 90
        offsets = AddOffsetsToTxnRequest(
            transactional_id="shop", producer_id=old.producer_id, producer_epoch=old.producer_epoch, group_id="group"
        )
        assert (await client.send(offsets, AddOffsetsToTxnResponse, 3)).error_code == 90

    run(test)


def test_a_missing_partition_is_not_added() -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        producer = await begin(client)
        assert await added(client, add(producer.producer_id, producer.producer_epoch, partition=7)) == 3

    run(test)


def test_transactions_are_listed_and_described() -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        producer = await begin(client)
        await added(client, add(producer.producer_id, producer.producer_epoch))
        listed = await client.send(ListTransactionsRequest(), ListTransactionsResponse, 1)
        assert [(txn.transactional_id, txn.transaction_state) for txn in listed.transaction_states] == [
            ("shop", "Ongoing")
        ]
        request = DescribeTransactionsRequest(transactional_ids=["shop", "missing"])
        described = (await client.send(request, DescribeTransactionsResponse, 0)).transaction_states
        assert [(txn.transactional_id, txn.error_code) for txn in described] == [("shop", 0), ("missing", 105)]
        assert described[0].topics[0].topic == "orders"

    run(test)
