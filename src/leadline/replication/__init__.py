"""Replication: the leader of a partition, its followers, and the high watermark up to which clients may read."""
