"""leadline topics: create, list, describe, alter and delete topics, of any Kafka cluster.

Without a terminal, `describe` prints exactly what kafka-topics.sh of Kafka 3.8 prints.
"""

import argparse
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from leadline.admin.connection import ClusterConnection, administer, no_topic
from leadline.admin.errors import Failure, client_error_text
from leadline.admin.formatting import count_text
from leadline.admin.json_values import Json
from leadline.admin.settings import alter_configs
from leadline.admin.topic_changes import CLUSTER_DEFAULT, add_partitions, create_topic, delete_topic
from leadline.admin.topic_description import FILTERS, INTERNAL
from leadline.cli import COMMANDS
from leadline.cli.options import add_command, add_subcommands, add_yes_option, at_least, key_value
from leadline.cli.output import Results, add_output_option, is_text, print_result
from leadline.cli.terminal import confirmed
from leadline.cli.topics.describe import describe
from leadline.config.settings import nearest
from leadline.config.topic import LogConfig

if TYPE_CHECKING:
    from confluent_kafka import KafkaError


CREATE = """
  leadline topics create orders                              with the cluster's defaults
  leadline topics create orders --partitions 6 --replication-factor 3
  leadline topics create users --config cleanup.policy=compact --if-not-exists
"""
LIST = """
  leadline topics list
  leadline topics list --internal                            include __consumer_offsets and __transaction_state
"""
DESCRIBE = """
  leadline topics describe                                   all topics
  leadline topics describe orders users
  leadline topics describe --under-replicated-partitions     only partitions that lack a replica
  leadline topics describe orders --json | jq .partitions
"""
ALTER = """
  leadline topics alter orders --partitions 12               the number can only grow
  leadline topics alter orders --config retention.ms=86400000
  leadline topics alter orders --delete-config retention.ms  use the cluster's default again
"""
DELETE = """
  leadline topics delete orders
  leadline topics delete orders users --if-exists --yes
"""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    subcommands = add_subcommands(commands, "topics", COMMANDS["topics"].help)

    create = add_command(
        subcommands, "create", _create, help="create a topic", usage="topics create NAME [options]", examples=CREATE
    )
    create.add_argument("name", metavar="NAME")
    create.add_argument("--partitions", type=at_least(1), default=CLUSTER_DEFAULT, metavar="N")
    create.add_argument("--replication-factor", type=at_least(1), default=CLUSTER_DEFAULT, metavar="N")
    create.add_argument("--config", type=key_value, action="append", default=[], metavar="KEY=VALUE")
    create.add_argument("--if-not-exists", action="store_true", help="do nothing if the topic exists")
    add_output_option(create)

    listing = add_command(
        subcommands, "list", _list, help="list the names of all topics", usage="topics list [options]", examples=LIST
    )
    listing.add_argument("--internal", action="store_true", help="include internal topics")
    add_output_option(listing, "topic")

    describing = add_command(
        subcommands,
        "describe",
        describe,
        help="show partitions, leaders, replicas and settings of topics",
        usage="topics describe [NAME ...] [options]",
        examples=DESCRIBE,
    )
    describing.add_argument("names", nargs="*", metavar="NAME")
    describing.add_argument("--internal", action="store_true", help="include internal topics, if no NAME is given")
    add_output_option(describing, "topic")
    only = describing.add_argument_group("only partitions that").add_mutually_exclusive_group()
    for name, (meaning, _) in FILTERS.items():
        only.add_argument(f"--{name}", action="store_const", const=name, dest="only", help=meaning)

    alter = add_command(
        subcommands,
        "alter",
        _alter,
        help="add partitions, change settings",
        usage="topics alter NAME [options]",
        examples=ALTER,
    )
    alter.add_argument("name", metavar="NAME")
    alter.add_argument("--partitions", type=at_least(1), metavar="N", help="new number of partitions")
    alter.add_argument("--config", type=key_value, action="append", default=[], metavar="KEY=VALUE")
    alter.add_argument("--delete-config", action="append", default=[], metavar="KEY")
    add_output_option(alter)

    delete = add_command(
        subcommands,
        "delete",
        _delete,
        help="delete topics and all their records",
        usage="topics delete NAME ... [--yes] [options]",
        examples=DELETE,
    )
    delete.add_argument("names", nargs="+", metavar="NAME")
    delete.add_argument("--if-exists", action="store_true", help="do nothing if the topic does not exist")
    add_yes_option(delete)
    add_output_option(delete, "topic")


