"""What every broker knows of the cluster: metadata cache, dynamic configs, and the other brokers."""
