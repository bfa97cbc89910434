"""The entries of DescribeConfigs: for each setting its value, its source and its synonyms.

    a broker's value, by precedence: set for this broker, set for all brokers, in its file, the default
    a topic's value: its own, or that of the broker's setting with its default

Pure: properties in, entries out.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from leadline.config.broker import (
    DYNAMIC_ONLY,
    BrokerSettings,
    broker_settings,
    kafka_table,
    row_of,
    synonyms,
    topic_defaults,
    typed_values,
    with_node_id,
)
from leadline.config.settings import Mode, SettingRow
from leadline.config.topic import LogConfig
from leadline.config.values import ConfigType, write

Properties = Mapping[str, str]


class ConfigSource(IntEnum):
    """Where a value comes from. The numbers are those of DescribeConfigs."""

    TOPIC = 1
    DYNAMIC_BROKER = 2  # set for this broker while it runs
    DYNAMIC_DEFAULT_BROKER = 3  # set for all brokers while they run
    STATIC_BROKER = 4  # in its server.properties
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6  # a log level


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    name: str
    value: str | None  # None: secret
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    name: str
    value: str | None  # None: no value, or a secret one
    source: ConfigSource
    read_only: bool
    sensitive: bool
    synonyms: tuple[ConfigSynonym, ...]
    kind: ConfigType | None  # None: an unknown setting; 0 in DescribeConfigs
    documentation: str | None

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigLayers:
    """The properties of a broker, by where they were set."""

    static: Properties = field(default_factory=dict)
    dynamic_default: Properties = field(default_factory=dict)
    dynamic_broker: Properties = field(default_factory=dict)

    def merged(self) -> dict[str, str]:
        """The properties by precedence: this broker, all brokers, the file. They replace synonyms in other units."""
        properties = with_node_id(self.static)
        for layer in (self.dynamic_default, self.dynamic_broker):
            for name, text in layer.items():
                for other in (name,) if name.startswith("listener.name.") else synonyms(name):
                    properties.pop(other, None)
                properties[name] = text
        return properties

    def settings(self) -> BrokerSettings:
        """The resulting settings."""
        static = {name: text for name, text in self.merged().items() if name not in DYNAMIC_ONLY}
        return broker_settings(static, self.stored)

    @property
    def stored(self) -> set[str]:
        """The names that the cluster holds."""
        return {*self.dynamic_default, *self.dynamic_broker}

    def topic_defaults(self) -> LogConfig:
        return topic_defaults(typed_values(_of_topics(self.merged())))

    def bytes_per_second(self, name: str) -> int:
        """The value of a throttle, which is always dynamic."""
        row = DYNAMIC_ONLY[name]
        text = self.dynamic_broker.get(name, self.dynamic_default.get(name))
        value = row.default if text is None else row.read(text)
        assert isinstance(value, int)
        return value


def describe_broker(layers: ConfigLayers, names: Collection[str] | None = None) -> list[ConfigEntry]:
    """All settings of a broker, or those with these names."""
    merged = layers.merged()
    all_names = {*merged, *(name for name, row in kafka_table().items() if not row.internal)}
    return [_broker_entry(name, layers, merged) for name in _chosen(all_names, names)]


def describe_broker_defaults(layers: ConfigLayers, names: Collection[str] | None = None) -> list[ConfigEntry]:
    """The dynamic settings of all brokers."""
    set_for_all = ConfigLayers(dynamic_default=layers.dynamic_default)
    chosen = _chosen(layers.dynamic_default, names)
    return [_broker_entry(name, set_for_all, layers.dynamic_default, with_default=False) for name in chosen]


def describe_topic(
    layers: ConfigLayers, overrides: Properties, names: Collection[str] | None = None, defaults: LogConfig | None = None
) -> list[ConfigEntry]:
    """`overrides`: the topic's own settings. `defaults`: the topic defaults of the layers, if already computed."""
    defaults = defaults or layers.topic_defaults()
    return [_topic_entry(name, layers, defaults, overrides) for name in _chosen(LogConfig.table(), names)]


def _chosen(all_names: Iterable[str], names: Collection[str] | None) -> list[str]:
    return sorted(name for name in all_names if not names or name in names)


def _of_topics(properties: Properties) -> dict[str, str]:
    """The broker's properties that are defaults of topics."""
    rows = (row.from_broker for row in LogConfig.table().values() if row.from_broker)
    names = {name for row in rows for name in row.names}
    return {name: text for name, text in properties.items() if name in names}


def _broker_entry(name: str, layers: ConfigLayers, merged: Properties, with_default: bool = True) -> ConfigEntry:
    row, documented = row_of(name), kafka_table().get(name)
    sensitive = row is None or row.sensitive
    if documented is not None:
        value = write(documented.parse(merged[name])) if name in merged else documented.default_text
    else:
        value = merged[name]
    sources = _synonyms(name, layers, sensitive, with_default)
    return ConfigEntry(
        name=name,
        value=None if sensitive else value,
        source=sources[0].source if sources else ConfigSource.DEFAULT,
        read_only=documented is None or documented.mode is Mode.READ_ONLY,
        sensitive=sensitive,
        synonyms=sources,
        kind=row.kind if row else None,
        documentation=documented.meaning if documented else None,
    )


def _topic_entry(name: str, layers: ConfigLayers, defaults: LogConfig, overrides: Properties) -> ConfigEntry:
    row = LogConfig.table()[name]
    if name in overrides:
        value = write(row.parse(overrides[name]))
    else:
        value = write(getattr(defaults, row.field)) if row.field else _unsupported_default(row, layers)
    sources = _synonyms(row.from_broker.names[0], layers, False) if row.from_broker else ()
    if name in overrides:
        sources = (ConfigSynonym(name, value, ConfigSource.TOPIC), *sources)
    return ConfigEntry(
        name=name,
        value=value,
        source=sources[0].source if sources else ConfigSource.DEFAULT,
        read_only=False,
        sensitive=False,
        synonyms=sources,
        kind=row.kind,
        documentation=row.meaning,
    )


def _unsupported_default(row: SettingRow, layers: ConfigLayers) -> str | None:
    """The default of a topic's setting that is not a field of LogConfig."""
    name = row.from_broker.names[0] if row.from_broker else ""
    text = layers.merged().get(name)
    if text is None or name == "log.message.format.version":  # Kafka ignores it too
        return row.default_text
    return write(row.parse(text))


def _synonyms(name: str, layers: ConfigLayers, sensitive: bool, with_default: bool = True) -> tuple[ConfigSynonym, ...]:
    defaults = {other: kafka_table()[other].default_text for other in synonyms(name) if other in kafka_table()}
    layers_by_source: list[tuple[Mapping[str, str | None], ConfigSource]] = [
        (dict(layers.dynamic_broker), ConfigSource.DYNAMIC_BROKER),
        (dict(layers.dynamic_default), ConfigSource.DYNAMIC_DEFAULT_BROKER),
        (dict(with_node_id(layers.static)), ConfigSource.STATIC_BROKER),
        (defaults if with_default else {}, ConfigSource.DEFAULT),
    ]
    candidates = [
        ConfigSynonym(other, None if sensitive else text, source)
        for values, source in layers_by_source
        for other in synonyms(name)
        if (text := values.get(other)) is not None
    ]
    start = next((i for i, synonym in enumerate(candidates) if synonym.name == name), len(candidates))
    return tuple(candidates[start:])  # an override for one listener is not a synonym
