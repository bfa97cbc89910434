"""Exactly once, whoever is killed: a loop reads a topic, and writes each record to another in transactions.

What is killed, a hundred times with the Java clients:

- 84 times an instance of the loop within its process: it stops in the midst of a transaction, at any of its steps, and
  its sockets are closed without a word to the broker. One in six lives on as a zombie until its successor has begun.
- 6 times the process of the loop, with all its instances, by SIGKILL.
- 10 times the broker, by SIGKILL; it is started again.

With librdkafka each instance is a process, and each kill a SIGKILL: of an instance, or of the broker.

    what is read from the output with read_committed is the input, each record once
"""

import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.clients.client import HERE, ROOT
from tests.conformance.kafka import jars
from tests.support.broker import RunningBroker, leadline
from tests.support.topics import create_topic

IN_PROCESS, OF_PROCESSES, OF_BROKER = 84, 6, 10
INSTANCES = 4
PARTITIONS = 6
FED_PER_S = 200
PAUSE_S = (0.2, 1.5)  # between two kills from without
ALL_S = 240  # for all kills, and once more until all is through; a quiet machine needs a quarter of it

SETTINGS = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1000,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
}


class Feed:
    """Numbered records, until told to stop."""

    def __init__(self, bootstrap: str) -> None:
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "log_level": 0,
                "reconnect.backoff.max.ms": 200,
            }
        )
        self.count = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(1 / FED_PER_S):
            self.producer.produce("input", b"%d" % self.count, b"%d" % self.count, partition=self.count % PARTITIONS)
            self.producer.poll(0)
            self.count += 1

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self.producer.flush(60) == 0


class Loop:
    """A process that runs the loop; its lines are counted as they come."""

    def __init__(self, command: list[str]) -> None:
        self.command = command
        self.said: Counter[str] = Counter()
        self.last: list[str] = []
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            self.command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._reader = threading.Thread(target=self._read, args=(self.process,))
        self._reader.start()

    def _read(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.last = [*self.last[-20:], line]
            self.said.update(line.split()[:3])

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.communicate()
        self._reader.join()

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def end(self) -> None:
        """In order."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with leadline(tmp_path / "data", **SETTINGS) as running:
        for topic in ("input", "output"):
            create_topic(running.bootstrap, topic, PARTITIONS)
        yield running


def shuffled(*kinds: tuple[int, Callable[[], None]]) -> list[Callable[[], None]]:
    kills = [kill for count, kill in kinds for _ in range(count)]
    return random.sample(kills, len(kills))


def restart(loop: Loop) -> None:
    loop.kill()
    loop.start()


def restart_broker(broker: RunningBroker) -> None:
    broker.kill()
    broker.start()


def until(done: Callable[[], bool], what: Callable[[], object]) -> None:
    deadline = time.monotonic() + ALL_S
    while not done():
        assert time.monotonic() < deadline, what()
        time.sleep(0.1)


def ends(bootstrap: str, topic: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "log_level": 0})
    found = {n: consumer.get_watermark_offsets(TopicPartition(topic, n), 10)[1] for n in range(PARTITIONS)}
    consumer.close()
    return found


def committed(bootstrap: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "loop", "log_level": 0})
    found = consumer.committed([TopicPartition("input", n) for n in range(PARTITIONS)], 10)
    consumer.close()
    return {each.partition: each.offset for each in found}


def output(bootstrap: str, isolation: str) -> Counter[bytes]:
    """All that it shows."""
    settings = {"group.id": "none", "isolation.level": isolation, "enable.partition.eof": True, "log_level": 0}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    consumer.assign([TopicPartition("output", n, 0) for n in range(PARTITIONS)])
    found: Counter[bytes] = Counter()
    ended: set[int | None] = set()
    deadline = time.monotonic() + 60
    while len(ended) < PARTITIONS:
        assert time.monotonic() < deadline, f"only {ended} were read to their end"
        for message in consumer.consume(5000, 0.2):
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition())
            else:
                value = message.value()
                assert isinstance(value, bytes)
                found[value] += 1
    consumer.close()
    return found


def check(bootstrap: str, count: int) -> None:
    """Once the loop has stopped and every offset is committed."""
    found, wanted = output(bootstrap, "read_committed"), Counter(b"done: %d" % n for n in range(count))
    missing, repeated = wanted - found, found - wanted
    assert not missing, f"{missing.total()} of {count} are missing: {sorted(missing)[:5]}"
    assert not repeated, f"{repeated.total()} of {count} are there more than once: {sorted(repeated)[:5]}"
    assert output(bootstrap, "read_uncommitted").total() > count, "some transaction was cut after it had written"


def test_java_clients_write_each_record_once_through_a_hundred_kills(broker: RunningBroker) -> None:
    classes = jars.compiled(HERE / "java" / "ExactlyOnce.java")
    command = jars.command("ExactlyOnce", broker.bootstrap, "input", "output", str(INSTANCES), classes=classes)
    feed, loop = Feed(broker.bootstrap), Loop(command)
    try:
        for kill in shuffled((OF_PROCESSES, lambda: restart(loop)), (OF_BROKER, lambda: restart_broker(broker))):
            before = loop.said["killed"]
            until(lambda: loop.said["killed"] > before, lambda: loop.last)  # noqa: B023 - it ends within the round
            time.sleep(random.uniform(*PAUSE_S))
            kill()
        until(lambda: loop.said["killed"] >= IN_PROCESS, lambda: (loop.said, loop.last))
        loop.say("live")
        feed.stop()
        due = ends(broker.bootstrap, "input")
        until(lambda: committed(broker.bootstrap) == due, lambda: (loop.said, loop.last))
        loop.end()
    finally:
        feed.stop()
        with suppress(ValueError):
            loop.kill()
    assert loop.said["fenced"] > 0, "no zombie was seen"
    assert loop.said["ZOMBIE"] == 0
    check(broker.bootstrap, feed.count)


def test_librdkafka_writes_each_record_once_through_kills_of_its_processes(broker: RunningBroker) -> None:
    program = [sys.executable, "-m", "tests.clients.python.exactly_once", broker.bootstrap, "input", "output"]
    feed, loops = Feed(broker.bootstrap), [Loop([*program, f"loop-{n}"]) for n in range(3)]
    try:
        for kill in shuffled((25, lambda: restart(random.choice(loops))), (5, lambda: restart_broker(broker))):
            before = sum(loop.said["committed"] for loop in loops)
            until(lambda: sum(loop.said["committed"] for loop in loops) > before, lambda: loops[0].last)  # noqa: B023
            time.sleep(random.uniform(0, 0.5))
            kill()
        feed.stop()
        due = ends(broker.bootstrap, "input")
        until(lambda: committed(broker.bootstrap) == due, lambda: [loop.last for loop in loops])
        for loop in loops:
            loop.end()
    finally:
        feed.stop()
        for loop in loops:
            with suppress(ValueError):
                loop.kill()
    check(broker.bootstrap, feed.count)
