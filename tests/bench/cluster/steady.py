"""Produce with acks=all to partitions with three copies, and how long one such request takes.

As a producer does it: one connection to each broker, for the partitions that it leads. One step on Leadline, then the
same on Kafka, then the next step, each when both have come to rest; new topics in every round.
"""

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import cache

from tests.bench.batches import Maker
from tests.bench.cluster.clusters import SIZE, Cluster
from tests.bench.load.client import Producer
from tests.bench.load.steady import percentile
from tests.bench.results import Goal, Row, Unit
from tests.bench.run import Run, in_turns

RECORDS = 16
REQUESTS, ROUND_TRIPS = (6000, 300), (3000, 200)  # in one round; quick
ALL = -1

QUANTITIES: dict[str, tuple[Unit, Goal | None]] = {
    "produce 16 x 1 KB, RF 3, acks=all": ("/s", Goal(times=3)),
    "produce 16 x 1 KB: CPU of all brokers": ("us", Goal(times=3)),
    "round trip of 16 x 1 KB: p50": ("us", None),
    "round trip of 16 x 1 KB: p99": ("us", Goal(times=5)),
    "round trip of 16 x 1 KB: CPU of all brokers": ("us", None),
}
Values = dict[str, float]
Samples = defaultdict[str, list[float]]


def measure(run: Run, ours: Cluster, theirs: Cluster) -> list[Row]:
    clusters, samples = (ours, theirs), (Samples(list), Samples(list))
    for n in run.each_round("cluster"):
        for step, side in in_turns((_produce, _round_trips), clusters):
            for what, value in step(run, clusters[side], n).items():
                samples[side][what] += [value] if n else []
    return [Row(what, unit, goal, *(kept[what] for kept in samples)) for what, (unit, goal) in QUANTITIES.items()]


@cache
def batch() -> bytes:
    return bytes(Maker(RECORDS, 1000).batch())


def everywhere(leader: int) -> tuple[int, ...]:
    """All brokers, one of them first."""
    return tuple((leader + n) % SIZE for n in range(SIZE))


def _produce(run: Run, cluster: Cluster, n: int) -> Values:
    """A topic on each leader."""
    topics = [f"middle-{n}-{leader}" for leader in range(SIZE)]
    cluster.create({topic: [everywhere(leader)] for leader, topic in enumerate(topics)})
    count = run.sized(*REQUESTS)
    with ExitStack() as ends, ThreadPoolExecutor(SIZE) as threads:
        producers = [
            ends.enter_context(closing(Producer(broker.port, topic, batch(), records=RECORDS, acks=ALL)))
            for broker, topic in zip(cluster.brokers, topics, strict=True)
        ]
        cluster.wait_until_idle()
        spent = cluster.measure(lambda: list(threads.map(lambda producer: producer.send(count // SIZE), producers)))
    return {
        "produce 16 x 1 KB, RF 3, acks=all": count / spent.seconds,
        "produce 16 x 1 KB: CPU of all brokers": spent.cpu_seconds / count * 1e6,
    }


def _round_trips(run: Run, cluster: Cluster, n: int) -> Values:
    topic, count, times = f"single-{n}", run.sized(*ROUND_TRIPS), list[float]()
    cluster.create({topic: [everywhere(0)]})
    with closing(Producer(cluster.brokers[0].port, topic, batch(), records=RECORDS, acks=ALL)) as producer:
        cluster.wait_until_idle()
        spent = cluster.measure(lambda: times.extend(producer.round_trips_us(count)))
    times.sort()
    name = "round trip of 16 x 1 KB"
    percentiles = {f"{name}: p{share * 100:g}": percentile(times, share) for share in (0.5, 0.99)}
    return {**percentiles, f"{name}: CPU of all brokers": spent.cpu_seconds / count * 1e6}
