"""ACLs: principal, operation, resource and host. Names and codes are Kafka's.

Pure: values in, values out.

A binding is a resource pattern and an access control entry. A LITERAL pattern is one resource, or all of a type if its
name is `*`. A PREFIXED pattern is every resource whose name starts with its name, and `*` means nothing there.
    a pattern and an entry are definite: neither ANY nor MATCH is part of a binding
    a filter may be indefinite: None, ANY and MATCH match more than one

A name has three spellings: TRANSACTIONAL_ID in code and notifications, TransactionalId in nodes and audit lines, any
case of the latter in what is read.
"""

import functools
from enum import IntEnum
from typing import NamedTuple, Self

from leadline.errors import InvalidRequest, UnknownServerError

WILDCARD_RESOURCE = "*"
WILDCARD_HOST = "*"
WILDCARD_PRINCIPAL = "User:*"
CLUSTER_NAME = "kafka-cluster"


@functools.cache
def _codes_by_name(kind: "type[AclCode]") -> dict[str, int]:
    return {code.pascal.upper(): int(code) for code in kind}


class AclCode(IntEnum):
    """A byte on the wire, with its names. A byte without a meaning is UNKNOWN, which is 0 everywhere."""

    __hash__ = int.__hash__  # that of Enum is a call of Python, in each lookup

    @classmethod
    def _missing_(cls, value: object) -> Self:
        return cls(0)

    @property
    def pascal(self) -> str:
        """TransactionalId."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @classmethod
    def named(cls, text: str) -> Self:
        """The member by its Pascal name, as Kafka reads nodes: `clusteraction` is one, `CLUSTER_ACTION` is UNKNOWN."""
        return cls(_codes_by_name(cls).get(text.upper(), 0))

    @classmethod
    def spelled(cls, text: str) -> Self:
        """Look it up by any of its names, in any case. ValueError if there is none."""
        code = cls.named(text.replace("_", "").replace("-", ""))
        if not code:
            names = ", ".join(code.pascal for code in cls if code)
            raise ValueError(f"{text!r} is not one of {names}")
        return code


class ResourceType(AclCode):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(AclCode):
    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(AclCode):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class AclPermission(AclCode):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


RESOURCE_TYPES = tuple(kind for kind in ResourceType if kind > ResourceType.ANY)
PATTERN_TYPES = (PatternType.LITERAL, PatternType.PREFIXED)

# The operations of each resource type, as responses report them.
SUPPORTED_OPERATIONS: dict[ResourceType, tuple[AclOperation, ...]] = {
    ResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE),
    ResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE),
    ResourceType.DELEGATION_TOKEN: (AclOperation.DESCRIBE,),
    ResourceType.USER: (AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS),
}


class ResourcePattern(NamedTuple):
    resource_type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL

    def __str__(self) -> str:
        return f"{self.resource_type.pascal}:{self.pattern_type.name}:{self.name}"

    def covers(self, name: str) -> bool:
        """Whether it applies to the resource of this name, of the same type."""
        if self.pattern_type is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD_RESOURCE)


class AccessControlEntry(NamedTuple):
    principal: str  # User:alice
    host: str  # an address as Java prints it
    operation: AclOperation
    permission: AclPermission


class AclBinding(NamedTuple):
    pattern: ResourcePattern
    entry: AccessControlEntry

    def __str__(self) -> str:
        principal, host, operation, permission = self.entry
        return f"{permission.pascal} {operation.pascal} on {self.pattern} to {principal} from {host}"


class ResourcePatternFilter(NamedTuple):
    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None  # None: any
    pattern_type: PatternType = PatternType.ANY  # ANY: that name in either kind; MATCH: all that apply to it

    def matches(self, pattern: ResourcePattern) -> bool:
        if self.resource_type not in (ResourceType.ANY, pattern.resource_type):
            return False
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        if self.name is None:
            return True
        if self.pattern_type is PatternType.MATCH:
            return pattern.covers(self.name)
        return self.name == pattern.name

    def definite_patterns(self) -> tuple[ResourcePattern, ...]:
        """The patterns that it can match, if it names them; otherwise none."""
        if self.resource_type not in RESOURCE_TYPES or self.name is None:
            return ()
        kinds = PATTERN_TYPES if self.pattern_type is PatternType.ANY else (self.pattern_type,)
        return tuple(ResourcePattern(self.resource_type, self.name, kind) for kind in kinds if kind in PATTERN_TYPES)


class AccessControlEntryFilter(NamedTuple):
    principal: str | None = None  # None: any
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY

    def matches(self, entry: AccessControlEntry) -> bool:
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (AclOperation.ANY, entry.operation)
            and self.permission in (AclPermission.ANY, entry.permission)
        )


class AclBindingFilter(NamedTuple):
    pattern: ResourcePatternFilter = ResourcePatternFilter()
    entry: AccessControlEntryFilter = AccessControlEntryFilter()

    def matches(self, binding: AclBinding) -> bool:
        return self.pattern.matches(binding.pattern) and self.entry.matches(binding.entry)


def check_creation(binding: AclBinding) -> None:
    """Raises what Kafka answers for an ACL that cannot be created. Any operation can be granted on any resource."""
    (resource_type, name, pattern_type), (principal, _, operation, permission) = binding
    if resource_type is ResourceType.CLUSTER and name != CLUSTER_NAME:
        raise InvalidRequest(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not name:
        raise InvalidRequest("Invalid empty resource name")
    if "/" in name or pattern_type not in PATTERN_TYPES or resource_type not in RESOURCE_TYPES:
        raise InvalidRequest("Failed to create ACL")
    if operation <= AclOperation.ANY or permission <= AclPermission.ANY:
        raise InvalidRequest("Failed to create ACL")
    if ":" not in principal:
        raise UnknownServerError(f"expected a principal as type:name, got {principal!r}")
