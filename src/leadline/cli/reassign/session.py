"""The cluster as the commands of `leadline reassign` see it: assignment and sizes of replicas."""

import argparse
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from leadline.cli.connection import ClusterConnection, administer
from leadline.cli.kafka_python.admin import KafkaPythonAdmin, kafka_python_admin
from leadline.cli.kafka_python.partitions import LogDirReplica, describe_log_dirs
from leadline.cli.reassign.plan import ReplicaMove, involved
from leadline.model import BrokerId, TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


class ReassignSession(NamedTuple):
    """The two clients of a command."""

    connection: ClusterConnection
    admin: "AdminClient"
    client: KafkaPythonAdmin

    def assignment(self) -> dict[TopicPartition, list[BrokerId]]:
        """The replicas of all partitions of the cluster."""
        return {
            TopicPartition(name, number): list(partition.replicas)
            for name, topic in self.connection.metadata(self.admin).topics.items()
            for number, partition in topic.partitions.items()
        }

    def sizes(self, brokers: Collection[BrokerId]) -> dict[TopicPartition, int]:
        """The size of each partition's largest replica on these brokers."""
        self.connection.report_silent("the sizes of its replicas are not known")
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


@contextmanager
def reassign_session(options: argparse.Namespace) -> Iterator[ReassignSession]:
    connection, admin = administer(options)
    with kafka_python_admin(connection) as client:
        yield ReassignSession(connection, admin, client)
