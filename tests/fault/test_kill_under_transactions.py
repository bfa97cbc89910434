"""Transactional producers at work while their broker is killed, again and again: whole transactions or none."""

import random
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.support.broker import RunningBroker, leadline
from tests.support.topics import create_topic

TOPIC, PARTITIONS = "deals", 3
WRITERS, KILLS = 3, 4
SECONDS = 120.0  # for what should take a moment, on the slowest machine
SETTINGS = {
    "transaction.state.log.num.partitions": 3,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
}


@dataclass
class Writer:
    """One transactional id. Keeps the reported outcome of each transaction."""

    name: str
    bootstrap: str
    outcomes: dict[str, bool | None] = field(default_factory=dict)  # None: nobody told
    stopping: threading.Event = field(default_factory=threading.Event)
    failure: BaseException | None = None
    count: int = 0

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                self._as_one_producer()
            self._producer()  # what was left open is aborted
        except BaseException as error:
            self.failure = error
            raise

    def _producer(self) -> Producer:
        producer = Producer({
            "bootstrap.servers": self.bootstrap, "transactional.id": self.name, "linger.ms": 1,
            "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 20, "log_level": 0,
        })  # fmt: skip
        producer.init_transactions(SECONDS)
        return producer

    def _as_one_producer(self) -> None:
        """Runs until it is stopped or an outcome is unknown: then a new writer begins, and this one is fenced."""
        producer = self._producer()
        while not self.stopping.is_set():
            self.count += 1
            txn = f"{self.name}/{self.count}"
            self.outcomes[txn] = None
            commit = self.count % 4 != 0
            try:
                producer.begin_transaction()
                for n in range(2 * PARTITIONS):
                    producer.produce(TOPIC, f"{txn}/{n}".encode(), partition=n % PARTITIONS)
                if commit:
                    producer.commit_transaction(SECONDS)
                else:
                    producer.abort_transaction(SECONDS)
            except KafkaException:
                return
            self.outcomes[txn] = commit


def read(bootstrap: str, isolation: str) -> dict[str, list[str]]:
    """The records of each transaction, up to where a reader gets."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": isolation,
        "enable.auto.commit": False, "auto.offset.reset": "earliest", "enable.partition.eof": True,
    })  # fmt: skip
    numbers: dict[str, list[str]] = defaultdict(list)
    try:
        consumer.assign([TopicPartition(TOPIC, n, 0) for n in range(PARTITIONS)])
        ended, deadline = set[int](), time.monotonic() + SECONDS
        while len(ended) < PARTITIONS:
            assert time.monotonic() < deadline, f"only {ended} were read to their end"
            message = consumer.poll(1)
            if message is None:
                continue
            if message.error():
                ended.add(message.partition() or 0)
            else:
                txn, _, number = (message.value() or b"").decode().rpartition("/")
                numbers[txn].append(number)
    finally:
        consumer.close()
    return numbers


def is_stable(bootstrap: str) -> bool:
    """Readers of committed records reach the same offsets as all others."""
    ends = []
    for isolation in ("read_committed", "read_uncommitted"):
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": isolation})
        ends.append([consumer.get_watermark_offsets(TopicPartition(TOPIC, n), SECONDS) for n in range(PARTITIONS)])
        consumer.close()
    return ends[0] == ends[1]


def kill_and_restart(broker: RunningBroker, seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(KILLS):
        time.sleep(draw.uniform(0.3, 0.9))  # load, not a wait: the kill may come at any moment
        broker.kill()
        broker.start()


@pytest.mark.parametrize("seed", [2])
def test_whole_transactions_or_none_however_often_it_is_killed(tmp_path: Path, seed: int) -> None:
    with leadline(tmp_path / "data", **SETTINGS) as broker:
        create_topic(broker.bootstrap, TOPIC, PARTITIONS)
        writers = [Writer(f"w{n}", broker.bootstrap) for n in range(WRITERS)]
        threads = [threading.Thread(target=writer.run) for writer in writers]
        for thread in threads:
            thread.start()
        try:
            kill_and_restart(broker, seed)
        finally:
            for writer in writers:
                writer.stopping.set()
            for thread in threads:
                thread.join(3 * SECONDS)
        assert [writer.failure for writer in writers] == [None] * WRITERS
        committed = read(broker.bootstrap, "read_committed")
        assert is_stable(broker.bootstrap)
        outcomes = {txn: outcome for writer in writers for txn, outcome in writer.outcomes.items()}
        whole = sorted(str(n) for n in range(2 * PARTITIONS))
        for txn, outcome in outcomes.items():
            visible = sorted(committed.pop(txn, []))
            assert visible in ([], whole), f"{txn} is seen in part: {visible}"
            if outcome is not None:
                assert bool(visible) is outcome, f"{txn} was told to be {'committed' if outcome else 'aborted'}"
        assert not committed
        assert sum(outcome is True for outcome in outcomes.values()) > 10, "too little happened"
        assert broker.stop() == 0
