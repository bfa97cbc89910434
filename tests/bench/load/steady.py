"""Produce, fetch and round trips, one client at a time: alone, and while a crowd is held that does nothing.

One step on Leadline, then the same on Kafka, then the next step, each when both have come to rest; new topics in every
round. The bytes go to the page cache and come from there: what the disk does is another benchmark's.
"""

import resource
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import cache, partial

from leadline.records.compression import Codec
from leadline.wire.messages import ApiVersionsRequest, ApiVersionsResponse
from tests.bench.batches import Maker
from tests.bench.load.brokers import Broker, Pair, pairs
from tests.bench.load.client import Connection, Producer, create_topics, delete_topic, fetch_all
from tests.bench.load.kept import Kept
from tests.bench.results import Goal, Row, Unit
from tests.bench.run import Run, in_turns
from tests.bench.sides import same

KEPT_IN_A_CROWD = 0.8
CROWD = 2000  # connections, and as many partitions
CROWD_TOPICS = 20


@dataclass(frozen=True, slots=True)
class Load:
    topic: str
    name: str
    records: int  # in a batch
    value_bytes: int
    partitions: int
    full: int  # requests in one round
    quick: int
    codec: Codec = Codec.NONE

    @property
    def batch(self) -> bytes:
        return _batch(self.records, self.value_bytes, self.codec)


SMALL = Load("small", "1 x 100 B", 1, 100, 1, 30_000, 1000)
MIDDLE = Load("middle", "16 x 1 KB", 16, 1000, 4, 16_000, 800)
LARGE = Load("large", "900 x 1 KB", 900, 1000, 4, 800, 40)
SINGLE = Load("single", "round trip of 100 B, acks=all", 1, 100, 1, 10_000, 500)
LOADS = SMALL, MIDDLE, LARGE, SINGLE

QUANTITIES: dict[str, tuple[Unit, Goal | None]] = {
    "produce 1 x 100 B": ("/s", Goal(times=3)),
    "produce 1 x 100 B: CPU per request": ("us", Goal(times=3)),
    "produce 16 x 1 KB": ("/s", Goal(times=2)),
    "produce 16 x 1 KB: CPU per request": ("us", Goal(times=3)),
    "produce 900 x 1 KB": ("MB/s", Goal(times=1.5)),
    "produce 900 x 1 KB: CPU per request": ("us", Goal(times=3)),
    "round trip of 100 B, acks=all: p50": ("us", None),
    "round trip of 100 B, acks=all: p99": ("us", Goal(times=5)),
    "round trip of 100 B, acks=all: p99.9": ("us", None),
    "fetch 16 x 1 KB": ("MB/s", Goal(times=1)),
    "fetch 16 x 1 KB: CPU": ("ms/MB", Goal(times=2)),
    "fetch 900 x 1 KB": ("MB/s", Goal(times=1)),
    "fetch 900 x 1 KB: CPU": ("ms/MB", Goal(times=2)),
    "resident afterwards": ("MB", Goal(below=80)),
}
Values = dict[str, float]
Samples = dict[str, list[float]]


def measure(run: Run) -> list[Row]:
    with pairs(run.folder) as (pair,):
        return _rounds(run, "load", [pair])[0]


def measure_in_a_crowd(run: Run) -> list[Row]:
    """Brokers that are left alone and brokers that hold a crowd, in turns: what the second keep of the first."""
    with pairs(run.folder, 2) as (alone, crowded), ExitStack() as held:
        for broker in crowded:
            run.say(f"crowd: gathering it around {broker.name}")
            held.enter_context(_crowd(broker, run.sized(CROWD, 100)))
        quiet, full = _rounds(run, "crowd", [alone, crowded])
    return [_kept(*rows) for rows in zip(quiet, full, strict=True)]


def _kept(quiet: Row, row: Row) -> Row:
    """Memory is not lost to a crowd but used for it: it is shown, and has no goal here."""
    is_judged = row.goal is not None and row.unit != "MB"
    measured = row.what, row.unit, None, row.leadline, row.kafka
    return Kept(*measured, quiet=quiet, share=KEPT_IN_A_CROWD) if is_judged else Row(*measured)


