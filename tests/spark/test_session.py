"""The session that jobs and tests get."""

import sys

import pytest
from pyspark import util
from pyspark.sql import SparkSession

from leadline.spark.session import TaskFailed, run_tasks, session


def test_it_computes(spark: SparkSession) -> None:
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
