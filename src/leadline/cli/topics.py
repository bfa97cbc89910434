"""leadline topics: create, list, describe, alter and delete topics, of any Kafka cluster.

What `describe` prints is what kafka-topics.sh of Kafka 3.8 prints, byte for byte where nobody looks at a terminal.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from leadline.cli import COMMANDS
from leadline.cli.client import (
    Connection,
    Failure,
    Json,
    Paint,
    add_command,
    administer,
    at_least,
    key_value,
    no_topic,
    text_of,
)
from leadline.cli.configs import alter_configs

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._config import ConfigEntry
    from confluent_kafka.admin._topic import TopicDescription

INTERNAL = frozenset({"__consumer_offsets", "__transaction_state"})  # Kafka's own, by name

CREATE = """
  leadline topics create orders                              as the cluster's defaults say
  leadline topics create orders --partitions 6 --replication-factor 3
  leadline topics create users --config cleanup.policy=compact --if-not-exists
"""
LIST = """
  leadline topics list
  leadline topics list --internal                            also __consumer_offsets and __transaction_state
"""
DESCRIBE = """
  leadline topics describe                                   all of them
  leadline topics describe orders users
  leadline topics describe orders --json | jq .partitions
"""
ALTER = """
  leadline topics alter orders --partitions 12               their number can only grow
  leadline topics alter orders --config retention.ms=86400000
  leadline topics alter orders --delete-config retention.ms  back to the cluster's default
"""
DELETE = """
  leadline topics delete orders
  leadline topics delete orders users --if-exists
"""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "topics",
        prog="leadline topics",
        help=COMMANDS["topics"],
        usage="leadline topics COMMAND ...",
    )
    under = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    create = add_command(
        under, "create", _create, help="create a topic", usage="topics create NAME [options]", examples=CREATE
    )
    create.add_argument("name", metavar="NAME")
    create.add_argument("--partitions", type=at_least(1), default=-1, metavar="N")
    create.add_argument("--replication-factor", type=at_least(1), default=-1, metavar="N")
    create.add_argument("--config", type=key_value, action="append", default=[], metavar="KEY=VALUE")
    create.add_argument("--if-not-exists", action="store_true", help="one that exists is left as it is")

    listing = add_command(
        under, "list", _list, help="the names of all topics", usage="topics list [options]", examples=LIST
    )
    listing.add_argument("--internal", action="store_true", help="also Kafka's own")

    describe = add_command(
        under,
        "describe",
        _describe,
        help="partitions, leaders, replicas and settings of topics",
        usage="topics describe [NAME ...] [options]",
        examples=DESCRIBE,
    )
    describe.add_argument("names", nargs="*", metavar="NAME")
    describe.add_argument("--internal", action="store_true", help="without names: also Kafka's own")
    describe.add_argument("--json", action="store_true", help="one JSON object a topic")

    alter = add_command(
        under,
        "alter",
        _alter,
        help="more partitions, other settings",
        usage="topics alter NAME [options]",
        examples=ALTER,
    )
    alter.add_argument("name", metavar="NAME")
    alter.add_argument("--partitions", type=at_least(1), metavar="N", help="how many it shall have")
    alter.add_argument("--config", type=key_value, action="append", default=[], metavar="KEY=VALUE")
    alter.add_argument("--delete-config", action="append", default=[], metavar="KEY")

    delete = add_command(
        under,
        "delete",
        _delete,
        help="delete topics and all their records",
        usage="topics delete NAME ...",
        examples=DELETE,
    )
    delete.add_argument("names", nargs="+", metavar="NAME")
    delete.add_argument("--if-exists", action="store_true", help="one that does not exist is fine too")


def _create(options: argparse.Namespace) -> int:
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.cimpl import NewTopic

    connection, admin = administer(options)
    new = NewTopic(
        options.name,
        num_partitions=options.partitions,
        replication_factor=options.replication_factor,
        config=dict(options.config),
    )
    try:
        connection.wait(admin.create_topics([new], request_timeout=connection.timeout_s)[options.name])
    except KafkaException as error:
        if options.if_not_exists and error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return 0
        raise
    print(f"Created topic {options.name}.")
    return 0


def _list(options: argparse.Namespace) -> int:
    connection = Connection(options)
    for name in sorted(connection.metadata(connection.admin()).topics):
        if options.internal or name not in INTERNAL:
            print(name)
    return 0


def _describe(options: argparse.Namespace) -> int:
    from confluent_kafka import TopicCollection

    connection, admin = administer(options)
    known = connection.metadata(admin).topics
    names = options.names or sorted(known if options.internal else known.keys() - INTERNAL)
    for name in names:
        if name not in known:
            raise no_topic(name, known)
    if not names:
        return 0
    found = admin.describe_topics(TopicCollection(names), request_timeout=connection.timeout_s)
    settings = _settings(connection, admin, names)
    paint = Paint(sys.stdout)
    for name in names:
        topic: TopicDescription = connection.wait(found[name])
        if options.json:
            print(json.dumps(as_json(topic, settings[name])))
        else:
            print(*lines_of(topic, settings[name], paint), sep="\n")
    return 0


def _settings(connection: Connection, admin: "AdminClient", names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Of each topic: what is not Kafka's default, in the order in which Kafka's tool prints it."""
    from confluent_kafka.admin._config import ConfigResource, ConfigSource

    asked = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
    found: dict[str, dict[str, str]] = {}
    for resource, future in admin.describe_configs(asked, request_timeout=connection.timeout_s).items():
        entries: dict[str, ConfigEntry] = connection.wait(future)
        set_here = {
            name: str(entry.value)
            for name, entry in entries.items()
            if ConfigSource(entry.source) is not ConfigSource.DEFAULT_CONFIG
        }
        found[resource.name] = {name: set_here[name] for name in java_order(list(entries)) if name in set_here}
    return found


