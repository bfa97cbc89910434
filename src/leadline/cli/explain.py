"""leadline explain: why a partition is as it is.

Brokers of Leadline remember what happened to their replicas, and each is asked. Of a cluster of Apache Kafka's brokers
it tells what those tell: leader epochs, offsets, sizes and lags.
"""

import argparse
import json
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from leadline.cli import COMMANDS
from leadline.cli.client import ClusterConnection, Paint, add_command, administer, topic_argument
from leadline.cli.explanation import Explanation, PartitionReports, ReplicaStatus, as_json, explained, lines_of
from leadline.cli.offsets import listed, named
from leadline.cli.open_transactions import BlockedPartition
from leadline.cli.second_client import KafkaPythonAdmin, kafka_python_admin
from leadline.cli.transactions import Known, open_and_known
from leadline.model import BrokerId, Offset, TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._metadata import PartitionMetadata

DESCRIPTION = """
Tells of each partition who leads it and since when, where each replica is, what holds the last stable offset, and what
happened lately: elections, why the in-sync replicas changed, what was truncated. A broker remembers it while it runs.
"""
EXAMPLES = """
  leadline explain orders                                    all partitions of a topic
  leadline explain orders:0,2-5 users                        some, and all of another
  leadline explain orders:0 --json | jq .events
"""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "explain",
        _explain,
        help=COMMANDS["explain"],
        usage="explain TOPIC[:PARTITIONS] ... [options]",
        description=DESCRIPTION.strip(),
        examples=EXAMPLES,
    )
    parser.add_argument("topics", nargs="+", type=topic_argument, metavar="TOPIC[:PARTITIONS]")
    parser.add_argument("--json", action="store_true", help="one JSON object a partition")


def _explain(options: argparse.Namespace) -> int:
    connection, admin = administer(options)
    partitions = named(connection, admin, options.topics)
    with kafka_python_admin(connection) as client:
        seen, known = look(connection, admin, client, partitions)
    paint, now_ms = Paint(sys.stdout), time.time_ns() // 1_000_000
    for n, each in enumerate(seen):
        found = explained(each)
        if options.json:
            print(json.dumps(as_json(found)))
        else:
            print(end="\n" * bool(n))
            print(*lines_of(found, known, now_ms, paint), sep="\n")
    return 0


def look(
    connection: ClusterConnection, admin: "AdminClient", client: KafkaPythonAdmin, partitions: Sequence[TopicPartition]
) -> tuple[list[PartitionReports], Known]:
    """Ask all brokers that hold a replica of some partitions."""
    cluster = connection.metadata(admin)
    about = {tp: cluster.topics[tp.topic].partitions[tp.partition] for tp in partitions}
    alive = client.answering
    silent = {
        broker: "does not answer" if broker in connection.silent else "its broker is away"
        for part in about.values()
        for broker in part.replicas
        if broker not in alive
    }
    told = client.explanations(_held(about))
    led = [tp for tp in partitions if about[tp].leader in alive]
    starts, stable, ends = (
        listed(connection, admin, led, which, committed_only=committed_only) if led else {}
        for which, committed_only in (("earliest", False), ("latest", True), ("latest", False))
    )
    opened, known = open_and_known(client, [tp for tp in led if stable[tp] < ends[tp]])
    untold = [tp for tp in led if not any(tp in found for found in told.values())]
    epochs = {tp: epoch for topic in {tp.topic for tp in untold} for tp, epoch in client.leader_epochs(topic).items()}
    copies = _copies(client, about, told, ends, alive)
    return [
        PartitionReports(
            tp,
            part.leader if part.leader in cluster.brokers else None,
            part.replicas,
            part.isrs,
            told={id: told[id][tp] for id in part.replicas if tp in told.get(id, {})},
            silent={id: silent[id] for id in part.replicas if id in silent},
            copies=copies.get(tp, {}),
            epoch_starts=client.epoch_starts(tp, part.leader, epochs[tp], starts[tp]) if tp in untold else (),
            blocked=BlockedPartition(tp, stable[tp], ends[tp], tuple(each for each in opened if each.tp == tp))
            if tp in led
            else None,
        )
        for tp, part in about.items()
    ], known


def _held(about: "Mapping[TopicPartition, PartitionMetadata]") -> dict[BrokerId, list[TopicPartition]]:
    """Of which partitions each broker has a replica."""
    brokers = sorted({broker for part in about.values() for broker in part.replicas})
    return {broker: [tp for tp, part in about.items() if broker in part.replicas] for broker in brokers}


def _copies(
    client: KafkaPythonAdmin,
    about: "Mapping[TopicPartition, PartitionMetadata]",
    told: Mapping[BrokerId, Mapping[TopicPartition, Explanation]],
    ends: Mapping[TopicPartition, Offset],
    alive: Collection[BrokerId],
) -> dict[TopicPartition, dict[BrokerId, ReplicaStatus]]:
    """What brokers that keep no history tell of their replicas: size, and how far they are behind."""
    quiet = [
        (tp, broker)
        for tp, part in about.items()
        for broker in part.replicas
        if broker in alive and tp not in told.get(broker, {})
    ]
    held = client.on_disk(sorted({broker for _, broker in quiet})) if quiet else {}
    found: dict[TopicPartition, dict[BrokerId, ReplicaStatus]] = {}
    for tp, broker in quiet:
        leads, in_sync = broker == about[tp].leader, broker in about[tp].isrs
        for each in held[broker].get(tp, ()):
            if not each.is_future:
                found.setdefault(tp, {})[broker] = ReplicaStatus(
                    broker,
                    leads,
                    in_sync,
                    high_watermark=ends.get(tp) if leads else None,
                    lag=each.lag,
                    size_bytes=each.size_bytes,
                    state="leads" if leads else "follows",
                )
    return found
