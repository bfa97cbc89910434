"""Leadline beside the real Apache Kafka: bytes on the wire and on disk, nodes in ZooKeeper, what tools print."""
