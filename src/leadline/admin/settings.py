"""The settings of topics and brokers: where each comes from, and how it is changed.

Of several synonyms with the same name, the client library keeps only the last. So the first and the last source of a
setting are always there, and one between them may be missing.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from leadline.admin.connection import ClusterConnection
from leadline.admin.errors import Failure

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry

DEFAULT_SOURCE, BROKER_DEFAULT_SOURCE = "DEFAULT_CONFIG", "DYNAMIC_DEFAULT_BROKER_CONFIG"
Change = tuple[str, str | None, "AlterConfigOpType"]


class ShownSynonym(NamedTuple):
    source: str
    name: str
    value: str | None

    def __str__(self) -> str:
        return f"{self.source}:{self.name}={value_text(self.value)}"


def value_text(value: str | None) -> str:
    return "null" if value is None else value


class ShownSetting(NamedTuple):
    name: str
    value: str | None  # None: no value, or a secret one
    source: str
    sensitive: bool
    read_only: bool
    synonyms: tuple[ShownSynonym, ...]


def read_settings(connection: ClusterConnection, admin: "AdminClient", kind: str, name: str) -> list[ShownSetting]:
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


def broker_defaults(connection: ClusterConnection, admin: "AdminClient") -> list[ShownSetting]:
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


def alter_configs(
    connection: ClusterConnection, admin: "AdminClient", kind: str, name: str, changes: "Sequence[Change]"
) -> None:
    """Make all changes or none."""
    from confluent_kafka.admin._config import ConfigEntry, ConfigResource

    entries = [ConfigEntry(key, value, incremental_operation=operation) for key, value, operation in changes]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    futures = admin.incremental_alter_configs([resource], request_timeout=connection.remaining_s)
    connection.wait(futures[resource])
