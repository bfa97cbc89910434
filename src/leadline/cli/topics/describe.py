"""leadline topics describe: prints the lines of kafka-topics.sh, without a terminal byte for byte."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from leadline.admin.connection import ClusterConnection, administer, no_topic
from leadline.admin.formatting import ids_text
from leadline.admin.json_values import Json
from leadline.admin.kafka_python.admin import kafka_python_admin
from leadline.admin.kafka_python.partitions import list_reassignments
from leadline.admin.reassign.plan import OngoingReassignment
from leadline.admin.topic_description import (
    FILTERS,
    INTERNAL,
    FilterContext,
    PartitionDescription,
    id_of,
    partitions_of,
)
from leadline.cli.errors import print_error, report_silent
from leadline.cli.output import Results, print_results
from leadline.cli.terminal import TextStyles
from leadline.model import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._config import ConfigEntry
    from confluent_kafka.admin._topic import TopicDescription


def describe(options: argparse.Namespace) -> int:
    from confluent_kafka import TopicCollection

    connection, admin = administer(options)
    existing = connection.metadata(admin).topics
    names = options.names or sorted(existing if options.internal else existing.keys() - INTERNAL)
    for name in names:
        if name not in existing:
            raise no_topic(name, existing)
    if not names:
        print_results(options, [], lambda: None)
        return 0
    futures = admin.describe_topics(TopicCollection(names), request_timeout=connection.remaining_s)
    topics: list[TopicDescription] = [connection.wait(futures[name]) for name in names]
    settings, moving = _settings(connection, admin, names), _moving(connection, topics)
    paint, alive = TextStyles(sys.stdout), connection.metadata(admin).brokers
    with Results(options) as results:
        for topic in topics:
            topic_settings = settings[topic.name]
            partitions = partitions_of(topic, moving)
            if options.only is not None:
                matches, cluster = FILTERS[options.only][1], FilterContext(alive, topic_settings.min_isr)
                partitions = [partition for partition in partitions if matches(partition, cluster)]
            if partitions or options.only is None:
                head = [head_of(topic, partitions, topic_settings.changed, paint)] if options.only is None else []
                lines = head + [line_of(topic.name, partition, paint) for partition in partitions]
                value = as_json(topic, partitions, topic_settings.changed)
                results.add(value, partial(print, *lines, sep="\n"))
    report_silent(connection, "partitions that it leads can be neither written nor read")
    return 0


class TopicSettings(NamedTuple):
    changed: dict[str, str]  # settings that differ from Kafka's default, in the order of Kafka's tool
    min_isr: int


def _settings(connection: ClusterConnection, admin: "AdminClient", names: Sequence[str]) -> dict[str, TopicSettings]:
    """The settings of each topic."""
    from confluent_kafka.admin._config import ConfigResource, ConfigSource

    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
    settings: dict[str, TopicSettings] = {}
    for resource, future in admin.describe_configs(resources, request_timeout=connection.remaining_s).items():
        entries: dict[str, ConfigEntry] = connection.wait(future)
        set_here = {
            name: str(entry.value)
            for name, entry in entries.items()
            if ConfigSource(entry.source) is not ConfigSource.DEFAULT_CONFIG
        }
        in_order = {name: set_here[name] for name in java_order(list(entries)) if name in set_here}
        settings[resource.name] = TopicSettings(in_order, int(str(entries["min.insync.replicas"].value)))
    return settings


def _moving(
    connection: ClusterConnection, topics: "Sequence[TopicDescription]"
) -> dict[TopicPartition, OngoingReassignment]:
    """The partitions that are moving. A new replica is not in sync: if all are in sync, no request is needed."""
    if all(len(part.isr) == len(part.replicas) for topic in topics for part in topic.partitions):
        return {}
    if connection.controller in (silent := connection.silent):
        text = f"{silent[connection.controller]}, which is the controller"
        print_error(f"{text}: replicas that are moving are not marked")
        return {}
    with kafka_python_admin(connection) as client:
        return list_reassignments(client)


def head_of(
    topic: "TopicDescription",
    partitions: Sequence[PartitionDescription],
    settings: Mapping[str, str],
    paint: TextStyles,
) -> str:
    """The first line of kafka-topics.sh --describe."""
    head = [
        f"Topic: {paint.bold(topic.name)}",
        f"TopicId: {id_of(topic)}",
        f"PartitionCount: {len(partitions)}",
        f"ReplicationFactor: {partitions[0].replication_factor if partitions else 0}",
        "Configs: " + ",".join(f"{key}={value}" for key, value in settings.items()),
    ]
    return "\t".join(head)


def line_of(topic: str, partition: PartitionDescription, paint: TextStyles) -> str:
    """The line of a partition. librdkafka does not request eligible leader replicas: N/A."""
    isr = ids_text(partition.isr)
    row = [
        f"\tTopic: {topic}",
        f"Partition: {partition.id}",
        f"Leader: {paint.red('none') if partition.leader is None else partition.leader}",
        f"Replicas: {ids_text(partition.replicas)}",
        f"Isr: {paint.red(isr) if len(partition.isr) < partition.replication_factor else isr}",
    ]
    if partition.moves is not None:
        row.append(f"Adding Replicas: {ids_text(partition.moves.adding)}")
        row.append(f"Removing Replicas: {ids_text(partition.moves.removing)}")
    return "\t".join([*row, "Elr: N/A", "LastKnownElr: N/A"])


def as_json(topic: "TopicDescription", partitions: Sequence[PartitionDescription], settings: Mapping[str, str]) -> Json:
    return {
        "topic": topic.name,
        "topic_id": id_of(topic),
        "internal": topic.is_internal,
        "partitions": [_partition_as_json(partition) for partition in partitions],
        "configs": dict(settings),
    }


def _partition_as_json(partition: PartitionDescription) -> Json:
    members: dict[str, Json] = {
        "partition": partition.id,
        "leader": partition.leader,
        "replicas": partition.replicas,
        "isr": partition.isr,
    }
    if partition.moves is not None:
        members["adding_replicas"], members["removing_replicas"] = partition.moves.adding, partition.moves.removing
    return members


def java_order(names: Sequence[str]) -> list[str]:
    """The order in which java.util.HashMap iterates these keys: the order of Kafka's tools."""
    table = 16
    while len(names) > table * 3 // 4:
        table *= 2
    return sorted(names, key=lambda name: _spread(name) & (table - 1))


def _spread(name: str) -> int:
    code = 0
    for unit in memoryview(name.encode("utf-16-le")).cast("H"):
        code = (code * 31 + unit) & 0xFFFF_FFFF
    return code ^ (code >> 16)
