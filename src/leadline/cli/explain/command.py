"""leadline explain: the state of a partition and the events that led to it.

Leadline's brokers keep a history of their replicas; the command asks each broker. Apache Kafka's brokers have no
history: of them it shows leader epochs, offsets, sizes and lags.
"""

import argparse
import sys
import time
from functools import partial

from leadline.admin.connection import administer
from leadline.admin.explanation import (
    as_json,
    explain_partition,
)
from leadline.admin.explanation_reports import collect_reports
from leadline.admin.kafka_python.admin import kafka_python_admin
from leadline.admin.offsets import resolve_partitions
from leadline.cli import COMMANDS
from leadline.cli.explain.explanation_text import lines_of
from leadline.cli.options import add_command, topic_argument
from leadline.cli.output import Results, add_output_option
from leadline.cli.terminal import TextStyles

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
    add_output_option(parser, "partition")


def _explain(options: argparse.Namespace) -> int:
    connection, admin = administer(options)
    partitions = resolve_partitions(connection, admin, options.topics)
    with kafka_python_admin(connection) as client:
        reports_by_partition, transactions = collect_reports(connection, admin, client, partitions)
    paint, now_ms = TextStyles(sys.stdout), time.time_ns() // 1_000_000
    with Results(options) as results:
        for n, reports in enumerate(reports_by_partition):
            explanation = explain_partition(reports)
            lines = [*([""] if n > 0 else []), *lines_of(explanation, transactions, now_ms, paint)]
            results.add(as_json(explanation), partial(print, *lines, sep="\n"))
    return 0
