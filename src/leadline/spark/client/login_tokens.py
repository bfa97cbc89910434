"""The tokens by which a client logs in: fetched for the first login, and again for a login after most of their life.

All connections of a process with the same properties share them, so that a job with many tasks does not ask the
server of tokens for each of them.

    a server that cannot be reached stops no login while the current token is valid
    a server that refuses the client ends the login; one that cannot be reached may be asked again
"""

import threading
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from random import random

from leadline.runtime.documents import DocumentError, read_document
from leadline.security.client_properties import SecurityProperties
from leadline.security.oauthbearer_client import OAuthBearerClient, OwnToken, UnsecuredLogin
from leadline.security.token_login import TokenLogin
from leadline.security.token_request import TokenRequest

MOST_LOGINS = 64  # different ones in a process


class NoToken(Exception):
    def __init__(self, reason: str, *, is_refused: bool) -> None:
        super().__init__(reason)
        self.is_refused = is_refused  # another attempt does not help


class LoginTokens:
    def __init__(self, login: TokenLogin, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self.extensions = login.extensions
        self._login, self._now_ms = login, now_ms
        self._token: OwnToken | None = None
        self._due_ms, self._failures = 0, 0  # when the next token is due; how often it was not to be had
        self._fetching = threading.Lock()

    def exchange(self) -> OAuthBearerClient:
        """One login. Raises NoToken."""
        return OAuthBearerClient(self.token(), self.extensions)

    def token(self) -> OwnToken:
        """Raises NoToken."""
        with self._fetching:
            now_ms = self._now_ms()
            if self._token is None or now_ms >= min(self._due_ms, self._token.expires_ms):
                self._renew(now_ms)
            assert self._token is not None
            return self._token

    def _renew(self, now_ms: int) -> None:
        rules = self._login.rules
        try:
            self._token = _fetched(self._login.source, now_ms)
        except (DocumentError, OSError) as error:
            self._failures += 1
            self._due_ms = now_ms + rules.retry_ms(self._failures)
            if self._token is None or now_ms >= self._token.expires_ms:
                is_refused = isinstance(error, DocumentError) and error.is_refused
                raise NoToken(f"there is no token: {error}", is_refused=is_refused) from None
        else:
            self._failures = 0
            self._due_ms = rules.refresh_at_ms(self._token, now_ms, random())


def _fetched(source: UnsecuredLogin | TokenRequest, now_ms: int) -> OwnToken:
    if isinstance(source, UnsecuredLogin):
        return source.token(now_ms)
    if source.path is not None:
        token = source.token(Path(source.path).read_bytes())
    else:
        token = source.token(read_document(source.url, source.context(), source.form))
    if token.expires_ms <= now_ms:
        raise DocumentError(f"that of {source.url} has expired")
    return token


def login_tokens(security: SecurityProperties) -> LoginTokens:
    """The tokens of a client with these properties. Raises InvalidSetting."""
    return _login_tokens(frozenset(security.properties.items()))


@lru_cache(MOST_LOGINS)
def _login_tokens(properties: frozenset[tuple[str, str]]) -> LoginTokens:
    login = SecurityProperties.of(dict(properties)).token_login(lambda path: Path(path).read_bytes())
    return LoginTokens(login)
