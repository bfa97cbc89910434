"""The listeners of a broker: their addresses and security protocols.

An address is NAME://host:port. An IPv6 host is in brackets. An empty host means all interfaces, port 0 any free port.
Names are compared in upper case. `listener.security.protocol.map` maps names to protocols.

    names are distinct; two listeners share a port only if one host is IPv4 and the other IPv6
    advertised names are names of listeners, and the inter-broker listener is advertised

Pure: text in, values out.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from leadline.config.values import InvalidSetting, csv

_ADDRESS = re.compile(r"(.*)://(?:\[([0-9a-zA-Z\-%._:]*)\]|([0-9a-zA-Z\-%._:]*)):(-?[0-9]+)")


class SecurityProtocol(IntEnum):
    """The security protocol of a listener. The numbers are Kafka's."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3

    @property
    def tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


@dataclass(frozen=True, slots=True)
class Listener:
    name: str
    protocol: SecurityProtocol
    host: str  # empty: all interfaces
    port: int  # 0: any free port

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Listeners:
    bound: tuple[Listener, ...]
    advertised: tuple[Listener, ...]
    inter_broker: Listener  # one of the advertised; other brokers connect to it
    control_plane: Listener | None = None  # another one of them, for requests of the controller and to it

    @property
    def controllers(self) -> Listener:
        """The listener on which the controller and the other brokers reach each other."""
        return self.control_plane or self.inter_broker

    def named(self, name: str) -> Listener:
        return next(listener for listener in self.bound if listener.name == name)


def parse_listeners(
    listeners: str,
    advertised: str | None,
    protocol_map: str,
    inter_broker_name: str | None,
    inter_broker_protocol: str | None,
) -> Listeners:
    """At most one of the last two may be set."""
    protocols = parse_protocols(protocol_map)
    bound = _parse("listeners", listeners, protocols)
    _distinct_ports(bound, listeners)
    public = bound if advertised is None else _parse("advertised.listeners", advertised, protocols)
    _advertisable(public, bound, advertised)
    if inter_broker_name is not None and inter_broker_protocol is not None:
        raise InvalidSetting(
            f"inter.broker.listener.name={inter_broker_name}: must not be set together with "
            f"security.inter.broker.protocol={inter_broker_protocol}"
        )
    return Listeners(bound, public, _inter_broker(public, protocols, inter_broker_name, inter_broker_protocol))


def parse_protocols(text: str) -> dict[str, SecurityProtocol]:
    protocols: dict[str, SecurityProtocol] = {}
    for name, protocol in parse_pairs("listener.security.protocol.map", text).items():
        if protocol.upper() not in SecurityProtocol.__members__:
            allowed = ", ".join(SecurityProtocol.__members__)
            raise InvalidSetting(
                f"listener.security.protocol.map={text}: {protocol} of {name} must be one of {allowed}"
            )
        protocols[name.upper()] = SecurityProtocol[protocol.upper()]
    return protocols


def parse_pairs(setting: str, text: str) -> dict[str, str]:
    """The pairs in a:b,c:d. The last colon separates, as a name may be an IPv6 address."""
    pairs = [part.rpartition(":") for part in csv(text)]
    if malformed := next((value for _, colon, value in pairs if not colon), None):
        raise InvalidSetting(f"{setting}={text}: {malformed} must be a pair with a colon")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _parse(setting: str, text: str, protocols: Mapping[str, SecurityProtocol]) -> tuple[Listener, ...]:
    listeners: dict[str, Listener] = {}
    for part in csv(text):
        match = _ADDRESS.fullmatch(part)
        if match is None:
            raise InvalidSetting(f"{setting}={text}: {part} must be NAME://host:port")
        name, port = match[1].upper(), int(match[4])
        if name not in protocols:
            raise InvalidSetting(f"{setting}={text}: {name} has no protocol in listener.security.protocol.map")
        if not 0 <= port <= 65535:
            raise InvalidSetting(f"{setting}={text}: port {port} must be between 0 and 65535")
        if name in listeners:
            raise InvalidSetting(f"{setting}={text}: {name} must occur only once")
        listeners[name] = Listener(name, protocols[name], match[2] or match[3] or "", port)
    if not listeners:
        raise InvalidSetting(f"{setting}={text}: must name at least one listener")
    return tuple(listeners.values())


def _distinct_ports(bound: Iterable[Listener], text: str) -> None:
    hosts: dict[int, list[str]] = {}
    for listener in bound:
        if listener.port:
            hosts.setdefault(listener.port, []).append(listener.host)
    for port, sharing in hosts.items():
        if len(sharing) > 1 and sorted(map(_ip_version, sharing)) != [4, 6]:
            raise InvalidSetting(
                f"listeners={text}: port {port} must occur only once, or with one IPv4 and one IPv6 address"
            )


def _ip_version(host: str) -> int:
    """4 or 6; 0 for a host name."""
    if ":" in host:
        return 6
    parts = host.split(".")
    return 4 if len(parts) == 4 and all(part.isdecimal() and int(part) < 256 for part in parts) else 0


def _advertisable(public: Iterable[Listener], bound: Iterable[Listener], advertised: str | None) -> None:
    names = {listener.name for listener in bound}
    for listener in public:
        shown = f"advertised.listeners={advertised}" if advertised is not None else f"listeners={listener}"
        if listener.host == "0.0.0.0":
            raise InvalidSetting(f"{shown}: clients cannot connect to 0.0.0.0; advertise an address they can reach")
        if listener.name not in names:
            raise InvalidSetting(f"{shown}: {listener.name} must be one of listeners: {', '.join(sorted(names))}")


def _inter_broker(
    public: Iterable[Listener], protocols: Mapping[str, SecurityProtocol], name: str | None, protocol: str | None
) -> Listener:
    setting = "security.inter.broker.protocol" if name is None else "inter.broker.listener.name"
    listener_name = (name or protocol or "PLAINTEXT").upper()
    if listener_name not in protocols:
        raise InvalidSetting(f"{setting}={listener_name}: has no protocol in listener.security.protocol.map")
    for listener in public:
        if listener.name == listener_name:
            return listener
    names = ", ".join(listener.name for listener in public)
    raise InvalidSetting(f"{setting}={listener_name}: must be the name of an advertised listener: {names}")
