"""leadline reassign: move partitions to other brokers."""