def lines_of(topic: "TopicDescription", settings: Mapping[str, str], paint: Paint) -> list[str]:
    """The lines of kafka-topics.sh --describe. librdkafka does not ask for eligible leader replicas: N/A."""
    replication = len(topic.partitions[0].replicas) if topic.partitions else 0
    head = [
        f"Topic: {paint.bold(topic.name)}",
        f"TopicId: {id_of(topic)}",
        f"PartitionCount: {len(topic.partitions)}",
        f"ReplicationFactor: {replication}",
        "Configs: " + ",".join(f"{key}={value}" for key, value in settings.items()),
    ]
    lines = ["\t".join(head)]
    for partition in topic.partitions:
        leader, replicas, isr = _nodes(partition.leader, partition.replicas, partition.isr)
        short = len(isr) < len(replicas)
        isr_text = ",".join(map(str, isr))
        row = [
            f"\tTopic: {topic.name}",
            f"Partition: {partition.id}",
            f"Leader: {paint.red('none') if leader is None else leader}",
            f"Replicas: {','.join(map(str, replicas))}",
            f"Isr: {paint.red(isr_text) if short else isr_text}",
            "Elr: N/A",
            "LastKnownElr: N/A",
        ]
        lines.append("\t".join(row))
    return lines


def as_json(topic: "TopicDescription", settings: Mapping[str, str]) -> Json:
    partitions: list[Json] = []
    for partition in topic.partitions:
        leader, replicas, isr = _nodes(partition.leader, partition.replicas, partition.isr)
        partitions.append({"partition": partition.id, "leader": leader, "replicas": replicas, "isr": isr})
    return {
        "topic": topic.name,
        "topicId": id_of(topic),
        "internal": topic.is_internal,
        "partitions": partitions,
        "configs": dict(settings),
    }


def id_of(topic: "TopicDescription") -> str:
    """As Kafka writes it: librdkafka leaves out that its base64 is the one for URLs."""
    return str(topic.topic_id).replace("+", "-").replace("/", "_")


def _nodes(
    leader: object, replicas: Sequence[object], isr: Sequence[object]
) -> tuple[int | None, list[int], list[int]]:
    """Ids alone; a partition without a leader has none, or one with a negative id."""
    ids = [[int(getattr(node, "id", -1)) for node in nodes] for nodes in (replicas, isr)]
    found = int(getattr(leader, "id", -1))
    return (found if found >= 0 else None), ids[0], ids[1]


def java_order(names: Sequence[str]) -> list[str]:
    """The order in which java.util.HashMap hands out these keys, put in in this order: that of Kafka's tools."""
    table = 16
    while len(names) > table * 3 // 4:
        table *= 2
    return sorted(names, key=lambda name: _spread(name) & (table - 1))


def _spread(name: str) -> int:
    code = 0
    for unit in memoryview(name.encode("utf-16-le")).cast("H"):
        code = (code * 31 + unit) & 0xFFFF_FFFF
    return code ^ (code >> 16)


def _alter(options: argparse.Namespace) -> int:
    from confluent_kafka.admin._config import AlterConfigOpType
    from confluent_kafka.cimpl import NewPartitions

    changes = [(key, value, AlterConfigOpType.SET) for key, value in options.config]
    changes += [(key, None, AlterConfigOpType.DELETE) for key in options.delete_config]
    if options.partitions is None and not changes:
        raise Failure("nothing to alter: give --partitions, --config or --delete-config")
    connection, admin = administer(options)
    if options.name not in (known := connection.metadata(admin).topics):
        raise no_topic(options.name, known)
    if changes:
        alter_configs(connection, admin, "topic", options.name, changes)
        print(f"Completed updating config for topic {options.name}.")
    if options.partitions is not None:
        before = len(known[options.name].partitions)
        grown = admin.create_partitions(
            [NewPartitions(options.name, options.partitions)], request_timeout=connection.timeout_s
        )
        connection.wait(grown[options.name])
        print(f"Topic {options.name} has {options.partitions} partitions now, up from {before}.")
    return 0


def _delete(options: argparse.Namespace) -> int:
    from confluent_kafka import KafkaError, KafkaException

    connection, admin = administer(options)
    for name, future in admin.delete_topics(options.names, request_timeout=connection.timeout_s).items():
        try:
            connection.wait(future)
            print(f"Deleted topic {name}.")
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise Failure(f"topic {name}: {text_of(error.args[0])}") from None
            if not options.if_exists:
                raise no_topic(name, connection.metadata(admin).topics) from None
    return 0
