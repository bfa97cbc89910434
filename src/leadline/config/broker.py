"""All settings of a broker, read from the properties of a server.properties.

The defaults of topics have names of their own there. Some also have older names in other units: milliseconds take
precedence over minutes, and minutes over hours. `listener.name.<listener>.<setting>` overrides a setting for one
listener.

Pure: text in, values out.
"""

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from leadline.config import crosschecks, unsupported
from leadline.config.authorizer import AuthorizerConfig
from leadline.config.checks import at_least
from leadline.config.cluster import ClusterConfig
from leadline.config.coordinators import CoordinatorConfig
from leadline.config.delegation_tokens import DelegationTokenConfig
from leadline.config.listeners import Listeners, SecurityProtocol
from leadline.config.network import NetworkConfig
from leadline.config.replication import ReplicationConfig
from leadline.config.security import CALLBACK_HANDLER, JAAS, LOGIN_HANDLER, SecurityConfig
from leadline.config.settings import Importance, Mode, SettingRow, Support, nearest, setting
from leadline.config.storage import StorageConfig
from leadline.config.topic import LogConfig
from leadline.config.values import LONG_MAX, ConfigType, InvalidSetting, Value, csv, write
from leadline.config.zookeeper import ZooKeeperConfig

INT, STRING = ConfigType.INT, ConfigType.STRING
HIGH = Importance.HIGH
_UNIT_MS = {"minutes": 60_000, "hours": 3_600_000}
_FALLBACKS = {"log.dirs": "log.dir", "zookeeper.connection.timeout.ms": "zookeeper.session.timeout.ms"}
_OF_LISTENER = re.compile(r"listener\.name\.([^.]*)\.(.*)")
_PROTECTION = ("ssl.", "sasl.")
_OF_MECHANISM = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)
_OF_ONE_LISTENER = frozenset(
    ("max.connections", "max.connection.creation.rate", *SecurityConfig.rows(), JAAS, CALLBACK_HANDLER, LOGIN_HANDLER)
)
_NOT_SUPPORTED = {
    "config.providers": "values are not looked up elsewhere; write them out",
    "authorizer.zookeeper.url": "ACLs are in the ZooKeeper of zookeeper.connect",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(
    StorageConfig,
    ClusterConfig,
    ZooKeeperConfig,
    NetworkConfig,
    SecurityConfig,
    ReplicationConfig,
    CoordinatorConfig,
    AuthorizerConfig,
    DelegationTokenConfig,
):
    """The settings of a broker that are obeyed, without the defaults of topics: those are a LogConfig."""

    log_dir: str = setting("leadline-data", STRING, "the log directory, if log.dirs is not set", importance=HIGH)
    log_retention_minutes: int | None = setting(
        None, INT, "how long records are kept, if log.retention.ms is not set", importance=HIGH
    )
    log_retention_hours: int = setting(
        168, INT, "how long records are kept, if neither ms nor minutes are set", importance=HIGH
    )
    log_roll_hours: int = setting(
        168,
        INT,
        "the longest time one segment is written to, if log.roll.ms is not set",
        at_least(1),
        importance=HIGH,
    )
    log_roll_jitter_hours: int = setting(
        0, INT, "random part of log.roll.hours, if log.roll.jitter.ms is not set", at_least(0), importance=HIGH
    )

    @classmethod
    def unsupported_rows(cls) -> Iterable[SettingRow]:
        return (*_topic_defaults(), *unsupported.rows())


def _topic_defaults() -> Iterator[SettingRow]:
    for topic in LogConfig.table().values():
        if topic.from_broker:
            name, *older = topic.from_broker.names
            yield SettingRow(
                name=name,
                kind=topic.kind,
                default=None if older else topic.default,
                meaning=f"default of topics: {topic.meaning}",
                check=None if older else topic.check,
                importance=topic.from_broker.importance,
                mode=Mode.READ_ONLY if name == "log.message.format.version" else Mode.CLUSTER_WIDE,
                support=topic.support,
                why=topic.why,
            )


# Settings that can only be set dynamically. As in Kafka they are never in a server.properties.
DYNAMIC_ONLY = {
    name: SettingRow(
        name=name, kind=ConfigType.LONG, default=LONG_MAX, meaning=meaning, check=at_least(0), mode=Mode.CLUSTER_WIDE
    )
    for name, meaning in (
        ("leader.replication.throttled.rate", "bytes per second that a leader sends to throttled followers"),
        ("follower.replication.throttled.rate", "bytes per second that throttled followers fetch"),
        (
            "replica.alter.log.dirs.io.max.bytes.per.second",
            "bytes per second that replicas move between log directories",
        ),
    )
}


@cache
def kafka_table() -> Mapping[str, SettingRow]:
    """All rows that Kafka's own table has too."""
    return {name: row for name, row in BrokerConfig.table().items() if not row.not_in_kafka}


@cache
def _chains() -> Mapping[str, tuple[str, ...]]:
    chains: dict[str, tuple[str, ...]] = {}
    for row in LogConfig.table().values():
        names = row.from_broker.names if row.from_broker else ()
        for name in names if len(names) > 1 else ():
            if name == names[0] or not name.endswith(
                ".ms"
            ):  # log.flush.scheduler.interval.ms is a setting of its own too
                chains[name] = names
    return chains


def synonyms(name: str) -> tuple[str, ...]:
    """The names under which a broker's setting may be set, in order of precedence."""
    if name in _chains():
        return _chains()[name]
    prefixed = _OF_LISTENER.fullmatch(name)
    return (name, _base(prefixed[2])) if prefixed else (name,)


def _base(name: str) -> str:
    """The setting in `listener.name.<listener>.<name>`, without a SASL mechanism before it."""
    return next((base for base in _OF_MECHANISM if name.endswith(base)), name)


def row_of(name: str) -> SettingRow | None:
    """The row of a setting of a broker or of one listener, or of a dynamic one."""
    row = kafka_table().get(name) or DYNAMIC_ONLY.get(name)
    return row or next((kafka_table()[synonym] for synonym in synonyms(name) if synonym in kafka_table()), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """The settings of a broker."""

    broker: BrokerConfig
    topics: LogConfig  # the defaults of all topics
    listeners: Listeners
    ignored: tuple[str, ...]  # names without effect, each with the reason or the nearest name
    properties: Mapping[str, str]  # the texts that were set, by name

    @property
    def storage(self) -> StorageConfig:
        return self.broker

    def of_listener(self, listener: str) -> SecurityConfig:
        """How one listener is protected: its own settings, and those of all listeners where it has none."""
        own = self.own_of_listener(listener)
        return self.broker.with_values({name: text for name, text in own.items() if name in SecurityConfig.rows()})

    def own_of_listener(self, listener: str) -> dict[str, str]:
        """The settings of this listener alone, without its prefix; a mechanism's prefix may remain."""
        prefix = f"listener.name.{listener.lower()}."
        return {name.removeprefix(prefix): text for name, text in self.properties.items() if name.startswith(prefix)}


_OF_ZOOKEEPER = {"zookeeper.set.acl", "zookeeper.ssl.client.enable"}


def broker_settings(properties: Mapping[str, str], stored: Container[str] = ()) -> BrokerSettings:
    """`stored`: names that the cluster holds. A misspelt one has no effect, as in Kafka."""
    for name in _NOT_SUPPORTED:
        if name in properties:
            raise _not_supported(name, properties[name])
    set_here = with_node_id(properties)
    supported = {name: text for name, text in set_here.items() if name in BrokerConfig.table()}
    values = typed_values(supported)
    listeners = crosschecks.check(values, set(supported))
    settings = BrokerSettings(
        broker=BrokerConfig().with_values(supported | _fallbacks(supported)),
        topics=topic_defaults(values),
        listeners=listeners,
        ignored=tuple(sorted(_ignored(properties, listeners, stored))),
        properties=set_here,
    )
    if unknown := next((name for name in unknown_protection(listeners, set_here) if name not in stored), None):
        raise InvalidSetting(f"unknown setting {unknown}{nearest(_without_listener(unknown), BrokerConfig.table())}")
    _check_listener_settings(listeners, set_here)
    _check_inter_broker_mechanism(settings)
    return settings


def refusals(properties: Mapping[str, str]) -> dict[str, InvalidSetting]:
    """Why settings are refused, each by itself. `broker_settings` raises one of these, or a rule between settings."""
    errors: dict[str, InvalidSetting] = {}
    bound = {part.partition("://")[0].lower() for part in csv(properties.get("listeners"))}
    for name, text in properties.items():
        prefixed, row = _OF_LISTENER.fullmatch(name), BrokerConfig.table().get(name) or row_of(name)
        if name in _NOT_SUPPORTED:
            errors[name] = _not_supported(name, text)
        elif row is not None and name not in DYNAMIC_ONLY and (prefixed is None or prefixed[1] in bound):
            try:
                row._replace(name=name).read(text)
            except InvalidSetting as error:
                errors[name] = error
    return errors


def _not_supported(name: str, text: str) -> InvalidSetting:
    return InvalidSetting(f"{name}={text.strip()}: not supported: {_NOT_SUPPORTED[name]}")


def unknown_protection(listeners: Listeners, properties: Iterable[str]) -> Iterator[str]:
    """Kafka ignores unknown names. A misspelt one is refused here: it would leave a listener with less protection.

    A mechanism may stand before the name.
    """
    for name in properties:
        is_protection = any(f".{part}" in f".{_without_listener(name)}" for part in _PROTECTION)
        is_ours = _OF_LISTENER.fullmatch(name) is None or _is_of_listener(name, listeners)
        if is_protection and is_ours and name not in BrokerConfig.table() and row_of(name) is None:
            yield name


def _without_listener(name: str) -> str:
    prefixed = _OF_LISTENER.fullmatch(name)
    return prefixed[2] if prefixed else name


def _check_listener_settings(listeners: Listeners, properties: Mapping[str, str]) -> None:
    """Check the settings of existing listeners. Those of other listeners have no effect, as in Kafka."""
    for name, text in properties.items():
        row = row_of(name)
        if row and _is_of_listener(name, listeners):
            row._replace(name=name).read(text)


def _check_inter_broker_mechanism(settings: BrokerSettings) -> None:
    """Brokers that log in to each other do so by a mechanism that their listener offers."""
    inter_broker, config = settings.listeners.inter_broker, settings.broker
    mechanism = config.sasl_mechanism_inter_broker_protocol
    protocol = inter_broker.protocol
    if config.inter_broker_listener_name is None:
        protocol = SecurityProtocol[config.security_inter_broker_protocol]
    enabled = settings.of_listener(inter_broker.name).sasl_enabled_mechanisms
    if protocol.sasl and mechanism not in enabled:
        raise InvalidSetting(
            f"sasl.mechanism.inter.broker.protocol={mechanism}: must be one of sasl.enabled.mechanisms="
            f"{','.join(enabled)}, as brokers log in to each other"
        )


def _is_of_listener(name: str, listeners: Listeners) -> bool:
    prefixed = _OF_LISTENER.fullmatch(name)
    return prefixed is not None and prefixed[1] in {listener.name.lower() for listener in listeners.bound}


def with_node_id(properties: Mapping[str, str]) -> dict[str, str]:
    """broker.id and node.id are two names of one setting."""
    completed = dict(properties)
    for name, other in (("broker.id", "node.id"), ("node.id", "broker.id")):
        if name not in completed and other in completed:
            completed[name] = completed[other]
    return completed


def typed_values(texts: Mapping[str, str]) -> dict[str, Value]:
    """The values of all settings: each text, checked by itself, or the default."""
    table = BrokerConfig.table()
    return {name: row.read(texts[name]) if name in texts else row.default for name, row in table.items()}


def topic_defaults(values: Mapping[str, Value]) -> LogConfig:
    rows = LogConfig.server_rows()
    texts = {name: write(_first(values, row.from_broker.names)) for name, row in rows.items() if row.from_broker}
    if texts["log.retention.ms"] == "0":
        raise InvalidSetting("log.retention.ms=0: must be -1 or at least 1")
    return LogConfig().with_values({name: text for name, text in texts.items() if text is not None}, rows)


def _first(values: Mapping[str, Value], names: tuple[str, ...]) -> Value:
    name = next(name for name in names if values[name] is not None)
    value = values[name]
    if isinstance(value, int) and name.startswith("log.retention.") and value < 0 and len(names) > 1:
        return -1
    unit = _UNIT_MS.get(name.rpartition(".")[2])
    return value * unit if unit and isinstance(value, int) else value


def _fallbacks(texts: Mapping[str, str]) -> dict[str, str]:
    return {name: texts[other] for name, other in _FALLBACKS.items() if name not in texts and other in texts}


def _ignored(properties: Mapping[str, str], listeners: Listeners, stored: Container[str]) -> Iterator[str]:
    table = BrokerConfig.table()
    for name in properties:
        row = table.get(name) or row_of(name)
        if row is None:
            yield f"{name}{nearest(name, table)}"
        elif name in DYNAMIC_ONLY:
            if name not in stored:
                yield f"{name} (it can only be set dynamically, not in a file)"
        elif _OF_LISTENER.fullmatch(name) and not _is_of_listener(name, listeners):
            yield f"{name} (no listener has this name)"
        elif _OF_LISTENER.fullmatch(name) and row.name in _OF_ONE_LISTENER:
            continue
        elif _OF_LISTENER.fullmatch(name) and row.support is Support.OBEYED:
            yield f"{name} (listeners cannot have different values, in Kafka too)"
        elif row.support is Support.ACCEPTED:
            yield f"{name} ({row.why})"
        elif name in _OF_ZOOKEEPER and not properties.get("zookeeper.connect"):
            yield f"{name} (without zookeeper.connect there is no ZooKeeper to protect)"
