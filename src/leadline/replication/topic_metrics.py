"""What a broker counts of each topic, and of its replication. Kafka's BrokerTopicMetrics.

A partition increments the counters of its topic. Those of all topics together are their sum, with what was counted of
topics that are no longer here: a counter never goes back.

Pure: counts.
"""

from collections.abc import Container


class TopicMetrics:
    """What is counted of one topic on this broker. As in Kafka, a request counts once for each of its partitions."""

    __slots__ = (
        "bytes_in", "bytes_out", "bytes_rejected", "failed_fetch_requests", "failed_produce_requests",
        "fetch_requests", "invalid_crc_records", "messages_in", "produce_conversions", "produce_requests",
    )  # fmt: skip

    def __init__(self) -> None:
        self.bytes_in = self.bytes_out = self.bytes_rejected = self.messages_in = 0
        self.produce_requests = self.failed_produce_requests = 0
        self.fetch_requests = self.failed_fetch_requests = 0
        self.produce_conversions = 0  # records of old producers that were converted
        self.invalid_crc_records = 0

    def add(self, other: "TopicMetrics") -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class BrokerTopicMetrics:
    def __init__(self) -> None:
        self.by_topic: dict[str, TopicMetrics] = {}
        self.replication_bytes_in = 0  # as a follower
        self.replication_bytes_out = 0  # as a leader, to followers
        self._left = TopicMetrics()  # of topics that are no longer here

    def of(self, topic: str) -> TopicMetrics:
        metrics = self.by_topic.get(topic)
        if metrics is None:
            metrics = self.by_topic[topic] = TopicMetrics()
        return metrics

    def keep(self, topics: Container[str]) -> None:
        """Only these are here now."""
        for topic in [topic for topic in self.by_topic if topic not in topics]:
            self._left.add(self.by_topic.pop(topic))

    def all_topics(self) -> TopicMetrics:
        total = TopicMetrics()
        for metrics in (self._left, *self.by_topic.values()):
            total.add(metrics)
        return total
