"""Tests that need Spark share one session, small and quick to start: a start costs seconds.

Java starts with half the CPU time when it compiles less, and with half of that again when it has an archive of Spark's
classes (`leadline.spark.java`). The commands that tests start in processes of their own get both, too.
"""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from leadline.spark import java
from leadline.spark.session import home_without_zips, session

SMALL = {
    "spark.driver.memory": "700m",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.streaming.stopTimeout": "60s",
}
QUICK_TO_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture(scope="session", autouse=True)
def quick_java() -> Iterator[None]:
    """Also where a session lasts as long as the tests, or is killed: neither leaves an archive in time for others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_SUBMIT_OPTS", QUICK_TO_START)
        if _lacks_archive():
            subprocess.run([sys.executable, "-m", "tests.spark.short_session"], check=True)
        yield


def _lacks_archive() -> bool:
    """True: there is none, and no other session is about to write it."""
    cache = java.cache_dir()
    cache.mkdir(parents=True, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        if "SPARK_HOME" not in os.environ:
            patch.setenv("SPARK_HOME", str(home_without_zips(cache)))
        archive = java._archive(java.find(cache), cache)
        return not java._adopt(archive) and not archive.exists()


@pytest.fixture(scope="session")
def spark(quick_java: None) -> Iterator[SparkSession]:
    spark_session = session("tests", master="local[2]", settings=SMALL)
    yield spark_session
    spark_session.stop()
