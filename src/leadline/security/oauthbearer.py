"""OAUTHBEARER (RFC 7628), the server's side: a client shows a signed token instead of a password.

Pure: bytes and a key set in, an outcome out.

    message     n,[a=authzid],^Aauth=Bearer <token>^A[key=value^A]*^A           ^A is the byte 1
    refused     the answer is the challenge {"status":"invalid_token"}; the client says ^A; only then the login fails

    a token counts only with a signature of a key of the listener's key set (`security/jwks.py`)
    accepted are RS, PS, ES and EdDSA, each with a key of its own kind; never none and never a shared secret
        (CVE-2021-22160, CVE-2026-33557)
    exp and iat are required; exp and nbf hold within the clock skew; iss, if it is configured, is equal
    a token with audiences is for one of sasl.oauthbearer.expected.audience; without that setting it is for others
    the session ends with the token
    no message and no reason contains a token

Without a callback handler Kafka takes tokens without a signature. Here that must be asked for by name
(`security/unsecured_tokens.py`): then any client can log in as any user.
"""

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from leadline.config.security import SIGNED_HANDLER, UNSECURED_HANDLER
from leadline.config.values import BLANK, InvalidSetting
from leadline.security.jwks import Jwks
from leadline.security.principal import USER_TYPE, Principal
from leadline.security.sasl_mechanisms import Authenticated, Challenge, Failed, Outcome
from leadline.security.sasl_names import SASL_NAME, is_escaped

OAUTHBEARER = "OAUTHBEARER"
INVALID_TOKEN = '{"status":"invalid_token"}'
_CONTROL_A = b"\x01"
_MOST_PAIRS = 100
_MESSAGE = re.compile(
    rb"n,(?:a=(?P<authzid>"
    + SASL_NAME
    + rb"))?,\x01(?P<pairs>(?:[A-Za-z]++=[\x21-\x7e \t\r\n]++\x01){0,%d})\x01" % _MOST_PAIRS
)
_AUTH = re.compile(rb"(?P<scheme>\w++) ++(?P<token>[-_~+/.a-zA-Z0-9]++=*+)")
_MAX_NUMBER = 1 << 53


class InvalidToken(Exception):
    """Why a token is refused; without the token itself. `scope`: the missing scope, if that is the reason."""

    def __init__(self, reason: str, scope: str | None = None) -> None:
        super().__init__(reason)
        self.scope = scope

    def for_client(self) -> str:
        return INVALID_TOKEN if self.scope is None else f'{{"status":"insufficient_scope", "scope":"{self.scope}"}}'


@dataclass(frozen=True, slots=True)
class TokenRules:
    """sasl.oauthbearer.*: the required claims of a token."""

    issuer: str | None = None
    audiences: frozenset[str] = frozenset()
    clock_skew_s: int = 30
    scope_claim: str = "scope"
    sub_claim: str = "sub"


@dataclass(frozen=True, slots=True)
class AccessToken:
    principal_name: str
    scopes: frozenset[str]
    expires_ms: int


Validate = Callable[[str, int], AccessToken]  # token and wall clock; raises InvalidToken


class OAuthBearerExchange:
    def __init__(self, validate: Validate) -> None:
        self._validate = validate
        self._refusal: InvalidToken | None = None

    def evaluate(self, response: bytes, now_ms: int) -> Outcome:
        if response == _CONTROL_A and self._refusal is not None:
            return Failed(self._refusal.for_client(), f"the token is refused: {self._refusal}")
        message = _parsed(response)
        if message is None:
            return Failed(reason="invalid OAUTHBEARER client first message")
        authorization_id, token = message
        try:
            access = self._validate(token, now_ms)
        except InvalidToken as error:
            self._refusal = error
            return Challenge(error.for_client().encode())
        if authorization_id not in ("", access.principal_name):
            return Failed(
                f"Authentication failed: Client requested an authorization id ({authorization_id}) that is different "
                f"from the token's principal name ({access.principal_name})"
            )
        return Authenticated(Principal(USER_TYPE, access.principal_name), b"", access.expires_ms)


