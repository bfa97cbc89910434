"""A broker is killed while a client writes, and comes back: what was acknowledged is there, once, and in order.

The client sends again what it got no answer for; a producer's sequence numbers, read back from the log, tell which of
that was written already.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.clients import cases
from tests.clients.client import COMMANDS, Client
from tests.support.broker import RunningBroker

COUNT = 6000
PADDING = b"." * 500
WRITTEN_S = 120


def wait_until_something_is_written(folders: list[Path]) -> None:
    deadline = time.monotonic() + WRITTEN_S
    while not any(file.stat().st_size for folder in folders for file in folder.glob("*.log")):
        assert time.monotonic() < deadline, "nothing was written"
        time.sleep(0.001)


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
        wait_until_something_is_written([broker.directory / f"{topic}-{n}" for n in range(cases.PARTITIONS)])
        broker.kill()
        broker.start()
        offsets = sent.result()
    assert offsets == [n // cases.PARTITIONS for n in range(COUNT)]
    per_partition = COUNT // cases.PARTITIONS
    rows = client.ask("consume", topic=topic, starts=[[n, 0, per_partition] for n in range(cases.PARTITIONS)])
    assert sorted(rows, key=lambda row: row[2]) == [row.read(n // cases.PARTITIONS) for n, row in enumerate(written)]
    for partition in range(cases.PARTITIONS):
        assert client.ask("list_offset", topic=topic, partition=partition, at="latest") == per_partition
