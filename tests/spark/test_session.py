"""The session that jobs and tests get."""

import sys

from pyspark.sql import SparkSession

from leadline.spark.session import session


def test_it_computes(spark: SparkSession) -> None:
    assert spark.range(10).selectExpr("sum(id)").collect()[0][0] == 45
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


def test_a_second_one_is_the_first(spark: SparkSession) -> None:
    assert session("another") is spark


def test_tasks_run_in_this_interpreter(spark: SparkSession) -> None:
    (found,) = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect()
    assert found == sys.executable
