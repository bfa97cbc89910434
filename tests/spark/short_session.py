"""A session of Spark that does a little of everything and ends: Java then writes the archive of the classes it used.

python -m tests.spark.short_session
"""

from leadline.spark.session import run_tasks, session
from tests.spark.conftest import SMALL


def main() -> None:
    spark = session("short", master="local[2]", settings=SMALL)
    assert spark.range(10).selectExpr("sum(id)").collect()[0][0] == 45
    assert run_tasks(spark, str, [1, 2]) == ["1", "2"]
    java = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
    spark.stop()
    java.stdin.close()
    java.wait()


if __name__ == "__main__":
    main()
