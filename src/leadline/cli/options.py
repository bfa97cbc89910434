"""Options and arguments of commands, and their types."""

import argparse
import re
from collections.abc import Callable
from pathlib import Path

from leadline.admin.connection import DEFAULT_SERVER
from leadline.admin.partitions import topic_in
from leadline.cli.errors import Run, reports_errors

Commands = argparse._SubParsersAction  # argparse has no public name for what add_subparsers returns
TIMEOUT_S = 10.0


def connection_options() -> argparse.ArgumentParser:
    """The options of every command that connects to a cluster, as a parent parser."""
    parser = argparse.ArgumentParser(add_help=False)
    group = parser.add_argument_group("the cluster")
    group.add_argument(
        "--bootstrap-server",
        metavar="HOST:PORT",
        help=f"addresses of brokers, separated by commas (default {DEFAULT_SERVER})",
    )
    group.add_argument(
        "--command-config", metavar="FILE", type=Path, help="file of client properties, such as security settings"
    )
    group.add_argument(
        "--property", action="append", default=[], metavar="KEY=VALUE", help="one client property; repeatable"
    )
    group.add_argument(
        "--timeout",
        type=float,
        default=TIMEOUT_S,
        metavar="SECONDS",
        help="time limit for the whole command (default 10)",
    )
    return parser


def add_subcommands(
    commands: "Commands[argparse.ArgumentParser]", name: str, help: str
) -> "Commands[argparse.ArgumentParser]":
    """A command that has commands of its own."""
    parser = commands.add_parser(name, prog=f"leadline {name}", help=help, usage=f"leadline {name} COMMAND ...")
    return parser.add_subparsers(title="commands", metavar="COMMAND", required=True)


def add_command(
    commands: "Commands[argparse.ArgumentParser]",
    name: str,
    run: Run,
    *,
    help: str,
    usage: str,
    examples: str,
    description: str = "",
    connects: bool = True,
) -> argparse.ArgumentParser:
    """A command with usage, description and examples in its help."""
    parser = commands.add_parser(
        name,
        help=help,
        prog=f"leadline {usage.partition(name)[0]}{name}",
        usage=f"leadline {usage}",
        description=description or f"{help[0].upper()}{help[1:]}.",
        epilog=f"examples:\n{examples.strip(chr(10))}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[connection_options()] if connects else [],
        allow_abbrev=False,
    )
    parser._negative_number_matcher = re.compile(r"-\d")  # so that -1h is a value, like -10
    parser.set_defaults(run=reports_errors(run))
    return parser


def add_yes_option(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")


def add_dry_run_option(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--dry-run", action="store_true", help="only show what would change")


def key_value(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not (key.strip() and separator):
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE, not {text!r}")
    return key.strip(), value


def at_least(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not re.fullmatch(r"-?\d+", text) or int(text) < least:
            raise argparse.ArgumentTypeError(f"expected a number of at least {least}, not {text!r}")
        return int(text)

    return number


def topic_argument(text: str) -> tuple[str, list[int] | None]:
    """A topic and some of its partitions: orders:0,2-5. None: all partitions."""
    try:
        return topic_in(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "0": "\0", "\\": "\\"}


def escaped(text: str) -> bytes:
    r"""A separator with escapes: \t, \n, \r, \0, \\ and \x1f."""

    def unescape(match: re.Match[str]) -> str:
        return chr(int(match[1][1:], 16)) if match[1].startswith("x") else _ESCAPES[match[1]]

    return re.sub(r"\\(x[0-9a-fA-F]{2}|[tnr0\\])", unescape, text).encode()
