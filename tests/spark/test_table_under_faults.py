"""The pipeline's driver, its tasks, the broker and the disk's room are taken away while a topic becomes a table.

the table is the topic, once, and so are the dead letters
LEADLINE_FACTOR makes it last longer.
"""

import itertools
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from leadline.spark.client.cluster import ClusterClient
from leadline.spark.session import TaskFailed
from leadline.spark.table import table_writer
from leadline.spark.table.delta import Delta
from leadline.spark.table.iceberg import Iceberg
from leadline.spark.table.table import TableError
from leadline.spark.table.table_writer import TableSpec
from tests.support import in_memory
from tests.support.broker import RunningBroker, leadline
from tests.support.commands import LEADLINE
from tests.support.following import Feed, Pipeline
from tests.support.pipeline_faults import kill_workers, little_room, small_disk
from tests.support.topics import create_topic

FACTOR = int(os.environ.get("LEADLINE_FACTOR", "1"))
WAIT_S = 300
COMMITS = {
    Delta: ("create", "take_over", "add_columns", "append", "merge"),
    Iceberg: ("create", "take_over", "add_columns", "append", "merge"),
    ClusterClient: ("commit",),
}
_fresh = itertools.count()

Made = Callable[..., tuple[Feed, Pipeline]]


class Died(BaseException):
    """As if the process were gone."""


@pytest.fixture(scope="module")
def memory() -> Iterator[Path]:
    """Tables are flushed to the disk often: in memory that takes no time."""
    yield from in_memory.directory()


@pytest.fixture(scope="module")
def broker(memory: Path) -> Iterator[RunningBroker]:
    with leadline(memory / "data") as running:
        yield running


@pytest.fixture
def made(spark: SparkSession, broker: RunningBroker, memory: Path) -> Made:
    def make(kind: str = "delta", path: Path | None = None, **options: object) -> tuple[Feed, Pipeline]:
        topic = f"faults-{next(_fresh)}"
        create_topic(broker.bootstrap, topic, 2)
        feed = Feed(broker, topic, enable_idempotence="true", reconnect_backoff_max_ms="200")
        spec = TableSpec(topic, {}, format="json", group=f"table-{topic}", **options)  # type: ignore[arg-type]
        return feed, Pipeline(spark, broker, path or memory / topic, spec, kind)

    return make


