"""OAUTHBEARER on the listeners of a broker: which tokens each of them takes, and which one the broker itself shows.

    a listener takes signed tokens, unless its settings name Kafka's handler for unsecured ones
    the keys come from an https URL or from a file; the URL never changes while the broker runs (CVE-2025-27817)
    the broker's own token comes from such a URL, too, or is written without a signature (`oauthbearer_client`)

The options `ssl.truststore.*` of the login module say whom to trust as the server of such a URL. Without them, the
authorities of the system count.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack
from functools import partial

from leadline.broker.jwks_endpoint import JwksEndpoint, JwksTiming
from leadline.broker.own_login import NewLogin
from leadline.broker.token_endpoint import TokenEndpoint
from leadline.config.security import UNSECURED_LOGIN_HANDLER, SecurityConfig
from leadline.runtime.documents import FetchDocument
from leadline.runtime.ports import Chance, Time
from leadline.security.jaas import LoginModule
from leadline.security.jwks import check_endpoint, check_library
from leadline.security.key_stores import ReadFile
from leadline.security.oauthbearer import (
    OAUTHBEARER,
    OAuthBearerExchange,
    TokenRules,
    TokenValidator,
    Validate,
    is_signed,
)
from leadline.security.oauthbearer_client import OAuthBearerClient, OwnToken, UnsecuredLogin, extensions_of
from leadline.security.sasl_client_authenticator import SaslClientAuthenticator
from leadline.security.secret import Secret
from leadline.security.token_request import TokenRequest, path_of_url, refresh_rules, url_context
from leadline.security.unsecured_tokens import UnsecuredValidator

log = logging.getLogger(__name__)

_KEYS_URL = "sasl.oauthbearer.jwks.endpoint.url"
_NO_KEYS = "OAUTHBEARER needs the keys that tokens are signed with"


class OAuthTokens:
    """`await start()` makes all endpoints fetch their keys, and the broker's own tokens."""

    def __init__(self, fetch: FetchDocument, read: ReadFile, clock: Time, chance: Chance) -> None:
        self._fetch, self._read, self._clock, self._chance = fetch, read, clock, chance
        self._endpoints: dict[str, JwksEndpoint] = {}  # by listener
        self._own: dict[str, TokenEndpoint] = {}  # by listener
        self._unsecured: set[str] = set()  # listeners
        self._running: list[JwksEndpoint | TokenEndpoint] = []

    async def start(self, stack: AsyncExitStack) -> None:
        stack.push_async_callback(self._stop)
        await self.update(self._endpoints)

    async def _stop(self) -> None:
        for endpoint in self._running:
            await endpoint.stop()

    def forget_all_but(self, listeners: Collection[str]) -> None:
        """Other listeners are closed, or were never opened."""
        self._endpoints = {name: endpoint for name, endpoint in self._endpoints.items() if name in listeners}
        self._unsecured.intersection_update(listeners)

    async def update(self, listeners: Collection[str]) -> None:
        """Has the endpoints of these listeners fetch their keys, and those of others end."""
        self.forget_all_but(listeners)
        endpoints: list[JwksEndpoint | TokenEndpoint] = [*self._endpoints.values(), *self._own.values()]
        ended = [endpoint for endpoint in self._running if endpoint not in endpoints]
        begun = [endpoint for endpoint in endpoints if endpoint not in self._running]
        self._running = endpoints
        for endpoint in ended:
            await endpoint.stop()
        for endpoint in begun:
            await endpoint.start()

    def exchanges_of(
        self, listener: str, config: SecurityConfig, setting: str, handler: str | None, module: LoginModule
    ) -> Callable[[], OAuthBearerExchange]:
        """A factory for logins on a listener. `setting`: the name under which its handler is set. InvalidSetting."""
        if is_signed(setting, handler):
            validate = self._signed(listener, config, module)
        else:
            validate = UnsecuredValidator.of(setting, module.options).validate
            if listener not in self._unsecured:
                self._unsecured.add(listener)
                log.warning("listener %s accepts unsigned tokens: any client can log in as any user", listener)
        return partial(OAuthBearerExchange, validate)

    def own_logins(
        self, listener: str, config: SecurityConfig, setting: str, handler: str | None, module: LoginModule
    ) -> NewLogin:
        """A factory for logins of this broker. `setting`: the name of its JAAS line. InvalidSetting."""
        is_unsecured = handler in (None, UNSECURED_LOGIN_HANDLER)
        extensions = extensions_of(setting, module.options, is_unsecured=is_unsecured)
        if is_unsecured:
            login = UnsecuredLogin.of(setting, module.options)
            token: Callable[[], OwnToken] = lambda: login.token(self._clock.now_ms())  # noqa: E731
        else:
            token = self._own_endpoint(listener, config, setting, module).token
        return lambda host: SaslClientAuthenticator(OAUTHBEARER, OAuthBearerClient(token(), extensions))

    def _own_endpoint(self, listener: str, config: SecurityConfig, setting: str, module: LoginModule) -> TokenEndpoint:
        request = TokenRequest.of(setting, config, module.options, self._read)

        async def fetch() -> OwnToken:
            if request.path is not None:
                return request.token(await self._read_file(request.path))
            return request.token(await self._fetch(request.url, request.context(), request.form))

        if listener not in self._own:
            self._own[listener] = TokenEndpoint(request.url, fetch, refresh_rules(config), self._clock, self._chance)
        return self._own[listener]

    def _signed(self, listener: str, config: SecurityConfig, module: LoginModule) -> Validate:
        check_library()
        url = check_endpoint(_KEYS_URL, config.sasl_oauthbearer_jwks_endpoint_url, _NO_KEYS)
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
        if (path := path_of_url(_KEYS_URL, url, self._read)) is not None:
            return partial(self._read_file, path)
        return partial(self._fetch, url, url_context(options, self._read))

    async def _read_file(self, path: str) -> bytes:
        return await asyncio.to_thread(self._read, path)


def _timing(config: SecurityConfig) -> JwksTiming:
    return JwksTiming(
        config.sasl_oauthbearer_jwks_endpoint_refresh_ms,
        config.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms,
        config.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms,
    )