def _create(options: argparse.Namespace) -> int:
    from confluent_kafka import KafkaError, KafkaException

    connection, admin = administer(options)
    counts = options.partitions, options.replication_factor
    try:
        create_topic(connection, admin, options.name, *counts, dict(options.config))
    except KafkaException as error:
        if options.if_not_exists and error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            print_result(options, {"topic": options.name, "created": False}, lambda: None)
            return 0
        raise _refusal(error.args[0], dict(options.config)) from None
    print_result(options, {"topic": options.name, "created": True}, f"Created topic {options.name}.")
    return 0


def _refusal(error: "KafkaError", settings: Iterable[str]) -> Failure:
    """The error of a broker. For an unknown setting it has the nearest name that Kafka 3.8 has."""
    settings_of_kafka, text = LogConfig.table(), client_error_text(error)
    guesses = filter(None, (nearest(name, settings_of_kafka) for name in settings if name not in settings_of_kafka))
    return Failure(text if "did you mean" in text else text + next(guesses, ""))


def _list(options: argparse.Namespace) -> int:
    connection = ClusterConnection(options)
    with Results(options) as results:
        for name in sorted(connection.metadata(connection.admin()).topics):
            if options.internal or name not in INTERNAL:
                results.add({"topic": name, "internal": name in INTERNAL}, partial(print, name))
    return 0


def _alter(options: argparse.Namespace) -> int:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin._config import AlterConfigOpType

    changes = [(key, value, AlterConfigOpType.SET) for key, value in options.config]
    changes += [(key, None, AlterConfigOpType.DELETE) for key in options.delete_config]
    if options.partitions is None and not changes:
        raise Failure("nothing to alter: give --partitions, --config or --delete-config")
    connection, admin = administer(options)
    if options.name not in (topics := connection.metadata(admin).topics):
        raise no_topic(options.name, topics)
    if changes:
        try:
            alter_configs(connection, admin, "topic", options.name, changes)
        except KafkaException as error:
            raise _refusal(error.args[0], [key for key, _, _ in changes]) from None
        if is_text(options):
            print(f"Completed updating config for topic {options.name}.")
    count = len(topics[options.name].partitions)
    lines: list[str] = []
    if options.partitions is not None:
        add_partitions(connection, admin, options.name, options.partitions)
        lines.append(f"Topic {options.name} now has {options.partitions} partitions, up from {count}.")
    altered: dict[str, Json] = {
        "topic": options.name,
        "configs": {key: value for key, value, _ in changes},
        "partitions": options.partitions or count,
        "partitions_before": count,
    }
    print_result(options, altered, lambda: print(*lines, sep="\n") if lines else None)
    return 0


def _delete(options: argparse.Namespace) -> int:
    from confluent_kafka import KafkaError, KafkaException

    connection, admin = administer(options)
    topics = connection.metadata(admin).topics
    for name in options.names:
        if name not in topics and not options.if_exists:
            raise no_topic(name, topics)
    names = [name for name in dict.fromkeys(options.names) if name in topics]
    for name in names:
        partitions = count_text(len(topics[name].partitions), "partition")
        if not options.yes and not confirmed(f"Delete topic {name} with all records of its {partitions}?"):
            raise Failure(f"topic {name} was not deleted")
    connection.restart_timeout()  # the answer may have taken a while
    with Results(options) as results:
        for name in dict.fromkeys(options.names):
            if name not in names:
                results.add({"topic": name, "deleted": False})
                continue
            try:
                delete_topic(connection, admin, name)
                results.add({"topic": name, "deleted": True}, partial(print, f"Deleted topic {name}."))
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise Failure(f"topic {name}: {client_error_text(error.args[0])}") from None
                if not options.if_exists:
                    raise no_topic(name, topics) from None
                results.add({"topic": name, "deleted": False})
    return 0
