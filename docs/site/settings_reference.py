"""The reference of settings in docs/CONFIGURATION.md, generated from the tables of leadline.config.

The page has a line `<!-- settings: GROUP -->` where a group belongs. Each setting becomes a section: its name, its
meaning, and a line of facts.

Pure: tables in, Markdown out.
"""

import re
from collections.abc import Iterable, Mapping

from leadline.config import kraft, remote_storage
from leadline.config.authorizer import AuthorizerConfig
from leadline.config.broker import DYNAMIC_ONLY, BrokerConfig
from leadline.config.cluster import ClusterConfig
from leadline.config.coordinators import CoordinatorConfig
from leadline.config.delegation_tokens import DelegationTokenConfig
from leadline.config.network import NetworkConfig
from leadline.config.replication import ReplicationConfig
from leadline.config.security import SecurityConfig
from leadline.config.settings import Mode, SettingRow, Settings, Support
from leadline.config.storage import StorageConfig
from leadline.config.topic import LogConfig
from leadline.config.values import DAY_MS, HOUR_MS, INT_MAX, LONG_MAX
from leadline.config.zookeeper import ZooKeeperConfig

_MARK = re.compile(r"^<!-- settings: (\w+) -->$", re.MULTILINE)
_TABLES: dict[str, type[Settings]] = {
    "cluster": ClusterConfig,
    "network": NetworkConfig,
    "replication": ReplicationConfig,
    "coordinators": CoordinatorConfig,
    "security": SecurityConfig,
    "authorizer": AuthorizerConfig,
    "delegation_tokens": DelegationTokenConfig,
    "zookeeper": ZooKeeperConfig,
}
_MODES = {
    Mode.READ_ONLY: "not dynamic",
    Mode.PER_BROKER: "dynamic, for one broker at a time",
    Mode.CLUSTER_WIDE: "dynamic, for one broker or for all",
}
_AT_START_HERE = ("listeners", "advertised.listeners", "listener.security.protocol.map")
_REFUSED_HERE = "values with which Kafka starts and then stops, spins or does nothing are refused here"

# Where a setting differs from Kafka 3.8, apart from those that are refused or without effect. Conformance tests compare
# all others with Kafka's own tables.
KAFKAS_DEFAULTS = {"log.dir": "/tmp/kafka-logs"}
STRICTER = (
    "log.flush.scheduler.interval.ms",
    "log.cleaner.io.max.bytes.per.second",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.io.buffer.load.factor",
    "offsets.topic.compression.codec",
)
DIFFERENCES = {
    "log.dir": f"the default is `{KAFKAS_DEFAULTS['log.dir']}`; many systems empty `/tmp` at a restart",
    "zookeeper.connect": "it must be set; here a broker without it is a single node",
    **dict.fromkeys(_AT_START_HERE, "it is dynamic: listeners are opened and closed while the broker runs"),
    **dict.fromkeys(STRICTER, _REFUSED_HERE),
}


def with_settings(text: str) -> str:
    """A page with its groups of settings."""
    if not _MARK.search(text):
        return text
    by_group = groups()
    return _MARK.sub(lambda match: "\n".join(_section(row, match[1]) for row in by_group[match[1]]), text)


def groups() -> Mapping[str, list[SettingRow]]:
    """All rows, each in one group."""
    rest = dict(BrokerConfig.table())
    by_group = {"topic": sorted(LogConfig.table().values())}
    for name, table in _TABLES.items():
        by_group[name] = _taken(rest, table.rows())
    by_group["topic_defaults"] = _taken(rest, [row.name for row in rest.values() if _is_topic_default(row)])
    by_group["storage"] = _taken(rest, [*StorageConfig.rows(), *BrokerConfig.rows()])
    by_group["dynamic_only"] = sorted(DYNAMIC_ONLY.values())
    by_group["kraft"] = _taken(rest, [row.name for row in kraft.rows()])
    by_group["remote_storage"] = _taken(rest, [row.name for row in remote_storage.rows()])
    for support in (Support.REFUSED, Support.ACCEPTED, Support.OBEYED):
        by_group[support.value] = _taken(rest, [row.name for row in rest.values() if row.support is support])
    return by_group


def _taken(rows: dict[str, SettingRow], names: Iterable[str]) -> list[SettingRow]:
    return [rows.pop(name) for name in sorted(names) if name in rows]


def _is_topic_default(row: SettingRow) -> bool:
    return row.meaning.startswith("default of topics: ")


def _section(row: SettingRow, group: str) -> str:
    facts = [*_facts(row, group), _standing(row)]
    difference = f"\nKafka differs: {DIFFERENCES[row.name]}.\n" if group != "topic" and row.name in DIFFERENCES else ""
    return f"### {row.name}\n\n{_sentence(row.meaning)}\n{difference}\n{{.facts}}\n{' · '.join(facts)}\n"


def _facts(row: SettingRow, group: str) -> list[str]:
    facts = [row.kind.name.lower(), f"default {_default(row)}"]
    if row.check is not None and row.check.valid and len(row.check.valid) < 100:
        facts.append(f"valid: `{row.check.valid}`")
    if row.from_broker:
        facts.append("broker's default: " + ", else ".join(f"`{name}`" for name in row.from_broker.names))
    facts.append("dynamic" if group == "topic" else _mode(row))
    if row.internal:
        facts.append("internal")
    return facts


def _mode(row: SettingRow) -> str:
    return _MODES[Mode.READ_ONLY if row.name in _AT_START_HERE else row.mode]


def _standing(row: SettingRow) -> str:
    if row.supported_values is not None:
        values = ", ".join(f"`{value}`" for value in row.supported_values if value)
        return f"**obeyed in part**: the default and {values}; {row.why}"
    if row.support is Support.OBEYED:
        return "obeyed"
    word = "without effect" if row.support is Support.ACCEPTED else "refused"
    return f"**{word}**: {row.why}"


def _default(row: SettingRow) -> str:
    text = row.default_text
    return "none" if text is None else "empty" if text == "" else f"`{text}`{_unit(row)}"


def _unit(row: SettingRow) -> str:
    """What a large number is in larger units."""
    number = row.default
    if not isinstance(number, int) or isinstance(number, bool):
        return ""
    if number in (LONG_MAX, INT_MAX):
        return " (no limit)"
    if row.name.endswith(".ms") and number >= 60_000:
        for unit, size in (("d", DAY_MS), ("h", HOUR_MS), ("min", 60_000)):
            if number % size == 0:
                return f" ({number // size} {unit})"
    if ".bytes" in row.name and number >= 1 << 20:
        for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20)):
            if number % size == 0:
                return f" ({number // size} {unit})"
    return ""


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}." if text else ""
