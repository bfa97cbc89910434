"""A broker's own node, /brokers/ids/<id>: its endpoints and features. Byte for byte as Kafka 3.8 writes it.

Pure: values in and bytes out, or the reverse.

The versions added, in order:
    1  host and port
    2  endpoints; a listener is named after its protocol
    3  rack
    4  the protocol of each listener, whose name is free from then on
    5  features

Kafka writes version 5; below inter.broker.protocol.version 2.7 version 4, below 0.10.0 version 2. Host and port are
those of the first PLAINTEXT endpoint, for old clients, or null and -1.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from leadline import hash_order
from leadline.coordination.node_json import Fields, dumps, loads
from leadline.coordination.znodes import broker_path
from leadline.hash_order import string_hash
from leadline.model import BrokerId

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_ENDPOINT = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]{1,9})")


class RegisteredEndpoint(NamedTuple):
    listener: str
    host: str | None
    port: int
    protocol: str  # one of PROTOCOLS

    def __str__(self) -> str:
        host = f"[{self.host}]" if self.host and ":" in self.host else self.host or ""
        return f"{self.listener}://{host}:{self.port}"


class VersionRange(NamedTuple):
    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Registration:
    endpoints: tuple[RegisteredEndpoint, ...]
    timestamp_ms: int
    rack: str | None = None
    jmx_port: int = -1
    features: Mapping[str, VersionRange] = field(default_factory=dict)
    version: int = 5


def encode_registration(registration: Registration) -> bytes:
    endpoints, version = registration.endpoints, registration.version
    plaintext = (endpoint for endpoint in endpoints if endpoint.protocol == "PLAINTEXT")
    _, host, port, _ = next(plaintext, RegisteredEndpoint("", None, -1, ""))
    node: dict[str, object] = {}
    if version >= 5:
        names = hash_order.java_map(registration.features, string_hash)
        ranges = ((name, registration.features[name]) for name in names)
        node["features"] = {name: {"min_version": least, "max_version": most} for name, (least, most) in ranges}
    if version >= 4:
        protocols = {endpoint.listener: endpoint.protocol for endpoint in endpoints}
        listeners = hash_order.immutable(protocols, string_hash)
        node["listener_security_protocol_map"] = {listener: protocols[listener] for listener in listeners}
    node["endpoints"] = list(map(str, endpoints))
    if version >= 3 and registration.rack is not None:
        node["rack"] = registration.rack
    node |= {"jmx_port": registration.jmx_port, "port": port, "host": host, "version": version}
    node["timestamp"] = str(registration.timestamp_ms)
    return dumps(node)


def decode_registration(broker: BrokerId, data: bytes) -> Registration:
    fields = loads(broker_path(broker), data)
    version = fields.integer("version")
    if version < 1:
        raise fields.malformed(f"version {version}, expected 1 or more")
    return Registration(
        endpoints=_first_version(fields) if version == 1 else _endpoints(fields),
        timestamp_ms=fields.long("timestamp", "-1"),
        rack=fields.string("rack") if "rack" in fields else None,
        jmx_port=fields.integer("jmx_port"),
        features=_features(fields.fields("features")),
        version=version,
    )


def _first_version(fields: Fields) -> tuple[RegisteredEndpoint, ...]:
    return (RegisteredEndpoint("PLAINTEXT", fields.string("host"), fields.integer("port"), "PLAINTEXT"),)


def _endpoints(fields: Fields) -> tuple[RegisteredEndpoint, ...]:
    protocol_map = fields.fields("listener_security_protocol_map")
    protocols = {name: protocol_map.string(name) for name in protocol_map.names()} or dict(
        zip(PROTOCOLS, PROTOCOLS, strict=True)
    )
    return tuple(_endpoint(fields, text, protocols) for text in fields.strings("endpoints"))


def _endpoint(fields: Fields, text: str, protocols: Mapping[str, str]) -> RegisteredEndpoint:
    parts = _ENDPOINT.fullmatch(text)
    if not parts:
        raise fields.malformed(f"endpoint {text!r:.60} is not listener://host:port")
    listener, host, port = parts[1].upper(), parts[2], int(parts[3])
    protocol = protocols.get(listener)
    if protocol not in PROTOCOLS:
        raise fields.malformed(f"listener {listener!r:.60} has protocol {protocol!r:.60}, not one of {PROTOCOLS}")
    return RegisteredEndpoint(listener, host or None, port, protocol)


def _features(fields: Fields) -> dict[str, VersionRange]:
    ranges = {name: fields.fields(name) for name in fields.names()}
    return {
        name: VersionRange(bounds.integer("min_version"), bounds.integer("max_version"))
        for name, bounds in ranges.items()
    }
