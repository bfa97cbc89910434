"""The example of docs/TESTING.md for PySpark, with the session that these tests share."""

from pyspark.sql import SparkSession

from leadline.testing import LocalCluster
from tests.test_testing_guide import examples


def test_the_example_for_pyspark_passes(spark: SparkSession, kafka: LocalCluster) -> None:
    (example,) = (example for example in examples() if "pyspark" in example)
    names: dict[str, object] = {}
    exec(compile(example, "docs/TESTING.md", "exec"), names)
    test = names["test_spark_sums_up_the_orders"]
    assert callable(test)
    test(spark, kafka)
