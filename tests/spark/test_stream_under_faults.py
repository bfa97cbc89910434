"""A stream from topic to topic, from which all it needs is taken away at random moments: each row arrives once.

What happens between two steps of a commit is in test_sink_cut_off; this is Spark's part of the bargain.
LEADLINE_FIRE tells how often something is taken away (four times: each, the driver with the broker).
"""

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from confluent_kafka import Producer

from leadline.spark.client.cluster import ClusterClient
from leadline.spark.topics.options import read_options
from leadline.spark.topics.read_tasks import CLUSTERS
from leadline.spark.topics.source import BatchReader
from tests.support.broker import RunningBroker, leadline
from tests.support.pipeline_faults import kill_workers, little_room, small_disk
from tests.support.topics import create_topic

ROWS = 300
PATIENCE_S = 300


class Stream:
    """Runs as a process, if it runs. Spark's checkpoint and what tasks leave behind are in `home`."""

    def __init__(self, broker: RunningBroker, home: Path, log: Path) -> None:
        self.broker, self.home, self.log = broker, home, log
        self.sent = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, until: str = "on") -> None:
        arguments = [self.broker.bootstrap, "in", "out", str(self.home / "checkpoint"), until]
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.topic_to_topic", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def kill(self) -> None:
        """With all that it started."""
        if self._process is not None:
            with suppress(psutil.NoSuchProcess):
                parent = psutil.Process(self._process.pid)
                for process in [parent, *parent.children(recursive=True)]:
                    with suppress(psutil.NoSuchProcess):
                        process.kill()
            self._process.wait()

    def kill_executors(self) -> None:
        with suppress(psutil.NoSuchProcess):
            assert self._process is not None
            kill_workers(self._process.pid)

    def send(self, rows: int) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap})
        for n in range(self.sent, self.sent + rows):
            producer.produce("in", key=str(n), value=str(n))
        assert producer.flush(PATIENCE_S) == 0
        self.sent += rows

    def written(self) -> int:
        """How far readers of committed records could read."""
        with ClusterClient({"bootstrap.servers": self.broker.bootstrap}) as cluster:
            return sum(cluster.latest(cluster.existing_topics(["out"])["out"].partitions, committed=True).values())

    def go_on(self) -> None:
        """Until something new has arrived; started again if need be."""
        before = self.written()
        self.wait_until(lambda: self.written() > before)

    def finish(self) -> None:
        self.kill()
        self.start("end")
        assert self._process is not None
        assert self._process.wait(PATIENCE_S) == 0, self.log.read_text()[-3000:]

    def wait_until(self, done: Callable[[], bool], again: bool = True) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not done():
            if again and not self.runs:
                self.start()
            assert time.monotonic() < deadline, self.log.read_text()[-3000:]
            time.sleep(0.05)


def _everything(stream: Stream) -> None:
    stream.kill()
    stream.broker.kill()
    stream.broker.start()


def _driver(stream: Stream) -> None:
    stream.kill()


def _executors(stream: Stream) -> None:
    stream.kill_executors()


def _broker(stream: Stream) -> None:
    stream.broker.kill()
    stream.broker.start()


def _room(stream: Stream) -> None:
    """Until it can go on no longer."""
    with little_room(stream.home, 0):
        stream.send(ROWS)
        stream.wait_until(lambda: not stream.runs, again=False)


@contextmanager
def _stream(folder: Path) -> Iterator[tuple[Stream, list[Callable[[Stream], None]]]]:
    """And what can be taken away from it here."""
    with leadline(folder / "data") as broker, small_disk(folder / "small", "20m") as disk:
        for topic in ("in", "out"):
            create_topic(broker.bootstrap, topic, 2)
        stream = Stream(broker, disk or folder, folder / "stream.log")
        try:
            yield stream, [_executors, _broker, *([_room] if disk else []), _everything, _driver]
        finally:
            stream.kill()


def _read(broker: RunningBroker) -> list[int]:
    options = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "subscribe": "out",
        "kafka.isolation.level": "read_committed",
    }
    reader = BatchReader(read_options(options, streaming=False))
    columns = [rows.column("value").to_pylist() for part in reader.partitions() for rows in reader.read(part)]
    CLUSTERS.close()
    return sorted(int(value) for values in columns for value in values)


def test_each_row_arrives_once(tmp_path: Path) -> None:
    chance = random.Random(7)
    with _stream(tmp_path) as (stream, losses):
        for n in range(int(os.environ.get("LEADLINE_FIRE", len(losses) - 1))):
            stream.send(ROWS)
            stream.go_on()
            time.sleep(chance.uniform(0, 1))
            losses[n % len(losses)](stream)
        stream.finish()
        assert _read(stream.broker) == list(range(stream.sent))
