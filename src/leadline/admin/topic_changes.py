"""Topics created, grown and deleted. Errors are confluent-kafka's."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from leadline.admin.connection import ClusterConnection

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

CLUSTER_DEFAULT = -1  # of partitions and of replicas


def create_topic(
    connection: ClusterConnection,
    admin: "AdminClient",
    name: str,
    partitions: int = CLUSTER_DEFAULT,
    replication_factor: int = CLUSTER_DEFAULT,
    settings: Mapping[str, str] | None = None,
) -> None:
    from confluent_kafka.cimpl import NewTopic

    new = NewTopic(name, num_partitions=partitions, replication_factor=replication_factor, config=dict(settings or {}))
    connection.wait(admin.create_topics([new], request_timeout=connection.remaining_s)[name])


def add_partitions(connection: ClusterConnection, admin: "AdminClient", name: str, total: int) -> None:
    """`total`: the new number of partitions."""
    from confluent_kafka.cimpl import NewPartitions

    futures = admin.create_partitions([NewPartitions(name, total)], request_timeout=connection.remaining_s)
    connection.wait(futures[name])


def delete_topic(connection: ClusterConnection, admin: "AdminClient", name: str) -> None:
    connection.wait(admin.delete_topics([name], request_timeout=connection.remaining_s)[name])