@contextmanager
def _crowd(broker: Broker, size: int) -> Iterator[None]:
    """This many partitions, and this many idle connections that sent one request."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    create_topics(broker.port, {f"crowd-{n}": size // CROWD_TOPICS for n in range(CROWD_TOPICS)})
    with ExitStack() as held:
        for _ in range(size):
            connection = held.enter_context(Connection(broker.port))
            connection.ask(ApiVersionsRequest(), ApiVersionsResponse, 0)
        yield


def _rounds(run: Run, name: str, measured: Sequence[Pair]) -> list[list[Row]]:
    """The rows of each pair."""
    brokers = [broker for pair in measured for broker in pair]
    samples: list[Samples] = [defaultdict(list) for _ in brokers]
    for n in run.each_round(name):
        rounds = [Round(run, broker, n) for broker in brokers]
        for step, side in in_turns(STEPS, brokers):
            for what, value in step(rounds[side]).items():
                samples[side][what] += [value] if n else []
        for one in rounds:
            one.clean_up()
    return [_rows(*samples[at : at + 2]) for at in range(0, len(samples), 2)]


def _rows(ours: Samples, theirs: Samples) -> list[Row]:
    return [Row(what, unit, goal, ours[what], theirs[what]) for what, (unit, goal) in QUANTITIES.items()]


class Round:
    """One broker in one round, with topics of its own."""

    def __init__(self, run: Run, broker: Broker, n: int, loads: Sequence[Load] = LOADS) -> None:
        self.run, self.broker = run, broker
        self.topics = {load: f"{load.topic}-{n}" for load in loads}
        create_topics(broker.port, {topic: load.partitions for load, topic in self.topics.items()})

    def count(self, load: Load) -> int:
        return self.run.sized(load.full, load.quick)

    def megabytes(self, load: Load) -> float:
        return self.count(load) * len(load.batch) / 1e6

    def producer(self, load: Load, acks: int) -> Producer:
        return Producer(
            self.broker.port,
            self.topics[load],
            load.batch,
            records=load.records,
            partitions=load.partitions,
            acks=acks,
        )

    def clean_up(self) -> None:
        for topic in self.topics.values():
            delete_topic(self.broker.port, topic)
        for topic in self.topics.values():
            self.broker.wait_until_gone(topic)


@cache
def _batch(records: int, value_bytes: int, codec: Codec) -> bytes:
    return bytes(Maker(records, value_bytes, codec=codec).batch())


def _produce(load: Load, one: Round) -> Values:
    count = one.count(load)
    with closing(one.producer(load, acks=1)) as producer:
        spent = one.broker.measure(partial(producer.send, count))
    what = f"produce {load.name}"
    in_megabytes = QUANTITIES[what][0] == "MB/s"
    rate = (one.megabytes(load) if in_megabytes else count) / spent.seconds
    return {what: rate, f"{what}: CPU per request": spent.cpu_seconds / count * 1e6}


def _fetch(load: Load, one: Round) -> Values:
    ends = [one.count(load) // load.partitions * load.records] * load.partitions
    fetched = list[int]()
    spent = one.broker.measure(lambda: fetched.append(fetch_all(one.broker.port, one.topics[load], ends)))
    same(f"bytes of {load.name} produced and fetched", one.count(load) * len(load.batch), fetched[0])
    megabytes, what = one.megabytes(load), f"fetch {load.name}"
    return {what: megabytes / spent.seconds, f"{what}: CPU": spent.cpu_seconds * 1e3 / megabytes}


def _round_trips(one: Round) -> Values:
    with closing(one.producer(SINGLE, acks=-1)) as producer:
        times = sorted(producer.round_trips_us(one.count(SINGLE)))
    return {f"{SINGLE.name}: p{share * 100:g}": percentile(times, share) for share in (0.5, 0.99, 0.999)}


def percentile(times: Sequence[float], share: float) -> float:
    """Of times that are in order."""
    return times[int(len(times) * share)]


def _resident(one: Round) -> Values:
    return {"resident afterwards": one.broker.resident_mb}


STEPS: tuple[Callable[[Round], Values], ...] = (
    *(partial(_produce, load) for load in (SMALL, MIDDLE, LARGE)),
    _round_trips,
    *(partial(_fetch, load) for load in (MIDDLE, LARGE)),
    _resident,
)
