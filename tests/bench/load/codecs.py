"""Produce with each codec: batches of four shapes, whose every record both brokers decompress and check.

The values are JSON, so that there is something to compress; without a codec they are random. One step on Leadline, then
the same on Kafka. A topic takes batches as they come (`compression.type=producer`), so that neither side compresses.
"""

from collections import defaultdict
from contextlib import closing
from functools import partial

from leadline.records.compression import Codec
from tests.bench.load.brokers import pairs
from tests.bench.load.steady import Load, Round, Values
from tests.bench.results import Goal, Row
from tests.bench.run import Run, in_turns

TWICE = Goal(times=2)
SHAPES = (  # name, records in a batch, bytes of a value, partitions, requests in one round, in a quick one
    ("1 x 100 B", 1, 100, 1, 10_000, 500),
    ("16 x 1 KB", 16, 1000, 4, 4000, 200),
    ("160 x 100 B", 160, 100, 4, 4000, 200),
    ("900 x 1 KB", 900, 1000, 4, 300, 20),
)
LOADS = tuple(
    Load(f"{codec.name.lower()}-{shape[1]}", f"{shape[0]}, {codec.name.lower()}", *shape[1:], codec)
    for codec in Codec
    for shape in SHAPES
)


def measure(run: Run) -> list[Row]:
    samples: list[dict[str, list[float]]] = [defaultdict(list), defaultdict(list)]
    with pairs(run.folder) as (pair,):
        brokers = list(pair)
        for n in run.each_round("codecs"):
            rounds = [Round(run, broker, n, LOADS) for broker in brokers]
            for step, side in in_turns([partial(_produce, load) for load in LOADS], brokers):
                for what, value in step(rounds[side]).items():
                    samples[side][what] += [value] if n else []
            for one in rounds:
                one.clean_up()
    ours, theirs = samples
    return [Row(what, "us" if "CPU" in what else "/s", TWICE, ours[what], theirs[what]) for what in ours]


def _produce(load: Load, one: Round) -> Values:
    count = one.count(load)
    with closing(one.producer(load, acks=1)) as producer:
        spent = one.broker.measure(partial(producer.send, count))
    return {
        f"produce {load.name}": count / spent.seconds,
        f"produce {load.name}: CPU per request": spent.cpu_seconds / count * 1e6,
    }
