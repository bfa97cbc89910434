"""The decision: whether a principal may do an operation on a resource from a host, and the rule that decides.

Pure: ACLs are passed in, pattern by pattern; a decision reads nothing else.

1. A super user may do everything.
2. The ACLs of a resource are those of the LITERAL pattern of its name, of the LITERAL `*`, and of each PREFIXED pattern
   whose name its own starts with.
3. If it has none at all, for any principal, `allow.everyone.if.no.acl.found` decides.
4. A DENY of the operation, or of ALL, denies.
5. An ALLOW of the operation, of ALL, or of an operation that implies it, allows. All else is denied.

    READ, WRITE, DELETE and ALTER imply DESCRIBE; ALTER_CONFIGS implies DESCRIBE_CONFIGS; nothing implies a DENY
    `version` moves with each change of a pattern's ACLs, and only then: a decision holds for its version

The index keeps, for each pattern, two masks of operations for each principal and host: a decision tests a few bits,
for any number of ACLs. Prefixes are looked up by their lengths. A repeated question is answered from a memo.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import NamedTuple
from weakref import WeakValueDictionary

from leadline.security.acls import (
    PATTERN_TYPES,
    RESOURCE_TYPES,
    SUPPORTED_OPERATIONS,
    WILDCARD_HOST,
    WILDCARD_PRINCIPAL,
    WILDCARD_RESOURCE,
    AccessControlEntry,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from leadline.security.principal import Principal

MEMO_SIZE = 4096  # decisions that a client's memo holds before it is emptied

IMPLIED_BY = {
    AclOperation.DESCRIBE: (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.ALTER_CONFIGS,),
}


def _mask(operations: Iterable[AclOperation]) -> int:
    return sum(1 << operation for operation in operations)


# By operation: the bits of a DENY that denies it, and those of an ALLOW that allows it.
_DENYING = tuple(_mask({operation, AclOperation.ALL}) for operation in AclOperation)
_ALLOWING = tuple(_mask({operation, AclOperation.ALL, *IMPLIED_BY.get(operation, ())}) for operation in AclOperation)


class Reason(Enum):
    """The reason for a decision."""

    SUPER_USER = "the principal is a super user"
    NO_ACL_FOUND = "no ACL applies to the resource: allow.everyone.if.no.acl.found decides"
    DENIED_BY_ACL = "an ACL denies it"
    ALLOWED_BY_ACL = "an ACL allows it"
    NO_ACL_ALLOWS = "the resource has ACLs, and none of them allows it"


class AclDecision(NamedTuple):
    allowed: bool
    reason: Reason
    binding: AclBinding | None = None  # the rule that decides, if one does


class _Masks:
    """The operations that a pattern denies and allows, to one principal from one host."""

    __slots__ = ("allowed", "denied")

    def __init__(self) -> None:
        self.denied = self.allowed = 0


class _PatternAcls(NamedTuple):
    entries: tuple[AccessControlEntry, ...]
    masks: Mapping[tuple[str, str], _Masks]  # by principal and host


class _TypeIndex:
    """The patterns of one type of resources."""

    def __init__(self) -> None:
        self.by_kind: dict[PatternType, dict[str, _PatternAcls]] = {kind: {} for kind in PATTERN_TYPES}
        self.literal = self.by_kind[PatternType.LITERAL]
        self.prefixed = self.by_kind[PatternType.PREFIXED]
        self.prefix_lengths: Counter[int] = Counter()

        # Which patterns have an entry, by their kind and the entry: for the question whether there is any resource.
        self.names: dict[tuple[PatternType, AccessControlEntry], set[str]] = defaultdict(set)

    def applying(self, name: str) -> Iterator[tuple[PatternType, str, _PatternAcls]]:
        """The patterns that apply to a resource."""
        for literal in dict.fromkeys((name, WILDCARD_RESOURCE)):
            if (acls := self.literal.get(literal)) is not None:
                yield PatternType.LITERAL, literal, acls
        for length in self.prefix_lengths:
            if length <= len(name) and (acls := self.prefixed.get(prefix := name[:length])) is not None:
                yield PatternType.PREFIXED, prefix, acls

    def put(self, kind: PatternType, name: str, entries: tuple[AccessControlEntry, ...]) -> None:
        patterns = self.by_kind[kind]
        before = patterns.pop(name, None)
        for entry in before.entries if before else ():
            names = self.names[kind, entry]
            names.discard(name)
            if not names:
                del self.names[kind, entry]
        for entry in entries:
            self.names[kind, entry].add(name)
        if entries:
            patterns[name] = _PatternAcls(entries, _masks_of(entries))
        if kind is PatternType.PREFIXED:
            self._count_prefix(len(name), bool(entries) - (before is not None))

    def _count_prefix(self, length: int, change: int) -> None:
        self.prefix_lengths[length] += change
        if not self.prefix_lengths[length]:
            del self.prefix_lengths[length]


def _masks_of(entries: Iterable[AccessControlEntry]) -> dict[tuple[str, str], _Masks]:
    masks: dict[tuple[str, str], _Masks] = {}
    for principal, host, operation, permission in entries:
        of_client = masks.setdefault((principal, host), _Masks())
        if permission is AclPermission.DENY:
            of_client.denied |= 1 << operation
        elif permission is AclPermission.ALLOW:
            of_client.allowed |= 1 << operation
    return masks


class Authorizer:
    """`put` the ACLs of each pattern; then ask, or take `client(...)` to ask many times for one client."""

    def __init__(self, super_users: Iterable[Principal] = (), allow_everyone_if_no_acl_found: bool = False) -> None:
        self._super_users = frozenset(map(str, super_users))
        self._allow_everyone = allow_everyone_if_no_acl_found
        self._types = {resource_type: _TypeIndex() for resource_type in RESOURCE_TYPES}
        self._clients: WeakValueDictionary[tuple[str, str], ClientPermissions] = WeakValueDictionary()
        self.version = 0

    # The ACLs in force

    def put(self, pattern: ResourcePattern, entries: Iterable[AccessControlEntry]) -> None:
        """Replace all ACLs of a pattern. An empty list removes them."""
        put = tuple(dict.fromkeys(entries))
        if frozenset(put) != frozenset(self.entries(pattern)):
            self._types[pattern.resource_type].put(pattern.pattern_type, pattern.name, put)
            self.version += 1

    def entries(self, pattern: ResourcePattern) -> tuple[AccessControlEntry, ...]:
        acls = self._types[pattern.resource_type].by_kind[pattern.pattern_type].get(pattern.name)
        return acls.entries if acls else ()

    def patterns(self) -> list[ResourcePattern]:
        """All that have ACLs."""
        return [
            ResourcePattern(resource_type, name, kind)
            for resource_type, index in self._types.items()
            for kind, patterns in index.by_kind.items()
            for name in patterns
        ]

    def bindings(self, filter: AclBindingFilter) -> list[AclBinding]:
        """What DescribeAcls answers."""
        patterns = filter.pattern.definite_patterns() or filter_patterns(filter, self.patterns())
        return [
            AclBinding(pattern, entry)
            for pattern in patterns
            for entry in self.entries(pattern)
            if filter.entry.matches(entry)
        ]

    # Decisions

    def client(self, principal: Principal, host: str) -> "ClientPermissions":
        """The permissions of a client. Connections of one principal from one host share them, and their memo."""
        key = str(principal), host
        client = self._clients.get(key)
        if client is None:
            client = self._clients[key] = ClientPermissions(self, principal, host)
        return client

    def allows(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        if principal in self._super_users:
            return True
        keys = _client_keys(principal, host)
        denied = allowed = 0
        has_acls = False
        for _, _, acls in self._types[resource_type].applying(name):
            has_acls = True
            masks = acls.masks
            for key in keys:
                if (of_client := masks.get(key)) is not None:
                    denied |= of_client.denied
                    allowed |= of_client.allowed
        if not has_acls:
            return self._allow_everyone
        return not denied & _DENYING[operation] and bool(allowed & _ALLOWING[operation])

    def decide(
        self, principal: Principal, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> AclDecision:
        """The same with its reason: not in a hurry."""
        if str(principal) in self._super_users:
            return AclDecision(True, Reason.SUPER_USER)
        bindings = self._applying(resource_type, name)
        if not bindings:
            return AclDecision(self._allow_everyone, Reason.NO_ACL_FOUND)
        keys = _client_keys(str(principal), host)
        of_client = [binding for binding in bindings if binding.entry[:2] in keys]
        for binding in of_client:
            entry = binding.entry
            if entry.permission is AclPermission.DENY and 1 << entry.operation & _DENYING[operation]:
                return AclDecision(False, Reason.DENIED_BY_ACL, binding)
        for binding in of_client:
            entry = binding.entry
            if entry.permission is AclPermission.ALLOW and 1 << entry.operation & _ALLOWING[operation]:
                return AclDecision(True, Reason.ALLOWED_BY_ACL, binding)
        return AclDecision(False, Reason.NO_ACL_ALLOWS)

    def allows_any(self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether it is allowed on any resource of a type, existing or not.

        As Kafka decides it: an operation that implies another does not count here. A DENY of one literal name leaves
        an ALLOW of a prefix in force, and any DENY but that of `*` leaves an ALLOW of `*` in force.
        """
        if principal in self._super_users:
            return True
        names = self._types[resource_type].names
        keys = [(*key, counted) for key in _client_keys(principal, host) for counted in (operation, AclOperation.ALL)]

        def having(permission: AclPermission, kind: PatternType) -> list[set[str]]:
            entries = (AccessControlEntry(*key, permission) for key in keys)
            return [names[kind, entry] for entry in entries if (kind, entry) in names]

        denied = having(AclPermission.DENY, PatternType.LITERAL)
        if any(WILDCARD_RESOURCE in literals for literals in denied):
            return False
        if self._allow_everyone:
            return True
        denied_prefixes = having(AclPermission.DENY, PatternType.PREFIXED)

        lengths = {len(prefix) for prefixes in denied_prefixes for prefix in prefixes}

        def under_denied_prefix(name: str) -> bool:
            starts = [name[:length] for length in lengths if length <= len(name)]
            return any(start in prefixes for prefixes in denied_prefixes for start in starts)

        if any(
            not under_denied_prefix(prefix)
            for prefixes in having(AclPermission.ALLOW, PatternType.PREFIXED)
            for prefix in prefixes
        ):
            return True
        return any(
            name == WILDCARD_RESOURCE or not (any(name in literals for literals in denied) or under_denied_prefix(name))
            for allowed in having(AclPermission.ALLOW, PatternType.LITERAL)
            for name in allowed
        )

    def _applying(self, resource_type: ResourceType, name: str) -> list[AclBinding]:
        return [
            AclBinding(ResourcePattern(resource_type, pattern, kind), entry)
            for kind, pattern, acls in self._types[resource_type].applying(name)
            for entry in acls.entries
        ]


