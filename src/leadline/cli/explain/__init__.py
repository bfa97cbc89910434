"""leadline explain: the state and the recent history of partitions."""
