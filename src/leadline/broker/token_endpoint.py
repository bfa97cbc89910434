"""The token by which this broker logs in to others: fetched at the start, and again before it expires.

a server that cannot be reached stops no login: the current token stays, and the server is asked again
before the first token arrives, a login of this broker fails with the reason
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from leadline.runtime.documents import DocumentError
from leadline.runtime.periodic import kept_running
from leadline.runtime.ports import Chance, Time
from leadline.security.oauthbearer_client import OwnToken, RefreshRules
from leadline.security.sasl_client_authenticator import LoginRefused

log = logging.getLogger(__name__)


class TokenEndpoint:
    """`await start()`, and in the end `await stop()`. `fetch` raises DocumentError or OSError."""

    def __init__(
        self, url: str, fetch: Callable[[], Awaitable[OwnToken]], rules: RefreshRules, clock: Time, chance: Chance
    ) -> None:
        self.url = url
        self._fetch, self._rules, self._clock, self._chance = fetch, rules, clock, chance
        self._token: OwnToken | None = None
        self._failures, self._error = 0, "it was not asked for yet"
        self._refreshing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """One attempt is made before this broker logs in anywhere."""
        await self._load()
        self._refreshing = asyncio.create_task(kept_running(self._refresh), name=f"token of {self.url}")

    async def stop(self) -> None:
        if self._refreshing is not None:
            self._refreshing.cancel()
            with suppress(asyncio.CancelledError):
                await self._refreshing

    def token(self) -> OwnToken:
        """Raises LoginRefused."""
        if self._token is None:
            raise LoginRefused(f"this broker has no token: {self._error}")
        return self._token

    async def _refresh(self) -> None:
        while True:
            await asyncio.sleep(self._wait_ms() / 1000)
            await self._load()

    def _wait_ms(self) -> int:
        if self._failures or self._token is None:
            return self._rules.retry_ms(self._failures)
        now_ms = self._clock.now_ms()
        return max(self._rules.refresh_at_ms(self._token, now_ms, self._chance.uniform(0, 1)) - now_ms, 0)

    async def _load(self) -> None:
        try:
            self._token = await self._fetch()
        except (DocumentError, OSError) as error:
            self._failures, self._error = self._failures + 1, str(error)
            if self._failures == 1:
                log.warning("the broker's own token cannot be fetched: %s", error)
            return
        if self._failures:
            log.info("the broker's own token can be fetched again from %s", self.url)
        self._failures = 0
