"""OAUTHBEARER on the listeners of a broker: which tokens each of them takes, and where it gets the keys for them.

    a listener takes signed tokens, unless its settings name Kafka's handler for unsecured ones
    the keys come from an https URL or from a file; the URL never changes while the broker runs (CVE-2025-27817)

The options `ssl.truststore.*` of the login module say whom to trust as the server of that URL. Without them, the
authorities of the system count.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from urllib.parse import urlsplit

from leadline.broker.jwks_endpoint import JwksEndpoint, JwksTiming
from leadline.config.security import SecurityConfig
from leadline.config.values import InvalidSetting
from leadline.runtime.documents import FetchDocument
from leadline.runtime.ports import Time
from leadline.security.jaas import LoginModule
from leadline.security.jwks import check_endpoint, check_library
from leadline.security.key_stores import ReadFile, TrustStoreSettings, load_trust_store
from leadline.security.oauthbearer import OAuthBearerExchange, TokenRules, TokenValidator, Validate, is_signed
from leadline.security.secret import Secret
from leadline.security.tls import ListenerTls, TlsSettings
from leadline.security.unsecured_tokens import UnsecuredValidator

log = logging.getLogger(__name__)

_TRUST_STORE = "ssl.truststore."


class OAuthTokens:
    """`await start()` makes all endpoints fetch their keys."""

    def __init__(self, fetch: FetchDocument, read: ReadFile, clock: Time) -> None:
        self._fetch, self._read, self._clock = fetch, read, clock
        self._endpoints: dict[str, JwksEndpoint] = {}  # by listener
        self._unsecured: set[str] = set()  # listeners

    async def start(self, stack: AsyncExitStack) -> None:
        for endpoint in self._endpoints.values():
            stack.push_async_callback(endpoint.stop)
            await endpoint.start()

    def exchanges_of(
        self, listener: str, config: SecurityConfig, setting: str, handler: str | None, module: LoginModule
    ) -> Callable[[], OAuthBearerExchange]:
        """What begins a login on a listener. `setting`: the name under which its handler is set. InvalidSetting."""
        if is_signed(setting, handler):
            validate = self._signed(listener, config, module)
        else:
            validate = UnsecuredValidator.of(setting, module.options).validate
            if listener not in self._unsecured:
                self._unsecured.add(listener)
                log.warning("listener %s takes tokens without a signature: whoever reaches it may be anybody", listener)
        return partial(OAuthBearerExchange, validate)

    def _signed(self, listener: str, config: SecurityConfig, module: LoginModule) -> Validate:
        check_library()
        url = check_endpoint(config.sasl_oauthbearer_jwks_endpoint_url, from_file=True)
        fetch = self._source(url, module.options)
        if listener not in self._endpoints:
            self._endpoints[listener] = JwksEndpoint(url, fetch, _timing(config), self._clock)
        rules = TokenRules(
            issuer=config.sasl_oauthbearer_expected_issuer,
            audiences=frozenset(config.sasl_oauthbearer_expected_audience or ()),
            clock_skew_s=config.sasl_oauthbearer_clock_skew_seconds,
            scope_claim=config.sasl_oauthbearer_scope_claim_name,
            sub_claim=config.sasl_oauthbearer_sub_claim_name,
        )
        return TokenValidator(rules, self._endpoints[listener].keys).validate

    def _source(self, url: str, options: Mapping[str, Secret]) -> Callable[[], Awaitable[bytes]]:
        parts = urlsplit(url)
        if parts.scheme == "file":
            path = url.removeprefix("file://")
            try:
                self._read(path)
            except OSError as error:
                raise InvalidSetting(f"sasl.oauthbearer.jwks.endpoint.url={url}: {error}") from None
            return partial(self._read_file, path)
        trust_store = _trust_store(options)
        tls = ListenerTls(TlsSettings(trust_store=trust_store), None, load_trust_store(trust_store, self._read))
        return partial(self._fetch, url, tls.client_context)

    async def _read_file(self, path: str) -> bytes:
        return await asyncio.to_thread(self._read, path)


def _timing(config: SecurityConfig) -> JwksTiming:
    return JwksTiming(
        config.sasl_oauthbearer_jwks_endpoint_refresh_ms,
        config.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms,
        config.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms,
    )


def _trust_store(options: Mapping[str, Secret]) -> TrustStoreSettings:
    def text(name: str) -> str | None:
        return options[_TRUST_STORE + name].reveal_text() if _TRUST_STORE + name in options else None

    return TrustStoreSettings(
        text("type") or TrustStoreSettings().type,
        text("location"),
        options.get(f"{_TRUST_STORE}password"),
        options.get(f"{_TRUST_STORE}certificates"),
    )
