"""How a broker or a client of ours gets its own token by OAUTHBEARER: from a file, or from a server over https.

The options `ssl.truststore.*` of the login module say whom to trust as the server of a URL. Without them, the
authorities of the system count.
"""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from leadline.config.security import SecurityConfig
from leadline.config.values import InvalidSetting
from leadline.runtime.documents import TIMEOUT_S, Form
from leadline.security.jwks import check_endpoint
from leadline.security.key_stores import ReadFile, TrustStore, TrustStoreSettings, load_trust_store
from leadline.security.oauthbearer_client import (
    ClientCredentials,
    OwnToken,
    RefreshRules,
    token_of_answer,
    token_of_file,
)
from leadline.security.secret import Secret
from leadline.security.tls import ListenerTls, TlsSettings

TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"
_TRUST_STORE = "ssl.truststore."
_NO_TOKEN = "a login by OAUTHBEARER needs a token"


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """What to read for a token: the file at `path`, or the answer of the server at `url` to `form`."""

    url: str
    path: str | None = None
    form: Form | None = None
    _context: ssl.SSLContext | None = field(default=None, repr=False)

    @classmethod
    def of(cls, setting: str, config: SecurityConfig, options: Mapping[str, Secret], read: ReadFile) -> "TokenRequest":
        """`setting`: the name of the JAAS line that has the options. Raises InvalidSetting."""
        url = check_endpoint(TOKEN_URL, config.sasl_oauthbearer_token_endpoint_url, _NO_TOKEN)
        if (path := path_of_url(TOKEN_URL, url, read)) is not None:
            return cls(url, path)
        connect_ms, read_ms = config.sasl_login_connect_timeout_ms, config.sasl_login_read_timeout_ms
        form = replace(
            ClientCredentials.of(setting, options).form(),
            connect_s=TIMEOUT_S if connect_ms is None else connect_ms / 1000,
            read_s=TIMEOUT_S if read_ms is None else read_ms / 1000,
        )
        return cls(url, None, form, url_context(options, read))

    def context(self) -> ssl.SSLContext:
        assert self._context is not None, "a file needs no TLS"
        return self._context

    def token(self, content: bytes) -> OwnToken:
        """The token in the file, or in the answer. Raises DocumentError."""
        return token_of_answer(content) if self.path is None else token_of_file(content)


def path_of_url(setting: str, url: str, read: ReadFile) -> str | None:
    """The path of a file that can be read; None: the URL does not name a file. Raises InvalidSetting."""
    if urlsplit(url).scheme != "file":
        return None
    path = url.removeprefix("file://")
    try:
        read(path)
    except OSError as error:
        raise InvalidSetting(f"{setting}={url}: {error}") from None
    return path


def url_context(options: Mapping[str, Secret], read: ReadFile) -> ssl.SSLContext:
    """The TLS context for the server of a URL. Raises InvalidSetting."""
    return ListenerTls(TlsSettings(), None, url_trust_store(options, read)).client_context


def url_trust_store(options: Mapping[str, Secret], read: ReadFile) -> TrustStore | None:
    """Raises InvalidSetting."""

    def text(name: str) -> str | None:
        return options[_TRUST_STORE + name].reveal_text() if _TRUST_STORE + name in options else None

    settings = TrustStoreSettings(
        text("type") or TrustStoreSettings().type,
        text("location"),
        options.get(f"{_TRUST_STORE}password"),
        options.get(f"{_TRUST_STORE}certificates"),
    )
    return load_trust_store(settings, read)


def refresh_rules(config: SecurityConfig) -> RefreshRules:
    return RefreshRules(
        config.sasl_login_refresh_window_factor,
        config.sasl_login_refresh_window_jitter,
        config.sasl_login_refresh_min_period_seconds,
        config.sasl_login_refresh_buffer_seconds,
        config.sasl_login_retry_backoff_ms,
        config.sasl_login_retry_backoff_max_ms,
    )
