"""The driver's part of a write, cut off between any two of its steps, overtaken, and with a broker that dies under it.

A batch that was not seen to be committed is done again, by another driver, from rows that lie in other tasks. Readers
of committed records must see each batch once and whole.
"""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from leadline.spark.client.cluster import ClusterClient
from leadline.spark.client.connection import BlockingConnection
from leadline.spark.client.transaction import ClientTransaction, Fenced
from leadline.spark.topics.options import WriteOptions, read_options, write_options
from leadline.spark.topics.sink import BatchNote, TaskStaged, stage, write_once
from leadline.spark.topics.source import BatchReader
from leadline.spark.topics.staging import Staging
from leadline.wire.classes import Message
from leadline.wire.messages import ProduceResponse
from tests.support.broker import RunningBroker, leadline
from tests.support.steps import Died, Steps
from tests.support.topics import create_topic

ROWS = 30
QUERY = "query"
_fresh = itertools.count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with leadline(tmp_path_factory.mktemp("sink") / "data") as running:
        yield running


@pytest.fixture
def topic(broker: RunningBroker) -> str:
    name = f"out-{next(_fresh)}"
    create_topic(broker.bootstrap, name, 3)
    return name


class Driver:
    """Stages and commits batches; one step is a request that goes out or an answer that is taken."""

    def __init__(self, broker: RunningBroker, topic: str, folder: Path) -> None:
        self.broker, self.topic, self.folder = broker, topic, folder
        self.query = f"{QUERY}-{topic}"

    @property
    def options(self) -> WriteOptions:
        return write_options({"kafka.bootstrap.servers": self.broker.bootstrap, "topic": self.topic})

    def stage(self, batch: int, tasks: int) -> list[TaskStaged]:
        values = [json.dumps([batch, n]) for n in range(ROWS)]
        staging = Staging.of(str(self.folder), f"{self.query}-{batch}")
        parts = [values[task::tasks] for task in range(tasks)]
        rows = [pa.record_batch({"key": part, "value": part}) for part in parts]
        return [stage(iter([batch_rows]), self.options, staging, self.query) for batch_rows in rows]

    def commit(self, batch: int, lefts: list[TaskStaged]) -> bool:
        with ClusterClient(self.options.client) as cluster:
            transaction = ClientTransaction(cluster, self.query, 60_000)
            return write_once(cluster, transaction, lefts, BatchNote(self.query, batch))

    def write(self, batch: int, tasks: int = 2) -> bool:
        return self.commit(batch, self.stage(batch, tasks))

    def committed(self) -> list[list[int]]:
        options = {
            "kafka.bootstrap.servers": self.broker.bootstrap,
            "subscribe": self.topic,
            "kafka.isolation.level": "read_committed",
        }
        reader = BatchReader(read_options(options, streaming=False))
        values = [
            row
            for part in reader.partitions()
            for rows in reader.read(part)
            for row in rows.column("value").to_pylist()
        ]
        return sorted(json.loads(row) for row in values)


def whole(batches: int) -> list[list[int]]:
    return [[batch, n] for batch in range(batches) for n in range(ROWS)]


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Steps:
    return Steps(monkeypatch)


def steps_of_a_commit(driver: Driver, at: Steps) -> int:
    lefts = driver.stage(0, 2)
    at.before(0)
    assert driver.commit(0, lefts)
    return at.count


def test_cut_off_between_any_two_steps_it_is_written_once(
    broker: RunningBroker, topic: str, tmp_path: Path, at: Steps
) -> None:
    driver = Driver(broker, topic, tmp_path)
    steps = steps_of_a_commit(driver, at)
    assert steps >= 16
    died = 0
    for batch in range(1, steps + 2):
        lefts = driver.stage(batch, 2)
        at.before(batch)
        try:
            driver.commit(batch, lefts)
        except Died:
            died += 1
        at.before(0)
        driver.write(batch, tasks=3)
        assert driver.write(batch) is False
    assert died >= steps
    assert driver.committed() == whole(steps + 2)


def test_overtaken_between_any_two_steps_it_is_written_once(
    broker: RunningBroker, topic: str, tmp_path: Path, at: Steps
) -> None:
    driver, another = Driver(broker, topic, tmp_path / "a"), Driver(broker, topic, tmp_path / "b")
    steps = steps_of_a_commit(driver, at)
    fenced = 0
    for batch in range(1, steps + 1):
        lefts, theirs = driver.stage(batch, 2), another.stage(batch, 3)
        overtaken: list[bool] = []
        at.before(batch, lambda b=batch, t=theirs, o=overtaken: o.append(another.commit(b, t)))  # type: ignore[misc]
        try:
            written = driver.commit(batch, lefts)
        except Fenced:
            written, fenced = False, fenced + 1
        assert [written, *overtaken].count(True) == 1
    assert fenced >= 8
    assert driver.committed() == whole(steps + 1)


def test_a_broker_that_dies_under_it_costs_nothing(tmp_path: Path, at: Steps) -> None:
    with leadline(tmp_path / "data") as broker:
        create_topic(broker.bootstrap, "out", 3)
        driver = Driver(broker, "out", tmp_path)
        steps = steps_of_a_commit(driver, at)

        def restart() -> None:
            broker.kill()
            broker.start()

        batches = list(range(4, steps + 1, 4))
        for n, step in enumerate(batches, start=1):
            lefts = driver.stage(n, 2)
            at.before(step, restart)
            assert driver.commit(n, lefts)
        at.before(0)
        assert driver.committed() == whole(len(batches) + 1)


def test_nothing_is_seen_of_a_batch_that_is_not_committed(
    broker: RunningBroker, topic: str, tmp_path: Path, at: Steps
) -> None:
    driver = Driver(broker, topic, tmp_path)
    steps = steps_of_a_commit(driver, at)
    lefts = driver.stage(1, 2)
    at.before(steps - 1)  # before the transaction is ended
    with pytest.raises(Died):
        driver.commit(1, lefts)
    at.before(0)
    with ClusterClient({"bootstrap.servers": broker.bootstrap}) as cluster:
        ends = cluster.latest(cluster.existing_topics([topic])[topic].partitions, committed=False)
        stable = cluster.latest(cluster.existing_topics([topic])[topic].partitions, committed=True)
    assert sum(ends.values()) == sum(stable.values()) + ROWS
    assert driver.committed() == whole(1)


@pytest.mark.parametrize("code", [6, 7, 20])
def test_what_was_stored_and_is_sent_again_is_stored_once(
    broker: RunningBroker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    driver = Driver(broker, topic, tmp_path)
    answer, unanswered = BlockingConnection.answer, list[int]()

    def answering(connection: BlockingConnection, version: int, kind: type[Message]) -> Message:
        response = answer(connection, version, kind)
        if isinstance(response, ProduceResponse) and not unanswered:
            unanswered.append(response.responses[0].partition_responses[0].index)
            response.responses[0].partition_responses[0].error_code = code
        return response

    monkeypatch.setattr(BlockingConnection, "answer", answering)
    assert driver.write(0)
    assert unanswered
    assert driver.committed() == whole(1)
