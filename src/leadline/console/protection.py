"""What the console accepts from a browser, and what it allows a page to do.

a request names this console as its host: an address, `localhost` or a configured name (against DNS rebinding)
with a user configured, each request has that user's password (HTTP Basic)
a change is a POST. Without --allow-changes the server refuses it. It comes from a page of this console, and holds
the token that this console wrote into that page
a page runs no script but the console's own file, loads nothing from elsewhere and is not framed
"""

import asyncio
import base64
import binascii
import hmac
import ipaddress
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "leadline_console"
MAX_BODY_BYTES = 4 << 20  # of a change: a record and some settings
WRONG_LOGIN_S = 0.5  # wait after a wrong password

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True)
class AccessRules:
    """The access rules of the console."""

    allow_changes: bool = False
    host_names: Collection[str] = ()  # besides addresses and localhost
    user: str = ""  # empty: no login
    password: str = ""
    is_tls: bool = False


def is_own_host(host: str, names: Collection[str]) -> bool:
    """Whether a Host header names this console. An attacker's page can only name a host of the attacker's domain."""
    if host.startswith("["):
        name = host[1:].partition("]")[0]
    else:
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() and ":" in host else host
    name = name.lower().rstrip(".")
    if name == "localhost" or name in {other.lower() for other in names}:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class ChangeTokens:
    """The tokens of forms. A token belongs to a browser's cookie, and ends with this process."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def of(self, cookie: str) -> str:
        return hmac.digest(self._secret, cookie.encode(), "sha256").hex()

    def is_valid(self, token: str, cookie: str) -> bool:
        return hmac.compare_digest(token.encode(), self.of(cookie).encode())


class Protection:
    """ASGI middleware. `scope["state"]` gets `token`, for the forms of the page."""

    def __init__(self, app: ASGIApp, rules: AccessRules) -> None:
        self._app, self._rules, self.tokens = app, rules, ChangeTokens()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        cookie = _cookie(headers)
        is_new = not cookie
        if is_new:
            cookie = secrets.token_urlsafe(24)

        async def send_protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                response = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    response[name] = value
                if is_new:
                    secure = "; Secure" if self._rules.is_tls else ""
                    response.append("Set-Cookie", f"{COOKIE}={cookie}; Path=/; HttpOnly; SameSite=Strict{secure}")
            await send(message)

        refusal = await self._refusal(scope, headers)
        if refusal is not None:
            await refusal(scope, receive, send_protected)
            return
        state = scope.setdefault("state", {})
        state["token"] = self.tokens.of(cookie)
        state["has_valid_token"] = lambda token: self.tokens.is_valid(token, cookie)
        await self._app(scope, _bounded(receive), send_protected)

    async def _refusal(self, scope: Scope, headers: Headers) -> PlainTextResponse | None:
        host = headers.get("host", "")
        if not is_own_host(host, self._rules.host_names):
            text = f"This console does not serve the host {host!r}. Start it with --host-name to allow a name.\n"
            return PlainTextResponse(text, 421)
        if self._rules.user and not self._is_logged_in(headers):
            if "authorization" in headers:
                await asyncio.sleep(WRONG_LOGIN_S)
            challenge = {"WWW-Authenticate": 'Basic realm="Leadline console", charset="UTF-8"'}
            return PlainTextResponse("A login is needed.\n", 401, challenge)
        if scope["method"] in ("GET", "HEAD"):
            return None
        if scope["method"] != "POST":
            return PlainTextResponse("Only GET and POST are served.\n", 405, {"Allow": "GET, HEAD, POST"})
        if not self._rules.allow_changes:
            return PlainTextResponse("This console is read-only: it was started without --allow-changes.\n", 403)
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "same-origin")
        if (origin is not None and origin.partition("://")[2] != host) or site not in ("same-origin", "none"):
            return PlainTextResponse("A change must come from a page of this console.\n", 403)
        if int(headers.get("content-length", "0") or "0") > MAX_BODY_BYTES:
            return PlainTextResponse(f"A change may have {MAX_BODY_BYTES:,} bytes at most.\n", 413)
        return None

    def _is_logged_in(self, headers: Headers) -> bool:
        kind, _, encoded = headers.get("authorization", "").partition(" ")
        if kind.lower() != "basic":
            return False
        try:
            user, _, password = base64.b64decode(encoded, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return False
        right_user = hmac.compare_digest(user.encode(), self._rules.user.encode())
        return hmac.compare_digest(password.encode(), self._rules.password.encode()) and right_user


def _cookie(headers: Headers) -> str:
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return "" if morsel is None else morsel.value


def _bounded(receive: Receive) -> Receive:
    """A body without a length, or with a wrong one, ends at the limit."""
    received = 0

    async def bounded() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        return {"type": "http.disconnect"} if received > MAX_BODY_BYTES else message

    return bounded