class Cut:
    """Ends the driver before or after one of its commits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at, self.after, self.count, self.deaths = 0, False, 0, 0
        for owner, names in COMMITS.items():
            for name in names:
                monkeypatch.setattr(owner, name, self._cutting(getattr(owner, name)))

    def _cutting(self, step: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object) -> object:
            self.count += 1
            if self.count == self.at and not self.after:
                raise Died
            result = step(*args)
            if self.count == self.at and self.after:
                raise Died
            return result

        return call

    def set(self, at: int, after: bool) -> None:
        self.at, self.after, self.count = at, after, 0


@pytest.mark.parametrize(
    ("kind", "mode", "deaths"),
    [("delta", "append", 26), ("iceberg", "append", 14), ("delta", "upsert", 10), ("iceberg", "scd2", 6)],
)
def test_a_driver_that_dies_around_any_commit(
    made: Made, monkeypatch: pytest.MonkeyPatch, kind: str, mode: str, deaths: int
) -> None:
    """Tasks run in the driver here: it is their results that matter, and fifty deaths shall not take minutes."""
    monkeypatch.setattr(table_writer, "run_tasks", lambda _, work, tasks: list(map(work, tasks)))
    feed, pipeline = made(kind, mode=mode)
    cut = Cut(monkeypatch)
    died, bad = 0, 0
    for number in itertools.count():
        if died >= deaths * FACTOR:
            break
        feed.more(3)
        feed.send(b'{"id": %d, "new%d": 1}' % (number, number // 2))
        feed.send(b"bad")
        feed.flush()
        bad += 1
        cut.set(1 + number // 2 % 7, after=bool(number % 2))
        try:
            pipeline.run()
        except Died:
            died += 1
    cut.set(0, after=False)
    feed.more(1)
    pipeline.run()
    assert len(pipeline.dead_letters()) == bad
    pipeline.check(5 * bad + 1)


def test_a_driver_that_is_killed_goes_on_where_the_table_ends(made: Made) -> None:
    feed, pipeline = made()
    feed.more(200)
    for _ in range(FACTOR):
        with _driver(pipeline) as driver:
            _wait_until(_batch(pipeline) + random.randint(2, 6), pipeline, driver, feed)
            refused = subprocess.run([*_command(pipeline), "--once"], capture_output=True, text=True, timeout=WAIT_S)
            assert refused.returncode == 1
            assert f"has a writer already: process {driver.pid} on" in refused.stderr
            os.kill(driver.pid, signal.SIGKILL)
            driver.wait(WAIT_S)
    pipeline.run()
    pipeline.check(feed.count)


def _command(pipeline: Pipeline) -> list[str]:
    spark = ["--master", "local[2]", "--conf", "spark.driver.memory=600m"]
    how = ["--format", "json", "--batch-bytes", "600", "--interval", "50ms", "--group", ""]
    place = ["--bootstrap-server", pipeline.broker.bootstrap]
    return [*LEADLINE, "pipeline", "table", pipeline.spec.topic, str(pipeline.path), *how, *spark, *place]


@contextmanager
def _driver(pipeline: Pipeline) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(_command(pipeline), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def _batch(pipeline: Pipeline) -> int:
    state = pipeline.table.state()
    return -1 if state is None else state.progress.batch


def _wait_until(batch: int, pipeline: Pipeline, driver: subprocess.Popen[bytes], feed: Feed) -> None:
    deadline = time.monotonic() + WAIT_S
    while _batch(pipeline) < batch:
        assert driver.poll() is None, driver.communicate()[1].decode()
        assert time.monotonic() < deadline, "no batches were committed"
        feed.more(1)
        time.sleep(0.1)


def test_tasks_that_are_killed_leave_nothing_behind_that_counts(made: Made) -> None:
    feed, pipeline = made(batch_bytes=1500)
    for _ in range(2 * FACTOR):
        feed.more(100)
        with _killing_workers(), suppress(TaskFailed):
            pipeline.run()
    pipeline.run()
    pipeline.check(feed.count)


@contextmanager
def _killing_workers() -> Iterator[None]:
    """Twice."""
    stop = threading.Event()

    def kill() -> None:
        for _ in range(2):
            stop.wait(random.uniform(0.1, 0.5))
            kill_workers(os.getpid())

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_a_broker_that_is_killed_and_comes_back(made: Made, broker: RunningBroker) -> None:
    feed, pipeline = made(batch_bytes=1000)
    feed.more(200)
    stop = threading.Event()

    def churn() -> None:
        for _ in range(2 * FACTOR):
            if stop.wait(random.uniform(0.3, 1)):
                return
            broker.kill()
            broker.start()

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        while thread.is_alive():
            pipeline.run()
            feed.more(20)
    finally:
        stop.set()
        thread.join()
    pipeline.run()
    pipeline.check(feed.count)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path | None]:
    with small_disk(tmp_path / "small", "3m") as small:
        yield small


def test_a_disk_without_room_stops_it_and_costs_nothing(
    made: Made, disk: Path | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed, pipeline = made(path=disk / "table" if disk else None)
    feed.more(50)
    pipeline.run()
    for number in range(4 * FACTOR):
        feed.more(300)
        little = _little_room(disk, 4096 * (number % 4), monkeypatch)
        with little, pytest.raises(TableError, match="No space left"):
            pipeline.run()
    pipeline.run()
    pipeline.check(feed.count)


@contextmanager
def _little_room(disk: Path | None, left: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if disk is None:  # the same, said by the commit instead of the disk
        with monkeypatch.context() as patch:
            patch.setattr(Delta, "append", _no_space)
            yield
        return
    with little_room(disk, left):
        yield


def _no_space(*_: object) -> None:
    raise TableError("No space left on device")
