"""The options of `leadline acls`: which resources, who, what and from where; as bindings and as filters.

They have the names of kafka-acls.sh. --producer and --consumer stand for what an application needs:

    --producer    write, describe and create on topics; write and describe on transactional ids
    --consumer    read and describe on topics; read on groups
    --idempotent  with --producer: idempotent-write on the cluster, for brokers before 3.0
"""

import argparse
from collections.abc import Iterator, Sequence

from leadline.admin.errors import Failure
from leadline.cli.acls.acl_text import operation_text, option_of, type_text
from leadline.security.acls import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    WILDCARD_HOST,
    AccessControlEntry,
    AccessControlEntryFilter,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)
from leadline.security.hosts import host_address
from leadline.security.principal import parse_principal

NAMED_TYPES = {
    ResourceType.TOPIC: "NAME",
    ResourceType.GROUP: "NAME",
    ResourceType.TRANSACTIONAL_ID: "ID",
    ResourceType.DELEGATION_TOKEN: "ID",
    ResourceType.USER: "User:NAME",
}
PRODUCER_TOPIC = (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE)
PRODUCER_TRANSACTION = (AclOperation.WRITE, AclOperation.DESCRIBE)
CONSUMER_TOPIC = (AclOperation.READ, AclOperation.DESCRIBE)
CONSUMER_GROUP = (AclOperation.READ,)


def add_resource_options(parser: argparse.ArgumentParser, *, several: bool = True) -> None:
    group = parser.add_argument_group("resources")
    for kind, metavar in NAMED_TYPES.items():
        help = f"a {type_text(kind)}"
        if several:
            help += "; * means all; repeatable" if kind is ResourceType.TOPIC else "; repeatable"
        group.add_argument(
            option_of(kind), dest=kind.name.lower(), action="append", default=[], metavar=metavar, help=help
        )
    group.add_argument("--cluster", action="store_true", help="the cluster itself")


def add_pattern_option(parser: argparse.ArgumentParser, *, filter: bool) -> None:
    kinds = list(PatternType)[1:] if filter else [PatternType.LITERAL, PatternType.PREFIXED]
    names = ", ".join(kind.name.lower() for kind in kinds)
    meaning = "match: all that apply to a name" if filter else "prefixed: all names with this prefix"
    parser.add_argument(
        "--resource-pattern-type",
        type=pattern_type,
        choices=kinds,
        default=PatternType.ANY if filter else PatternType.LITERAL,
        metavar="TYPE",
        help=f"{names} (default {'any' if filter else 'literal'}); {meaning}",
    )


def add_rule_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("rules")
    for name in ("allow", "deny"):
        group.add_argument(
            f"--{name}-principal",
            type=principal,
            action="append",
            default=[],
            metavar="User:NAME",
            help=f"principal to {name}; User:* is everyone; repeatable",
        )
    for name in ("allow", "deny"):
        group.add_argument(
            f"--{name}-host",
            type=host,
            action="append",
            default=[],
            metavar="ADDRESS",
            help="client address; repeatable (default: any)",
        )
    group.add_argument(
        "--operation",
        type=operation,
        action="append",
        default=[],
        metavar="NAME",
        help="operation, such as read, write or describe; repeatable",
    )
    group.add_argument("--producer", action="store_true", help="what a producer needs on topics and transactional ids")
    group.add_argument("--consumer", action="store_true", help="what a consumer needs on topics and groups")
    group.add_argument("--idempotent", action="store_true", help="with --producer: for brokers before Kafka 3.0, too")


# Types of options


