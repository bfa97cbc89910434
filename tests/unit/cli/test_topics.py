"""How topics are shown: the lines of kafka-topics.sh, and the order in which Java prints settings."""

import io

from confluent_kafka import Node, TopicPartitionInfo, Uuid
from confluent_kafka.admin._topic import TopicDescription

from leadline.cli.client import Paint
from leadline.cli.topics import as_json, id_of, java_order, lines_of

ONE, TWO, NOBODY = Node(1, "a", 9092), Node(2, "b", 9092), Node(-1, "", -1)
TOPIC = TopicDescription(
    "orders",
    Uuid(1, 2),
    False,
    [TopicPartitionInfo(0, ONE, [ONE, TWO], [ONE, TWO]), TopicPartitionInfo(1, NOBODY, [TWO, ONE], [ONE])],
)


def test_a_topic_is_described_as_kafka_describes_it() -> None:
    head, first, second = lines_of(TOPIC, {"a": "1", "b": "x,y"}, Paint(io.StringIO()))
    assert head == (
        "Topic: orders\tTopicId: AAAAAAAAAAEAAAAAAAAAAg\tPartitionCount: 2\tReplicationFactor: 2\tConfigs: a=1,b=x,y"
    )
    assert first == "\tTopic: orders\tPartition: 0\tLeader: 1\tReplicas: 1,2\tIsr: 1,2\tElr: N/A\tLastKnownElr: N/A"
    assert second == "\tTopic: orders\tPartition: 1\tLeader: none\tReplicas: 2,1\tIsr: 1\tElr: N/A\tLastKnownElr: N/A"


def test_an_id_is_written_with_the_characters_that_urls_allow() -> None:
    assert id_of(TopicDescription("x", Uuid(-5 << 56, -1), False, [])) == "-wAAAAAAAAD__________w"


def test_a_topic_in_json() -> None:
    assert as_json(TOPIC, {"a": "1"}) == {
        "topic": "orders",
        "topicId": "AAAAAAAAAAEAAAAAAAAAAg",
        "internal": False,
        "partitions": [
            {"partition": 0, "leader": 1, "replicas": [1, 2], "isr": [1, 2]},
            {"partition": 1, "leader": None, "replicas": [2, 1], "isr": [1]},
        ],
        "configs": {"a": "1"},
    }


def test_settings_come_in_the_order_of_a_java_hash_map() -> None:
    given = """
        compression.type leader.replication.throttled.replicas remote.storage.enable message.downconversion.enable
        min.insync.replicas segment.jitter.ms local.retention.ms cleanup.policy flush.ms
        follower.replication.throttled.replicas compression.lz4.level segment.bytes
    """.split()
    of_java_17 = [0, 6, 7, 1, 8, 2, 9, 10, 3, 4, 5, 11]
    assert java_order(given) == [given[n] for n in of_java_17]
    assert java_order([]) == []
