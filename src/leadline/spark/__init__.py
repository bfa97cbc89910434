"""The data pipeline on Spark: topics and log files as tables."""
