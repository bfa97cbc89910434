"""The requests for delegation tokens: a client that has logged in creates them, and passes them on.

Any broker serves them. A client without a login, or with a login by token, gets none. An error has no times.
"""

from leadline.api.context import Context
from leadline.config.listeners import SecurityProtocol
from leadline.errors import (
    DelegationTokenAuthDisabled,
    DelegationTokenRequestNotAllowed,
    InvalidPrincipalType,
    UnknownServerError,
    WireError,
)
from leadline.security.delegation_tokens import DelegationToken
from leadline.security.principal import ANONYMOUS, USER_TYPE, Principal
from leadline.security.token_store import TokenStore
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

NEVER_MS = -1
REQUESTER_VERSION = 3  # from it on, the requester of a token may differ from its owner

_Described = DescribeDelegationTokenResponse.DescribedDelegationToken
_Renewer = DescribeDelegationTokenResponse.DescribedDelegationTokenRenewer


async def create_delegation_token(request: CreateDelegationTokenRequest, ctx: Context) -> CreateDelegationTokenResponse:
    """CreateDelegationToken, v0-3.  v2 flexible · v3 owner and requester, which may differ."""
    requester = owner = ctx.client.principal
    if request.owner_principal_name and request.owner_principal_type is None:
        # As in Kafka, which cannot parse a principal without a type, and then knows neither.
        return _not_created(UnknownServerError("the owner has no type"), ANONYMOUS, ANONYMOUS, ctx)
    if request.owner_principal_name:
        owner = Principal(request.owner_principal_type or "", request.owner_principal_name)
    renewers = [Principal(renewer.principal_type, renewer.principal_name) for renewer in request.renewers]
    try:
        _check_login(ctx)
        if owner != requester and (refusal := ctx.refused("another owner", str(owner))) is not None:
            raise refusal
        if any(renewer.type != USER_TYPE for renewer in renewers):
            raise InvalidPrincipalType("a renewer must be a user")
        tokens = _store(ctx)
        token = await tokens.create(owner, requester, renewers, request.max_lifetime_ms)
    except WireError as error:
        return _not_created(error, owner, requester, ctx)
    response = _response(owner, requester, ctx)
    response.issue_timestamp_ms = token.issue_ms
    response.expiry_timestamp_ms = token.expiry_ms
    response.max_timestamp_ms = token.max_ms
    response.token_id, response.hmac = token.id, tokens.cache.hmac(token.id).reveal()
    return response


def _not_created(
    error: WireError, owner: Principal, requester: Principal, ctx: Context
) -> CreateDelegationTokenResponse:
    response = _response(owner, requester, ctx)
    response.error_code = error.code
    response.issue_timestamp_ms = response.expiry_timestamp_ms = response.max_timestamp_ms = NEVER_MS
    return response


def _response(owner: Principal, requester: Principal, ctx: Context) -> CreateDelegationTokenResponse:
    response = CreateDelegationTokenResponse(principal_type=owner.type, principal_name=owner.name)
    if ctx.version >= REQUESTER_VERSION:
        response.token_requester_principal_type = requester.type
        response.token_requester_principal_name = requester.name
    return response


async def renew_delegation_token(request: RenewDelegationTokenRequest, ctx: Context) -> RenewDelegationTokenResponse:
    """RenewDelegationToken, v0-2. A negative period is the default of the broker."""
    try:
        _check_login(ctx)
        expiry_ms = await _store(ctx).renew(ctx.client.principal, bytes(request.hmac), request.renew_period_ms)
    except WireError as error:
        return RenewDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=NEVER_MS)
    return RenewDelegationTokenResponse(expiry_timestamp_ms=expiry_ms)


async def expire_delegation_token(request: ExpireDelegationTokenRequest, ctx: Context) -> ExpireDelegationTokenResponse:
    """ExpireDelegationToken, v0-2. A negative period ends the token at once."""
    try:
        _check_login(ctx)
        expiry_ms = await _store(ctx).expire(ctx.client.principal, bytes(request.hmac), request.expiry_time_period_ms)
    except WireError as error:
        return ExpireDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=NEVER_MS)
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=expiry_ms)


def describe_delegation_token(request: DescribeDelegationTokenRequest, ctx: Context) -> DescribeDelegationTokenResponse:
    """DescribeDelegationToken, v0-3.  v3 the requester. Of no owner: none; null: of all."""
    owners = None
    if request.owners is not None:
        owners = frozenset(Principal(owner.principal_type, owner.principal_name) for owner in request.owners)
    try:
        _check_login(ctx)
        cache = _store(ctx).cache
    except WireError as error:
        return DescribeDelegationTokenResponse(error_code=error.code)

    def may_describe(token: DelegationToken) -> bool:
        return ctx.permits("tokens", token.id) or ctx.permits("owners", str(token.owner))

    return DescribeDelegationTokenResponse(
        tokens=[
            _described(token, cache.hmac(token.id).reveal(), ctx)
            for token in cache.described(ctx.client.principal, owners, may_describe)
        ]
    )


def _described(token: DelegationToken, hmac: bytes, ctx: Context) -> _Described:
    described = _Described(
        principal_type=token.owner.type,
        principal_name=token.owner.name,
        issue_timestamp=token.issue_ms,
        expiry_timestamp=token.expiry_ms,
        max_timestamp=token.max_ms,
        token_id=token.id,
        hmac=hmac,
        renewers=[_Renewer(principal_type=renewer.type, principal_name=renewer.name) for renewer in token.renewers],
    )
    if ctx.version >= REQUESTER_VERSION:
        described.token_requester_principal_type = token.requester.type
        described.token_requester_principal_name = token.requester.name
    return described


def _check_login(ctx: Context) -> None:
    """A client that logged in by a token could otherwise keep its access after the token expires."""
    principal = ctx.client.principal
    protocol = ctx.services.settings.listeners.named(ctx.client.listener).protocol
    is_stranger = protocol is SecurityProtocol.PLAINTEXT or (
        protocol is SecurityProtocol.SSL and principal == ANONYMOUS
    )
    if is_stranger or principal.token_authenticated:
        raise DelegationTokenRequestNotAllowed("delegation tokens require a login that is not by token")


def _store(ctx: Context) -> TokenStore:
    if ctx.services.tokens is None:
        raise DelegationTokenAuthDisabled("delegation.token.secret.key is not set")
    return ctx.services.tokens
