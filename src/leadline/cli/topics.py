"""leadline topics: create, list, describe, alter and delete topics, of any Kafka cluster.

What `describe` prints is what kafka-topics.sh of Kafka 3.8 prints, byte for byte where nobody looks at a terminal.
"""

import argparse
import json
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from leadline.cli import COMMANDS
from leadline.cli.client import (
    ClusterConnection,
    Failure,
    Json,
    Paint,
    add_command,
    administer,
    agreed,
    at_least,
    complain,
    key_value,
    no_topic,
    text_of,
)
from leadline.cli.configs import alter_configs
from leadline.cli.reassignment_plan import OngoingReassignment
from leadline.cli.second_client import kafka_python_admin
from leadline.cli.terminal import count_text, ids_text
from leadline.config.settings import nearest
from leadline.config.topic import LogConfig
from leadline.model import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._config import ConfigEntry
    from confluent_kafka.admin._topic import TopicDescription


class PartitionDescription(NamedTuple):
    """A partition, as it is shown."""

    id: int
    leader: int | None
    replicas: list[int]
    isr: list[int]
    moves: OngoingReassignment | None = None

    @property
    def replication_factor(self) -> int:
        """Without the replicas that are only on their way to it."""
        if self.moves is None or not {*self.moves.adding, *self.moves.removing} & {*self.replicas}:
            return len(self.replicas)
        return len(self.moves.replicas) - len(self.moves.adding)


class FilterContext(NamedTuple):
    """What filters need to know besides."""

    alive: Collection[int]
    min_isr: int  # min.insync.replicas of the topic


Filter = Callable[[PartitionDescription, FilterContext], bool]

FILTERS: dict[str, tuple[str, Filter]] = {
    "under-replicated-partitions": (
        "have fewer replicas in sync than they should",
        lambda it, _: len(it.isr) < it.replication_factor,
    ),
    "unavailable-partitions": (
        "have no leader that is there",
        lambda it, cluster: it.leader is None or it.leader not in cluster.alive,
    ),
    "at-min-isr-partitions": (
        "would take no acks=all with one replica in sync less",
        lambda it, cluster: len(it.isr) == cluster.min_isr,
    ),
    "under-min-isr-partitions": (
        "take no acks=all now: fewer in sync than min.insync.replicas",
        lambda it, cluster: it.leader is None or len(it.isr) < cluster.min_isr,
    ),
}

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
  leadline topics describe --under-replicated-partitions     those that lack a copy; nothing: all is well
  leadline topics describe orders --json | jq .partitions
"""
ALTER = """
  leadline topics alter orders --partitions 12               their number can only grow
  leadline topics alter orders --config retention.ms=86400000
  leadline topics alter orders --delete-config retention.ms  back to the cluster's default
"""
DELETE = """
  leadline topics delete orders
  leadline topics delete orders users --if-exists --yes
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
    only = describe.add_argument_group("only partitions that").add_mutually_exclusive_group()
    for name, (meaning, _) in FILTERS.items():
        only.add_argument(f"--{name}", action="store_const", const=name, dest="only", help=meaning)

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
        usage="topics delete NAME ... [--yes] [options]",
        examples=DELETE,
    )
    delete.add_argument("names", nargs="+", metavar="NAME")
    delete.add_argument("--if-exists", action="store_true", help="one that does not exist is fine too")
    delete.add_argument("--yes", action="store_true", help="do not ask, on a terminal")


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
        connection.wait(admin.create_topics([new], request_timeout=connection.left_s)[options.name])
    except KafkaException as error:
        if options.if_not_exists and error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return 0
        raise _refusal(error.args[0], dict(options.config)) from None
    print(f"Created topic {options.name}.")
    return 0


def _refusal(error: "KafkaError", settings: Iterable[str]) -> Failure:
    """With the nearest name to a setting that no topic has in Kafka 3.8, unless the broker told it."""
    known, text = LogConfig.table(), text_of(error)
    guesses = filter(None, (nearest(name, known) for name in settings if name not in known))
    return Failure(text if "did you mean" in text else text + next(guesses, ""))


def _list(options: argparse.Namespace) -> int:
    connection = ClusterConnection(options)
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
    described = admin.describe_topics(TopicCollection(names), request_timeout=connection.left_s)
    topics: list[TopicDescription] = [connection.wait(described[name]) for name in names]
    settings, moving = _settings(connection, admin, names), _moving(connection, topics)
    paint, alive = Paint(sys.stdout), connection.metadata(admin).brokers
    for topic in topics:
        own = settings[topic.name]
        partitions = partitions_of(topic, moving)
        if options.only is not None:
            matches, cluster = FILTERS[options.only][1], FilterContext(alive, own.min_isr)
            partitions = [each for each in partitions if matches(each, cluster)]
        if options.json and (partitions or options.only is None):
            print(json.dumps(as_json(topic, partitions, own.changed)))
        elif not options.json:
            head = [head_of(topic, partitions, own.changed, paint)] if options.only is None else []
            for line in head + [line_of(topic.name, each, paint) for each in partitions]:
                print(line)
    connection.complain_of_silent("partitions that it leads can be neither written nor read")
    return 0


