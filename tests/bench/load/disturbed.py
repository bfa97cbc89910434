"""How long a small request takes while another client keeps the disk busy.

A probe of 100 B with acks=all leaves every millisecond; one that could not leave because the answer before it was
late counts from when it was due. Meanwhile a process of its own

    reads what is not in the page cache any more, so that every byte comes from the disk; or
    writes more than the kernel lets processes leave unwritten, so that it begins to hold them up.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Protocol

from tests.bench.batches import Maker
from tests.bench.load.brokers import Broker, pairs
from tests.bench.load.client import Producer, create_topics, delete_topic, fetch_all
from tests.bench.load.kept import Kept
from tests.bench.load.steady import percentile
from tests.bench.results import Row
from tests.bench.run import Run
from tests.bench.sides import same

MAX_ROUNDS = 3
KEPT_WHEN_DISTURBED = 1 / 3
INTERVAL_S = 0.001
QUIET_S = 2.0
PARTITIONS = 4
COLD_BYTES, FLOOD_BYTES = 2_000_000_000, 5_000_000_000
SHARE_OF_FREE = 6  # one side takes this part of the room that is left on the disk, at most
LOOK_BYTES = 1 << 20  # distance of the looks into the page cache
EVICTION_S = 30
SHARES = 0.5, 0.99, 0.999
JUDGED = 0.99


class Disturbance(Protocol):
    name: str
    bytes: int  # in one round

    def before_all(self, broker: Broker) -> None: ...
    def prepare(self, broker: Broker) -> Callable[[], int]:
        """What another process shall do: it returns how many bytes it moved."""

    def clean_up(self, broker: Broker) -> None: ...


@dataclass(frozen=True, slots=True)
class Batches:
    """So many of one kind, spread over the partitions of a topic."""

    topic: str
    records: int
    count: int

    @property
    def ends(self) -> list[int]:
        return [self.count // PARTITIONS * self.records] * PARTITIONS

    def write(self, port: int) -> int:
        batch = bytes(Maker(self.records, 1000).batch())
        producer = Producer(port, self.topic, batch, records=self.records, partitions=PARTITIONS)
        with closing(producer):
            producer.send(self.count)
        return self.count * len(batch)


def _batches(run: Run, topic: str, records: int, full_bytes: int, quick_bytes: int) -> tuple[Batches, int]:
    """As many as there is room for, and their bytes."""
    size = run.sized(min(full_bytes, shutil.disk_usage(run.folder).free // SHARE_OF_FREE), quick_bytes)
    batch_bytes = Maker(records, 1000).batch_bytes
    count = size // batch_bytes // PARTITIONS * PARTITIONS
    return Batches(topic, records, count), count * batch_bytes


class ColdRead:
    """A consumer reads what lies on the disk alone."""

    def __init__(self, run: Run) -> None:
        self._batches, self.bytes = _batches(run, "cold", 64, COLD_BYTES, 60_000_000)
        self.name = f"{self.bytes / 1e9:.2g} GB are read from the disk"

    def before_all(self, broker: Broker) -> None:
        create_topics(broker.port, {"cold": PARTITIONS})
        self._batches.write(broker.port)
        os.sync()

    def prepare(self, broker: Broker) -> Callable[[], int]:
        for path in broker.folder.glob("cold-*/*.log"):
            _evict(path)
        return partial(fetch_all, broker.port, "cold", self._batches.ends)

    def clean_up(self, broker: Broker) -> None:
        """It is read again in the next round."""


class Flood:
    """A producer writes more than the kernel holds in memory."""

    def __init__(self, run: Run) -> None:
        self._batches, self.bytes = _batches(run, "flood", 900, FLOOD_BYTES, 90_000_000)
        self.name = f"{self.bytes / 1e9:.2g} GB are written"

    def before_all(self, broker: Broker) -> None:
        """Nothing has to be there."""

    def prepare(self, broker: Broker) -> Callable[[], int]:
        create_topics(broker.port, {"flood": PARTITIONS})
        return partial(self._batches.write, broker.port)

    def clean_up(self, broker: Broker) -> None:
        delete_topic(broker.port, "flood")
        broker.wait_until_gone("flood")
        os.sync()


def _evict(path: Path) -> None:
    """Out of the page cache, and see that it is: the kernel keeps what is being written, or has only just been."""
    with path.open("rb") as file:
        fd, places = file.fileno(), range(0, path.stat().st_size, LOOK_BYTES)
        deadline = time.monotonic() + EVICTION_S
        while True:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            if 10 * sum(_is_cached(fd, at) for at in places) <= len(places):
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"{path} stays in the page cache")
            time.sleep(0.2)


def _is_cached(fd: int, position: int) -> bool:
    try:
        return os.preadv(fd, [bytearray(1)], position, os.RWF_NOWAIT) == 1
    except BlockingIOError:
        return False


class Probe:
    """A client that wants little, and regularly."""

    def __init__(self, port: int) -> None:
        create_topics(port, {"probe": 1})
        self._producer = Producer(port, "probe", bytes(Maker(1, 100).batch()), records=1, acks=-1)

    def times_us(self, until: Callable[[], bool]) -> list[float]:
        """In order of length."""
        clock, times = time.perf_counter, list[float]()
        due = clock()
        while not until():
            if (early := due - clock()) > 0:
                time.sleep(early)
                due = clock()  # that a sleep is long is not the broker's fault
            self._producer.send(1)
            times.append((clock() - due) * 1e6)
            due += INTERVAL_S
        return sorted(times)


def measure_cold(run: Run) -> list[Row]:
    return _measure(run, "cold", ColdRead(run))


def measure_flood(run: Run) -> list[Row]:
    return _measure(run, "flood", Flood(run))


@dataclass(frozen=True, slots=True)
class Observed:
    quiet_us: list[float]
    busy_us: list[float]
    seconds: float


def _measure(run: Run, name: str, disturbance: Disturbance) -> list[Row]:
    quiet = {share: Row(f"round trip when it is quiet: p{share * 100:g}", "us") for share in SHARES}
    busy = {share: _busy_row(f"while {disturbance.name}: p{share * 100:g}", quiet[share], share) for share in SHARES}
    speed = Row(f"{name}: how fast", "MB/s")
    with pairs(run.folder) as (pair,), _other_process() as other:
        for broker in pair:
            run.say(f"{name}: preparing {broker.name}")
            disturbance.before_all(broker)
        probes = [Probe(broker.port) for broker in pair]
        for n in replace(run, rounds=min(run.rounds, MAX_ROUNDS)).each_round(name):
            sides = [_observe(run, *side, disturbance, other) for side in zip(pair, probes, strict=True)]
            if n:
                for share in SHARES:
                    quiet[share].add(*(percentile(side.quiet_us, share) for side in sides))
                    busy[share].add(*(percentile(side.busy_us, share) for side in sides))
                speed.add(*(disturbance.bytes / 1e6 / side.seconds for side in sides))
    return [*quiet.values(), *busy.values(), speed]


def _busy_row(what: str, quiet: Row, share: float) -> Row:
    return Kept(what, "us", quiet=quiet, share=KEPT_WHEN_DISTURBED) if share == JUDGED else Row(what, "us")


def _observe(run: Run, broker: Broker, probe: Probe, disturbance: Disturbance, other: ProcessPoolExecutor) -> Observed:
    work = disturbance.prepare(broker)
    end = time.perf_counter() + (QUIET_S / 10 if run.quick else QUIET_S)
    quiet_us = probe.times_us(lambda: time.perf_counter() > end)
    began = time.perf_counter()
    moved = other.submit(work)
    busy_us = probe.times_us(moved.done)
    seconds = time.perf_counter() - began
    same("bytes that were to be moved", disturbance.bytes, moved.result())
    disturbance.clean_up(broker)
    return Observed(quiet_us, busy_us, seconds)


@contextmanager
def _other_process() -> Iterator[ProcessPoolExecutor]:
    """For the other client, so that the probe does not wait for its turn in this one."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        pool.submit(os.getpid).result()
        yield pool
