"""A loop that reads a topic and writes each record to another in transactions: what feeds it, runs it, and checks it.

what is read from the output with read_committed is the input, each record once
"""

import os
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.clients.client import ROOT
from tests.support import waiting

PARTITIONS = 6
FED_PER_S = 200
MARKERS_S = 60  # until the markers of all transactions are written
ALL_S = 240  # for all kills, and once more until all is through; a quiet machine needs a quarter of it


class Feed:
    """Numbered records, until it is stopped."""

    def __init__(self, bootstrap: str, per_s: int = FED_PER_S) -> None:
        self.per_s = per_s
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
        while not self._stop.wait(1 / self.per_s):
            self.producer.produce("input", b"%d" % self.count, b"%d" % self.count, partition=self.count % PARTITIONS)
            self.producer.poll(0)
            self.count += 1

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self.producer.flush(60) == 0


class Loop:
    """A process that runs the loop; its lines are counted as they come."""

    def __init__(self, command: list[str], errors: Path | None = None) -> None:
        """`errors`: a file that gets what it writes to stderr."""
        self.command, self._errors = command, errors or Path(os.devnull)
        self.counts: Counter[str] = Counter()
        self.last: list[str] = []
        self.start()

    def start(self) -> None:
        with self._errors.open("ab") as errors:
            self.process = subprocess.Popen(
                self.command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self._reader = threading.Thread(target=self._read, args=(self.process,))
        self._reader.start()

    def _read(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.last = [*self.last[-20:], line]
            self.counts.update(line.split()[:3])

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


def until(done: Callable[[], bool], what: Callable[[], object]) -> None:
    waiting.until(done, what, ALL_S)


def ends(bootstrap: str, topic: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "log_level": 0})
    log_ends = {n: consumer.get_watermark_offsets(TopicPartition(topic, n), 10)[1] for n in range(PARTITIONS)}
    consumer.close()
    return log_ends


def committed(bootstrap: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "loop", "log_level": 0})
    partitions = consumer.committed([TopicPartition("input", n) for n in range(PARTITIONS)], 10)
    consumer.close()
    return {partition.partition: partition.offset for partition in partitions}


def output(bootstrap: str, isolation: str) -> Counter[bytes]:
    """All that it shows."""
    settings = {"group.id": "none", "isolation.level": isolation, "enable.partition.eof": True, "log_level": 0}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    consumer.assign([TopicPartition("output", n, 0) for n in range(PARTITIONS)])
    values: Counter[bytes] = Counter()
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
                values[value] += 1
    consumer.close()
    return values


def each_is_there_once(bootstrap: str, count: int) -> None:
    """Once the loop has stopped and every offset is committed. The last markers may be on their way."""
    expected, deadline = Counter(b"done: %d" % n for n in range(count)), time.monotonic() + MARKERS_S
    while True:
        actual = output(bootstrap, "read_committed")
        missing, repeated = expected - actual, actual - expected
        if not missing or repeated or time.monotonic() > deadline:
            break
    assert not missing, f"{missing.total()} of {count} are missing: {sorted(missing)[:5]}"
    assert not repeated, f"{repeated.total()} of {count} are there more than once: {sorted(repeated)[:5]}"
