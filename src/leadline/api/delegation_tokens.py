"""The requests for delegation tokens. Kafka rejects them from clients that have not logged in, and here none can."""

from leadline.api.context import Context
from leadline.errors import DelegationTokenRequestNotAllowed, UnknownServerError
from leadline.wire.messages import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

USER, ANONYMOUS = "User", "ANONYMOUS"  # the principal of a connection without a login
NEVER_MS = -1


def create_delegation_token(request: CreateDelegationTokenRequest, ctx: Context) -> CreateDelegationTokenResponse:
    """CreateDelegationToken, v0-3.  v2 flexible · v3 owner and requester, which may differ."""
    code, owner = DelegationTokenRequestNotAllowed.code, (USER, ANONYMOUS)
    if request.owner_principal_name and request.owner_principal_type is None:
        code = UnknownServerError.code  # as in Kafka, which cannot parse a principal without a type
    elif request.owner_principal_name:
        owner = request.owner_principal_type or "", request.owner_principal_name
    has_requester = ctx.version >= 3
    return CreateDelegationTokenResponse(
        error_code=code,
        principal_type=owner[0],
        principal_name=owner[1],
        token_requester_principal_type=USER if has_requester else "",
        token_requester_principal_name=ANONYMOUS if has_requester else "",
        issue_timestamp_ms=NEVER_MS,
        expiry_timestamp_ms=NEVER_MS,
        max_timestamp_ms=NEVER_MS,
    )


def renew_delegation_token(request: RenewDelegationTokenRequest, ctx: Context) -> RenewDelegationTokenResponse:
    """RenewDelegationToken, v0-2."""
    return RenewDelegationTokenResponse(error_code=DelegationTokenRequestNotAllowed.code, expiry_timestamp_ms=NEVER_MS)


def expire_delegation_token(request: ExpireDelegationTokenRequest, ctx: Context) -> ExpireDelegationTokenResponse:
    """ExpireDelegationToken, v0-2."""
    return ExpireDelegationTokenResponse(error_code=DelegationTokenRequestNotAllowed.code, expiry_timestamp_ms=NEVER_MS)


def describe_delegation_token(request: DescribeDelegationTokenRequest, ctx: Context) -> DescribeDelegationTokenResponse:
    """DescribeDelegationToken, v0-3."""
    return DescribeDelegationTokenResponse(error_code=DelegationTokenRequestNotAllowed.code)
