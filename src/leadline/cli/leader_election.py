"""leadline leader-election: elects preferred replicas, or any replica of partitions without a leader.

The output is that of kafka-leader-election.sh of Kafka 3.8, except for the wording of errors.
"""

import argparse
from collections.abc import Iterable
from pathlib import Path

from leadline.admin.connection import administer
from leadline.admin.errors import Failure
from leadline.admin.json_values import Json
from leadline.admin.kafka_python.admin import kafka_python_admin
from leadline.admin.kafka_python.partitions import elect_leaders
from leadline.admin.offsets import resolve_partitions
from leadline.admin.reassign.plan_file import PlanError, entries, partition_in
from leadline.cli import COMMANDS
from leadline.cli.errors import print_error
from leadline.cli.options import add_command, topic_argument
from leadline.cli.output import add_output_option, print_results
from leadline.cli.text_files import read_text
from leadline.model import TopicPartition

PREFERRED, UNCLEAN = "preferred", "unclean"
DESCRIPTION = """
preferred: elect the first replica of each partition, if it is in sync. It led before its broker was away. With
           auto.leader.rebalance.enable the controller does this itself after some minutes.
unclean:   elect a replica that is not in sync for each partition without a leader. Records that only other replicas
           have are lost.
"""
EXAMPLES = """
  leadline leader-election preferred --all                   all partitions
  leadline leader-election preferred orders users:0,3-5      a topic, and some partitions of another
  leadline leader-election unclean orders:2                  accept the loss of records
  leadline leader-election preferred --file partitions.json  {"partitions": [{"topic": "orders", "partition": 2}]}
"""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "leader-election",
        _elect,
        help=COMMANDS["leader-election"].help,
        usage="leader-election {preferred,unclean} [TOPIC[:PARTITIONS] ...] [options]",
        description=DESCRIPTION.strip(),
        examples=EXAMPLES,
    )
    parser.add_argument("type", choices=(PREFERRED, UNCLEAN), metavar="TYPE", help="preferred or unclean")
    parser.add_argument("topics", nargs="*", type=topic_argument, metavar="TOPIC[:PARTITIONS]")
    parser.add_argument("--all", action="store_true", help="all partitions of the cluster")
    add_output_option(parser, "partition")
    parser.add_argument(
        "--file", type=Path, metavar="FILE", help="JSON file that names the partitions, in Kafka's format"
    )


def _elect(options: argparse.Namespace) -> int:
    if sum([bool(options.topics), options.all, options.file is not None]) != 1:
        raise Failure("exactly one is needed: names of topics, --all or --file")
    connection, admin = administer(options)
    topics = [(name, None) for name in connection.metadata(admin).topics] if options.all else options.topics
    partitions = (
        partitions_in(options.file) if options.file is not None else resolve_partitions(connection, admin, topics)
    )
    with kafka_python_admin(connection) as client:
        result = elect_leaders(client, partitions, unclean=options.type == UNCLEAN)

    def print_elected() -> None:
        if result.elected:
            names = _names(result.elected)
            print(f"Successfully completed leader election ({options.type.upper()}) for partitions {names}")
        if result.not_needed and not options.all:
            print(f"Valid replica already elected for partitions {_names(result.not_needed)}")
        elif not result.elected and not result.failed:
            print("Valid replica already elected for all partitions")

    values: list[Json] = [
        {"topic": tp.topic, "partition": tp.partition, "elected": tp in result.elected, "error": result.failed.get(tp)}
        for tp in sorted({*result.elected, *result.not_needed, *result.failed})
    ]
    print_results(options, values, print_elected)
    for tp, why in sorted(result.failed.items()):
        print_error(f"{tp}: {why}")
    return 1 if result.failed else 0


def partitions_in(file: Path) -> list[TopicPartition]:
    try:
        partitions = [partition_in(entry) for entry in entries(read_text(file), "partitions")]
    except PlanError as error:
        raise Failure(f"{file}: {error}") from None
    if duplicates := sorted(tp for tp in set(partitions) if partitions.count(tp) > 1):
        raise Failure(f"{file}: {_names(duplicates)}: named twice")
    return partitions


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(partitions)))
