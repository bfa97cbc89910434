"""Findings about the settings of one broker, from its server.properties or as the broker reports them.

The rules are those of `leadline start`: what it refuses blocks, and what has no effect is noted.

Pure: values in, values out.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from leadline.cli.migrate.finding import Area, MigrationFinding, Severity
from leadline.config.broker import BrokerSettings, broker_settings, refusals, row_of
from leadline.config.checks import precedes
from leadline.config.replication import LEAST_PROTOCOL
from leadline.config.values import ConfigType, InvalidSetting

BLOCKS, WARNS, NOTES = Severity.BLOCKS, Severity.WARNS, Severity.NOTES
KRAFT_CURE = (
    "Leadline replaces brokers of a cluster with ZooKeeper only; copy the topics to a new cluster: "
    "leadline pipeline mirror"
)
NO_ZOOKEEPER_CURE = "set zookeeper.connect: without it Leadline starts as a single node, in a cluster of its own"
UNKNOWN_CURE = "it has no effect in Leadline; if a plugin reads it, find out what the plugin does for you"
INTER_BROKER_PROTOCOL = "inter.broker.protocol.version"
OLDER_PROTOCOL_CURE = "bring all brokers to Apache Kafka 3.7 or 3.8: Leadline does not start beside older ones"
OLD_FORMATS = ("0.8", "0.9", "0.10")
OLD_FORMAT_CURE = "check the files on each broker: leadline migrate check --log-dirs DIR"

_REASON = re.compile(r"(\S+) \((.*)\)")
_REFUSED = ": not supported: "
_VERSIONS = (INTER_BROKER_PROTOCOL, "log.message.format.version")
_KRAFT = ("process.roles", "controller.listener.names", "zookeeper.metadata.migration.enable")
_PROTECTION = ("sasl.", "ssl.", "security.", "principal.", "zookeeper.ssl.", "zookeeper.set.acl", "authorizer.")
_OF_PLUGIN = re.compile(r"(^|\.)(class|classes|class\.name|interceptors?|plugins?|reporters?)(\.|$)")


class SettingsVerdict(NamedTuple):
    findings: list[MigrationFinding]
    settings: BrokerSettings | None  # None: they contradict each other


def judge_settings(properties: Mapping[str, str], where: str) -> SettingsVerdict:
    errors = refusals(properties)
    findings = [_refused(name, error, where) for name, error in errors.items()]
    remaining = {name: text for name, text in properties.items() if name not in errors}
    findings += _older_protocol(remaining, where)
    findings += old_message_format("log.message.format.version", properties, where)
    is_kraft = any(name in errors for name in _KRAFT)
    if not is_kraft and not properties.get("zookeeper.connect", "").strip():
        findings.append(
            MigrationFinding(BLOCKS, Area.MODE, "zookeeper.connect is not set", NO_ZOOKEEPER_CURE, (where,))
        )
    try:
        settings = broker_settings(remaining)
    except InvalidSetting as error:
        findings.append(MigrationFinding(BLOCKS, Area.SETTING, str(error), "Leadline does not start with it", (where,)))
        return SettingsVerdict(findings, None)
    return SettingsVerdict([*findings, *_without_effect(settings.ignored, where)], settings)


def _older_protocol(values: Mapping[str, str], where: str) -> Iterator[MigrationFinding]:
    """Older brokers may be there. Leadline does not start beside them."""
    protocol = values.get(INTER_BROKER_PROTOCOL, LEAST_PROTOCOL)
    if precedes(protocol, LEAST_PROTOCOL):
        what = f"{INTER_BROKER_PROTOCOL}={protocol}: there may be brokers from before Kafka 3.7"
        yield MigrationFinding(WARNS, Area.VERSION, what, OLDER_PROTOCOL_CURE, (where,))


def old_message_format(name: str, values: Mapping[str, str], where: str) -> Iterator[MigrationFinding]:
    """Kafka 3 ignores the setting and writes the current format. Older segments keep theirs."""
    if values.get(name, "").startswith(OLD_FORMATS):
        what = f"{name}={values[name]}: there may be messages from before Kafka 0.11"
        yield MigrationFinding(WARNS, Area.STORAGE, what, OLD_FORMAT_CURE, (where,))


def _refused(name: str, error: InvalidSetting, where: str) -> MigrationFinding:
    what, _, cure = str(error).partition(_REFUSED)
    if name in _KRAFT:
        cure = KRAFT_CURE
    return MigrationFinding(
        BLOCKS, area_of(name), what, cure or "Leadline does not start with it; correct the value", (where,)
    )


def area_of(name: str) -> Area:
    row = row_of(name)
    base = name if row is None else row.name
    if name in _VERSIONS:
        return Area.VERSION
    if name in _KRAFT:
        return Area.MODE
    if base.startswith("remote."):
        return Area.STORAGE
    if (row is not None and row.kind is ConfigType.CLASS) or _OF_PLUGIN.search(base):
        return Area.PLUGIN
    return Area.SECURITY if base.startswith(_PROTECTION) else Area.SETTING


def _without_effect(ignored: tuple[str, ...], where: str) -> Iterator[MigrationFinding]:
    """`ignored`: names, most of them with a reason. Names with one reason are one finding."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for text in ignored:
        match = _REASON.fullmatch(text)
        if match is None or match[2].startswith("did you mean"):
            yield unknown_setting(text, where)
        else:
            by_reason[match[2]].append(match[1])
    for reason, names in by_reason.items():
        what = f"without effect: {', '.join(names)}"
        yield MigrationFinding(NOTES, Area.SETTING, what, f"nothing to do: {reason}", (where,))


def unknown_setting(name: str, where: str) -> MigrationFinding:
    if _OF_PLUGIN.search(name):
        return MigrationFinding(WARNS, Area.PLUGIN, f"{name} is not a setting of Kafka 3.8", UNKNOWN_CURE, (where,))
    return MigrationFinding(NOTES, Area.SETTING, f"{name} is not a setting of Kafka 3.8", UNKNOWN_CURE, (where,))
