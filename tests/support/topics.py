"""Topics for tests that speak to a broker through confluent-kafka."""

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic


def create_topic(bootstrap: str, name: str, partitions: int = 1, **config: str) -> None:
    """`create_topic(address, "state", cleanup_policy="compact")`: settings with underscores for dots."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    settings = {key.replace("_", "."): value for key, value in config.items()}
    topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=settings)
    admin.create_topics([topic])[name].result(120)
