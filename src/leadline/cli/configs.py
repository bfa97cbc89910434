"""leadline configs: the settings of topics and brokers, where each comes from, and how to change them.

`describe` prints the lines of kafka-configs.sh. Of several synonyms with the same name, the client library keeps only
the last. So the first and the last source of a setting are always shown, and one between them may be missing.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from leadline.admin.connection import ClusterConnection, administer, no_topic
from leadline.admin.errors import Failure
from leadline.admin.formatting import brokers_text
from leadline.admin.json_values import Json
from leadline.admin.settings import (
    DEFAULT_SOURCE,
    Change,
    ShownSetting,
    alter_configs,
    broker_defaults,
    read_settings,
    value_text,
)
from leadline.cli import COMMANDS
from leadline.cli.errors import report_silent
from leadline.cli.options import add_command, add_subcommands, key_value
from leadline.cli.output import add_output_option, print_result, print_results
from leadline.cli.terminal import TextStyles
from leadline.config.settings import nearest

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

DESCRIBE = """
  leadline configs describe --topic orders                   settings of this topic
  leadline configs describe --topic orders --all             all settings, with sources and defaults
  leadline configs describe --broker 1 --all --json
  leadline configs describe --broker-defaults                settings of all brokers
"""
ALTER = """
  leadline configs alter --topic orders --set retention.ms=86400000 --set min.insync.replicas=2
  leadline configs alter --topic orders --delete retention.ms
  leadline configs alter --topic orders --append cleanup.policy=compact      add to a list
  leadline configs alter --topic orders --subtract cleanup.policy=delete     take out of a list
  leadline configs alter --broker 1 --set log.cleaner.threads=2
"""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    subcommands = add_subcommands(commands, "configs", COMMANDS["configs"].help)
    resource = "(--topic NAME | --broker ID | --broker-defaults)"
    describe = add_command(
        subcommands,
        "describe",
        _describe,
        help="show settings with their sources",
        usage=f"configs describe {resource} [--all] [options]",
        examples=DESCRIBE,
    )
    describe.add_argument("--all", action="store_true", help="include settings that have their default")
    add_output_option(describe, "setting")
    alter = add_command(
        subcommands,
        "alter",
        _alter,
        help="change settings",
        usage=f"configs alter {resource} [options]",
        examples=ALTER,
    )
    alter.add_argument(
        "--set", type=key_value, action="append", default=[], metavar="KEY=VALUE", help="set a value; repeatable"
    )
    alter.add_argument("--delete", action="append", default=[], metavar="KEY", help="use the default again; repeatable")
    alter.add_argument(
        "--append", type=key_value, action="append", default=[], metavar="KEY=VALUE", help="add to a list; repeatable"
    )
    alter.add_argument(
        "--subtract",
        type=key_value,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="remove from a list; repeatable",
    )
    add_output_option(alter)
    for leaf in (describe, alter):
        target = leaf.add_argument_group("whose settings").add_mutually_exclusive_group(required=True)
        target.add_argument("--topic", metavar="NAME")
        target.add_argument("--broker", metavar="ID", type=int)
        target.add_argument("--broker-defaults", action="store_true", help="the defaults of all brokers")


def _describe(options: argparse.Namespace) -> int:
    connection, admin = administer(options)
    if options.broker_defaults:
        settings, title = broker_defaults(connection, admin), "Default configs for brokers in the cluster are:"
    else:
        kind, name = _resource(options, connection, admin)
        settings = read_settings(connection, admin, kind, name)
        own = "DYNAMIC_TOPIC_CONFIG" if kind == "topic" else "DYNAMIC_BROKER_CONFIG"
        if not options.all:
            settings = [setting for setting in settings if setting.source == own]
        title = f"{'All' if options.all else 'Dynamic'} configs for {kind} {name} are:"
    lines = [title, *(line_of(setting, TextStyles(sys.stdout)) for setting in settings)]
    print_results(options, map(as_json, settings), lambda: print(*lines, sep="\n"))
    return report_silent(connection, "its settings are missing") if options.broker_defaults else 0


def _resource(options: argparse.Namespace, connection: ClusterConnection, admin: "AdminClient") -> tuple[str, str]:
    cluster = connection.metadata(admin)
    if options.topic is not None:
        if options.topic not in cluster.topics:
            raise no_topic(options.topic, cluster.topics)
        return "topic", options.topic
    if options.broker not in cluster.brokers:
        raise Failure(f"there is no broker {options.broker}: {brokers_text(cluster.brokers)}")
    return "broker", str(options.broker)


def line_of(setting: ShownSetting, paint: TextStyles) -> str:
    """The line of kafka-configs.sh --describe."""
    is_set = setting.source != DEFAULT_SOURCE
    text = f"{setting.name}={value_text(setting.value)}"
    synonyms = f"synonyms={{{', '.join(map(str, setting.synonyms))}}}"
    return f"  {paint.bold(text) if is_set else text} {paint.dim(f'sensitive={_flag(setting.sensitive)} {synonyms}')}"


def as_json(setting: ShownSetting) -> Json:
    synonyms: list[Mapping[str, Json]] = [synonym._asdict() for synonym in setting.synonyms]
    return {
        "name": setting.name,
        "value": setting.value,
        "source": setting.source,
        "default": setting.source == DEFAULT_SOURCE,
        "sensitive": setting.sensitive,
        "read_only": setting.read_only,
        "synonyms": synonyms,
    }


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _alter(options: argparse.Namespace) -> int:
    from confluent_kafka.admin._config import AlterConfigOpType

    changes: list[Change] = [(key, value, AlterConfigOpType.SET) for key, value in options.set]
    changes += [(key, None, AlterConfigOpType.DELETE) for key in options.delete]
    changes += [(key, value, AlterConfigOpType.APPEND) for key, value in options.append]
    changes += [(key, value, AlterConfigOpType.SUBTRACT) for key, value in options.subtract]
    if not changes:
        raise Failure("nothing to alter: give --set, --delete, --append or --subtract")
    for key, count in Counter(key for key, _, _ in changes).items():
        if count > 1:
            raise Failure(f"{key} would be changed {count} times: change a setting once per command")
    if options.broker_defaults:
        raise Failure("librdkafka cannot alter the defaults of all brokers: change each broker with --broker ID")
    connection, admin = administer(options)
    kind, name = _resource(options, connection, admin)
    names = [setting.name for setting in read_settings(connection, admin, kind, name)]
    for key, _, _ in changes:
        if key not in names and (guess := nearest(key, names)):
            raise Failure(f"a {kind} has no setting {key}{guess}")
    alter_configs(connection, admin, kind, name, changes)
    altered: list[Json] = [
        {"name": key, "value": value, "operation": operation.name.lower()} for key, value, operation in changes
    ]
    value: Json = {"entity_type": kind, "entity_name": name, "configs": altered}
    print_result(options, value, f"Completed updating config for {kind} {name}.")
    return 0
