"""The nodes of ACLs: where they are and what is in them, as Apache Kafka 3.8 writes them, byte for byte.

Pure: values in and bytes out, or the reverse.

    /kafka-acl/<Type>/<name>                              the ACLs of a LITERAL pattern, `*` included
    /kafka-acl-extended/prefixed/<Type>/<name>            the ACLs of a PREFIXED pattern
    /kafka-acl-changes/acl_changes_<sequence>             TYPE:name, of a LITERAL pattern that has changed
    /kafka-acl-extended-changes/acl_changes_<sequence>    JSON, of a PREFIXED pattern that has changed

    {"acls":[{"principal":"User:alice","permissionType":"Allow","host":"*","operation":"Read"}],"version":1}

Names are path elements, not escaped. Parents have no data.
Entries stand in the order in which they were added. Kafka keeps that order up to four entries; beyond that its order is
arbitrary, so a set of entries is compared as a set.
"""

from collections.abc import Iterable

from leadline.coordination.node_json import MalformedNode, dumps, loads
from leadline.security.acls import (
    RESOURCE_TYPES,
    AccessControlEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)

LITERAL_ACLS = "/kafka-acl"
PREFIXED_ACLS = "/kafka-acl-extended/prefixed"
LITERAL_CHANGES = "/kafka-acl-changes"
PREFIXED_CHANGES = "/kafka-acl-extended-changes"
CHANGE_NAME = "acl_changes_"  # create it sequential
VERSION = 1

ACLS = {PatternType.LITERAL: LITERAL_ACLS, PatternType.PREFIXED: PREFIXED_ACLS}
CHANGES = {PatternType.LITERAL: LITERAL_CHANGES, PatternType.PREFIXED: PREFIXED_CHANGES}

# What each broker with an authorizer creates at its start, empty, if it is not there.
PERSISTENT = (
    *CHANGES.values(),
    *(f"{root}/{resource_type.pascal}" for root in ACLS.values() for resource_type in RESOURCE_TYPES),
)


def type_path(resource_type: ResourceType, pattern_type: PatternType) -> str:
    return f"{ACLS[pattern_type]}/{resource_type.pascal}"


def acl_path(pattern: ResourcePattern) -> str:
    return f"{type_path(pattern.resource_type, pattern.pattern_type)}/{pattern.name}"


def pattern_of(path: str) -> ResourcePattern:
    """The pattern whose ACLs are at a path."""
    parent, _, name = path.rpartition("/")
    root, _, resource_type = parent.rpartition("/")
    (pattern_type,) = (kind for kind, acls in ACLS.items() if acls == root)
    return ResourcePattern(_resource_type(path, resource_type), name, pattern_type)


def change_path(pattern: ResourcePattern) -> str:
    """Create it sequential."""
    return f"{CHANGES[pattern.pattern_type]}/{CHANGE_NAME}"


def encode_acls(entries: Iterable[AccessControlEntry]) -> bytes:
    acls = [
        {
            "principal": entry.principal,
            "permissionType": entry.permission.pascal,
            "host": entry.host,
            "operation": entry.operation.pascal,
        }
        for entry in entries
    ]
    return dumps({"acls": acls, "version": VERSION})


def decode_acls(path: str, data: bytes) -> tuple[AccessControlEntry, ...]:
    """Each once, in their order. An operation or permission of an unknown name is UNKNOWN, and matches nothing."""
    if not data:
        return ()
    fields = loads(path, data)
    if fields.integer("version") != VERSION:
        raise fields.malformed(f"version {fields.integer('version')}, expected {VERSION}")
    entries = []
    for item in fields.list_of_fields("acls"):
        principal = item.string("principal")
        if ":" not in principal:
            raise fields.malformed(f"acls.principal is not type:name but {principal!r:.60}")
        operation, permission = item.string("operation"), item.string("permissionType")
        entries.append(
            AccessControlEntry(
                principal, item.string("host"), AclOperation.named(operation), AclPermission.named(permission)
            )
        )
    return tuple(dict.fromkeys(entries))


def encode_change(pattern: ResourcePattern) -> bytes:
    if pattern.pattern_type is PatternType.LITERAL:
        return f"{pattern.resource_type.name}:{pattern.name}".encode()
    return dumps(
        {
            "version": VERSION,
            "resourceType": pattern.resource_type.name,
            "name": pattern.name,
            "patternType": pattern.pattern_type.name,
        }
    )


def decode_change(path: str, data: bytes) -> ResourcePattern:
    """The pattern whose node has changed. Which of the two forms it is follows from the path."""
    if path.startswith(f"{LITERAL_CHANGES}/"):
        kind, separator, name = data.decode("utf-8", "replace").partition(":")
        if not separator:
            raise MalformedNode(path, f"not TYPE:name but {data[:60]!r}")
        return ResourcePattern(_resource_type(path, kind), name, PatternType.LITERAL)
    fields = loads(path, data)
    if fields.integer("version") > VERSION:
        raise fields.malformed(f"version {fields.integer('version')}, expected {VERSION}")
    pattern_type = PatternType.named(fields.string("patternType"))
    if pattern_type not in CHANGES:
        raise fields.malformed(f"patternType is {fields.string('patternType')!r:.60}")
    return ResourcePattern(_resource_type(path, fields.string("resourceType")), fields.string("name"), pattern_type)


def _resource_type(path: str, name: str) -> ResourceType:
    resource_type = ResourceType.named(name.replace("_", ""))
    if resource_type not in RESOURCE_TYPES:
        raise MalformedNode(path, f"{name!r:.60} is not a type of resources")
    return resource_type
