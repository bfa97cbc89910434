"""leadline explain: the state of a partition and the events that led to it.

Leadline's brokers keep a history of their replicas; the command asks each broker. Apache Kafka's brokers have no
history: of them it shows leader epochs, offsets, sizes and lags.
"""

import argparse
import json
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from leadline.cli import COMMANDS
from leadline.cli.connection import ClusterConnection, administer
from leadline.cli.explain.explanation import (
    Explanation,
    PartitionReports,
    ReplicaStatus,
    as_json,
    explain_partition,
    lines_of,
)
from leadline.cli.kafka_python.admin import KafkaPythonAdmin, kafka_python_admin
from leadline.cli.kafka_python.partitions import describe_log_dirs, epoch_starts, leader_epochs, partition_explanations
from leadline.cli.offsets import list_offsets, resolve_partitions
from leadline.cli.options import add_command, add_json_option, topic_argument
from leadline.cli.terminal import Paint
from leadline.cli.transactions.command import TransactionsByProducer, open_transactions
from leadline.cli.transactions.open_transactions import BlockedPartition
from leadline.model import BrokerId, Offset, TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._metadata import PartitionMetadata

DESCRIPTION = """
Show for each partition: its leader and since when, the position of each replica, what holds the last stable offset, and
recent events: elections, changes of the in-sync replicas with their reasons, truncations. A broker keeps these events
while it runs.
"""
EXAMPLES = """
  leadline explain orders                                    all partitions of a topic
  leadline explain orders:0,2-5 users                        some partitions, and another topic
  leadline explain orders:0 --json | jq .events
"""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "explain",
        _explain,
        help=COMMANDS["explain"].help,
        usage="explain TOPIC[:PARTITIONS] ... [options]",
        description=DESCRIPTION.strip(),
        examples=EXAMPLES,
    )
    parser.add_argument("topics", nargs="+", type=topic_argument, metavar="TOPIC[:PARTITIONS]")
    add_json_option(parser, "partition")


def _explain(options: argparse.Namespace) -> int:
    connection, admin = administer(options)
    partitions = resolve_partitions(connection, admin, options.topics)
    with kafka_python_admin(connection) as client:
        reports_by_partition, transactions = collect_reports(connection, admin, client, partitions)
    paint, now_ms = Paint(sys.stdout), time.time_ns() // 1_000_000
    for n, reports in enumerate(reports_by_partition):
        explanation = explain_partition(reports)
        if options.json:
            print(json.dumps(as_json(explanation)))
        else:
            if n > 0:
                print()
            print(*lines_of(explanation, transactions, now_ms, paint), sep="\n")
    return 0


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
    starts, stable, ends = (
        list_offsets(connection, admin, led, which, committed_only=committed_only) if led else {}
        for which, committed_only in (("earliest", False), ("latest", True), ("latest", False))
    )
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
