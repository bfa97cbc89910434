"""The format `leadline`: topics read and written by Spark, in batches and as streams."""
