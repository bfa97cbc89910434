"""Delegation tokens: a login that its owner passes on, for a limited time.

Pure: values and times in, values out, and bytes of nodes.

    /delegation_token/tokens/<token id>                         who may use a token and until when, as JSON
    /delegation_token/token_changes/token_change_<sequence>     the id of a token that has changed

    {"issueTimestamp":1794778757210,"renewers":["User%3Abob"],"tokenRequester":"User%3Aalice","tokenId":"Bw1QuMShQAaHT-…",
     "owner":"User%3Aalice","expiryTimestamp":1794865157210,"maxTimestamp":1794865157210,"version":3}

The id is the user name of a login, the HMAC of the id under `delegation.token.secret.key` its password. The HMAC is not
stored: a broker derives it from the secret. Before version 3 a token has no requester other than its owner.
    issue <= expiry <= max
    a token is good until its expiry, and can be renewed until then, never beyond its max
    only its owner, its renewers and its requester may describe it
"""

import hashlib
import hmac
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from leadline.coordination.node_json import Fields, dumps, loads
from leadline.coordination.znodes import desanitize, sanitize
from leadline.errors import DelegationTokenExpired, DelegationTokenNotFound, DelegationTokenOwnerMismatch
from leadline.security.principal import Principal, parse_principal
from leadline.security.secret import Secret

TOKENS = "/delegation_token/tokens"
CHANGES = "/delegation_token/token_changes"
CHANGE = f"{CHANGES}/token_change_"  # create it sequential
PERSISTENT = (CHANGES, TOKENS)
VERSION = 3


@dataclass(frozen=True, slots=True)
class DelegationToken:
    id: str
    owner: Principal
    requester: Principal  # the requester: the owner, or a principal that may create tokens for the owner
    renewers: tuple[Principal, ...]
    issue_ms: int
    max_ms: int
    expiry_ms: int

    def is_expired(self, now_ms: int) -> bool:
        return self.expiry_ms < now_ms or self.max_ms < now_ms

    def may_renew(self, principal: Principal) -> bool:
        return principal == self.owner or principal in self.renewers

    def principals(self) -> tuple[Principal, ...]:
        """The principals that may describe it without a further right."""
        return (self.owner, self.requester, *self.renewers)


@dataclass(frozen=True, slots=True)
class TokenLifetimes:
    """Kafka's settings."""

    max_lifetime_ms: int  # delegation.token.max.lifetime.ms
    expiry_time_ms: int  # delegation.token.expiry.time.ms: the default of renewals, and at first


def token_hmac(id: str, key: Secret) -> Secret:
    return Secret(hmac.digest(key.reveal(), id.encode(), "sha512"))


def new_token(
    id: str,
    owner: Principal,
    requester: Principal,
    renewers: Iterable[Principal],
    max_lifetime_ms: int,
    lifetimes: TokenLifetimes,
    now_ms: int,
) -> DelegationToken:
    """`max_lifetime_ms`: as requested; 0 or less: as long as may be."""
    longest_ms = lifetimes.max_lifetime_ms
    max_ms = now_ms + (min(max_lifetime_ms, longest_ms) if max_lifetime_ms > 0 else longest_ms)
    expiry_ms = min(max_ms, now_ms + lifetimes.expiry_time_ms)
    return DelegationToken(id, owner, requester, tuple(renewers), now_ms, max_ms, expiry_ms)


def renewed(
    token: DelegationToken, principal: Principal, period_ms: int, lifetimes: TokenLifetimes, now_ms: int
) -> DelegationToken:
    """`period_ms` below 0: the default. Raises WireError."""
    _check_holder(token, principal)
    _check_not_expired(token, now_ms)
    return _until(token, now_ms + (lifetimes.expiry_time_ms if period_ms < 0 else period_ms))


def expired(token: DelegationToken, principal: Principal, period_ms: int, now_ms: int) -> DelegationToken | None:
    """`period_ms` below 0 ends it at once, expired or not: the result is None. Raises WireError."""
    _check_holder(token, principal)
    if period_ms < 0:
        return None
    _check_not_expired(token, now_ms)
    return _until(token, now_ms + period_ms)


