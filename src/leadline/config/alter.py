"""The changes of AlterConfigs and IncrementalAlterConfigs: their result, and whether they are allowed.

A change that is not allowed raises InvalidSetting. As in Kafka, that is INVALID_CONFIG for a topic and INVALID_REQUEST
for a broker. NotApplicable is INVALID_CONFIG for both.

Pure: properties in, properties out.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum

from leadline.config.broker import kafka_table, row_of
from leadline.config.describe import ConfigLayers, Properties
from leadline.config.listener_changes import LIMIT_SETTINGS, STORE_SETTINGS
from leadline.config.settings import Mode, SettingRow, nearest
from leadline.config.topic import LogConfig
from leadline.config.values import ConfigType, InvalidSetting

_LISTENER = "listener.name."
_THREADS = (
    "num.io.threads",
    "num.replica.fetchers",
    "num.recovery.threads.per.data.dir",
    "background.threads",
    "log.cleaner.threads",
)


class NotApplicable(InvalidSetting):
    """A change that is well-formed, but cannot be carried out."""


class NotAList(NotApplicable):
    """APPEND or SUBTRACT on a setting that is not a list."""


class AlterConfigOp(IntEnum):
    """The numbers are those of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigChange:
    name: str
    op: AlterConfigOp
    value: str | None = None  # None for DELETE only


def changed(current: Properties, changes: Iterable[ConfigChange], rows: Mapping[str, SettingRow]) -> dict[str, str]:
    """The properties after the changes. The new values are not checked."""
    changes = list(changes)
    duplicates = [name for name, count in Counter(change.name for change in changes).items() if count > 1]
    if duplicates:
        raise InvalidSetting(f"{', '.join(duplicates)}: must occur only once")
    properties = dict(current)
    for change in changes:
        if change.op is AlterConfigOp.DELETE:
            properties.pop(change.name, None)
        elif change.value is None:
            raise InvalidSetting(f"{change.name}: must have a value")
        elif change.op is AlterConfigOp.SET:
            properties[change.name] = change.value
        else:
            properties[change.name] = _list_changed(change, properties.get(change.name), change.value, rows)
    return properties


def _list_changed(change: ConfigChange, current: str | None, value: str, rows: Mapping[str, SettingRow]) -> str:
    row = rows.get(change.name)
    if row is None:
        raise InvalidSetting(f"unknown setting {change.name}{nearest(change.name, rows)}")
    if row.kind is not ConfigType.LIST:
        verb = "added to" if change.op is AlterConfigOp.APPEND else "removed from"
        raise NotAList(f"{change.name}={_shown(row, value)}: nothing can be {verb} it: it is not a list")
    before = (current if current is not None else row.default_text) or ""
    parts = before.split(",") if before else []
    if change.op is AlterConfigOp.APPEND:
        return ",".join([*parts, *(part for part in value.split(",") if part not in parts)])
    for part in value.split(","):
        if part in parts:
            parts.remove(part)
    return ",".join(parts)


def altered_topic(layers: ConfigLayers, current: Properties, changes: Iterable[ConfigChange]) -> dict[str, str]:
    """The topic's own settings after the changes. They are checked."""
    after = changed(current, changes, LogConfig.table())
    check_topic(layers, after)
    return after


def check_topic(layers: ConfigLayers, overrides: Properties) -> LogConfig:
    """The settings of a topic with these overrides."""
    return layers.topic_defaults().with_values(overrides)


def altered_broker(layers: ConfigLayers, changes: Iterable[ConfigChange], *, for_all: bool = False) -> dict[str, str]:
    """The dynamic settings of one broker or of all after the changes, checked."""
    current = layers.dynamic_default if for_all else layers.dynamic_broker
    after = changed(current, changes, kafka_table())
    check_broker(layers, after, for_all=for_all)
    return after


def check_broker(layers: ConfigLayers, proposed: Properties, *, for_all: bool = False) -> None:
    for name, text in proposed.items():
        _check_dynamic(name, text, for_all)
    after = replace(layers, dynamic_default=proposed) if for_all else replace(layers, dynamic_broker=proposed)
    after.settings()  # raises if they contradict each other
    _check_threads(layers.merged(), after.merged())


def _check_dynamic(name: str, text: str, for_all: bool) -> None:
    row = row_of(name)
    if row is None:
        return  # as in Kafka: it may belong to a plugin
    of_listener = name.startswith(_LISTENER)
    if not of_listener and row.mode is Mode.READ_ONLY:
        raise InvalidSetting(f"{name}={_shown(row, text)}: cannot change while the broker runs")
    if name in STORE_SETTINGS:
        raise InvalidSetting(f"{name}={_shown(row, text)}: can change only as {_LISTENER}<listener>.{name}")
    per_broker = row.name not in LIMIT_SETTINGS if of_listener else row.mode is Mode.PER_BROKER
    if for_all and per_broker:
        raise InvalidSetting(f"{name}={_shown(row, text)}: must be set for each broker separately")
    row.read(text)


def _shown(row: SettingRow, text: str) -> str:
    return "[hidden]" if row.sensitive else text


def _check_threads(before: Properties, after: Properties) -> None:
    """One change may at most halve or double a number of threads."""
    for name in _THREADS:
        row = kafka_table()[name]
        old, new = (row.read(values[name]) if name in values else row.default for values in (before, after))
        assert isinstance(old, int)
        assert isinstance(new, int)
        if new != old and not max(1, old // 2) <= new <= old * 2:
            raise InvalidSetting(
                f"{name}={new}: must be between {max(1, old // 2)} and {old * 2}, half and double of the current value"
            )
