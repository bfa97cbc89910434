"""leadline leader-election: who leads a partition, where that is not who should.

What it prints is what kafka-leader-election.sh of Kafka 3.8 prints, but for the words of errors.
"""

import argparse
from collections.abc import Iterable
from pathlib import Path

from leadline.cli import COMMANDS
from leadline.cli.client import Failure, add_command, administer, complain, topic_argument
from leadline.cli.offsets import named
from leadline.cli.reassignment_plan import PlanError, entries, partition_in
from leadline.cli.second_client import kafka_python_admin
from leadline.model import TopicPartition

PREFERRED, UNCLEAN = "preferred", "unclean"
DESCRIPTION = """
preferred: the first of a partition's replicas leads, if it is in sync. That is where it was before its broker was away;
           with auto.leader.rebalance.enable it happens by itself after some minutes.
unclean:   a partition without a leader gets one that was not in sync. Records that only others have are lost.
"""
EXAMPLES = """
  leadline leader-election preferred --all                   of all partitions
  leadline leader-election preferred orders users:0,3-5      of a topic, and of some partitions
  leadline leader-election unclean orders:2                  rather lose some of it than have none of it
  leadline leader-election preferred --file partitions.json  {"partitions": [{"topic": "orders", "partition": 2}]}
"""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "leader-election",
        _elect,
        help=COMMANDS["leader-election"],
        usage="leader-election {preferred,unclean} [TOPIC[:PARTITIONS] ...] [options]",
        description=DESCRIPTION.strip(),
        examples=EXAMPLES,
    )
    parser.add_argument("type", choices=(PREFERRED, UNCLEAN), metavar="TYPE", help="preferred or unclean")
    parser.add_argument("topics", nargs="*", type=topic_argument, metavar="TOPIC[:PARTITIONS]")
    parser.add_argument("--all", action="store_true", help="all partitions of the cluster")
    parser.add_argument("--file", type=Path, metavar="FILE", help="the partitions that a JSON file names, as Kafka's")


def _elect(options: argparse.Namespace) -> int:
    if sum([bool(options.topics), options.all, options.file is not None]) != 1:
        raise Failure("which partitions? Name topics, or give --all, or --file")
    connection, admin = administer(options)
    topics = [(name, None) for name in connection.metadata(admin).topics] if options.all else options.topics
    partitions = partitions_in(options.file) if options.file is not None else named(connection, admin, topics)
    with kafka_python_admin(connection) as client:
        found = client.elect(partitions, unclean=options.type == UNCLEAN)
    if found.elected:
        names = _names(found.elected)
        print(f"Successfully completed leader election ({options.type.upper()}) for partitions {names}")
    if found.not_needed and not options.all:
        print(f"Valid replica already elected for partitions {_names(found.not_needed)}")
    elif not found.elected and not found.failed:
        print("Valid replica already elected for all partitions")
    for tp, why in sorted(found.failed.items()):
        complain(f"{tp}: {why}")
    return 1 if found.failed else 0


def partitions_in(file: Path) -> list[TopicPartition]:
    try:
        found = [partition_in(entry) for entry in entries(file.read_text(), "partitions")]
    except PlanError as error:
        raise Failure(f"{file}: {error}") from None
    if twice := sorted(tp for tp in set(found) if found.count(tp) > 1):
        raise Failure(f"{file}: {_names(twice)}: named twice")
    return found


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(partitions)))
