"""The nodes of quotas: where they are and what is in them, as Apache Kafka 3.8 writes them, byte for byte.

Pure: values in and bytes out, or the reverse.

    /config/users/<user>    /config/clients/<client id>    /config/users/<user>/clients/<client id>    /config/ips/<ip>

    {"version":1,"config":{"request_percentage":"50.5","producer_byte_rate":"1024"}}

Names of users and client ids are sanitized, so that each is one step of a path; addresses stand as they are. The
default is `<default>`.
A user's quotas and SCRAM credentials share a node: a change to the one keeps the other.
    a value is a text: whole numbers as digits, the others as Java prints a double
    a node whose last setting goes is deleted if it has no children, and the empty nodes above it with it
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from leadline.config.values import ConfigType, read, write
from leadline.coordination import znodes
from leadline.coordination.node_json import MalformedNode
from leadline.errors import InvalidRequest, UnsupportedVersion
from leadline.security.client_quotas import DEFAULT, KINDS, EntityName, QuotaEntity, QuotaKind

USERS, CLIENTS, IPS = "users", "clients", "ips"
USER, CLIENT_ID, IP = "user", "client-id", "ip"  # in requests
CONNECTION_CREATION_RATE = "connection_creation_rate"
EPSILON = 1e-6

TYPES = {
    QuotaKind.PRODUCER_BYTE_RATE.value: ConfigType.LONG,
    QuotaKind.CONSUMER_BYTE_RATE.value: ConfigType.LONG,
    QuotaKind.REQUEST_PERCENTAGE.value: ConfigType.DOUBLE,
    QuotaKind.CONTROLLER_MUTATION_RATE.value: ConfigType.DOUBLE,
    CONNECTION_CREATION_RATE: ConfigType.INT,
}
_HOST = re.compile(r"[0-9A-Za-z](?:[0-9A-Za-z.:%_-]*[0-9A-Za-z])?|::[0-9A-Fa-f:.]*", re.ASCII)
_BITS = {ConfigType.LONG: 63, ConfigType.INT: 31}


class IpEntity(NamedTuple):
    """An address, or all without a quota of their own."""

    ip: EntityName


ConfigEntity = QuotaEntity | IpEntity


# Where


def entity_path(entity: ConfigEntity) -> str:
    """Below /config, as a notification has it: users/U/clients/C."""
    if isinstance(entity, IpEntity):
        return f"{IPS}/{znodes.DEFAULT_ENTITY if entity.ip is DEFAULT else entity.ip}"
    steps = [(USERS, entity.user), (CLIENTS, entity.client_id)]
    return "/".join(f"{kind}/{_step(name)}" for kind, name in steps if name is not None)


def node_path(entity: ConfigEntity) -> str:
    return f"{znodes.CONFIG}/{entity_path(entity)}"


def entity_of(path: str) -> ConfigEntity | None:
    """The entity at a path below /config. None: the node has no quotas."""
    match path.split("/"):
        case ["users", user]:
            return QuotaEntity(_name(user))
        case ["users", user, "clients", client_id]:
            return QuotaEntity(_name(user), _name(client_id))
        case ["clients", client_id]:
            return QuotaEntity(None, _name(client_id))
        case ["ips", ip]:
            return IpEntity(DEFAULT if ip == znodes.DEFAULT_ENTITY else ip)
    return None


def _step(name: EntityName) -> str:
    return znodes.DEFAULT_ENTITY if name is DEFAULT else znodes.sanitize(name)


def _name(step: str) -> EntityName:
    return DEFAULT if step == znodes.DEFAULT_ENTITY else znodes.desanitize(step)


# What


def client_quotas_in(path: str, config: Mapping[str, str]) -> dict[QuotaKind, float]:
    """The quotas among the settings of a user or a client id."""
    return {kind: _number(path, name, config[name]) for name, kind in KINDS.items() if name in config}


def connection_rate_in(path: str, config: Mapping[str, str]) -> int | None:
    """The quota among the settings of an address."""
    if CONNECTION_CREATION_RATE not in config:
        return None
    return int(_number(path, CONNECTION_CREATION_RATE, config[CONNECTION_CREATION_RATE]))


def quota_values_in(entity: ConfigEntity, config: Mapping[str, str]) -> dict[str, float]:
    """All quotas among the settings of an entity, by key."""
    return {key: _number(node_path(entity), key, config[key]) for key in _keys_of(entity) if key in config}


def _keys_of(entity: ConfigEntity) -> tuple[str, ...]:
    return (CONNECTION_CREATION_RATE,) if isinstance(entity, IpEntity) else tuple(KINDS)


def _number(path: str, name: str, text: str) -> float:
    try:
        value = read(TYPES[name], text)
    except ValueError as error:
        raise MalformedNode(path, f"config.{name} {error}, not {text!r:.60}") from None
    assert isinstance(value, int | float)
    return float(value)


class QuotaAlteration(NamedTuple):
    key: str
    value: float | None  # None: removed


def altered(entity: ConfigEntity, config: Mapping[str, str], changes: Iterable[QuotaAlteration]) -> dict[str, str]:
    """The settings after AlterClientQuotas; all that it does not name stay. Raises InvalidRequest, in Kafka's words.

    A negative number is refused where a whole one is needed, as in Kafka, if in odd words.
    """
    names, after = _keys_of(entity), dict(config)
    for key, value in changes:
        if value is None:
            after.pop(key, None)
        elif key in names:
            after[key] = _text(key, value)
        else:
            raise InvalidRequest(f"Invalid configuration key {key}")
    return after


def _text(key: str, value: float) -> str:
    kind = TYPES[key]
    if kind is ConfigType.DOUBLE:
        return str(write(float(value)))
    limit = 1 << _BITS[kind]
    whole = max(-limit, min(int(value + EPSILON), limit - 1)) if abs(value) < float("inf") else limit
    if not abs(whole - value) <= EPSILON:
        raise InvalidRequest(f"Configuration {key} must be a {kind.name} value")
    return str(whole)


# In requests


def entity_of_request(parts: Iterable[tuple[str, str | None]]) -> ConfigEntity:
    """The entity that AlterClientQuotas names; None for the default. Raises InvalidRequest, in Kafka's words.

    Whether a name in place of an address can be resolved is not known here.
    """
    names: dict[str, EntityName] = {}
    for kind, name in parts:
        if kind not in (USER, CLIENT_ID, IP):
            raise InvalidRequest(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise InvalidRequest(f"Empty {kind} not supported")
        names[kind] = DEFAULT if name is None else name
    if not names:
        raise InvalidRequest("Invalid empty client quota entity")
    if IP not in names:
        return QuotaEntity(names.get(USER), names.get(CLIENT_ID))
    if len(names) > 1:
        raise InvalidRequest(
            "Invalid quota entity combination, IP entity should not be used with user/client ID entity."
        )
    ip = names[IP]
    if ip is not DEFAULT and not _HOST.fullmatch(ip):  # it becomes a path element, not escaped
        raise InvalidRequest(f"{znodes.sanitize(ip)} is not a valid IP or resolvable host.")
    return IpEntity(ip)


def names_of(entity: ConfigEntity) -> dict[str, EntityName]:
    """The names of an entity, by the types that requests use."""
    if isinstance(entity, IpEntity):
        return {IP: entity.ip}
    names = {USER: entity.user, CLIENT_ID: entity.client_id}
    return {kind: name for kind, name in names.items() if name is not None}


class QuotaFilterComponent(NamedTuple):
    entity_type: str
    name: EntityName | None  # None: any


class QuotaFilter(NamedTuple):
    """The filter of DescribeClientQuotas."""

    components: tuple[QuotaFilterComponent, ...]
    strict: bool  # entities with further types do not match

    def check(self) -> None:
        """Raises what Kafka answers."""
        words = {USER: "user", CLIENT_ID: "client", IP: "ip"}
        kinds = set[str]()
        for kind, _ in self.components:
            if not kind:
                raise InvalidRequest("Unexpected empty filter component entity type")
            if kind not in words:
                raise UnsupportedVersion(f"Custom entity type '{kind}' not supported")
            if kind in kinds:
                raise InvalidRequest(f"Duplicate {words[kind]} filter component entity type")
            kinds.add(kind)
        if IP in kinds and len(kinds) > 1:
            raise InvalidRequest(
                "Invalid entity filter component combination, IP filter component should not be used with "
                "user or clientId filter component."
            )

    def matches(self, entity: ConfigEntity) -> bool:
        names = names_of(entity)
        if self.strict and len(names) != len(self.components):
            return False
        return all(kind in names and name in (None, names[kind]) for kind, name in self.components)
