"""A broker is killed while a client writes, and comes back: what was acknowledged is there, once, and in order.

The client sends again what it got no answer for; a producer's sequence numbers, read back from the log, tell which of
that was written already.

Broker and clients are those of this file alone: franz-go does not repeat FindCoordinator on a connection that a broker
closed while nobody used it.
"""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.clients import cases
from tests.clients.client import COMMANDS, Client
from tests.clients.conftest import Clients, broker_for_clients, clients_of
from tests.support.broker import RunningBroker
from tests.support.waiting import until

COUNT = 6000
PADDING = b"." * 500
WRITTEN_S = 120


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with broker_for_clients(tmp_path_factory) as running:
        yield running


@pytest.fixture(scope="module")
def clients(broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    with clients_of(broker, tmp_path_factory) as by_name:
        yield by_name


def is_something_written(folders: list[Path]) -> bool:
    return any(file.stat().st_size for folder in folders for file in folder.glob("*.log"))


# Sarama does not keep its batches together when it sends again, and Kafka refuses that as out of order, too.
@pytest.mark.parametrize("client", sorted(COMMANDS.keys() - {"sarama"}), indirect=True)
def test_an_idempotent_producer_loses_nothing_and_repeats_nothing(client: Client, broker: RunningBroker) -> None:
    topic = f"{client.name}-crash"
    client.ask("create_topic", topic=topic, partitions=cases.PARTITIONS, config={})
    now = int(time.time() * 1000)  # a producer whose last record is older than a day is forgotten
    written = [cases.Written(n % cases.PARTITIONS, b"%d" % n, PADDING, (), now + n) for n in range(COUNT)]
    records = [record.as_values() for record in written]
    with ThreadPoolExecutor() as threads:
        sent = threads.submit(client.ask, "produce", topic=topic, codec="none", idempotent=True, records=records)
        folders = [broker.directory / f"{topic}-{n}" for n in range(cases.PARTITIONS)]
        until(partial(is_something_written, folders), "a write", WRITTEN_S, poll_s=0.001)
        broker.kill()
        broker.start()
        offsets = sent.result()
    assert offsets == [n // cases.PARTITIONS for n in range(COUNT)]
    per_partition = COUNT // cases.PARTITIONS
    rows = client.ask("consume", topic=topic, starts=[[n, 0, per_partition] for n in range(cases.PARTITIONS)])
    assert sorted(rows, key=lambda row: row[2]) == [row.read(n // cases.PARTITIONS) for n, row in enumerate(written)]
    for partition in range(cases.PARTITIONS):
        assert client.ask("list_offset", topic=topic, partition=partition, at="latest") == per_partition
