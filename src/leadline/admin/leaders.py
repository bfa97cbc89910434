"""Partitions whose leader answers, and the reason why others have none."""

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from leadline.admin.connection import ClusterConnection
from leadline.admin.formatting import ids_text
from leadline.model import BrokerId, TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._metadata import ClusterMetadata, PartitionMetadata


def partitions_with_leader(
    connection: ClusterConnection, admin: "AdminClient", partitions: Iterable[TopicPartition]
) -> list[TopicPartition]:
    """The partitions whose leader answers."""
    topics = connection.metadata(admin).topics
    live = answering(connection)
    return [
        tp
        for tp in sorted(partitions)
        if tp.topic in topics
        and tp.partition in topics[tp.topic].partitions
        and topics[tp.topic].partitions[tp.partition].leader in live
    ]


def answering(connection: ClusterConnection) -> Collection[BrokerId]:
    """The brokers of the latest metadata that answer: one that was killed may still be registered."""
    return connection.brokers.keys() - connection.silent.keys()


def leaderless(cluster: "ClusterMetadata", topic: str, partitions: Collection[int]) -> list[int]:
    metadata = cluster.topics[topic].partitions
    return [number for number in sorted(partitions) if number in metadata and metadata[number].leader < 0]


def leader_problem(
    connection: ClusterConnection, cluster: "ClusterMetadata", topic: str, partitions: Collection[int]
) -> str:
    """The error about the leaders of these partitions; empty if there is none."""
    metadata = cluster.topics[topic].partitions
    if without_leader := leaderless(cluster, topic, partitions):
        return no_leader_text(topic, without_leader, metadata, answering(connection))
    for broker, text in connection.silent.items():
        if led := [number for number in sorted(partitions) if number in metadata and metadata[number].leader == broker]:
            return f"{text}, and leads {topic}:{ids_text(led)}"
    return ""


def no_leader_text(
    topic: str,
    without_leader: Collection[int],
    metadata: "Mapping[int, PartitionMetadata]",
    live: Collection[BrokerId],
) -> str:
    """Which partitions have no leader, and which brokers could lead them."""
    brokers = sorted(
        {replica for number in without_leader for replica in metadata[number].isrs or metadata[number].replicas}
    )
    names, is_one = ids_text(brokers), len(brokers) == 1
    partitions = f"{topic}:{ids_text(without_leader)} has no leader"
    if set(brokers) <= set(live):
        others = f"broker {names} runs: its log says why" if is_one else f"brokers {names} run: their logs say why"
        return f"{partitions} though {others}"
    return f"{partitions} while {f'broker {names} is' if is_one else f'brokers {names} are'} away"