class TopicSettings(NamedTuple):
    changed: dict[str, str]  # what is not Kafka's default, in the order in which Kafka's tool prints it
    min_isr: int


def _settings(connection: ClusterConnection, admin: "AdminClient", names: Sequence[str]) -> dict[str, TopicSettings]:
    """Of each topic."""
    from confluent_kafka.admin._config import ConfigResource, ConfigSource

    asked = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
    found: dict[str, TopicSettings] = {}
    for resource, future in admin.describe_configs(asked, request_timeout=connection.left_s).items():
        entries: dict[str, ConfigEntry] = connection.wait(future)
        set_here = {
            name: str(entry.value)
            for name, entry in entries.items()
            if ConfigSource(entry.source) is not ConfigSource.DEFAULT_CONFIG
        }
        in_order = {name: set_here[name] for name in java_order(list(entries)) if name in set_here}
        found[resource.name] = TopicSettings(in_order, int(str(entries["min.insync.replicas"].value)))
    return found


def _moving(
    connection: ClusterConnection, topics: "Sequence[TopicDescription]"
) -> dict[TopicPartition, OngoingReassignment]:
    """What is on its way to other brokers. Until it is there a replica is not in sync: else nobody need be asked."""
    if all(len(part.isr) == len(part.replicas) for topic in topics for part in topic.partitions):
        return {}
    if connection.controller in (silent := connection.silent):
        text = f"{silent[connection.controller]}, which is the controller"
        complain(f"{text}: whether replicas are on their way to other brokers is not told")
        return {}
    with kafka_python_admin(connection) as client:
        return client.reassignments()


def partitions_of(
    topic: "TopicDescription", moving: Mapping[TopicPartition, OngoingReassignment]
) -> list[PartitionDescription]:
    found = []
    for part in topic.partitions:
        leader, replicas, isr = _nodes(part.leader, part.replicas, part.isr)
        found.append(
            PartitionDescription(part.id, leader, replicas, isr, moving.get(TopicPartition(topic.name, part.id)))
        )
    return sorted(found)


def head_of(
    topic: "TopicDescription", partitions: Sequence[PartitionDescription], settings: Mapping[str, str], paint: Paint
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


def line_of(topic: str, partition: PartitionDescription, paint: Paint) -> str:
    """The line of a partition. librdkafka does not ask for eligible leader replicas: N/A."""
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
        "topicId": id_of(topic),
        "internal": topic.is_internal,
        "partitions": [_partition_as_json(each) for each in partitions],
        "configs": dict(settings),
    }


def _partition_as_json(partition: PartitionDescription) -> Json:
    found: dict[str, Json] = {
        "partition": partition.id,
        "leader": partition.leader,
        "replicas": partition.replicas,
        "isr": partition.isr,
    }
    if partition.moves is not None:
        found["addingReplicas"], found["removingReplicas"] = partition.moves.adding, partition.moves.removing
    return found


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
    from confluent_kafka import KafkaException
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
        try:
            alter_configs(connection, admin, "topic", options.name, changes)
        except KafkaException as error:
            raise _refusal(error.args[0], [key for key, _, _ in changes]) from None
        print(f"Completed updating config for topic {options.name}.")
    if options.partitions is not None:
        before = len(known[options.name].partitions)
        grown = admin.create_partitions(
            [NewPartitions(options.name, options.partitions)], request_timeout=connection.left_s
        )
        connection.wait(grown[options.name])
        print(f"Topic {options.name} has {options.partitions} partitions now, up from {before}.")
    return 0


def _delete(options: argparse.Namespace) -> int:
    from confluent_kafka import KafkaError, KafkaException

    connection, admin = administer(options)
    known = connection.metadata(admin).topics
    for name in options.names:
        if name not in known and not options.if_exists:
            raise no_topic(name, known)
    names = [name for name in dict.fromkeys(options.names) if name in known]
    for name in names:
        partitions = count_text(len(known[name].partitions), "partition")
        if not options.yes and not agreed(f"Delete topic {name} with all records of its {partitions}?"):
            raise Failure(f"topic {name} was not deleted")
    if not names:
        return 0
    connection.start_again()  # a person may think for a while
    for name, future in admin.delete_topics(names, request_timeout=connection.left_s).items():
        try:
            connection.wait(future)
            print(f"Deleted topic {name}.")
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise Failure(f"topic {name}: {text_of(error.args[0])}") from None
            if not options.if_exists:
                raise no_topic(name, known) from None
    return 0
