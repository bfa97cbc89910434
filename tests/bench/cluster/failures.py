"""What happens when a broker fails, and when it comes back.

The gap is what a producer sees that librdkafka drives: the longest time between two acknowledgements around the
SIGKILL of the partition's leader. It begins with an acknowledgement by that leader, or it would not be seen. A client
that waits for nothing looks for leaders once a second, so the kill comes at any moment of a second. A fail-over of many
partitions ends when all of them are led by brokers that answer. A follower that was away is measured from its first
copied byte to its last, so that its start is not part of it.
"""

import os
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from confluent_kafka import Producer as Librdkafka

from leadline.wire.messages import ListOffsetsRequest, ListOffsetsResponse, MetadataResponse
from tests.bench.batches import Maker
from tests.bench.cluster.clusters import SIZE, Cluster, until
from tests.bench.cluster.steady import ALL, everywhere
from tests.bench.load.client import HOST, Connection, Producer
from tests.bench.results import Goal, Row, Unit
from tests.bench.run import Run

MAX_ROUNDS = 2  # each kill costs Kafka half a minute
PARTITIONS = 1000, 60
AWAY_BATCHES = 400, 20  # of 900 KB
STEADY_S, SEND_S, AFTER_S = 2.0, 0.005, 3.0
PATIENCE_S = 90.0

QUANTITIES: dict[str, tuple[Unit, Goal | None]] = {
    "longest gap, leader killed": ("s", Goal(below=1)),
    "longest gap, leader and controller killed": ("s", Goal(below=1)),
    "1,000 partitions of RF 3 fail over": ("s", Goal(times=1)),
    "a follower that was away catches up": ("MB/s", Goal(times=1)),
}
Values = dict[str, float]
Samples = defaultdict[str, list[float]]


def measure(run: Run, ours: Cluster, theirs: Cluster) -> list[Row]:
    samples: tuple[Samples, Samples] = (defaultdict(list), defaultdict(list))
    for n in range(min(run.rounds, MAX_ROUNDS)):
        for step in (_catch_up, _gap, _gap_with_the_controller, _fail_over):
            for cluster, kept in zip((ours, theirs), samples, strict=True):
                run.say(f"cluster: {step.__name__.strip('_').replace('_', ' ')} of {cluster.name}, round {n + 1}")
                for what, value in step(run, cluster, n).items():
                    kept[what].append(value)
    return [Row(what, unit, goal, *(kept[what] for kept in samples)) for what, (unit, goal) in QUANTITIES.items()]


# The gap


def _gap(run: Run, cluster: Cluster, n: int) -> Values:
    return {"longest gap, leader killed": _gap_of((cluster.controller + 1) % SIZE, cluster, f"gap-{n}")}


def _gap_with_the_controller(run: Run, cluster: Cluster, n: int) -> Values:
    return {"longest gap, leader and controller killed": _gap_of(cluster.controller, cluster, f"both-{n}")}


def _gap_of(victim: int, cluster: Cluster, topic: str) -> float:
    cluster.create({topic: [everywhere(victim)]})
    with _load(cluster, topic) as acknowledged:
        acknowledged.wait_until_caught_up()
        acknowledged.wait(STEADY_S + random.random())
        leaders = {part.leader_id for part in _partitions(cluster.metadata(victim, [topic]))}
        assert leaders == {victim}, f"{topic} is led by {leaders}, not by broker {victim}"
        cluster.kill(victim)
        acknowledged.wait_until_caught_up()
        acknowledged.wait(AFTER_S)
    cluster.start(victim)
    until(lambda: _in_sync(cluster, topic), f"broker {victim} in sync again")
    return acknowledged.longest_gap_s


