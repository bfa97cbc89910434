"""Producing right after another process left much unwritten, on the same disk.

The neighbour writes two gigabytes and goes. They are in the page cache, not on the disk. Then a client produces batches
of 900 KB. A broker may be held up where the kernel holds up every writer, and not before.
"""

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from tests.bench.batches import Maker
from tests.bench.load.brokers import Broker, pairs
from tests.bench.load.client import Producer, create_topics, delete_topic
from tests.bench.results import Goal, Row
from tests.bench.run import Run

MAX_ROUNDS = 3
NEIGHBOUR_BYTES, PRODUCED_BYTES = 2_000_000_000, 900_000_000
PIECE_BYTES = 1 << 20
RECORDS, PARTITIONS = 900, 4
TOPIC = "neighbour"


def measure(run: Run) -> list[Row]:
    quiet = Row("produce 900 x 1 KB when it is quiet", "MB/s", Goal(times=1))
    beside = Row("after a neighbour wrote 2 GB", "MB/s", Goal(times=1))
    with pairs(run.folder) as (pair,):
        for n in replace(run, rounds=min(run.rounds, MAX_ROUNDS)).each_round("neighbour"):
            for row, size in ((quiet, 0), (beside, run.sized(NEIGHBOUR_BYTES, NEIGHBOUR_BYTES // 50))):
                rates = [_rate(run, broker, size) for broker in pair]
                if n:
                    row.add(*rates)
    return [quiet, beside]


def _rate(run: Run, broker: Broker, neighbour_bytes: int) -> float:
    """Megabytes a second."""
    batch = bytes(Maker(RECORDS, 1000).batch())
    count = run.sized(PRODUCED_BYTES, PRODUCED_BYTES // 50) // len(batch)
    create_topics(broker.port, {TOPIC: PARTITIONS})
    os.sync()
    broker.wait_until_idle()
    producer = Producer(broker.port, TOPIC, batch, records=RECORDS, partitions=PARTITIONS)
    with closing(producer), _neighbour(run.folder / "neighbour.bin", neighbour_bytes):
        spent = broker.measure(partial(producer.send, count))
    delete_topic(broker.port, TOPIC)
    broker.wait_until_gone(TOPIC)
    return count * len(batch) / 1e6 / spent.seconds


@contextmanager
def _neighbour(path: Path, size: int) -> Iterator[None]:
    """What it wrote lasts as long as the context."""
    piece = os.urandom(PIECE_BYTES)
    try:
        with path.open("wb", buffering=0) as file:
            for _ in range(size // PIECE_BYTES):
                file.write(piece)
        yield
    finally:
        path.unlink(missing_ok=True)
