"""leadline log-levels: which loggers brokers have, and how much each writes. Levels change while a broker runs.

Kafka's resource is BROKER_LOGGER: `kafka-configs --entity-type broker-loggers` does the same. A level lasts until the
broker ends. Apache Kafka's brokers have loggers of other names.
"""

import argparse
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from leadline.admin.errors import Failure
from leadline.admin.formatting import brokers_text
from leadline.admin.json_values import Json
from leadline.cli import COMMANDS
from leadline.cli.options import Commands, add_command, add_subcommands, key_value
from leadline.cli.output import add_output_option, print_results
from leadline.cli.security_admin import SecurityAdmin, check, security_admin
from leadline.cli.terminal import print_table
from leadline.config.settings import nearest
from leadline.model import BrokerId
from leadline.wire.messages import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

LIST = """
  leadline log-levels list                                   all loggers of all brokers
  leadline log-levels list 'leadline.log*' --broker 1        some loggers of one broker
"""
SET = """
  leadline log-levels set 'leadline.log.*=DEBUG'             on all brokers
  leadline log-levels set root=WARN leadline.replication.fetcher=TRACE --broker 1
"""
RESET = """
  leadline log-levels reset 'leadline.log.*'                 the level of the logger above them again
"""
BROKER_LOGGER = 8  # as a type of resources that have settings
SET_LEVEL, DELETE_LEVEL = 0, 1  # as operations
LEVELS = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")

BrokerLevels = Mapping[BrokerId, Mapping[str, str]]  # by logger


def add_to(commands: "Commands[argparse.ArgumentParser]") -> None:
    subcommands = add_subcommands(commands, "log-levels", COMMANDS["log-levels"].help)
    listing = add_command(
        subcommands,
        "list",
        _list,
        help="list loggers and their levels",
        usage="log-levels list [LOGGER ...] [options]",
        examples=LIST,
    )
    listing.add_argument("loggers", nargs="*", metavar="LOGGER", help="only these; * stands for any text")
    setting = add_command(
        subcommands,
        "set",
        _set,
        help="change how much loggers write",
        usage="log-levels set LOGGER=LEVEL ... [options]",
        examples=SET,
        description=f"Change how much loggers write, until the broker ends. Levels: {', '.join(LEVELS)}.\n"
        "root stands above all: a logger without a level of its own has that of the one above it.\n"
        "In a name, * stands for any text.",
    )
    setting.add_argument("levels", nargs="+", type=logger_level, metavar="LOGGER=LEVEL")
    reset = add_command(
        subcommands,
        "reset",
        _reset,
        help="give loggers the level of the one above them",
        usage="log-levels reset LOGGER ... [options]",
        examples=RESET,
    )
    reset.add_argument("loggers", nargs="+", metavar="LOGGER")
    for leaf in (listing, setting, reset):
        leaf.add_argument("--broker", type=int, metavar="ID", help="only of this broker (default: all brokers)")
        add_output_option(leaf, "logger")


def logger_level(text: str) -> tuple[str, str]:
    logger, level = key_value(text)
    if level.upper() not in LEVELS:
        raise argparse.ArgumentTypeError(f"expected one of {', '.join(LEVELS)}, not {level!r}")
    return logger, level.upper()


# Requests


def _brokers(admin: SecurityAdmin, only: BrokerId | None) -> list[BrokerId]:
    brokers = admin.brokers()
    if only is not None and only not in brokers:
        raise Failure(f"there is no broker {only}: {brokers_text(brokers)}")
    return sorted(brokers) if only is None else [only]


def _levels(admin: SecurityAdmin, broker: BrokerId) -> dict[str, str]:
    """The level of each logger: root first, then by name."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=BROKER_LOGGER, resource_name=str(broker), configuration_keys=None
    )
    answer = admin.ask_broker(broker, DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse)
    (result,) = answer.results
    check(result.error_code, result.error_message, f"broker {broker}")
    levels = {config.name: config.value or "" for config in result.configs}
    return {name: levels[name] for name in sorted(levels, key=lambda name: (name != "root", name))}


def _alter(admin: SecurityAdmin, broker: BrokerId, levels: Mapping[str, str | None]) -> None:
    """None: the level of the logger above it."""
    configs = [
        IncrementalAlterConfigsRequest.AlterableConfig(
            name=name, config_operation=DELETE_LEVEL if level is None else SET_LEVEL, value=level
        )
        for name, level in levels.items()
    ]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=BROKER_LOGGER, resource_name=str(broker), configs=configs
    )
    request = IncrementalAlterConfigsRequest(resources=[resource])
    (result,) = admin.ask_broker(broker, request, IncrementalAlterConfigsResponse).responses
    check(result.error_code, result.error_message, f"broker {broker}")


# Commands


def _list(options: argparse.Namespace) -> int:
    with security_admin(options) as admin:
        levels = {broker: _levels(admin, broker) for broker in _brokers(admin, options.broker)}
    _print(options, {broker: _selected(loggers, options.loggers) for broker, loggers in levels.items()})
    return 0


def _selected(levels: Mapping[str, str], patterns: Sequence[str]) -> dict[str, str]:
    return {
        name: level
        for name, level in levels.items()
        if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
    }


def _set(options: argparse.Namespace) -> int:
    return _change(options, dict(options.levels))


def _reset(options: argparse.Namespace) -> int:
    return _change(options, dict.fromkeys(options.loggers))


def _change(options: argparse.Namespace, changes: Mapping[str, str | None]) -> int:
    """All brokers are asked before any is changed: a logger may be missing in one of them."""
    with security_admin(options) as admin:
        brokers = _brokers(admin, options.broker)
        expanded = {broker: _expanded(broker, changes, _levels(admin, broker)) for broker in brokers}
        for broker in brokers:
            _alter(admin, broker, expanded[broker])
        after = {broker: _selected(_levels(admin, broker), [*expanded[broker]]) for broker in brokers}
    _print(options, after)
    return 0


def _expanded(broker: BrokerId, changes: Mapping[str, str | None], levels: Mapping[str, str]) -> dict[str, str | None]:
    """The changes of loggers that exist. A later pattern counts before an earlier one."""
    expanded: dict[str, str | None] = {}
    for pattern, level in changes.items():
        names = _selected(levels, [pattern])
        if not names:
            below = any(name.startswith(f"{pattern}.") for name in levels)
            guess = f": those below it are '{pattern}.*'" if below else nearest(pattern, levels)
            raise Failure(f"broker {broker} has no logger {pattern}{guess}")
        expanded |= dict.fromkeys(names, level)
    return expanded


def _print(options: argparse.Namespace, levels: BrokerLevels) -> None:
    rows = [[str(broker), name, level] for broker, loggers in levels.items() for name, level in loggers.items()]
    values: list[Json] = [{"broker": int(broker), "logger": name, "level": level} for broker, name, level in rows]
    heads = ["BROKER", "LOGGER", "LEVEL"]
    print_results(options, values, lambda: print_table(heads, rows) if rows else print("No loggers."))
