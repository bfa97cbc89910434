"""Topics: Kafka's BrokerTopicMetrics, of each topic on this broker and of all together."""

from leadline.metrics.families import NO_LABELS, Collected, Family, FamilySet, Sample, labels_text, one
from leadline.metrics.sources import MetricsSources
from leadline.replication.topic_metrics import TopicMetrics

FAMILIES = FamilySet("Topics")
_PREFIX = "kafka_server_brokertopicmetrics"


def _by_topic(name: str, help: str) -> Family:
    return FAMILIES.counter(f"{_PREFIX}_{name}_total", f"{help}. Without a topic: of all topics", "topic")


MESSAGES_IN = _by_topic("messagesin", "Records that were appended as the leader")
BYTES_IN = _by_topic("bytesin", "Bytes of batches that were appended as the leader")
BYTES_OUT = _by_topic("bytesout", "Bytes of batches that consumers were sent")
BYTES_REJECTED = _by_topic("bytesrejected", "Bytes of batches that were refused because they are too large")
PRODUCE_REQUESTS = _by_topic("totalproducerequests", "Appends of requests, one for each partition")
FETCH_REQUESTS = _by_topic("totalfetchrequests", "Reads of fetches, one for each partition")
FAILED_PRODUCE_REQUESTS = _by_topic("failedproducerequests", "Appends that failed for another reason than usual ones")
FAILED_FETCH_REQUESTS = _by_topic("failedfetchrequests", "Reads that failed for another reason than usual ones")
PRODUCE_CONVERSIONS = _by_topic("producemessageconversions", "Records of old producers that were converted")
INVALID_CRC = _by_topic("invalidmessagecrcrecords", "Batches that were refused because they are corrupt")
REPLICATION_IN = FAMILIES.counter(f"{_PREFIX}_replicationbytesin_total", "Bytes that were appended as a follower")
REPLICATION_OUT = FAMILIES.counter(f"{_PREFIX}_replicationbytesout_total", "Bytes that followers were sent")

_COUNTERS = {
    MESSAGES_IN: "messages_in",
    BYTES_IN: "bytes_in",
    BYTES_OUT: "bytes_out",
    BYTES_REJECTED: "bytes_rejected",
    PRODUCE_REQUESTS: "produce_requests",
    FETCH_REQUESTS: "fetch_requests",
    FAILED_PRODUCE_REQUESTS: "failed_produce_requests",
    FAILED_FETCH_REQUESTS: "failed_fetch_requests",
    PRODUCE_CONVERSIONS: "produce_conversions",
    INVALID_CRC: "invalid_crc_records",
}


def collect(sources: MetricsSources) -> Collected:
    replicas = sources.broker.replicas
    metrics = replicas.context.topic_metrics
    metrics.keep({tp.topic for tp in replicas.hosted})
    yield None
    topics = [(labels_text(topic=topic), counts) for topic, counts in metrics.by_topic.items()]
    all_topics = metrics.all_topics()
    yield None
    for family, counter in _COUNTERS.items():
        yield family, _samples(counter, all_topics, topics)
    yield one(REPLICATION_IN, metrics.replication_bytes_in)
    yield one(REPLICATION_OUT, metrics.replication_bytes_out)


def _samples(counter: str, all_topics: TopicMetrics, topics: list[tuple[str, TopicMetrics]]) -> list[Sample]:
    """Only counters above zero: most of many topics are idle."""
    values = ((labels, getattr(counts, counter)) for labels, counts in topics)
    return [(NO_LABELS, getattr(all_topics, counter)), *(sample for sample in values if sample[1])]