def principal(text: str) -> str:
    try:
        parsed = parse_principal(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected User:NAME, not {text!r}") from None
    if not parsed.type or not parsed.name:
        raise argparse.ArgumentTypeError(f"expected User:NAME, not {text!r}")
    return text


def host(text: str) -> str:
    """As brokers compare it: ::1 is 0:0:0:0:0:0:0:1 to them."""
    return host_address(text)


def operation(text: str) -> AclOperation:
    try:
        return AclOperation.spelled(text)
    except ValueError:
        names = ", ".join(operation_text(kind) for kind in AclOperation if kind > AclOperation.ANY)
        raise argparse.ArgumentTypeError(f"there is no operation {text!r}: {names}") from None


def pattern_type(text: str) -> PatternType:
    try:
        return PatternType.spelled(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"there is no pattern type {text!r}: literal, prefixed, any, match") from None


# What they mean


def resources(options: argparse.Namespace) -> list[tuple[ResourceType, str]]:
    named = [(kind, name) for kind in NAMED_TYPES for name in getattr(options, kind.name.lower())]
    return named + ([(ResourceType.CLUSTER, CLUSTER_NAME)] if options.cluster else [])


def bindings_of(options: argparse.Namespace) -> list[AclBinding]:
    """The ACLs that the options describe. Raises Failure with the option that is missing or contradicts another."""
    operations = _operations(options)
    entries = [(principal, where or WILDCARD_HOST, permission) for principal, where, permission in _clients(options)]
    if not entries:
        raise Failure("no principal to add an ACL for: give --allow-principal or --deny-principal")
    return [
        AclBinding(pattern, AccessControlEntry(principal, where, kind, permission))
        for pattern, kinds in operations.items()
        for principal, where, permission in entries
        for kind in kinds
    ]


def filters_of(options: argparse.Namespace) -> list[AclBindingFilter]:
    """The ACLs to remove. Who, what and from where may be left out: then all of them match."""
    operations: dict[ResourcePattern, Sequence[AclOperation]]
    if options.operation or options.producer or options.consumer:
        operations = dict(_operations(options))
    else:
        operations = {_pattern(options, *resource): (AclOperation.ANY,) for resource in _some_resources(options)}
    entries: list[tuple[str | None, str | None, AclPermission]] = [*_clients(options)]
    if not entries:
        if options.allow_host or options.deny_host:
            raise Failure("--allow-host needs --allow-principal, and --deny-host --deny-principal")
        entries = [(None, None, AclPermission.ANY)]
    return [
        AclBindingFilter(ResourcePatternFilter(*pattern), AccessControlEntryFilter(principal, where, kind, permission))
        for pattern, kinds in operations.items()
        for principal, where, permission in entries
        for kind in kinds
    ]


def _clients(options: argparse.Namespace) -> Iterator[tuple[str, str | None, AclPermission]]:
    """Principals with their hosts; None: no host is given."""
    for permission in (AclPermission.ALLOW, AclPermission.DENY):
        word = permission.name.lower()
        hosts = getattr(options, f"{word}_host") or [None]
        for principal in getattr(options, f"{word}_principal"):
            yield from ((principal, where, permission) for where in hosts)


def _some_resources(options: argparse.Namespace) -> list[tuple[ResourceType, str]]:
    chosen = resources(options)
    if not chosen:
        names = ", ".join(option_of(kind) for kind in NAMED_TYPES)
        raise Failure(f"no resource: give at least one of {names}, --cluster")
    return chosen


def _pattern(options: argparse.Namespace, kind: ResourceType, name: str) -> ResourcePattern:
    """The cluster has one name: prefixes are for the others."""
    literal = kind is ResourceType.CLUSTER
    return ResourcePattern(kind, name, PatternType.LITERAL if literal else options.resource_pattern_type)


def _operations(options: argparse.Namespace) -> dict[ResourcePattern, Sequence[AclOperation]]:
    """What is allowed or denied, by resource."""
    if options.producer or options.consumer:
        return _of_applications(options)
    if options.idempotent:
        raise Failure("--idempotent is for --producer")
    if not options.operation:
        raise Failure("no operation: give --operation, --producer or --consumer")
    operations: dict[ResourcePattern, Sequence[AclOperation]] = {}
    for kind, name in _some_resources(options):
        supported = (*SUPPORTED_OPERATIONS[kind], AclOperation.ALL)
        for chosen in options.operation:
            if chosen not in supported:
                names = ", ".join(map(operation_text, supported))
                raise Failure(f"{operation_text(chosen)} means nothing on a {type_text(kind)}: it has {names}")
        operations[_pattern(options, kind, name)] = tuple(dict.fromkeys(options.operation))
    return operations


def _of_applications(options: argparse.Namespace) -> dict[ResourcePattern, Sequence[AclOperation]]:
    if options.operation:
        raise Failure("--producer and --consumer include their operations: leave --operation out")
    if options.deny_principal:
        raise Failure("--producer and --consumer are for --allow-principal")
    if not options.topic:
        raise Failure("--producer and --consumer need --topic")
    if options.consumer and not options.group:
        raise Failure("--consumer needs --group")
    if options.idempotent and not options.producer:
        raise Failure("--idempotent is for --producer")
    chosen_types = {kind for kind, _ in resources(options)}
    usable = {ResourceType.TOPIC, *({ResourceType.GROUP} if options.consumer else ())}
    usable |= {ResourceType.TRANSACTIONAL_ID} if options.producer else set()
    for kind in sorted(chosen_types - usable):
        role = "--producer" if options.producer else "--consumer"
        raise Failure(f"{option_of(kind)} is not for {role}: give it with --operation")
    operations: dict[ResourcePattern, Sequence[AclOperation]] = {}
    for name in options.topic:
        kinds = [*(PRODUCER_TOPIC if options.producer else ()), *(CONSUMER_TOPIC if options.consumer else ())]
        operations[_pattern(options, ResourceType.TOPIC, name)] = tuple(dict.fromkeys(kinds))
    for name in options.group if options.consumer else ():
        operations[_pattern(options, ResourceType.GROUP, name)] = CONSUMER_GROUP
    for name in options.transactional_id if options.producer else ():
        operations[_pattern(options, ResourceType.TRANSACTIONAL_ID, name)] = PRODUCER_TRANSACTION
    if options.idempotent:
        operations[ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME)] = (AclOperation.IDEMPOTENT_WRITE,)
    return operations
