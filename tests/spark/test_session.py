"""The session that jobs and tests get."""

import signal
import sys
from types import FrameType

import pytest
from pyspark import util
from pyspark.sql import SparkSession

from leadline.spark.session import TaskFailed, run_tasks, session


def test_a_session_computes_in_utc(spark: SparkSession) -> None:
    assert spark.range(10).selectExpr("sum(id)").collect()[0][0] == 45
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


def test_a_second_one_is_the_first(spark: SparkSession) -> None:
    assert session("another") is spark


def test_tasks_run_in_this_interpreter(spark: SparkSession) -> None:
    (found,) = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect()
    assert found == sys.executable


def test_results_that_nobody_hands_over_are_told_as_such(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: object) -> None:
        raise ConnectionRefusedError("nobody is there")

    monkeypatch.setattr(util, "_create_local_socket", refused)
    with pytest.raises(TaskFailed, match="did not hand over what its tasks found: nobody is there"):
        run_tasks(spark, str, [1, 2])
    monkeypatch.undo()
    assert run_tasks(spark, str, [1, 2]) == ["1", "2"]


def test_an_interrupted_call_is_not_logged_with_a_traceback(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    def wait_in_java() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        jvm = spark.sparkContext._jvm
        assert jvm is not None
        jvm.java.lang.Thread.sleep(10_000)

    handler = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            wait_in_java()
    finally:
        signal.signal(signal.SIGALRM, handler)
    assert caplog.records == []
    assert spark.range(3).count() == 3