def _parsed(response: bytes) -> tuple[str, str] | None:
    """Authorization id and token."""
    message = _MESSAGE.fullmatch(response)
    if message is None or not is_escaped(message["authzid"] or b""):
        return None
    pairs = dict(pair.split(b"=", 1) for pair in message["pairs"].split(_CONTROL_A) if pair)
    auth = _AUTH.fullmatch(pairs.get(b"auth", b""))
    if auth is None or auth["scheme"].lower() != b"bearer":
        return None
    return (message["authzid"] or b"").decode(), auth["token"].decode()


class TokenValidator:
    """Checks signed tokens against the key set of a listener."""

    def __init__(self, rules: TokenRules, keys: Jwks) -> None:
        self._rules, self._keys = rules, keys

    def validate(self, token: str, now_ms: int) -> AccessToken:
        header = _header(token)
        algorithm, key_id = header.get("alg"), header.get("kid")
        if "crit" in header:
            raise InvalidToken("the token demands extensions")
        if not isinstance(algorithm, str) or not (key_id is None or isinstance(key_id, str)):
            raise InvalidToken("algorithm and key id of a token are texts")
        key = self._keys.find(key_id, algorithm, now_ms)
        if key is None:
            raise InvalidToken("no key of the key set fits the token")
        return self._accept(_verified(token, key, algorithm), now_ms / 1000)

    def _accept(self, claims: dict[str, Any], now_s: float) -> AccessToken:
        rules = self._rules
        expires_s, _ = claim_time(claims, "exp"), claim_time(claims, "iat")
        if now_s - rules.clock_skew_s >= expires_s:
            raise InvalidToken("the token has expired")
        if "nbf" in claims and now_s + rules.clock_skew_s < claim_time(claims, "nbf"):
            raise InvalidToken("the token is not valid yet")
        if rules.issuer is not None and claims.get("iss") != rules.issuer:
            raise InvalidToken("the token has another issuer")
        if ("aud" in claims or rules.audiences) and not rules.audiences.intersection(_texts(claims.get("aud", []))):
            raise InvalidToken("the token is for another audience")
        scopes = _texts(claims[rules.scope_claim]) if rules.scope_claim in claims else []
        subject = claims.get(rules.sub_claim)
        if not isinstance(subject, str) or not subject.strip(BLANK):
            raise InvalidToken(f"the token has no {rules.sub_claim}")
        return AccessToken(subject.strip(BLANK), frozenset(scopes), int(expires_s * 1000))


def _header(token: str) -> dict[str, Any]:
    parts = token.split(".")
    if len(parts) != 3 or not all(parts):
        raise InvalidToken("a signed token has three parts")
    return decoded_part(parts[0])


def decoded_part(part: str) -> dict[str, Any]:
    """Header or claims. Raises InvalidToken."""
    try:
        return _json_object(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (binascii.Error, ValueError):
        raise InvalidToken("a part of the token is not base64") from None


def _verified(token: str, key: object, algorithm: str) -> dict[str, Any]:
    from jwt import InvalidTokenError
    from jwt.api_jws import PyJWS

    try:
        payload = PyJWS().decode(token, key=key, algorithms=[algorithm])  # type: ignore[arg-type]
    except (InvalidTokenError, ValueError, TypeError):
        raise InvalidToken("the token's signature is wrong") from None
    assert isinstance(payload, bytes)
    return _json_object(payload)


def _json_object(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise InvalidToken("a part of the token is not JSON") from None
    if not isinstance(value, dict):
        raise InvalidToken("a part of the token is not an object")
    return value


def claim_time(claims: Mapping[str, Any], name: str) -> float:
    """The time of a claim, in seconds."""
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _MAX_NUMBER:
        raise InvalidToken(f"{name} of the token is not a time")
    return value


def _texts(value: object) -> list[str]:
    values = value if isinstance(value, list) else [value]
    texts = [part for part in values if isinstance(part, str) and part.strip(BLANK)]
    if len(texts) != len(values):
        raise InvalidToken("scopes and audiences of a token are texts")
    return texts


def is_signed(setting: str, handler: str | None) -> bool:
    """Whether sasl.server.callback.handler.class checks signatures. None would be the one that does not."""
    if handler is None:
        raise InvalidSetting(
            f"{setting} is not set: Kafka would accept tokens without a signature then; set it to {SIGNED_HANDLER}, or "
            f"to {UNSECURED_HANDLER} for development"
        )
    return handler != UNSECURED_HANDLER
