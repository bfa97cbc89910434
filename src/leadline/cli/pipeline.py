"""leadline pipeline: jobs on Spark that read and write topics, tables and the files of logs.

A job loads Spark when it runs, not before: `--help` is quick, and needs no Java.
"""

import argparse

from leadline.cli import (
    COMMANDS,
    pipeline_audit,
    pipeline_mirror,
    pipeline_replay,
    pipeline_report,
    pipeline_table,
    pipeline_verify,
)
from leadline.cli.parser import CommandParser

JOBS = (pipeline_table, pipeline_verify, pipeline_audit, pipeline_replay, pipeline_mirror, pipeline_report)


class Forking(CommandParser):
    """A command that has commands of its own beside what it does by itself."""

    forks: "dict[str, argparse.ArgumentParser]"

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        given = list(args or ())
        fork = vars(self).get("forks", {}).get(given[0]) if given else None
        if fork is not None:
            return fork.parse_known_args(given[1:], namespace)
        return super().parse_known_args(given, namespace)  # type: ignore[no-untyped-call]


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "pipeline", prog="leadline pipeline", help=COMMANDS["pipeline"], usage="leadline pipeline JOB ..."
    )
    under = parser.add_subparsers(title="jobs", metavar="JOB", required=True, parser_class=Forking)
    for job in JOBS:
        job.add_to(under)
