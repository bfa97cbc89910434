"""Tests that need Spark share one session, small and quick to start: a start costs seconds."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from leadline.spark.session import session

SMALL = {
    "spark.driver.memory": "700m",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.streaming.stopTimeout": "60s",
}
QUICK_TO_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    found = session("tests", master="local[2]", settings=SMALL, java_options=QUICK_TO_START)
    yield found
    found.stop()
