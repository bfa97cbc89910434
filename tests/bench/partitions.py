"""One broker with 50,000 partitions and 4,096 descriptors: created, written to, stopped, started, killed, recovered.

Each figure is of one life of one broker, so there are no rounds, and no other side: Kafka keeps every segment open. The
longest turn is what the broker itself reports (SIGUSR1). On a busy machine it contains the time of others.
"""

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.bench.results import Goal, Row
from tests.bench.run import Run
from tests.bench.sides import same
from tests.support.broker import RunningBroker, until_killed
from tests.support.waiting import until

DESCRIPTORS = 4096
PER_TOPIC = 1000
VALUE = bytes(100)
PATIENCE_S = 3600.0
LONGEST_TURN = re.compile(r"the longest turn since the last report took ([\d.]+) (ms|s)\b")


def measure(run: Run) -> list[Row]:
    count = run.sized(50_000, 2_000)
    topics = [f"many-{n}" for n in range(count // PER_TOPIC)]
    with until_killed(RunningBroker(run.folder / "data", {}, DESCRIPTORS, patience_s=PATIENCE_S)) as broker:
        life = _Life(broker, run, count)
        with life.phase("create"):
            _create(broker, topics)
        with life.phase("write"):
            _write(broker, topics)
        with life.phase("stop"):
            same("stopped", broker.stop(), 0)
        with life.phase("start", Goal(below=25)):
            broker.start()
        life.weigh()
        with life.phase("write again"):
            _write(broker, topics)
        broker.kill()
        with life.phase("recover", Goal(below=25)):
            broker.start()
        with life.phase("delete"):
            _delete(broker, topics)
        same("stopped", broker.stop(), 0)
        return life.rows


class _Life:
    """Measures the phases of one broker, as long as it runs."""

    def __init__(self, broker: RunningBroker, run: Run, count: int) -> None:
        self._broker, self._run, self._count = broker, run, count
        self._empty_kb = _resident_kb(broker.pid)
        self.rows: list[Row] = []

    @contextmanager
    def phase(self, name: str, goal: Goal | None = None) -> Iterator[None]:
        self._run.say(f"partitions: {name}")
        pid, began_s, cpu_s = self._broker.pid, time.monotonic(), _cpu_s(self._broker)
        yield
        seconds, broker = time.monotonic() - began_s, self._broker
        self._add(f"{name} {self._count:,} partitions", "s", seconds, goal)
        if broker.process.poll() is None:
            self._add(f"{name}: CPU", "s", _cpu_s(broker) - (cpu_s if broker.pid == pid else 0))
            self._add(f"{name}: longest turn of the loop", "ms", self._longest_turn_ms(), Goal(below=50))
            same("descriptors", _descriptors(broker.pid) <= DESCRIPTORS, True)

    def weigh(self) -> None:
        kb = (_resident_kb(self._broker.pid) - self._empty_kb) / self._count
        self._add("resident per idle partition", "KB", kb, Goal(below=8))

    def _longest_turn_ms(self) -> float:
        reports = LONGEST_TURN.findall
        before = len(reports(self._broker.output()))
        self._broker.process.send_signal(signal.SIGUSR1)
        until(lambda: len(reports(self._broker.output())) > before, "a report about the loop")
        value, unit = reports(self._broker.output())[-1]
        return float(value) * (1000 if unit == "s" else 1)

    def _add(self, what: str, unit: str, value: float, goal: Goal | None = None) -> None:
        row = Row(what, unit, goal)  # type: ignore[arg-type]
        row.leadline.append(value)
        self.rows.append(row)


def _create(broker: RunningBroker, topics: list[str]) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for name in topics:
        created = admin.create_topics([NewTopic(name, PER_TOPIC, 1)], **_TIMEOUTS)
        created[name].result()


def _delete(broker: RunningBroker, topics: list[str]) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for name in topics:
        admin.delete_topics([name], **_TIMEOUTS)[name].result()


def _write(broker: RunningBroker, topics: list[str]) -> None:
    """One record to each partition."""
    settings = {"bootstrap.servers": broker.bootstrap, "message.timeout.ms": int(PATIENCE_S * 1000), "linger.ms": 50}
    producer, errors = Producer(settings), list[object]()
    on_delivery: Callable[[object, object], None] = lambda error, _: errors.append(error) if error else None  # noqa: E731
    for name in topics:
        for partition in range(PER_TOPIC):
            producer.produce(name, VALUE, partition=partition, on_delivery=on_delivery)
            producer.poll(0)
        producer.flush(PATIENCE_S)
    same("records that were not written", len(errors), 0)


_TIMEOUTS = {"request_timeout": 600, "operation_timeout": 600}


def _resident_kb(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def _cpu_s(broker: RunningBroker) -> float:
    """0: it does not run."""
    if broker.process.poll() is not None:
        return 0.0
    with open(f"/proc/{broker.pid}/stat") as file:
        fields = file.read().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))
