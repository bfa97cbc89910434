"""The requests for ACLs. This broker has no authorizer, and rejects them as Kafka without one does."""

from collections.abc import Iterable
from typing import Protocol

from leadline.api.context import Context
from leadline.errors import InvalidRequest, SecurityDisabled
from leadline.wire.messages import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)

UNKNOWN = 0  # of resource types, pattern types, operations and permissions alike
NOT_CONFIGURED = "No Authorizer is configured."


class AclFilter(Protocol):
    """The fields that DescribeAcls and each filter of DeleteAcls have."""

    resource_type_filter: int
    pattern_type_filter: int
    operation: int
    permission_type: int


def describe_acls(request: DescribeAclsRequest, ctx: Context) -> DescribeAclsResponse:
    """DescribeAcls, v0-3.  v1 pattern types · v2 flexible · v3 the resource type USER."""
    _check_filters([request])
    return DescribeAclsResponse(
        error_code=SecurityDisabled.code, error_message="No Authorizer is configured on the broker"
    )


def create_acls(request: CreateAclsRequest, ctx: Context) -> CreateAclsResponse:
    """CreateAcls, v0-3."""
    for creation in request.creations:
        pattern = creation.resource_type, creation.resource_pattern_type
        _check((*pattern, creation.operation, creation.permission_type))
    result = CreateAclsResponse.AclCreationResult(error_code=SecurityDisabled.code, error_message=NOT_CONFIGURED)
    return CreateAclsResponse(results=[result] * len(request.creations))


def delete_acls(request: DeleteAclsRequest, ctx: Context) -> DeleteAclsResponse:
    """DeleteAcls, v0-3."""
    _check_filters(request.filters)
    result = DeleteAclsResponse.DeleteAclsFilterResult(error_code=SecurityDisabled.code, error_message=NOT_CONFIGURED)
    return DeleteAclsResponse(filter_results=[result] * len(request.filters))


def _check_filters(filters: Iterable[AclFilter]) -> None:
    for acl_filter in filters:
        pattern = acl_filter.resource_type_filter, acl_filter.pattern_type_filter
        _check((*pattern, acl_filter.operation, acl_filter.permission_type))


def _check(codes: tuple[int, ...]) -> None:
    """Kafka cannot parse a request with an UNKNOWN element, and closes the connection."""
    if UNKNOWN in codes:
        raise InvalidRequest("an ACL or a filter of ACLs has an element of the type UNKNOWN (0)")
