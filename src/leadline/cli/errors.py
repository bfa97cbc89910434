"""Errors of commands: one line on stderr, and exit code 1."""

import argparse
import functools
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from leadline.cli.terminal import Paint

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

Run = Callable[[argparse.Namespace], int]


class Failure(Exception):
    """The command cannot do what was requested. The message is one line, and the exit code is 1."""


def reports_errors(run: Run) -> Run:
    """Errors become one line on stderr and exit code 1. A closed pipe ends the command without an error."""

    @functools.wraps(run)
    def guarded(options: argparse.Namespace) -> int:
        try:
            code = run(options)
            sys.stdout.flush()
            return code
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # flushed again at exit
            return 0
        except Failure as error:
            print_error(str(error))
        except OSError as error:
            print_error(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        except client_errors() as error:  # imported only after an error
            print_error(client_error_text(error.args[0]))
        return 1

    return guarded


def print_error(text: str) -> None:
    paint = Paint(sys.stderr)
    over = "\r\033[K" if paint.on else ""  # replaces a status line
    print(f"{over}{paint.red('leadline:')} {text}", file=sys.stderr)


def client_errors() -> "tuple[type[Exception], ...]":
    from confluent_kafka import KafkaException

    return (KafkaException,)


def client_error_text(error: "KafkaError | str") -> str:
    """An error of the client or a broker, with its name in parentheses."""
    if isinstance(error, str):
        return error
    text = error.str().removeprefix("Broker: ").removeprefix("Local: ")
    return f"{text} ({error.name()})"