def _until(token: DelegationToken, expiry_ms: int) -> DelegationToken:
    return replace(token, expiry_ms=min(token.max_ms, expiry_ms))


def _check_holder(token: DelegationToken, principal: Principal) -> None:
    if not token.may_renew(principal):
        raise DelegationTokenOwnerMismatch("Specified Principal is not valid Owner/Renewer.")


def _check_not_expired(token: DelegationToken, now_ms: int) -> None:
    if token.is_expired(now_ms):
        raise DelegationTokenExpired("Delegation Token is expired.")


class TokenCache:
    """All tokens that there are, by id and by HMAC."""

    def __init__(self, key: Secret) -> None:
        self._key = key
        self._by_id: dict[str, DelegationToken] = {}
        self._ids: dict[bytes, str] = {}  # by the hash of the HMAC, so that a lookup reveals nothing of it

    def put(self, token: DelegationToken) -> None:
        self._by_id[token.id] = token
        self._ids[_digest(self.hmac(token.id).reveal())] = token.id

    def remove(self, id: str) -> None:
        if self._by_id.pop(id, None) is not None:
            del self._ids[_digest(self.hmac(id).reveal())]

    def get(self, id: str) -> DelegationToken | None:
        return self._by_id.get(id)

    def hmac(self, id: str) -> Secret:
        return token_hmac(id, self._key)

    def by_hmac(self, presented: bytes) -> DelegationToken:
        """Raises DelegationTokenNotFound."""
        id = self._ids.get(_digest(presented))
        if id is None or not hmac.compare_digest(self.hmac(id).reveal(), presented):
            raise DelegationTokenNotFound("Delegation Token is not found on server.")
        return self._by_id[id]

    def tokens(self) -> list[DelegationToken]:
        return list(self._by_id.values())

    def described(
        self,
        principal: Principal,
        owners: frozenset[Principal] | None,
        may_describe: Callable[[DelegationToken], bool],
    ) -> list[DelegationToken]:
        """The tokens to describe. `owners`: only theirs. `may_describe`: whether the client has the right."""
        return [
            token
            for token in self._by_id.values()
            if owners is None or any(principal in owners for principal in token.principals())
            if principal in token.principals() or may_describe(token)
        ]


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


# Nodes


def token_path(id: str) -> str:
    return f"{TOKENS}/{id}"


def encode_token(token: DelegationToken) -> bytes:
    fields: Mapping[str, object] = {
        "issueTimestamp": token.issue_ms,
        "renewers": [sanitize(str(renewer)) for renewer in token.renewers],
        "tokenRequester": sanitize(str(token.requester)),
        "tokenId": token.id,
        "owner": sanitize(str(token.owner)),
        "expiryTimestamp": token.expiry_ms,
        "maxTimestamp": token.max_ms,
        "version": VERSION,
    }
    return dumps(fields)


def decode_token(path: str, data: bytes) -> DelegationToken | None:
    """None: the node has no token."""
    if not data:
        return None
    fields = loads(path, data)
    version = fields.integer("version")
    if not 0 < version <= VERSION:
        raise fields.malformed(f"version {version}, expected 1 to {VERSION}")
    owner = _principal(fields, fields.string("owner"))
    requester = _principal(fields, fields.string("tokenRequester")) if version >= 3 else owner
    return DelegationToken(
        fields.string("tokenId"),
        owner,
        requester,
        tuple(_principal(fields, renewer) for renewer in fields.strings("renewers")),
        fields.whole("issueTimestamp"),
        fields.whole("maxTimestamp"),
        fields.whole("expiryTimestamp"),
    )


def _principal(fields: Fields, sanitized: str) -> Principal:
    try:
        return parse_principal(desanitize(sanitized))
    except ValueError as error:
        raise fields.malformed(str(error)) from None