def filter_patterns(filter: AclBindingFilter, patterns: Iterable[ResourcePattern]) -> list[ResourcePattern]:
    return [pattern for pattern in patterns if filter.pattern.matches(pattern)]


def _client_keys(principal: str, host: str) -> list[tuple[str, str]]:
    """Which principals and hosts of entries mean this client."""
    principals = dict.fromkeys((principal, WILDCARD_PRINCIPAL))
    hosts = dict.fromkeys((host, WILDCARD_HOST))
    return [(principal, where) for principal in principals for where in hosts]


class ClientPermissions:
    """The permissions of one principal from one host. Decisions are kept until an ACL changes."""

    def __init__(self, authorizer: Authorizer, principal: Principal, host: str) -> None:
        self.principal, self.host = principal, host
        self._authorizer, self._name = authorizer, str(principal)
        self._version = authorizer.version
        self._memo: dict[tuple[AclOperation, ResourceType, str], bool] = {}
        self._any_memo: dict[tuple[AclOperation, ResourceType], bool] = {}

    @property
    def version(self) -> int:
        """The version of the ACLs: once it has changed, an earlier decision may be wrong."""
        return self._authorizer.version

    def allows(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        if self._version != self._authorizer.version:
            self._forget()
        key = operation, resource_type, name
        allowed = self._memo.get(key)
        if allowed is None:
            if len(self._memo) >= MEMO_SIZE:
                self._memo.clear()
            allowed = self._memo[key] = self._authorizer.allows(self._name, self.host, *key)
        return allowed

    def allows_any(self, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether there is any resource of a type on which it is allowed."""
        if self._version != self._authorizer.version:
            self._forget()
        key = operation, resource_type
        allowed = self._any_memo.get(key)
        if allowed is None:
            allowed = self._any_memo[key] = self._authorizer.allows_any(self._name, self.host, *key)
        return allowed

    def authorized_operations(self, resource_type: ResourceType, name: str) -> int:
        """The operations that are allowed of those that the resource has: a bit for each, at the place of its code."""
        return _mask(
            operation
            for operation in SUPPORTED_OPERATIONS[resource_type]
            if self.allows(operation, resource_type, name)
        )

    def _forget(self) -> None:
        self._memo.clear()
        self._any_memo.clear()
        self._version = self._authorizer.version
