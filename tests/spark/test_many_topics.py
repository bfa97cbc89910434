"""Many topics as tables in one process: `leadline pipeline run`, its workers and its upkeep, on a real Spark.

each table is its topic, once, whatever happens to the others
"""

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from leadline.cli import main
from leadline.cli.pipeline import run as run_command
from leadline.spark.client.cluster import ClusterClient
from leadline.spark.jobs.job_runner import JobRunner, RunSpec, SparkEnvironment
from leadline.spark.jobs.job_schedule import Upkeep, UpkeepSpec
from leadline.spark.jobs.job_statistics import JobStatistics
from leadline.spark.jobs.table_job import TableJob, TableJobSpec
from leadline.spark.jobs.topic_discovery import TopicEntry
from leadline.spark.table.delta import Delta
from leadline.spark.table.table import TableError
from leadline.spark.table.table_format import TABLE_FORMATS, TablePlace
from leadline.spark.table.table_writer import TableSpec
from tests.support.broker import RunningBroker, leadline
from tests.support.commands import LEADLINE
from tests.support.following import Feed, Pipeline
from tests.support.lasting_session import Lasting
from tests.support.scripted_jobs import WAIT_S, World
from tests.support.topics import create_topic
from tests.support.waiting import until

UPKEEP = UpkeepSpec(1 << 20, inf, inf)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with leadline(tmp_path_factory.mktemp("many") / "data") as running:
        yield running


@contextmanager
def running(spark: SparkSession, broker: RunningBroker, lake: Path, pattern: str) -> Iterator[tuple[JobRunner, World]]:
    properties = {"bootstrap.servers": broker.bootstrap, "default.api.timeout.ms": "2000"}

    def job_of(topic: str) -> TableJobSpec:
        spec = TableSpec(topic, properties, format="json", batch_bytes=1000)
        return TableJobSpec(TablePlace("delta", str(lake / topic)), spec, lake / topic, 0.1, UPKEEP)

    observer = World()
    entries = [TopicEntry((), pattern, job_of)]
    runner = JobRunner(SparkEnvironment(spark, properties), RunSpec(2, 0.2, False), entries, observer)
    runner.start()
    try:
        yield runner, observer
    finally:
        runner.stop(WAIT_S)


def statistics(runner: JobRunner, topic: str) -> JobStatistics:
    return next(job for job in runner.statistics() if job.topic == topic)


def table_of(spark: SparkSession, broker: RunningBroker, lake: Path, topic: str) -> Pipeline:
    return Pipeline(spark, broker, lake / topic, TableSpec(topic, {}, format="json"))


def test_one_topics_trouble_a_killed_broker_and_a_new_topic(
    spark: SparkSession, broker: RunningBroker, tmp_path: Path
) -> None:
    for topic in ("m-good", "m-bad"):
        create_topic(broker.bootstrap, topic, 2)
    good, bad = Feed(broker, "m-good", enable_idempotence="true"), Feed(broker, "m-bad", enable_idempotence="true")
    good.more(40)
    good.send(b"no json")
    good.flush()
    bad.more(10)
    (tmp_path / "m-bad").write_text("this is no directory")
    with running(spark, broker, tmp_path, "m-.*") as (runner, observer):
        observer.wait_for("failed TABLE", "m-bad")
        until(lambda: statistics(runner, "m-good").records >= 41)
        assert (statistics(runner, "m-good").dead, statistics(runner, "m-good").lag_records) == (1, 0)

        broker.kill()
        observer.wait_for("failed OUTAGE", "m-good")
        broker.start()
        create_topic(broker.bootstrap, "m-new", 1)
        new = Feed(broker, "m-new")
        new.more(5)
        good.more(20)
        until(lambda: any(job.topic == "m-new" and job.records == 5 for job in runner.statistics()))
        until(lambda: statistics(runner, "m-good").records >= 61)

        (tmp_path / "m-bad").unlink()
        observer.wait_for("wrote", "m-bad")
        until(lambda: statistics(runner, "m-bad").records >= 10)
        assert statistics(runner, "m-bad").trouble == ""
    for topic, records in (("m-good", 61), ("m-bad", 10), ("m-new", 5)):
        table_of(spark, broker, tmp_path, topic).check(records)


@pytest.mark.parametrize("kind", TABLE_FORMATS)
def test_upkeep_merges_files_and_deletes_those_that_nobody_needs_while_the_writer_goes_on(
    spark: SparkSession, broker: RunningBroker, tmp_path: Path, kind: str
) -> None:
    topic = f"kept-{kind}"
    create_topic(broker.bootstrap, topic, 1)
    feed, pipeline = Feed(broker, topic), Pipeline(spark, broker, tmp_path / topic, TableSpec(topic, {}), kind)
    job = TableJob(TableJobSpec(pipeline.place, pipeline.spec, pipeline.path, 0.1, UPKEEP), spark)
    with ClusterClient(pipeline.spec.properties) as cluster:
        for _ in range(4):
            feed.more(5)
            assert job.write(cluster) is not None
        job.maintain(Upkeep.COUNT)
        before = job.statistics.files or 0
        assert before >= 4
        done = job.maintain(Upkeep.COMPACT)
        assert (done["removed"], done["added"], job.statistics.compactions) == (before, 1, 1)
        feed.more(5)
        assert job.write(cluster) is not None  # the same writer: compaction took nothing from it
        job.maintain(Upkeep.VACUUM)
        job.maintain(Upkeep.COUNT)
        assert job.statistics.files is not None
        assert 2 <= job.statistics.files < before + 1
    job.close()
    pipeline.check(25)


