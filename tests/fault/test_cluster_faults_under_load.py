"""Three brokers and ZooKeeper, under an idempotent producer and a reader that checks, while all kinds of things happen.

    nothing that was acknowledged is lost, nothing is there twice, and each partition keeps its order
    a reader sees each record once, and never one that is not there in the end
    replicas end byte-identical, and agree on which leader wrote what

LEADLINE_ROUNDS=10 runs each sequence of steps ten times.
"""

import re
import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.fault.load import PARTITIONS, Load, check, running
from tests.support import in_memory
from tests.support.cluster import ROUNDS, Cluster, cluster
from tests.support.identical_replicas import epochs_in, replicas_are_identical
from tests.support.waiting import until

PRODUCER: dict[str, str | bool] = {
    "enable.idempotence": True,
    "acks": "all",
    "request.timeout.ms": "4000",
    "socket.timeout.ms": "5000",
}
PAUSE_S = 0.05  # after each 50 records
LONGEST_GAP_S = 20.0  # without an acknowledgement, after a kill: a third of the time that a session takes to end

# Each with whether its topic's first partition has a new leader epoch then: somebody was missed. None: perhaps.
STEPS = {
    "kill leader, wait 1, start it": True,
    "kill follower, wait 1, start it": True,
    "kill controller, wait 1, start it": True,
    "kill leader, start it": True,  # before its session has ended
    "kill zookeeper, wait 2, start zookeeper": False,
    "kill zookeeper, kill leader, wait 1, start zookeeper, wait 1, start it": True,
    "fill follower, wait 1, start it": True,
    "fill leader, wait 1, start it": True,
    "stop 1, start it, settle, stop 2, start it, settle, stop 3, start it": True,
}
STEPS_OF_SESSIONS = {  # which take a session's time to end, or a follower's to be late
    "pause leader, missed, resume it": True,
    "pause follower, wait 4, resume it": True,
    "pause controller, missed, resume it": True,
    "isolate leader brokers, wait 4, mend": None,
    "isolate follower brokers, wait 4, mend": None,
    "isolate leader zookeeper, missed, mend": True,
    "isolate leader all, missed, mend": True,
    "isolate controller all, missed, mend": True,
}


class Reader:
    """Reads each partition from its start, as records come."""

    def __init__(self, served: Cluster, topic: str) -> None:
        self.rows: dict[int, list[tuple[int, bytes]]] = {n: [] for n in range(PARTITIONS)}
        self.failure: str | None = None
        self._stop = threading.Event()
        self._consumer = Consumer({
            "bootstrap.servers": served.bootstrap, "group.id": "none", "enable.auto.commit": False,
            "auto.offset.reset": "error", "log_level": 0,
        })  # fmt: skip
        self._consumer.assign([TopicPartition(topic, n, 0) for n in range(PARTITIONS)])
        self._thread = threading.Thread(target=self._run, name="reader")
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            for message in self._consumer.consume(1000, 0.1):
                if (error := message.error()) is not None:
                    self.failure = self.failure or (None if error.retriable() else str(error))
                else:
                    offset, value, partition = message.offset(), message.value(), message.partition()
                    assert offset is not None
                    assert partition is not None
                    assert isinstance(value, bytes)
                    self.rows[partition].append((offset, value))
        # not closed: librdkafka 2.16 may go on waiting for a coordinator that it has let go of

    def count(self) -> int:
        return sum(map(len, self.rows.values()))

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self.failure is None, self.failure


def number_of(value: bytes) -> int:
    return int(value.split(b".")[0].split()[1])


def the_reader_saw_it_all_in_order(reader: Reader, load: Load) -> None:
    until(lambda: reader.count() >= load.sent, lambda: f"{reader.count()} of {load.sent} were seen")
    reader.stop()
    for partition, rows in reader.rows.items():
        assert [offset for offset, _ in rows] == list(range(len(rows))), f"partition {partition} has gaps or repeats"
        assert [number_of(value) for _, value in rows] == list(range(partition, load.sent, PARTITIONS))
        assert all(load.acked.get((partition, offset), value) == value for offset, value in rows)


def run_under_load(served: Cluster, steps: str, new_epoch: bool | None) -> Load:
    topic = "-".join(re.findall("[a-z0-9]+", steps))
    served.create(topic, PARTITIONS)
    load, reader = Load(served, topic, "load", PRODUCER, pause_s=PAUSE_S), Reader(served, topic)
    try:
        with running(load):
            until(lambda: len(load.acked) > 100)
            for _ in range(ROUNDS):
                served.run_steps(steps)
                served.settle()
            more = len(load.acked) + 100
            until(lambda: len(load.acked) > more, lambda: "nothing is acknowledged any more")
        the_reader_saw_it_all_in_order(reader, load)
    finally:
        reader.stop()
    check(served, load)
    directories = [broker.directory for broker in served.brokers.values()]
    replicas_are_identical(directories, [f"{topic}-{number}" for number in range(PARTITIONS)])
    if new_epoch is not None:
        assert (len(epochs_in(served.brokers[1].directory, f"{topic}-0")) > 1) is new_epoch
    return load


@pytest.fixture(scope="module")
def direct() -> Iterator[Cluster]:
    for path in in_memory.directory():
        with cluster(path, zookeeper_session_timeout_ms=60_000) as started:
            yield started


@pytest.fixture(scope="module")
def proxied() -> Iterator[Cluster]:
    for path in in_memory.directory():
        # A session is over before a follower is late: who left the ISR for that reason is not missed with a new epoch.
        with cluster(path, proxied=True, replica_lag_time_max_ms=3000) as started:
            yield started


@pytest.mark.parametrize(("steps", "new_epoch"), STEPS.items(), ids=STEPS)
def test_nothing_is_lost_when_processes_die(direct: Cluster, steps: str, new_epoch: bool | None) -> None:
    load = run_under_load(direct, steps, new_epoch)
    if "zookeeper" not in steps:
        assert load.longest_gap_s < LONGEST_GAP_S


@pytest.mark.parametrize(("steps", "new_epoch"), STEPS_OF_SESSIONS.items(), ids=STEPS_OF_SESSIONS)
def test_nothing_is_lost_when_brokers_are_out_of_reach(proxied: Cluster, steps: str, new_epoch: bool | None) -> None:
    run_under_load(proxied, steps, new_epoch)
