"""Which interpreter runs the tasks of a session, and which masters have none."""

import sys

import pytest

from leadline.spark.session import NoSession, session, task_interpreter


@pytest.mark.parametrize(
    ("setting", "environment", "interpreter"),
    [
        (None, {}, sys.executable),
        (None, {"PYSPARK_PYTHON": "./environment/bin/python"}, "./environment/bin/python"),
        ("/opt/python", {"PYSPARK_PYTHON": "./environment/bin/python"}, "/opt/python"),
        (None, {"PYSPARK_PYTHON": ""}, sys.executable),
    ],
)
def test_the_setting_comes_before_the_variable_and_this_interpreter_last(
    setting: str | None, environment: dict[str, str], interpreter: str
) -> None:
    assert task_interpreter(setting, environment) == interpreter


def test_a_server_of_spark_connect_is_refused_before_java_starts() -> None:
    with pytest.raises(NoSession, match=r"sc://spark:15002 is Spark Connect, which has no SparkContext"):
        session("test", master="sc://spark:15002")
