"""The broker's own token: there after the start, renewed before it expires, kept while its server is away."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from leadline.broker.token_endpoint import TokenEndpoint
from leadline.runtime.documents import DocumentError
from leadline.runtime.ports import SystemTime
from leadline.security.oauthbearer_client import OwnToken, RefreshRules
from leadline.security.sasl_client_authenticator import LoginRefused
from leadline.security.secret import Secret
from tests.support.chance import SeededChance
from tests.support.waiting import eventually

RULES = RefreshRules(retry_backoff_ms=1, retry_backoff_max_ms=1)


class TokenServer:
    def __init__(self, *, is_away: bool = False, lifetime_ms: int = 3_600_000) -> None:
        self.is_away, self.lifetime_ms, self.fetches = is_away, lifetime_ms, 0

    async def fetch(self) -> OwnToken:
        self.fetches += 1
        if self.is_away:
            raise DocumentError("nobody answers")
        return OwnToken(Secret.of(f"token {self.fetches}"), SystemTime().now_ms() + self.lifetime_ms)


def run(server: TokenServer, test: Callable[[TokenEndpoint], Awaitable[None]]) -> None:
    async def main() -> None:
        endpoint = TokenEndpoint("https://tokens", server.fetch, RULES, SystemTime(), SeededChance())
        async with asyncio.timeout(60):
            await endpoint.start()
            try:
                await test(endpoint)
            finally:
                await endpoint.stop()

    asyncio.run(main())


def text(endpoint: TokenEndpoint) -> str:
    return endpoint.token().text.reveal_text()


def test_the_token_is_there_when_the_start_returns() -> None:
    async def test(endpoint: TokenEndpoint) -> None:
        assert text(endpoint) == "token 1"

    run(TokenServer(), test)


def test_the_token_is_renewed_before_it_expires_and_kept_while_its_server_is_away() -> None:
    server = TokenServer(lifetime_ms=50)

    async def test(endpoint: TokenEndpoint) -> None:
        await eventually(lambda: text(endpoint) == "token 3")
        server.is_away = True
        before = server.fetches
        await eventually(lambda: server.fetches > before + 3)
        kept = text(endpoint)
        server.is_away = False
        await eventually(lambda: text(endpoint) != kept)

    run(server, test)


def test_without_a_token_a_login_fails_with_the_reason_and_the_log_says_it_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    server = TokenServer(is_away=True)

    async def test(endpoint: TokenEndpoint) -> None:
        await eventually(lambda: server.fetches > 3)
        with pytest.raises(LoginRefused, match="this broker has no token: nobody answers"):
            endpoint.token()
        server.is_away = False
        await eventually(lambda: "fetched again from https://tokens" in caplog.text)
        assert text(endpoint).startswith("token")

    run(server, test)
    assert caplog.text.count("cannot be fetched: nobody answers") == 1