@pytest.mark.parametrize("committed", [False, True], ids=["not committed", "committed all the same"])
def test_a_commit_that_fails_is_looked_up_before_the_next_step(
    spark: SparkSession, broker: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    """A writer whose tables are as it left them goes on: a table in trouble does not get a commit for each try."""
    topic = f"looked-up-{committed}"
    create_topic(broker.bootstrap, topic, 1)
    feed = Feed(broker, topic)
    pipeline = Pipeline(spark, broker, tmp_path / "table", TableSpec(topic, {}, format="json"))
    job = TableJob(TableJobSpec(pipeline.place, pipeline.spec, pipeline.path, 0.1, UPKEEP), spark)
    append = Delta.append

    def fail(*arguments: Any) -> None:
        if committed:
            append(*arguments)
        raise TableError("the store does not answer")

    with ClusterClient(pipeline.spec.properties) as cluster:
        feed.more(5)
        job.write(cluster)
        feed.more(5)
        with monkeypatch.context() as patch:
            patch.setattr(Delta, "append", fail)
            for _ in range(1 if committed else 3):
                with pytest.raises(TableError, match="does not answer"):
                    job.write(cluster)
        assert (job.write(cluster) is None) is committed
    job.close()
    state = pipeline.table.state()
    assert state is not None
    assert (state.progress.batch, state.progress.epoch) == (1, 2 if committed else 1)
    pipeline.check(10)


def test_a_table_that_is_gone_is_not_created_again(spark: SparkSession, broker: RunningBroker, tmp_path: Path) -> None:
    create_topic(broker.bootstrap, "unmounted", 1)
    feed, pipeline = Feed(broker, "unmounted"), Pipeline(spark, broker, tmp_path / "disk", TableSpec("unmounted", {}))
    job = TableJob(TableJobSpec(pipeline.place, pipeline.spec, None, 0.1, UPKEEP), spark)
    feed.more(3)
    with ClusterClient(pipeline.spec.properties) as cluster:
        job.write(cluster)
        (tmp_path / "disk").rename(tmp_path / "elsewhere")
        feed.more(3)
        for _ in range(2):
            with pytest.raises(TableError):
                job.write(cluster)
        shutil.rmtree(tmp_path / "disk", ignore_errors=True)  # files of the task, which no commit names
        (tmp_path / "elsewhere").rename(tmp_path / "disk")
        assert job.write(cluster) is not None
    job.close()
    pipeline.check(6)


def test_the_command_shows_what_would_run_and_runs_it_once(
    spark: SparkSession,
    broker: RunningBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(run_command, "start_spark", lambda *_: Lasting(spark))
    for topic in ("c-orders", "c-users"):
        create_topic(broker.bootstrap, topic, 1)
        Feed(broker, topic).more(7)
    file = tmp_path / "jobs.toml"
    file.write_text(f'[[tables]]\npattern = "c-.*"\ntable = "{tmp_path}/{{topic}}"\nformat = "json"\n')
    command = ["pipeline", "run", str(file), "--bootstrap-server", broker.bootstrap]
    assert main([*command, "--dry-run"]) == 0
    assert f"c-orders  {tmp_path}/c-orders  delta         json    append  new" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == [file]
    assert main([*command, "--once"]) == 0
    assert "2 of 2 tables up to date, 14 records" in capsys.readouterr().err
    (tmp_path / "c-users").rename(tmp_path / "away")
    (tmp_path / "c-users").write_text("no directory")
    assert main([*command, "--once"]) == 1
    assert "1 of 2 tables up to date, 0 records (0 B) in 0 commits" in capsys.readouterr().err


def test_a_signal_ends_the_process_cleanly_and_the_next_one_continues(
    spark: SparkSession, broker: RunningBroker, tmp_path: Path, is_long: bool
) -> None:
    if not is_long:
        pytest.skip("a Spark of its own: with --long")
    create_topic(broker.bootstrap, "s-orders", 2)
    feed, pipeline = Feed(broker, "s-orders"), table_of(spark, broker, tmp_path, "s-orders")
    file = tmp_path / "jobs.toml"
    file.write_text(
        f'[[tables]]\ntopics = ["s-orders"]\ntable = "{tmp_path}/{{topic}}"\nformat = "json"\n'
        'interval = "50ms"\nbatch-bytes = 2000\n'
    )
    command = [*LEADLINE, "pipeline", "run", str(file), "--bootstrap-server", broker.bootstrap, "--master", "local[2]"]
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
        feed.more(300)
        before = _batch(pipeline)
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            stop = threading.Timer(WAIT_S, process.kill)
            stop.start()
            until(lambda before=before, process=process: _batch(pipeline) > before or process.poll() is not None)  # type: ignore[misc]
            os.kill(process.pid, number)
            _, err = process.communicate()
            stop.cancel()
        assert process.returncode == (-number if number == signal.SIGKILL else 0), err
        assert (number == signal.SIGKILL) or "stopping: " in err
    pipeline.run()
    pipeline.check(feed.count)


def _batch(pipeline: Pipeline) -> int:
    state = pipeline.table.state()
    return -1 if state is None else state.progress.batch
