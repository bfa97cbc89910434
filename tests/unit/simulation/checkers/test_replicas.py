"""The laws about replicas at rest, on brokers in memory: each is broken by a log that was made for it."""

from types import SimpleNamespace
from typing import cast

from leadline.broker.broker import Broker
from leadline.log.checkpoints import EpochEntry
from leadline.log.log import Log
from leadline.model import TopicPartition
from leadline.simulation.checkers.replicas import different_replicas, inconsistent_epochs, log_bytes, open_transactions
from tests.support.in_memory_broker import InMemoryClient, run
from tests.support.logs import batch

TP = TopicPartition("orders", 0)


async def filled(client: InMemoryClient, *sizes: int) -> Log:
    await client.create(TP.topic)
    for size in sizes:
        await client.produce(TP, batch(2, size=size))
    return client.broker.replicas.hosted[TP].log


def replica(id: int, log: Log) -> Broker:
    hosted = {TP: SimpleNamespace(log=log, leader_state=object())}
    return cast(
        Broker,
        SimpleNamespace(metadata=SimpleNamespace(me=SimpleNamespace(id=id)), replicas=SimpleNamespace(hosted=hosted)),
    )


def test_the_bytes_of_a_log_are_its_batches_within_the_bounds() -> None:
    async def test(client: InMemoryClient) -> None:
        log, size = await filled(client, 10, 10, 10), len(batch(2, size=10))
        assert len(log_bytes(log, 0, 6)) == 3 * size
        assert len(log_bytes(log, 3, 4)) == size
        assert log_bytes(log, 6, 6) == b""

    run(test)


def test_replicas_with_the_same_bytes_keep_the_laws() -> None:
    async def test(client: InMemoryClient) -> None:
        log = await filled(client, 10, 10)
        brokers = [replica(1, log), replica(2, log)]
        for law in (different_replicas, open_transactions, inconsistent_epochs):
            assert list(law(brokers)) == []

    run(test)


def test_replicas_with_other_bytes_are_different() -> None:
    async def test(client: InMemoryClient) -> None:
        log = await filled(client, 10, 10)
        await client.create("users")
        for size in (10, 20):
            await client.produce(TopicPartition("users", 0), batch(2, size=size))
        other = client.broker.replicas.hosted[TopicPartition("users", 0)].log
        (line,) = different_replicas([replica(1, log), replica(2, other)])
        assert line.startswith("different replicas: orders-0 between 0 and 4: bytes by broker {1: ")

    run(test)


def test_a_transaction_that_has_not_ended_is_open() -> None:
    async def test(client: InMemoryClient) -> None:
        log = await filled(client, 10)
        log.append_as_leader(batch(1, producer_id=7, transactional=True), 0)
        log.advance_high_watermark(log.log_end)
        (line,) = open_transactions([replica(1, log)])
        assert line == "open transaction: orders-0 is stable up to 2 of 3 on broker 1"

    run(test)


def test_a_batch_with_another_epoch_than_its_offset_is_inconsistent() -> None:
    async def test(client: InMemoryClient) -> None:
        log = await filled(client, 10, 10)
        log.epochs.entries.append(EpochEntry(5, 2))
        (line,) = inconsistent_epochs([replica(1, log)])
        assert line == "inconsistent epochs: orders-0 on broker 1 @ 2 has 0, not 5"
        log.epochs.entries.append(EpochEntry(4, 3))
        assert "has [" in next(inconsistent_epochs([replica(1, log)]))

    run(test)
