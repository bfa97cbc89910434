"""leadline demo: the data pipeline, from an empty directory to a verified table."""
