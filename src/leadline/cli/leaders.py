"""Partitions whose leader answers, and the reason why others have none."""

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from leadline.cli.connection import ClusterConnection
from leadline.cli.formatting import ids_text
from leadline.model import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._metadata import ClusterMetadata, PartitionMetadata


def partitions_with_leader(
    connection: ClusterConnection, admin: "AdminClient", partitions: Iterable[TopicPartition]
) -> list[TopicPartition]:
    """The partitions whose leader answers."""
    topics = connection.metadata(admin).topics
    answering = connection.brokers.keys() - connection.silent.keys()
    return [
        tp
        for tp in sorted(partitions)
        if tp.topic in topics
        and tp.partition in topics[tp.topic].partitions
        and topics[tp.topic].partitions[tp.partition].leader in answering
    ]


def leaderless(cluster: "ClusterMetadata", topic: str, partitions: Collection[int]) -> list[int]:
    metadata = cluster.topics[topic].partitions
    return [number for number in sorted(partitions) if number in metadata and metadata[number].leader < 0]


def leader_problem(
    connection: ClusterConnection, cluster: "ClusterMetadata", topic: str, partitions: Collection[int]
) -> str:
    """What is wrong with the leaders of these partitions; empty if nothing is."""
    metadata = cluster.topics[topic].partitions
    if without_leader := leaderless(cluster, topic, partitions):
        return no_leader_text(topic, without_leader, metadata)
    for broker, text in connection.silent.items():
        if led := [number for number in sorted(partitions) if number in metadata and metadata[number].leader == broker]:
            return f"{text}, and leads {topic}:{ids_text(led)}"
    return ""


def no_leader_text(topic: str, without_leader: Collection[int], metadata: "Mapping[int, PartitionMetadata]") -> str:
    """Which partitions have no leader, and which brokers could lead them."""
    brokers = sorted(
        {replica for number in without_leader for replica in metadata[number].isrs or metadata[number].replicas}
    )
    noun = f"brokers {ids_text(brokers)} are" if len(brokers) > 1 else f"broker {ids_text(brokers)} is"
    return f"{topic}:{ids_text(without_leader)} has no leader while {noun} away"
