"""Errors of commands: one line on stderr, and exit code 1. With `--output json` the line is a JSON object."""

import argparse
import functools
import os
import re
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from leadline.admin.connection import ClusterConnection
from leadline.admin.errors import Failure, client_error_text, client_errors
from leadline.admin.leaders import answering, leaderless, no_leader_text
from leadline.cli.output import ErrorFormat, json_line
from leadline.cli.terminal import TextStyles

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

WARNING = "warning: "
NEARLY = 0.9  # of the time limit: clients round
_NO_ANSWER = re.compile(r"timed.out|timeout|not answer|no answer|cannot reach|cannot be read to its end", re.I)
Run = Callable[[argparse.Namespace], int]


def reports_errors(run: Run, error_code: int = 1) -> Run:
    """Errors become one line on stderr and an exit code. A closed pipe ends the command without an error."""

    @functools.wraps(run)
    def guarded(options: argparse.Namespace) -> int:
        began_s = time.monotonic()
        try:
            code = run(options)
            sys.stdout.flush()
            return code
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # flushed again at exit
            return 0
        except Failure as error:
            text = str(error)
        except OSError as error:
            text = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        except client_errors() as error:  # imported only after an error
            text = client_error_text(error.args[0])
        limit_s = getattr(options, "timeout", None)
        is_over = limit_s is not None and time.monotonic() - began_s >= limit_s * NEARLY
        print_error(with_time_limit(text, limit_s) if is_over and limit_s is not None else text)
        return error_code

    return guarded


def with_time_limit(text: str, limit_s: float) -> str:
    """An error after the time limit of a command. If it is about an answer that did not come, it names the limit."""
    if "--timeout" in text or _NO_ANSWER.search(text) is None:
        return text
    return f"{text}; gave up after {limit_s:g} s (--timeout)"


def print_error(text: str) -> None:
    if ErrorFormat.as_json:
        is_warning = text.startswith(WARNING)
        print(json_line({"warning": text[len(WARNING) :]} if is_warning else {"error": text}), file=sys.stderr)
        return
    paint = TextStyles(sys.stderr)
    over = "\r\033[K" if paint.on else ""  # replaces a status line
    print(f"{over}{paint.red('leadline:')} {text}", file=sys.stderr)


def report_incomplete(
    connection: ClusterConnection, client: "AdminClient", silent: str, topic: str, leaderless_text: str
) -> int:
    """As `report_silent`, and a line if the internal topic that holds the rows has partitions without a leader."""
    code, cluster = report_silent(connection, silent), connection.metadata(client)
    partitions = cluster.topics[topic].partitions if topic in cluster.topics else {}
    without_leader = leaderless(cluster, topic, partitions) if partitions else []
    if not without_leader:
        return code
    print_error(f"{no_leader_text(topic, without_leader, partitions, answering(connection))}; {leaderless_text}")
    return 1


def report_silent(connection: ClusterConnection, what: str) -> int:
    """Print a line for each broker that does not answer. Returns the exit code: 1 if the output is incomplete."""
    for text in connection.silent.values():
        print_error(f"{text}: {what}")
    return 1 if connection.silent else 0
