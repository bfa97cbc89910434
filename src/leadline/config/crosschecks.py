"""Rules between several settings of a broker, as Kafka checks them when it starts.

Pure: values in, the first violation is raised.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from leadline.config.checks import is_host, precedes
from leadline.config.listeners import Listener, Listeners, parse_listeners, parse_pairs
from leadline.config.values import InvalidSetting, Value, csv

_AT_MOST = (
    ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
    ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
    ("offsets.commit.required.acks", "offsets.topic.replication.factor"),
    ("group.consumer.min.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"),
    ("group.consumer.min.heartbeat.interval.ms", "group.consumer.heartbeat.interval.ms"),
    ("group.consumer.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"),
    ("group.consumer.min.session.timeout.ms", "group.consumer.max.session.timeout.ms"),
    ("group.consumer.min.session.timeout.ms", "group.consumer.session.timeout.ms"),
    ("group.consumer.session.timeout.ms", "group.consumer.max.session.timeout.ms"),
)
_MEGABYTE = 1024 * 1024
RECORD_FORMATS = ("0.10.0", "0.11.0")  # the releases that brought formats 1 and 2


def check(typed: Mapping[str, Value], names_set: set[str]) -> Listeners:
    """`typed`: the values of all settings. `names_set`: the names that were set."""
    values: Mapping[str, Any] = typed
    for lesser, greater in _AT_MOST:
        if values[lesser] > values[greater]:
            raise InvalidSetting(f"{lesser}={values[lesser]}: must not exceed {greater}={values[greater]}")
    _check_id(values)
    _check_storage(values)
    _check_requests(values)
    _check_connections_per_ip(values)
    _check_record_format(values["inter.broker.protocol.version"], values["log.message.format.version"])
    listeners = parse_listeners(
        values["listeners"],
        values["advertised.listeners"],
        values["listener.security.protocol.map"],
        values["inter.broker.listener.name"],
        values["security.inter.broker.protocol"] if "security.inter.broker.protocol" in names_set else None,
    )
    return replace(listeners, control_plane=_control_plane(values["control.plane.listener.name"], listeners))


def _check_id(values: Mapping[str, Any]) -> None:
    id, most = values["broker.id"], values["reserved.broker.max.id"]
    if id != values["node.id"]:
        raise InvalidSetting(f"node.id={values['node.id']}: must be the same as broker.id={id}")
    if not values["broker.id.generation.enable"]:
        if id < 0:
            raise InvalidSetting(f"broker.id={id}: must be at least 0 with broker.id.generation.enable=false")
    elif not -1 <= id <= most:
        raise InvalidSetting(f"broker.id={id}: must be between -1 and reserved.broker.max.id={most}")


def _check_storage(values: Mapping[str, Any]) -> None:
    dirs = values["log.dir"] if values["log.dirs"] is None else values["log.dirs"]
    if not csv(dirs):
        raise InvalidSetting(f"log.dirs={dirs}: must name at least one directory")
    threads, room = values["log.cleaner.threads"], values["log.cleaner.dedupe.buffer.size"]
    if threads and room // threads <= _MEGABYTE:
        raise InvalidSetting(
            f"log.cleaner.dedupe.buffer.size={room}: must be more than {_MEGABYTE} per thread, with "
            f"log.cleaner.threads={threads}"
        )


def _check_requests(values: Mapping[str, Any]) -> None:
    queued, largest = values["queued.max.request.bytes"], values["socket.request.max.bytes"]
    if 0 < queued < largest:
        raise InvalidSetting(
            f"queued.max.request.bytes={queued}: must be at least socket.request.max.bytes={largest}, or -1"
        )
    delay, idle = values["connection.failed.authentication.delay.ms"], values["connections.max.idle.ms"]
    if 0 <= idle <= delay:
        raise InvalidSetting(
            f"connection.failed.authentication.delay.ms={delay}: must be less than connections.max.idle.ms={idle}"
        )
    acks = values["offsets.commit.required.acks"]
    if acks < -1:
        raise InvalidSetting(f"offsets.commit.required.acks={acks}: must be at least -1")


def _check_connections_per_ip(values: Mapping[str, Any]) -> None:
    overrides = connections_per_ip(values["max.connections.per.ip.overrides"])
    if values["max.connections.per.ip"] == 0 and not overrides:
        raise InvalidSetting(
            "max.connections.per.ip=0: must be at least 1, unless max.connections.per.ip.overrides is set"
        )


def _check_record_format(protocol: str, written: str) -> None:
    """Kafka obeys log.message.format.version below protocol 3.0. Here all records have the format of 0.11 and later."""
    if not precedes(protocol, "3.0-IV1"):
        return
    if _record_format(protocol) < _record_format(written):
        least = RECORD_FORMATS[_record_format(written) - 1]
        raise InvalidSetting(
            f"log.message.format.version {written} can only be used when inter.broker.protocol.version is set to "
            f"version {least} or higher"
        )
    if _record_format(written) < len(RECORD_FORMATS):
        raise InvalidSetting(
            f"log.message.format.version={written}: not supported with inter.broker.protocol.version={protocol}: set "
            f"{RECORD_FORMATS[-1]} or higher"
        )


def _record_format(release: str) -> int:
    """The newest format of records that a release has."""
    return sum(not precedes(release, f"{first}-IV0") for first in RECORD_FORMATS)


def connections_per_ip(overrides: str) -> dict[str, int]:
    """The limits in max.connections.per.ip.overrides, by host."""
    limits: dict[str, int] = {}
    for host, count in parse_pairs("max.connections.per.ip.overrides", overrides).items():
        if not is_host(host) or not count.isdecimal():
            raise InvalidSetting(f"max.connections.per.ip.overrides={overrides}: {host}:{count} must be host:number")
        limits[host] = int(count)
    return limits


def _control_plane(name: str | None, listeners: Listeners) -> Listener | None:
    if name is None:
        return None
    by_name = {listener.name: listener for listener in listeners.advertised}
    if name.upper() not in by_name:
        raise InvalidSetting(
            f"control.plane.listener.name={name}: must be an advertised listener: {', '.join(by_name)}"
        )
    if name.upper() == listeners.inter_broker.name:
        raise InvalidSetting(f"control.plane.listener.name={name}: must differ from the inter-broker listener")
    return by_name[name.upper()]
