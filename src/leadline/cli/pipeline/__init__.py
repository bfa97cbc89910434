"""leadline pipeline: jobs on Spark."""
