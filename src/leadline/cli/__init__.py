"""What a person types: `leadline COMMAND`. One file for each group of commands.

Only the command that was asked for is loaded: a broker starts without the client library, a dump without the broker.
"""

import argparse
import atexit
import sys
from collections.abc import Sequence
from importlib import import_module

from leadline import __version__
from leadline.cli.parser import CommandParser
from leadline.cli.terminal import flush_or_drop, signal_of, terminable

COMMANDS = {
    "start": "run a broker until Ctrl-C",
    "cluster": "run some brokers and a ZooKeeper until Ctrl-C",
    "topics": "create, list, describe, alter and delete topics",
    "produce": "write records from a pipe, a file or the keyboard",
    "consume": "read records, to a pipe or a terminal",
    "groups": "who reads what and how far behind; reset where they go on",
    "transactions": "what is under way, what blocks readers, what hangs",
    "leader-election": "let other replicas lead: the preferred ones, or any",
    "reassign": "move partitions to other brokers",
    "explain": "why a partition is as it is, and what happened to it",
    "configs": "settings of topics and brokers, and where they come from",
    "dump-log": "show what is in the files of a log",
    "perf": "measure throughput and latency",
    "pipeline": "jobs on Spark: topics as tables, verified, replayed, mirrored; replicas audited",
    "demo": "see the pipeline at work: a broker, a topic, a table, a crash, a proof",
}


def main(arguments: Sequence[str] | None = None) -> int:
    atexit.register(flush_or_drop, sys.stdout, sys.stderr)  # before logging is imported, so that it runs after its end
    options = parse(sys.argv[1:] if arguments is None else arguments)
    try:
        with terminable():
            code: int = options.run(options)
    except KeyboardInterrupt as interrupt:
        code = 128 + signal_of(interrupt)
    return code


def parse(given: Sequence[str]) -> argparse.Namespace:
    """What a command line asks for. SystemExit if there is no such command or option."""
    command = next((word for word in given if not word.startswith("-")), None)
    parser = CommandParser(
        prog="leadline", description="A log broker that every Kafka client takes for Kafka, in Python."
    )
    parser.add_argument("--version", action="version", version=f"leadline {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, meaning in COMMANDS.items():
        if name == command:
            import_module(f"leadline.cli.{name.replace('-', '_')}").add_to(commands)
        else:
            commands.add_parser(name, help=meaning)
    return parser.parse_args(given)
