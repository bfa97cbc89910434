"""DescribeAcls, CreateAcls and DeleteAcls: the ACLs of the authorizer.

Without an authorizer they are rejected, as Kafka does it. Kafka cannot parse a request with an UNKNOWN element, and
closes the connection. Version 0 has literal patterns only.
"""

from collections.abc import Sequence
from typing import Protocol

from leadline.api.context import Context
from leadline.errors import InvalidRequest, SecurityDisabled, UnknownServerError, WireError
from leadline.security.acl_store import AclStore, Deletion
from leadline.security.acls import (
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

_Described = DescribeAclsResponse.DescribeAclsResource
_Created = CreateAclsResponse.AclCreationResult
_Filtered = DeleteAclsResponse.DeleteAclsFilterResult
_Matching = DeleteAclsResponse.DeleteAclsMatchingAcl


class AclFilter(Protocol):
    """The fields that DescribeAcls and each filter of DeleteAcls have."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


def describe_acls(request: DescribeAclsRequest, ctx: Context) -> DescribeAclsResponse:
    """DescribeAcls, v0-3.  v1 pattern types · v2 flexible · v3 the resource type USER."""
    binding_filter = _filter(request)
    if (refusal := ctx.refused("cluster")) is not None:
        return DescribeAclsResponse(error_code=refusal.code, error_message=str(refusal))
    if ctx.services.acls is None:
        message = "No Authorizer is configured on the broker"
        return DescribeAclsResponse(error_code=SecurityDisabled.code, error_message=message)
    resources: dict[ResourcePattern, _Described] = {}
    for pattern, entry in ctx.services.acls.authorizer.bindings(binding_filter):
        resource = resources.setdefault(
            pattern,
            _Described(
                resource_type=pattern.resource_type, resource_name=pattern.name, pattern_type=pattern.pattern_type
            ),
        )
        resource.acls.append(
            DescribeAclsResponse.AclDescription(
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission,
            )
        )
    return DescribeAclsResponse(resources=list(resources.values()))


async def create_acls(request: CreateAclsRequest, ctx: Context) -> CreateAclsResponse:
    """CreateAcls, v0-3. Those of one pattern are created together, or none of them."""
    bindings = [_binding(creation) for creation in request.creations]
    acls = _store(ctx)
    if isinstance(acls, AclStore) and not all(map(_is_definite, bindings)):
        acls = UnknownServerError("an ACL must not have an element of the type ANY or MATCH")
    if isinstance(acls, WireError):
        return CreateAclsResponse(results=[_created(acls)] * len(bindings))
    return CreateAclsResponse(results=[_created(error) for error in await acls.create(bindings)])


async def delete_acls(request: DeleteAclsRequest, ctx: Context) -> DeleteAclsResponse:
    """DeleteAcls, v0-3. An ACL that several filters match is reported by the first of them."""
    filters = [_filter(acl_filter) for acl_filter in request.filters]
    acls = _store(ctx)
    if isinstance(acls, WireError):
        result = _Filtered(error_code=acls.code, error_message=str(acls))
        return DeleteAclsResponse(filter_results=[result] * len(filters))
    return DeleteAclsResponse(filter_results=[_filtered(deletions) for deletions in await acls.delete(filters)])


def _store(ctx: Context) -> AclStore | WireError:
    """Where the client may change ACLs; or why it may not."""
    refusal = ctx.refused("cluster")
    return refusal or ctx.services.acls or SecurityDisabled(NOT_CONFIGURED)


def _is_definite(binding: AclBinding) -> bool:
    """Kafka fails to build another one, and with it the whole request."""
    (resource_type, _, pattern_type), (_, _, operation, permission) = binding
    is_any = resource_type is ResourceType.ANY or operation is AclOperation.ANY or permission is AclPermission.ANY
    return not is_any and pattern_type not in (PatternType.ANY, PatternType.MATCH)


def _created(error: WireError | None) -> _Created:
    return _Created() if error is None else _Created(error_code=error.code, error_message=str(error))


def _filtered(deletions: Sequence[Deletion]) -> _Filtered:
    return _Filtered(error_message=None, matching_acls=[_matching(*deletion) for deletion in deletions])


def _matching(binding: AclBinding, error: WireError | None) -> _Matching:
    pattern, entry = binding
    return _Matching(
        error_code=0 if error is None else error.code,
        error_message=None if error is None else str(error),
        resource_type=pattern.resource_type,
        resource_name=pattern.name,
        pattern_type=pattern.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )


def _filter(acl_filter: AclFilter) -> AclBindingFilter:
    pattern = acl_filter.resource_type_filter, acl_filter.pattern_type_filter
    _check((*pattern, acl_filter.operation, acl_filter.permission_type))
    return AclBindingFilter(
        ResourcePatternFilter(
            ResourceType(acl_filter.resource_type_filter),
            acl_filter.resource_name_filter,
            PatternType(acl_filter.pattern_type_filter),
        ),
        AccessControlEntryFilter(
            acl_filter.principal_filter,
            acl_filter.host_filter,
            AclOperation(acl_filter.operation),
            AclPermission(acl_filter.permission_type),
        ),
    )


def _binding(creation: CreateAclsRequest.AclCreation) -> AclBinding:
    pattern = creation.resource_type, creation.resource_pattern_type
    _check((*pattern, creation.operation, creation.permission_type))
    return AclBinding(
        ResourcePattern(
            ResourceType(creation.resource_type), creation.resource_name, PatternType(creation.resource_pattern_type)
        ),
        AccessControlEntry(
            creation.principal,
            creation.host,
            AclOperation(creation.operation),
            AclPermission(creation.permission_type),
        ),
    )


def _check(codes: tuple[int, ...]) -> None:
    if UNKNOWN in codes:
        raise InvalidRequest("an ACL or a filter of ACLs has an element of the type UNKNOWN (0)")
