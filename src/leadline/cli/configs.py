"""leadline configs: the settings of topics and brokers, where each comes from, and how to change them.

`describe` prints the lines of kafka-configs.sh. Of several synonyms with the same name, the client library keeps only
the last. So the first and the last source of a setting are always shown, and one between them may be missing.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from leadline.cli import COMMANDS
from leadline.cli.connection import ClusterConnection, administer, no_topic
from leadline.cli.errors import Failure
from leadline.cli.formatting import brokers_text
from leadline.cli.json_values import Json
from leadline.cli.options import add_command, add_json_option, key_value
from leadline.cli.terminal import Paint
from leadline.config.settings import nearest

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry

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
DEFAULT_SOURCE, BROKER_DEFAULT_SOURCE = "DEFAULT_CONFIG", "DYNAMIC_DEFAULT_BROKER_CONFIG"
Change = tuple[str, str | None, "AlterConfigOpType"]


class ShownSynonym(NamedTuple):
    source: str
    name: str
    value: str | None

    def __str__(self) -> str:
        return f"{self.source}:{self.name}={_text(self.value)}"


class ShownSetting(NamedTuple):
    name: str
    value: str | None  # None: no value, or a secret one
    source: str
    sensitive: bool
    read_only: bool
    synonyms: tuple[ShownSynonym, ...]


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "configs",
        prog="leadline configs",
        help=COMMANDS["configs"].help,
        usage="leadline configs COMMAND ...",
    )
    subcommands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
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
    add_json_option(describe, "setting")
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
    for leaf in (describe, alter):
        target = leaf.add_argument_group("whose settings").add_mutually_exclusive_group(required=True)
        target.add_argument("--topic", metavar="NAME")
        target.add_argument("--broker", metavar="ID", type=int)
        target.add_argument("--broker-defaults", action="store_true", help="the defaults of all brokers")


def _describe(options: argparse.Namespace) -> int:
    connection, admin = administer(options)
    if options.broker_defaults:
        settings, title = _broker_defaults(connection, admin), "Default configs for brokers in the cluster are:"
    else:
        kind, name = _resource(options, connection, admin)
        settings = _settings(connection, admin, kind, name)
        own = "DYNAMIC_TOPIC_CONFIG" if kind == "topic" else "DYNAMIC_BROKER_CONFIG"
        if not options.all:
            settings = [setting for setting in settings if setting.source == own]
        title = f"{'All' if options.all else 'Dynamic'} configs for {kind} {name} are:"
    if options.json:
        for setting in settings:
            print(json.dumps(as_json(setting)))
    else:
        print(title)
        for setting in settings:
            print(line_of(setting, Paint(sys.stdout)))
    return connection.report_silent("its settings are missing") if options.broker_defaults else 0


def _resource(options: argparse.Namespace, connection: ClusterConnection, admin: "AdminClient") -> tuple[str, str]:
    cluster = connection.metadata(admin)
    if options.topic is not None:
        if options.topic not in cluster.topics:
            raise no_topic(options.topic, cluster.topics)
        return "topic", options.topic
    if options.broker not in cluster.brokers:
        raise Failure(f"there is no broker {options.broker}: {brokers_text(cluster.brokers)}")
    return "broker", str(options.broker)


def _settings(connection: ClusterConnection, admin: "AdminClient", kind: str, name: str) -> list[ShownSetting]:
    if kind == "broker" and int(name) in connection.silent:
        raise Failure(connection.silent[int(name)])
    return sorted(map(_setting, connection.wait(_request_settings(connection, admin, kind, name)).values()))


def _request_settings(
    connection: ClusterConnection, admin: "AdminClient", kind: str, name: str
) -> "Future[dict[str, ConfigEntry]]":
    from confluent_kafka.admin._config import ConfigResource

    resource = ConfigResource(kind, name)
    future: Future[dict[str, ConfigEntry]] = admin.describe_configs([resource], request_timeout=connection.remaining_s)[
        resource
    ]
    return future


def _setting(entry: "ConfigEntry") -> ShownSetting:
    from confluent_kafka.admin._config import ConfigSource

    source = ConfigSource(entry.source).name
    synonyms = [
        ShownSynonym(ConfigSource(other.source).name, other.name, other.value) for other in entry.synonyms.values()
    ]
    if synonyms and source not in {other.source for other in synonyms}:
        synonyms.insert(0, ShownSynonym(source, synonyms[0].name, entry.value))
    return ShownSetting(entry.name, entry.value, source, entry.is_sensitive, entry.is_read_only, tuple(synonyms))


def _broker_defaults(connection: ClusterConnection, admin: "AdminClient") -> list[ShownSetting]:
    """librdkafka cannot request the defaults by name. They are found among the synonyms of each broker's settings."""
    defaults: dict[str, ShownSetting] = {}
    futures = {
        broker: _request_settings(connection, admin, "broker", str(broker)) for broker in sorted(connection.brokers)
    }
    for broker, future in futures.items():
        if broker in connection.silent:
            continue
        for setting in sorted(map(_setting, connection.wait(future).values())):
            for synonym in set_for_all(setting):
                defaults[setting.name] = setting._replace(
                    value=synonym.value, source=synonym.source, synonyms=(synonym,)
                )
    return sorted(defaults.values())


def set_for_all(setting: ShownSetting) -> Iterable[ShownSynonym]:
    return (synonym for synonym in setting.synonyms if synonym.source == BROKER_DEFAULT_SOURCE)


def line_of(setting: ShownSetting, paint: Paint) -> str:
    """The line of kafka-configs.sh --describe."""
    is_set = setting.source != DEFAULT_SOURCE
    text = f"{setting.name}={_text(setting.value)}"
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
        "readOnly": setting.read_only,
        "synonyms": synonyms,
    }


def _text(value: str | None) -> str:
    return "null" if value is None else value


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
    names = [setting.name for setting in _settings(connection, admin, kind, name)]
    for key, _, _ in changes:
        if key not in names and (guess := nearest(key, names)):
            raise Failure(f"a {kind} has no setting {key}{guess}")
    alter_configs(connection, admin, kind, name, changes)
    print(f"Completed updating config for {kind} {name}.")
    return 0


def alter_configs(
    connection: ClusterConnection, admin: "AdminClient", kind: str, name: str, changes: "Sequence[Change]"
) -> None:
    """Make all changes or none."""
    from confluent_kafka.admin._config import ConfigEntry, ConfigResource

    entries = [ConfigEntry(key, value, incremental_operation=operation) for key, value, operation in changes]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    futures = admin.incremental_alter_configs([resource], request_timeout=connection.remaining_s)
    connection.wait(futures[resource])
