"""The command line: `leadline COMMAND`. Each command has a module or a folder of its own.

Only the module of the called command is imported. A broker starts without the client library, and a dump without the
broker.
"""

import argparse
import atexit
import shlex
import sys
from collections.abc import Sequence, Set
from importlib import import_module
from typing import NamedTuple, NoReturn

from leadline import __version__
from leadline.cli.output import ErrorFormat, wants_json
from leadline.cli.parser import CommandParser
from leadline.cli.signals import signal_of, terminable
from leadline.cli.terminal import flush_or_drop


class Command(NamedTuple):
    """A command of `leadline`."""

    module: str  # its function `add_to` adds the parser of the command
    help: str


COMMANDS = {
    "start": Command("leadline.cli.start.command", "run a broker until Ctrl-C"),
    "cluster": Command("leadline.cli.cluster.command", "run a ZooKeeper and several brokers until Ctrl-C"),
    "console": Command("leadline.cli.console", "serve web pages about a cluster until Ctrl-C"),
    "topics": Command("leadline.cli.topics.command", "create, list, describe, alter and delete topics"),
    "produce": Command("leadline.cli.produce.command", "write records from a pipe, a file or the keyboard"),
    "consume": Command("leadline.cli.consume.command", "read records, to a pipe or a terminal"),
    "groups": Command("leadline.cli.groups.command", "list, describe, reset and delete groups; show their lag"),
    "transactions": Command(
        "leadline.cli.transactions.command", "list transactions, find what blocks readers, abort hanging ones"
    ),
    "leader-election": Command(
        "leadline.cli.leader_election", "elect other leaders: preferred replicas, or any replica"
    ),
    "reassign": Command("leadline.cli.reassign.command", "move partitions to other brokers"),
    "explain": Command("leadline.cli.explain.command", "show the state of a partition and its recent history"),
    "configs": Command("leadline.cli.configs", "show and change the settings of topics and brokers"),
    "log-levels": Command("leadline.cli.log_levels", "show and change how much the loggers of brokers write"),
    "acls": Command("leadline.cli.acls.command", "list, add and remove ACLs; explain who may do what"),
    "users": Command("leadline.cli.users", "list, add and remove users who log in by SCRAM"),
    "quotas": Command("leadline.cli.quotas", "list, set and remove limits of users, client ids and addresses"),
    "tokens": Command("leadline.cli.tokens", "create, renew, expire and list delegation tokens"),
    "security": Command("leadline.cli.security.command", "write certificates, a user and settings for development"),
    "migrate": Command("leadline.cli.migrate.command", "list what prevents replacing Apache Kafka's brokers"),
    "dump-log": Command("leadline.cli.dump_log.command", "print the contents of log files"),
    "sim": Command("leadline.cli.sim", "simulate clusters with faults in one process, and check that nothing is lost"),
    "perf": Command("leadline.cli.perf", "measure throughput and latency"),
    "pipeline": Command(
        "leadline.cli.pipeline.command",
        "run jobs on Spark: tables from topics, audits, mirrors, reports",
    ),
    "demo": Command("leadline.cli.demo.command", "show the pipeline: a broker, a topic, a table, a crash, a proof"),
    "completion": Command("leadline.cli.completion.command", "print the completion script of a shell"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    # Registered before logging is imported: then it runs after logging's own exit handler.
    atexit.register(flush_or_drop, sys.stdout, sys.stderr)
    words = sys.argv[1:] if arguments is None else arguments
    ErrorFormat.as_json = wants_json(words)
    try:
        options = parse(words)
        with terminable():
            code: int = options.run(options)
    except KeyboardInterrupt as interrupt:
        code = 128 + signal_of(interrupt)
    finally:
        ErrorFormat.as_json = False
    return code


def _own_form(words: Sequence[str]) -> Sequence[str]:
    """A call in the form of Kafka's own tools, in ours. SystemExit if it has none."""
    if not words or (not any(word.startswith("-") for word in words[1:]) and words[0] in COMMANDS):
        return words
    from leadline.cli.kafka_form import KafkaFormRefused
    from leadline.cli.kafka_tools import translated

    try:
        own = translated(words)
    except KafkaFormRefused as refused:
        CommandParser(prog="leadline", add_help=False, usage=argparse.SUPPRESS).refuse(str(refused))
    if own is None:
        return words
    if sys.stderr.isatty() and not ErrorFormat.as_json:
        print(f"leadline: here this is: leadline {shlex.join(own)}", file=sys.stderr)
    return list(own)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of a command line. SystemExit if there is no such command or option."""
    arguments = _own_form(arguments)
    command = next((word for word in arguments if not word.startswith("-")), None)
    return _parser({command}).parse_args(arguments)


def whole_parser() -> CommandParser:
    """The parser with the options of all commands."""
    return _parser(COMMANDS.keys())


def _parser(loaded: Set[str | None]) -> CommandParser:
    """The parser of all commands. Those that are loaded have their options."""
    parser = CommandParser(
        prog="leadline", description="A log broker in Python that Kafka clients take for Apache Kafka."
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version, and whether it is compiled")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, (module, help) in COMMANDS.items():
        if name in loaded:
            import_module(module).add_to(commands)
        else:
            commands.add_parser(name, help=help)
    return parser


class _Version(argparse.Action):
    """Only this option looks which implementation runs."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        walker = import_module("leadline.records.walker")
        print(f"leadline {__version__} ({walker.DESCRIPTION})")
        parser.exit()
