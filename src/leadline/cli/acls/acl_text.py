"""ACLs as text for a person, and as JSON."""

import shlex

from leadline.admin.json_values import Json
from leadline.security.acls import (
    WILDCARD_HOST,
    WILDCARD_RESOURCE,
    AclBinding,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)

ACL_HEADS = ["RESOURCE", "NAME", "PATTERN", "PRINCIPAL", "PERMISSION", "OPERATION", "HOST"]


def type_text(resource_type: ResourceType) -> str:
    """delegation token."""
    return resource_type.name.lower().replace("_", " ")


def option_of(resource_type: ResourceType) -> str:
    """--transactional-id."""
    return "--" + {ResourceType.USER: "user-principal"}.get(resource_type, resource_type.name.lower().replace("_", "-"))


def operation_text(operation: AclOperation) -> str:
    """describe-configs: as the options take it."""
    return operation.name.lower().replace("_", "-")


def resource_text(resource_type: ResourceType, name: str) -> str:
    return "the cluster" if resource_type is ResourceType.CLUSTER else f"{type_text(resource_type)} {name}"


def pattern_text(pattern: ResourcePattern) -> str:
    """topic orders; topics orders-...; all topics."""
    if pattern.pattern_type is PatternType.PREFIXED:
        return f"{type_text(pattern.resource_type)}s {pattern.name}..."
    if pattern.name == WILDCARD_RESOURCE:
        return f"all {type_text(pattern.resource_type)}s"
    return resource_text(pattern.resource_type, pattern.name)


def binding_text(binding: AclBinding) -> str:
    """User:alice may read on topic orders from any host."""
    pattern, entry = binding
    host = "any host" if entry.host == WILDCARD_HOST else entry.host
    allows = entry.permission is AclPermission.ALLOW
    if entry.operation is AclOperation.ALL:
        what = "may do everything" if allows else "may do nothing"
    else:
        what = f"{'may' if allows else 'may not'} {operation_text(entry.operation)}"
    return f"{entry.principal} {what} on {pattern_text(pattern)} from {host}"


def acl_row(binding: AclBinding) -> list[str]:
    pattern, entry = binding
    return [
        type_text(pattern.resource_type),
        pattern.name,
        pattern.pattern_type.name.lower(),
        entry.principal,
        entry.permission.name.lower(),
        operation_text(entry.operation),
        entry.host,
    ]


def acl_json(binding: AclBinding) -> dict[str, Json]:
    """Values as Kafka's admin client has them."""
    pattern, entry = binding
    return {
        "resource_type": pattern.resource_type.name,
        "name": pattern.name,
        "pattern_type": pattern.pattern_type.name,
        "principal": entry.principal,
        "host": entry.host,
        "operation": entry.operation.name,
        "permission_type": entry.permission.name,
    }


def add_command_text(binding: AclBinding) -> str:
    """The command that would add an ACL that allows something."""
    pattern, entry = binding
    resource = option_of(pattern.resource_type)
    if pattern.resource_type is not ResourceType.CLUSTER:
        resource += f" {shlex.quote(pattern.name)}"
    principal, operation = shlex.quote(entry.principal), operation_text(entry.operation)
    return f"leadline acls add --allow-principal {principal} --operation {operation} {resource}"
