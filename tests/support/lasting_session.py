"""A Spark session that outlasts the commands that tests run in their own process."""

from pyspark.sql import SparkSession


class Lasting:
    """The session of all tests, which no command may stop."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __getattr__(self, name: str) -> object:
        return getattr(self._spark, name)

    def stop(self) -> None:
        pass