class Acknowledged:
    """A producer with acks=all at work, and when its records were acknowledged."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        bootstrap = ",".join(f"{HOST}:{broker.port}" for broker in cluster.brokers)
        settings = {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "enable.idempotence": True}
        self._producer = Librdkafka({**settings, "message.timeout.ms": 120_000, "log_level": 0})
        self._topic = topic
        self._times: list[float] = []
        self._sent = 0

    def _delivered(self, error: object, _: object) -> None:
        assert error is None, error
        self._times.append(time.monotonic())

    def _send(self) -> None:
        """And wait a little, whatever comes meanwhile."""
        self._producer.produce(self._topic, b"x" * 100, on_delivery=self._delivered)
        self._sent += 1
        until_s = time.monotonic() + SEND_S
        while (left_s := until_s - time.monotonic()) > 0:
            self._producer.poll(left_s)

    def wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._send()

    def wait_until_caught_up(self) -> None:
        """Until all that was sent so far has been acknowledged, and more."""
        sent, deadline = self._sent, time.monotonic() + PATIENCE_S
        while len(self._times) <= sent:
            self._send()
            if time.monotonic() > deadline:
                raise TimeoutError(f"no acknowledgement in {PATIENCE_S:g} s")

    def close(self) -> None:
        self._producer.flush(PATIENCE_S)

    @property
    def longest_gap_s(self) -> float:
        return max(later - earlier for earlier, later in zip(self._times, self._times[1:], strict=False))


@contextmanager
def _load(cluster: Cluster, topic: str) -> Iterator[Acknowledged]:
    with closing(Acknowledged(cluster, topic)) as acknowledged:
        yield acknowledged


def _in_sync(cluster: Cluster, topic: str) -> int | None:
    """Whether all brokers know that all replicas are."""
    isrs = [
        len(part.isr_nodes)
        for broker in range(SIZE)
        for described in cluster.metadata(broker, [topic]).topics
        for part in described.partitions
    ]
    return len(isrs) if isrs and set(isrs) == {SIZE} else None


# Many partitions


def _fail_over(run: Run, cluster: Cluster, n: int) -> Values:
    topic, victim = f"many-{n}", (cluster.controller + 1) % SIZE
    cluster.create({topic: [everywhere(number) for number in range(run.sized(*PARTITIONS))]})
    cluster.wait_until_idle()
    began = time.monotonic()
    cluster.kill(victim)
    until(lambda: _all_answer(cluster, topic, victim), f"new leaders of {topic}")
    seconds = time.monotonic() - began
    cluster.start(victim)
    until(lambda: _in_sync(cluster, topic), f"broker {victim} in sync again")
    return {"1,000 partitions of RF 3 fail over": seconds}


def _all_answer(cluster: Cluster, topic: str, victim: int) -> int | None:
    """Whether the named leaders of all partitions answer."""
    survivors = [broker for broker in range(SIZE) if broker != victim]
    led: dict[int, list[int]] = {broker: [] for broker in survivors}
    for part in _partitions(cluster.metadata(survivors[0], [topic])):
        if part.leader_id not in led:
            return None
        led[part.leader_id].append(part.partition_index)
    for broker, numbers in led.items():
        partitions = [
            ListOffsetsRequest.ListOffsetsPartition(partition_index=number, timestamp=-1) for number in numbers
        ]
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=partitions)]
        )
        with Connection(cluster.brokers[broker].port) as connection:
            answer = connection.ask(request, ListOffsetsResponse, 5)
        if any(part.error_code for described in answer.topics for part in described.partitions):
            return None
    return sum(map(len, led.values())) or None


def _partitions(metadata: MetadataResponse) -> list[MetadataResponse.MetadataResponsePartition]:
    return [part for topic in metadata.topics for part in topic.partitions]


# Catching up


def _catch_up(run: Run, cluster: Cluster, n: int) -> Values:
    """Two partitions, of the two leaders that are left."""
    away = (cluster.controller + 1) % SIZE
    leaders = [broker for broker in range(SIZE) if broker != away]
    topics = {f"away-{n}-{leader}": leader for leader in leaders}
    cluster.create({topic: [everywhere(leader)] for topic, leader in topics.items()})
    cluster.stop(away)
    batch, count = bytes(Maker(900, 1000).batch()), run.sized(*AWAY_BATCHES) // len(topics)
    for topic, leader in topics.items():
        with closing(Producer(cluster.brokers[leader].port, topic, batch, records=900, acks=ALL)) as producer:
            producer.send(count)
    total = count * len(batch) * len(topics)
    cluster.start(away)
    began = _until_copied(cluster, away, n, lambda size: size > 0)
    seconds = _until_copied(cluster, away, n, lambda size: size == total) - began
    return {"a follower that was away catches up": total / 1e6 / max(seconds, 1e-3)}


def _until_copied(cluster: Cluster, broker: int, n: int, enough: Callable[[int], bool]) -> float:
    """The moment at which its copies have grown so far."""
    folder, deadline = cluster.brokers[broker].folder, time.monotonic() + PATIENCE_S
    while not enough(sum(os.path.getsize(path) for path in folder.glob(f"away-{n}-*/*.log"))):
        if time.monotonic() > deadline:
            raise TimeoutError(f"broker {broker} did not catch up in {PATIENCE_S:g} s")
        time.sleep(0.002)
    return time.monotonic()
