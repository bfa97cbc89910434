"""A whole pipeline killed at random moments, driver, executors and all, and the broker with it: each row arrives once.

What happens between two steps of a commit is in test_sink_cut_off; this is Spark's part of the bargain.
LEADLINE_FIRE tells how often to kill (once).
"""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from confluent_kafka import Producer

from leadline.spark.cluster import Cluster
from leadline.spark.options import read_options
from leadline.spark.source import BatchReader, close_clusters
from tests.support.broker import RunningBroker, leadline
from tests.support.topics import create_topic

KILLS = int(os.environ.get("LEADLINE_FIRE", "1"))
ROWS = 300
START_S = 300


class Pipeline:
    def __init__(self, broker: RunningBroker, home: Path, until: str) -> None:
        given = [broker.bootstrap, "in", "out", str(home / "checkpoint"), until]
        self.log = home / "pipeline.log"
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.topic_to_topic", *given],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def kill(self) -> None:
        """With all that it started."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def written(broker: RunningBroker) -> int:
    """How far readers of committed records could read."""
    with Cluster({"bootstrap.servers": broker.bootstrap}) as cluster:
        return sum(cluster.latest(cluster.existing(["out"])["out"].partitions, committed=True).values())


def produce(broker: RunningBroker, first: int, until: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for n in range(first, until):
        producer.produce("in", key=str(n), value=str(n))
    producer.flush()


def read(broker: RunningBroker) -> list[int]:
    given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "out", "kafka.isolation.level": "read_committed"}
    reader = BatchReader(read_options(given, streaming=False))
    found = [rows.column("value").to_pylist() for part in reader.partitions() for rows in reader.read(part)]
    close_clusters()
    return sorted(int(value) for values in found for value in values)


def test_each_row_arrives_once(tmp_path: Path) -> None:
    chance = random.Random(7)
    with leadline(tmp_path / "data") as broker:
        for topic in ("in", "out"):
            create_topic(broker.bootstrap, topic, 2)
        for kill in range(KILLS):
            produce(broker, kill * ROWS, (kill + 1) * ROWS)
            before, pipeline = written(broker), Pipeline(broker, tmp_path, "on")
            try:
                deadline = time.monotonic() + START_S
                while written(broker) == before:
                    assert pipeline.process.poll() is None, pipeline.log.read_text()[-3000:]
                    assert time.monotonic() < deadline, pipeline.log.read_text()[-3000:]
                    time.sleep(0.05)
                time.sleep(chance.uniform(0, 1.0))
            finally:
                pipeline.kill()
            if kill % 2 == 0:
                broker.kill()
                broker.start()
        last = Pipeline(broker, tmp_path, "end")
        try:
            assert last.process.wait(START_S) == 0, last.log.read_text()[-3000:]
        finally:
            if last.process.poll() is None:
                last.kill()
        assert read(broker) == list(range(KILLS * ROWS))
