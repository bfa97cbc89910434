"""The keys for a listener's OAUTHBEARER tokens: fetched at the start, again in time, and early when one is missing.

    an endpoint that cannot be reached stops no login: the current keys stay, and it is retried, with growing pauses
    before the first keys arrive, logins by OAUTHBEARER fail

Kafka does not start without them. Here the other listeners are served meanwhile.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from leadline.runtime.documents import DocumentError
from leadline.runtime.periodic import kept_running
from leadline.runtime.ports import Time
from leadline.security.jwks import InvalidJwks, Jwks

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JwksTiming:
    """sasl.oauthbearer.jwks.endpoint.*"""

    refresh_ms: int = 3_600_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 10_000

    def wait_ms(self, failures: int) -> int:
        """The pause before the next fetch, after `failures` in a row."""
        if failures == 0:
            return self.refresh_ms
        return min(self.retry_backoff_ms << min(failures - 1, 30), self.retry_backoff_max_ms)


class JwksEndpoint:
    """`await start()`, and in the end `await stop()`. `fetch` raises DocumentError or OSError."""

    def __init__(self, url: str, fetch: Callable[[], Awaitable[bytes]], timing: JwksTiming, clock: Time) -> None:
        self.url = url
        self.keys = Jwks(self._fetch_early, timing.refresh_ms)
        self._fetch, self._timing, self._clock = fetch, timing, clock
        self._is_missing = asyncio.Event()
        self._failures = 0
        self._refreshing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """One attempt is made before the first login."""
        await self._load()
        self._refreshing = asyncio.create_task(kept_running(self._refresh), name=f"keys of {self.url}")

    async def stop(self) -> None:
        if self._refreshing is not None:
            self._refreshing.cancel()
            with suppress(asyncio.CancelledError):
                await self._refreshing

    def _fetch_early(self) -> None:
        self._is_missing.set()

    async def _refresh(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._timing.wait_ms(self._failures) / 1000):
                    await self._is_missing.wait()
            self._is_missing.clear()
            await self._load()

    async def _load(self) -> None:
        try:
            self.keys.load(await self._fetch(), self._clock.now_ms())
        except (DocumentError, InvalidJwks, OSError) as error:
            self._failures += 1
            if self._failures == 1:
                log.warning("the keys of OAUTHBEARER cannot be fetched; the current ones stay: %s", error)
            return
        if self._failures:
            log.info("the keys of OAUTHBEARER can be fetched again from %s", self.url)
        self._failures = 0
