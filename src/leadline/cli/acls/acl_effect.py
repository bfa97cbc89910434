"""What ACLs would change: who may do what before and after, decided by the authorizer of the broker.

Pure: ACLs in, changed decisions out.

It is decided for everyone whom an ACL of these resources names, and for anyone else, on each resource that is known
and to which the changed ACLs apply. A host that no ACL names stands for all other hosts.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from leadline.security.acls import (
    SUPPORTED_OPERATIONS,
    WILDCARD_HOST,
    WILDCARD_PRINCIPAL,
    AclBinding,
    AclOperation,
    ResourcePattern,
    ResourceType,
)
from leadline.security.authorizer import Authorizer
from leadline.security.principal import Principal, parse_principal

ANYONE_ELSE = Principal("User", "\0")  # a name that no principal has
ANY_OTHER_HOST = "\0"


class ChangedDecision(NamedTuple):
    resource_type: ResourceType
    name: str
    principal: Principal  # or ANYONE_ELSE
    host: str  # or ANY_OTHER_HOST
    operation: AclOperation
    allowed: bool  # afterwards


def changed_decisions(
    before: Sequence[AclBinding],
    after: Sequence[AclBinding],
    names: Iterable[tuple[ResourceType, str]],
    authorizer_of: Callable[[list[AclBinding]], Authorizer],
) -> list[ChangedDecision]:
    """`names`: the resources that are known beside those that literal ACLs name."""
    changed = {*before} ^ {*after}
    patterns = {binding.pattern for binding in changed}
    principals, hosts = _clients([*before, *after], patterns)
    old, new = authorizer_of(list(before)), authorizer_of(list(after))
    return [
        ChangedDecision(kind, name, principal, where, operation, allowed)
        for kind, name in sorted({*_named(patterns), *_covered(names, patterns)})
        for principal in principals
        for where in hosts
        for operation in SUPPORTED_OPERATIONS[kind]
        if (allowed := new.allows(str(principal), where, operation, kind, name))
        != old.allows(str(principal), where, operation, kind, name)
    ]


def _clients(bindings: Iterable[AclBinding], patterns: set[ResourcePattern]) -> tuple[list[Principal], list[str]]:
    kinds = {pattern.resource_type for pattern in patterns}
    entries = [binding.entry for binding in bindings if binding.pattern.resource_type in kinds]
    principals = {entry.principal for entry in entries} - {WILDCARD_PRINCIPAL}
    hosts = {entry.host for entry in entries} - {WILDCARD_HOST}
    return [*map(parse_principal, sorted(principals)), ANYONE_ELSE], [*sorted(hosts), ANY_OTHER_HOST]


def _named(patterns: Iterable[ResourcePattern]) -> set[tuple[ResourceType, str]]:
    """A prefix, and `*`, stand for a resource of that name: those that are known are added to them."""
    return {(pattern.resource_type, pattern.name) for pattern in patterns}


def _covered(
    names: Iterable[tuple[ResourceType, str]], patterns: Iterable[ResourcePattern]
) -> set[tuple[ResourceType, str]]:
    return {
        (kind, name)
        for kind, name in names
        if any(pattern.resource_type is kind and pattern.covers(name) for pattern in patterns)
    }


def merged(decisions: Sequence[ChangedDecision]) -> list[tuple[ChangedDecision, tuple[AclOperation, ...]]]:
    """Decisions that differ in their operation alone, in one; those of all hosts without the single hosts."""
    by_client: dict[ChangedDecision, list[AclOperation]] = {}
    for decision in decisions:
        by_client.setdefault(decision._replace(operation=AclOperation.ANY), []).append(decision.operation)
    rows = {key: tuple(operations) for key, operations in by_client.items()}
    return [
        (key, operations)
        for key, operations in rows.items()
        if key.host == ANY_OTHER_HOST or rows.get(key._replace(host=ANY_OTHER_HOST)) != operations
    ]
