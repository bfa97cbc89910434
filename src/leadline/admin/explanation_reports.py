"""The reports of all brokers about partitions, collected for their explanation."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from leadline.admin.connection import ClusterConnection
from leadline.admin.explanation import Explanation, PartitionReports, ReplicaStatus
from leadline.admin.kafka_python.admin import KafkaPythonAdmin
from leadline.admin.kafka_python.partitions import (
    describe_log_dirs,
    epoch_starts,
    leader_epochs,
    partition_explanations,
)
from leadline.admin.offsets import list_offsets, stable_and_end_offsets
from leadline.admin.open_transactions import BlockedPartition
from leadline.admin.transactions import TransactionsByProducer, open_transactions
from leadline.model import BrokerId, Offset, TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._metadata import PartitionMetadata


def collect_reports(
    connection: ClusterConnection, admin: "AdminClient", client: KafkaPythonAdmin, partitions: Sequence[TopicPartition]
) -> tuple[list[PartitionReports], TransactionsByProducer]:
    """Ask all brokers that have a replica of these partitions."""
    cluster = connection.metadata(admin)
    metadata = {tp: cluster.topics[tp.topic].partitions[tp.partition] for tp in partitions}
    alive = client.answering
    silent = {
        broker: "does not answer" if broker in connection.silent else "its broker is away"
        for part in metadata.values()
        for broker in part.replicas
        if broker not in alive
    }
    explanations = partition_explanations(client, _held(metadata))
    led = [tp for tp in partitions if metadata[tp].leader in alive]
    starts = list_offsets(connection, admin, led, "earliest") if led else {}
    stable, ends = stable_and_end_offsets(connection, admin, led) if led else ({}, {})
    opened, transactions = open_transactions(client, [tp for tp in led if stable[tp] < ends[tp]])
    unexplained = [tp for tp in led if not any(tp in explained for explained in explanations.values())]
    epochs = {
        tp: epoch for topic in {tp.topic for tp in unexplained} for tp, epoch in leader_epochs(client, topic).items()
    }
    statuses = _statuses(client, metadata, explanations, ends, alive)
    return [
        PartitionReports(
            tp,
            part.leader if part.leader in cluster.brokers else None,
            part.replicas,
            part.isrs,
            by_broker={id: explanations[id][tp] for id in part.replicas if tp in explanations.get(id, {})},
            silent={id: silent[id] for id in part.replicas if id in silent},
            statuses=statuses.get(tp, {}),
            epoch_starts=epoch_starts(client, tp, part.leader, epochs[tp], starts[tp]) if tp in unexplained else (),
            blocked=BlockedPartition(
                tp, stable[tp], ends[tp], tuple(transaction for transaction in opened if transaction.tp == tp)
            )
            if tp in led
            else None,
        )
        for tp, part in metadata.items()
    ], transactions


def _held(metadata: "Mapping[TopicPartition, PartitionMetadata]") -> dict[BrokerId, list[TopicPartition]]:
    """The partitions of which each broker has a replica."""
    brokers = sorted({broker for part in metadata.values() for broker in part.replicas})
    return {broker: [tp for tp, part in metadata.items() if broker in part.replicas] for broker in brokers}


def _statuses(
    client: KafkaPythonAdmin,
    metadata: "Mapping[TopicPartition, PartitionMetadata]",
    explanations: Mapping[BrokerId, Mapping[TopicPartition, Explanation]],
    ends: Mapping[TopicPartition, Offset],
    alive: Collection[BrokerId],
) -> dict[TopicPartition, dict[BrokerId, ReplicaStatus]]:
    """Size and lag of replicas on brokers without a history."""
    without_history = [
        (tp, broker)
        for tp, part in metadata.items()
        for broker in part.replicas
        if broker in alive and tp not in explanations.get(broker, {})
    ]
    held = describe_log_dirs(client, sorted({broker for _, broker in without_history})) if without_history else {}
    statuses: dict[TopicPartition, dict[BrokerId, ReplicaStatus]] = {}
    for tp, broker in without_history:
        leads, in_sync = broker == metadata[tp].leader, broker in metadata[tp].isrs
        for replica in held[broker].get(tp, ()):
            if not replica.is_future:
                statuses.setdefault(tp, {})[broker] = ReplicaStatus(
                    broker,
                    leads,
                    in_sync,
                    high_watermark=ends.get(tp) if leads else None,
                    lag=replica.lag,
                    size_bytes=replica.size_bytes,
                    state="leads" if leads else "follows",
                )
    return statuses
