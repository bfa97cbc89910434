"""OAUTHBEARER (RFC 7628), the client's side: a broker shows its own token to another one, or a client to a broker.

Pure: values in, values out.

    message     n,,^Aauth=Bearer <token>^A[key=value^A]*^A                     ^A is the byte 1
    accepted    the answer is empty
    refused     the answer is a challenge that says why; the client says ^A; only then the login fails

Where the token comes from is Kafka's `sasl.login.callback.handler.class` of the listener and the mechanism:

    OAuthBearerUnsecuredLoginCallbackHandler            it is written here, without a signature, from the options
                                                        unsecuredLogin... of its login module
    OAuthBearerLoginCallbackHandler                     sasl.oauthbearer.token.endpoint.url: a file, or a server that
                                                        gives it for the options clientId, clientSecret and scope

No message and no reason contains a token or a password.
"""

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

from leadline.config.values import BLANK, InvalidSetting
from leadline.runtime.documents import DocumentError, Form
from leadline.security.oauthbearer import InvalidToken, claim_time, decoded_part
from leadline.security.secret import Secret

_CONTROL_A = b"\x01"
_TOKEN = re.compile(r"[-_~+/.a-zA-Z0-9]+=*")
_EXTENSION_NAME, _EXTENSION_VALUE = re.compile(r"[A-Za-z]+"), re.compile(r"[\x21-\x7e \t\r\n]+")
_UNSECURED = "unsecuredLogin"
_SECURED_EXTENSION, _UNSECURED_EXTENSION = "extension_", f"{_UNSECURED}Extension_"
_NOTHING = Secret(b"")


@dataclass(frozen=True, slots=True)
class OwnToken:
    text: Secret
    expires_ms: int
    issued_ms: int | None = None


class OAuthBearerClient:
    """One login."""

    def __init__(self, token: OwnToken, extensions: Mapping[str, str]) -> None:
        pairs = b"".join(f"{name}={value}".encode() + _CONTROL_A for name, value in extensions.items())
        self._message: Secret | None = Secret(
            b"n,," + _CONTROL_A + b"auth=Bearer " + token.text.reveal() + _CONTROL_A + pairs + _CONTROL_A
        )
        self.is_complete = False

    def evaluate(self, challenge: bytes) -> bytes:
        message, self._message = self._message, None
        if message is not None:
            return message.reveal()
        self.is_complete = not challenge
        return _CONTROL_A


def own_token(text: str) -> OwnToken:
    """Raises InvalidToken."""
    parts = text.split(".")
    if len(parts) != 3 or _TOKEN.fullmatch(text) is None:
        raise InvalidToken("a token has three parts, in the letters of base64")
    claims = decoded_part(parts[1])
    issued_ms = round(claim_time(claims, "iat") * 1000) if "iat" in claims else None
    return OwnToken(Secret.of(text), round(claim_time(claims, "exp") * 1000), issued_ms)


def extensions_of(setting: str, options: Mapping[str, Secret], *, is_unsecured: bool) -> dict[str, str]:
    """The extensions that are sent with the token. Raises InvalidSetting."""
    prefix = _UNSECURED_EXTENSION if is_unsecured else _SECURED_EXTENSION
    extensions = {
        name.removeprefix(prefix): value.reveal_text() for name, value in options.items() if name.startswith(prefix)
    }
    for name, value in extensions.items():
        if name == "auth" or not _EXTENSION_NAME.fullmatch(name) or not _EXTENSION_VALUE.fullmatch(value):
            raise InvalidSetting(f"{setting}: {prefix}{name}: a name has letters only and is not auth; a value is text")
    return extensions


# Tokens that are written here


