"""Requests about ACLs."""

from collections.abc import Sequence
from typing import Any

from leadline.admin.errors import Failure
from leadline.cli.security_admin import SecurityAdmin, check, error_text
from leadline.errors import ClusterAuthorizationFailed, SecurityDisabled
from leadline.security.acls import (
    AccessControlEntry,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from leadline.wire.messages import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)

NO_AUTHORIZER = "the brokers have no authorizer: everyone may do everything; set authorizer.class.name"
NOT_ALLOWED = "you may not {}: {} on the cluster is needed ({})"


class NoAuthorizer(Failure):
    """The brokers decide nothing."""


def describe_acls(admin: SecurityAdmin, filter: AclBindingFilter) -> list[AclBinding]:
    """The ACLs that match, sorted."""
    answer = admin.ask(DescribeAclsRequest(**_filter_fields(filter)), DescribeAclsResponse)
    _check_rights(answer.error_code, "see the ACLs", AclOperation.DESCRIBE)
    check(answer.error_code, answer.error_message)
    bindings = [
        AclBinding(
            ResourcePattern(
                ResourceType(resource.resource_type), resource.resource_name, PatternType(resource.pattern_type)
            ),
            AccessControlEntry(
                acl.principal, acl.host, AclOperation(acl.operation), AclPermission(acl.permission_type)
            ),
        )
        for resource in answer.resources
        for acl in resource.acls
    ]
    return sorted(bindings)


def create_acls(admin: SecurityAdmin, bindings: Sequence[AclBinding]) -> dict[AclBinding, str]:
    """The errors, by the ACLs that could not be created."""
    creations = [
        CreateAclsRequest.AclCreation(
            resource_type=pattern.resource_type,
            resource_name=pattern.name,
            resource_pattern_type=pattern.pattern_type,
            principal=entry.principal,
            host=entry.host,
            operation=entry.operation,
            permission_type=entry.permission,
        )
        for pattern, entry in bindings
    ]
    answer = admin.ask(CreateAclsRequest(creations=creations), CreateAclsResponse)
    for result in answer.results:
        _check_rights(result.error_code, "change ACLs", AclOperation.ALTER)
    return {
        binding: error_text(result.error_code, result.error_message)
        for binding, result in zip(bindings, answer.results, strict=True)
        if result.error_code
    }


def delete_acls(admin: SecurityAdmin, filters: Sequence[AclBindingFilter]) -> list[str]:
    """The errors."""
    requested = [DeleteAclsRequest.DeleteAclsFilter(**_filter_fields(filter)) for filter in filters]
    answer = admin.ask(DeleteAclsRequest(filters=requested), DeleteAclsResponse)
    errors: list[str] = []
    for result in answer.filter_results:
        _check_rights(result.error_code, "change ACLs", AclOperation.ALTER)
        answers = [(result.error_code, result.error_message)]
        answers += [(acl.error_code, acl.error_message) for acl in result.matching_acls]
        errors += [error_text(code, message) for code, message in answers if code]
    return list(dict.fromkeys(errors))


def _filter_fields(filter: AclBindingFilter) -> dict[str, Any]:
    """A filter, by the names that it has in requests."""
    pattern, entry = filter
    return {
        "resource_type_filter": pattern.resource_type,
        "resource_name_filter": pattern.name,
        "pattern_type_filter": pattern.pattern_type,
        "principal_filter": entry.principal,
        "host_filter": entry.host,
        "operation": entry.operation,
        "permission_type": entry.permission,
    }


def _check_rights(code: int, what: str, operation: AclOperation) -> None:
    if code == SecurityDisabled.code:
        raise NoAuthorizer(NO_AUTHORIZER)
    if code == ClusterAuthorizationFailed.code:
        raise Failure(NOT_ALLOWED.format(what, operation.pascal, "CLUSTER_AUTHORIZATION_FAILED"))
