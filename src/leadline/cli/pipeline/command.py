"""leadline pipeline: jobs on Spark that read and write topics, tables and log files.

A job loads Spark when it runs, so that `--help` is quick and needs no Java.
"""

import argparse

from leadline.cli import COMMANDS
from leadline.cli.pipeline import audit, mirror, replay, report, run, table, verify

JOBS = (table, run, verify, audit, replay, mirror, report)


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "pipeline", prog="leadline pipeline", help=COMMANDS["pipeline"].help, usage="leadline pipeline JOB ..."
    )
    subcommands = parser.add_subparsers(title="jobs", metavar="JOB", required=True)
    for job in JOBS:
        job.add_to(subcommands)