@dataclass(frozen=True, slots=True)
class UnsecuredLogin:
    claims: Mapping[str, object]
    lifetime_s: int = 3600

    @classmethod
    def of(cls, setting: str, options: Mapping[str, Secret]) -> "UnsecuredLogin":
        """From the options of a login module. Raises InvalidSetting."""
        texts = {
            name.removeprefix(_UNSECURED): value.reveal_text()
            for name, value in options.items()
            if name.startswith(_UNSECURED)
        }
        claims: dict[str, object] = {}
        for name, text in texts.items():
            kind, _, claim = name.partition("Claim_")
            if claim and kind == "String":
                claims[claim] = text
            elif claim and kind == "Number":
                claims[claim] = _number(f"{setting}: {_UNSECURED}{name}", text)
            elif claim and kind == "List":
                claims[claim] = text[1:].split(text[0]) if text else []
        principal = texts.get("PrincipalClaimName", "").strip(BLANK) or "sub"
        if not str(claims.get(principal, "")).strip(BLANK):
            raise InvalidSetting(f"{setting}: {_UNSECURED}StringClaim_{principal} is missing: it names the user")
        lifetime_s = _number(f"{setting}: {_UNSECURED}LifetimeSeconds", texts.get("LifetimeSeconds") or "3600")
        if lifetime_s < 1:
            raise InvalidSetting(f"{setting}: {_UNSECURED}LifetimeSeconds must be at least 1")
        return cls(claims, int(lifetime_s))

    def token(self, now_ms: int) -> OwnToken:
        issued_s = now_ms // 1000
        claims = {"iat": issued_s, "exp": issued_s + self.lifetime_s, **self.claims}
        return own_token(f"{_part({'alg': 'none'})}.{_part(claims)}.")


def _number(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise InvalidSetting(f"{name} must be a number") from None
    return int(number) if number.is_integer() else number


def _part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value, separators=(",", ":")).encode()).rstrip(b"=").decode()


# Tokens of a server


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """The credentials for the server that gives tokens."""

    id: str
    secret: Secret
    scope: str = ""

    @classmethod
    def of(cls, setting: str, options: Mapping[str, Secret]) -> "ClientCredentials":
        """From the options of a login module. Raises InvalidSetting."""
        texts = {name: options.get(name, _NOTHING).reveal_text().strip(BLANK) for name in ("clientId", "scope")}
        secret = options.get("clientSecret", _NOTHING)
        if not texts["clientId"] or not secret:
            raise InvalidSetting(f"{setting}: clientId and clientSecret are missing: there is no token without them")
        return cls(texts["clientId"], secret, texts["scope"])

    def form(self) -> Form:
        """The grant of client credentials (RFC 6749, section 4.4)."""
        scope = f"&scope={quote(self.scope, safe='')}" if self.scope else ""
        login = base64.b64encode(self.id.encode() + b":" + self.secret.reveal()).decode()
        return Form(f"grant_type=client_credentials{scope}".encode(), {"Authorization": f"Basic {login}"})


def token_of_answer(answer: bytes) -> OwnToken:
    """The token in the answer of a server. Raises DocumentError."""
    try:
        document = json.loads(answer)
        text = document["access_token"].strip(BLANK)
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        raise DocumentError("the answer has no access_token") from None
    return _checked(text)


def token_of_file(content: bytes) -> OwnToken:
    """Raises DocumentError."""
    return _checked(content.decode("ascii", "replace").strip(BLANK))


def _checked(text: str) -> OwnToken:
    try:
        return own_token(text)
    except InvalidToken as error:
        raise DocumentError(f"not a token: {error}") from None


@dataclass(frozen=True, slots=True)
class RefreshRules:
    """sasl.login.refresh.* and sasl.login.retry.*"""

    window_factor: float = 0.8
    window_jitter: float = 0.05
    min_period_s: int = 60
    buffer_s: int = 300
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 10_000

    def refresh_at_ms(self, token: OwnToken, now_ms: int, chance: float) -> int:
        """When to get the next token. `chance`: from 0 to 1. A short life leaves no room for period and buffer."""
        share = self.window_factor + self.window_jitter * chance
        if now_ms + (self.min_period_s + self.buffer_s) * 1000 > token.expires_ms:
            return now_ms + max(int((token.expires_ms - now_ms) * share), self.retry_backoff_ms)
        begin_ms = now_ms if token.issued_ms is None else token.issued_ms
        proposed_ms = begin_ms + int((token.expires_ms - begin_ms) * share)
        latest_ms, earliest_ms = token.expires_ms - self.buffer_s * 1000, now_ms + self.min_period_s * 1000
        return max(min(proposed_ms, latest_ms), earliest_ms)

    def retry_ms(self, failures: int) -> int:
        """The pause after `failures` in a row."""
        return min(self.retry_backoff_ms << min(failures - 1, 30), self.retry_backoff_max_ms)
