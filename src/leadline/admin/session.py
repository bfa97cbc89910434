"""Two clients of a cluster, and what both are needed for: assignment and sizes of replicas."""

import argparse
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from leadline.admin.connection import ClusterConnection, administer
from leadline.admin.kafka_python.admin import KafkaPythonAdmin, connected_admin
from leadline.admin.kafka_python.partitions import LogDirReplica, describe_log_dirs
from leadline.admin.reassign.plan import ReplicaMove, involved
from leadline.model import BrokerId, TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


class ClusterSession(NamedTuple):
    """A connection with both of its admin clients."""

    connection: ClusterConnection
    admin: "AdminClient"
    client: KafkaPythonAdmin

    def close(self) -> None:
        self.client.close()

    def assignment(self) -> dict[TopicPartition, list[BrokerId]]:
        """The replicas of all partitions of the cluster."""
        return {
            TopicPartition(name, number): list(partition.replicas)
            for name, topic in self.connection.metadata(self.admin).topics.items()
            for number, partition in topic.partitions.items()
        }

    def sizes(self, brokers: Collection[BrokerId]) -> dict[TopicPartition, int]:
        """The size of each partition's largest replica on these brokers."""
        sizes: dict[TopicPartition, int] = {}
        for held in self._log_dirs(brokers).values():
            for tp, replicas in held.items():
                sizes[tp] = max(
                    [sizes.get(tp, 0), *(replica.size_bytes for replica in replicas if not replica.is_future)]
                )
        return sizes

    def copied_bytes(self, changes: Sequence[ReplicaMove]) -> int:
        """The bytes that the new replicas hold by now."""
        held = self._log_dirs(involved(changes))
        return sum(
            sum(replica.size_bytes for replica in held.get(broker, {}).get(move.tp, ()))
            for move in changes
            for broker in move.adding
        )

    def _log_dirs(self, brokers: Collection[BrokerId]) -> dict[BrokerId, dict[TopicPartition, list[LogDirReplica]]]:
        alive = self.connection.metadata(self.admin).brokers
        return describe_log_dirs(self.client, [broker for broker in brokers if broker in alive])


def cluster_session(options: argparse.Namespace) -> ClusterSession:
    """The caller closes it."""
    connection, admin = administer(options)
    return ClusterSession(connection, admin, connected_admin(connection))


@contextmanager
def open_session(options: argparse.Namespace) -> Iterator[ClusterSession]:
    session = cluster_session(options)
    try:
        yield session
    finally:
        session.close()
