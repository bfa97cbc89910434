"""The CPU time of a request when requests come one at a time, at a fixed rate over one connection.

Between two requests the loop of Leadline spins or sleeps, whichever costs less. Another broker of Leadline always
sleeps. The first one may take 1.3 times as much as that one.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.batches import Maker
from tests.bench.load.brokers import Broker, leadline, pairs
from tests.bench.load.client import Producer, create_topics
from tests.bench.load.kept import Kept
from tests.bench.load.steady import percentile
from tests.bench.results import Row
from tests.bench.run import Run

RATES = 100, 1000, 4000, 8000
MAX_COST = 1.3  # as a multiple of what sleeping costs
TOPIC = "paced"
SLEEP_ALWAYS = (
    "import runpy; from leadline.runtime.spin_policy import SpinPolicy; "
    "SpinPolicy.should_spin = lambda self: False; runpy.run_module('leadline', run_name='__main__', alter_sys=True)"
)


class RateRows:
    """What is measured at one rate."""

    def __init__(self, rate: int) -> None:
        self.asleep = Row(f"{rate:,} a second, always asleep: CPU per request", "us")
        self.cpu = Kept(f"{rate:,} a second: CPU per request", "us", quiet=self.asleep, share=1 / MAX_COST)
        self.p50, self.p99 = (Row(f"{rate:,} a second: p{share}", "us") for share in (50, 99))

    def add(self, ours: "Paced", theirs: "Paced", asleep: "Paced") -> None:
        self.asleep.leadline.append(asleep.cpu_us)
        self.cpu.add(ours.cpu_us, theirs.cpu_us)
        self.p50.add(ours.percentile(0.5), theirs.percentile(0.5))
        self.p99.add(ours.percentile(0.99), theirs.percentile(0.99))

    @property
    def all(self) -> list[Row]:
        return [self.asleep, self.cpu, self.p50, self.p99]


def measure(run: Run) -> list[Row]:
    rows, batch = {rate: RateRows(rate) for rate in RATES}, bytes(Maker(1, 100).batch())
    seconds = 0.1 if run.quick else 2.0
    with pairs(run.folder) as (pair,), _always_asleep(run.folder / "asleep") as asleep:
        clients = []
        for broker in (*pair, asleep):
            create_topics(broker.port, {TOPIC: 1})
            clients.append((broker, Producer(broker.port, TOPIC, batch, records=1)))
        for n in run.each_round("paced"):
            for rate in RATES:
                ours, theirs, sleeper = (Paced(*client, rate, seconds) for client in clients)
                if n:
                    rows[rate].add(ours, theirs, sleeper)
        for _, producer in clients:
            producer.close()
    return [row for of_rate in rows.values() for row in of_rate.all]


@contextmanager
def _always_asleep(folder: Path) -> Iterator[Broker]:
    broker = leadline(folder)
    python, _, _, *arguments = broker.command
    broker.command = [python, "-c", SLEEP_ALWAYS, *arguments]
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


class Paced:
    """Requests at a rate, one at a time. One that is late moves those after it."""

    def __init__(self, broker: Broker, producer: Producer, rate: int, seconds: float) -> None:
        clock, self._times_us = time.perf_counter, list[float]()
        spent, due = broker.meter(), clock()
        end = due + seconds
        while due < end:
            while (early := due - clock()) > 0:
                time.sleep(early)
            began = clock()
            producer.send(1)
            self._times_us.append((clock() - began) * 1e6)
            due = max(due, began) + 1 / rate
        self.cpu_us = spent().cpu_seconds / len(self._times_us) * 1e6
        self._times_us.sort()

    def percentile(self, share: float) -> float:
        return percentile(self._times_us, share)
