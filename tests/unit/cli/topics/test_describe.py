"""How topics are shown: the lines of kafka-topics.sh, and the order in which Java prints settings."""

import io
import json

import pytest
from confluent_kafka import Node, TopicPartitionInfo, Uuid
from confluent_kafka.admin._topic import TopicDescription

from leadline.admin.reassign.plan import OngoingReassignment
from leadline.admin.topic_description import FILTERS, FilterContext, PartitionDescription, id_of, partitions_of
from leadline.cli.terminal import TextStyles
from leadline.cli.topics.describe import as_json, head_of, java_order, line_of
from leadline.model import TopicPartition

ONE, TWO, NOBODY = Node(1, "a", 9092), Node(2, "b", 9092), Node(-1, "", -1)
TOPIC = TopicDescription(
    "orders",
    Uuid(1, 2),
    False,
    [TopicPartitionInfo(0, ONE, [ONE, TWO], [ONE, TWO]), TopicPartitionInfo(1, NOBODY, [TWO, ONE], [ONE])],
)


def test_a_topic_is_described_as_kafka_describes_it() -> None:
    paint, partitions = TextStyles(io.StringIO()), partitions_of(TOPIC, {})
    head = head_of(TOPIC, partitions, {"a": "1", "b": "x,y"}, paint)
    first, second = (line_of("orders", partition, paint) for partition in partitions)
    assert head == (
        "Topic: orders\tTopicId: AAAAAAAAAAEAAAAAAAAAAg\tPartitionCount: 2\tReplicationFactor: 2\tConfigs: a=1,b=x,y"
    )
    assert first == "\tTopic: orders\tPartition: 0\tLeader: 1\tReplicas: 1,2\tIsr: 1,2\tElr: N/A\tLastKnownElr: N/A"
    assert second == "\tTopic: orders\tPartition: 1\tLeader: none\tReplicas: 2,1\tIsr: 1\tElr: N/A\tLastKnownElr: N/A"


def test_what_moves_to_other_brokers_is_not_counted_as_a_copy_yet() -> None:
    moving = {TopicPartition("orders", 0): OngoingReassignment([2, 1], adding=[2], removing=[1])}
    (moved, _) = partitions_of(TOPIC, moving)
    assert moved.replication_factor == 1
    assert line_of("orders", moved, TextStyles(io.StringIO())).split("\t")[6:] == [
        "Adding Replicas: 2",
        "Removing Replicas: 1",
        "Elr: N/A",
        "LastKnownElr: N/A",
    ]
    partition = json.loads(json.dumps(as_json(TOPIC, partitions_of(TOPIC, moving), {})))["partitions"][0]
    assert (partition["adding_replicas"], partition["removing_replicas"]) == ([2], [1])


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("under-replicated-partitions", {"lacks one", "lacks two", "no leader", "leader away"}),
        ("unavailable-partitions", {"no leader", "leader away"}),
        ("at-min-isr-partitions", {"lacks one", "moving"}),
        ("under-min-isr-partitions", {"lacks two", "no leader", "leader away"}),
    ],
)
def test_only_partitions_in_trouble_are_shown(name: str, shown: set[str]) -> None:
    partitions = {
        "well": PartitionDescription(0, 1, [1, 2, 3], [1, 2, 3]),
        "lacks one": PartitionDescription(1, 1, [1, 2, 3], [1, 2]),
        "lacks two": PartitionDescription(2, 1, [1, 2, 3], [1]),
        "no leader": PartitionDescription(3, None, [1, 2, 3], [2]),
        "leader away": PartitionDescription(4, 9, [1, 2, 9], [9]),
        "moving": PartitionDescription(5, 1, [1, 2, 3], [1, 2], OngoingReassignment([1, 2, 3], [3], [1])),
    }
    matches, cluster = FILTERS[name][1], FilterContext(alive={1, 2, 3}, min_isr=2)
    assert {what for what, partition in partitions.items() if matches(partition, cluster)} == shown


def test_an_id_is_written_with_the_characters_that_urls_allow() -> None:
    assert id_of(TopicDescription("x", Uuid(-5 << 56, -1), False, [])) == "-wAAAAAAAAD__________w"


def test_a_topic_in_json_has_all_fields() -> None:
    assert as_json(TOPIC, partitions_of(TOPIC, {}), {"a": "1"}) == {
        "topic": "orders",
        "topic_id": "AAAAAAAAAAEAAAAAAAAAAg",
        "internal": False,
        "partitions": [
            {"partition": 0, "leader": 1, "replicas": [1, 2], "isr": [1, 2]},
            {"partition": 1, "leader": None, "replicas": [2, 1], "isr": [1]},
        ],
        "configs": {"a": "1"},
    }


def test_settings_come_in_the_order_of_a_java_hash_map() -> None:
    keys = """
        compression.type leader.replication.throttled.replicas remote.storage.enable message.downconversion.enable
        min.insync.replicas segment.jitter.ms local.retention.ms cleanup.policy flush.ms
        follower.replication.throttled.replicas compression.lz4.level segment.bytes
    """.split()
    of_java_17 = [0, 6, 7, 1, 8, 2, 9, 10, 3, 4, 5, 11]
    assert java_order(keys) == [keys[n] for n in of_java_17]
    assert java_order([]) == []
