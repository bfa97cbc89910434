"""The keys of OAUTHBEARER: fetched at the start, again in time, early if one is missing; after failures less often."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from leadline.broker.jwks_endpoint import JwksEndpoint, JwksTiming
from leadline.runtime.documents import DocumentError
from leadline.runtime.ports import SystemTime
from tests.support.waiting import eventually
from tests.support.web_tokens import jwk, key_set


class Source:
    """The keys elsewhere. An exception instead of a document: it cannot be reached."""

    def __init__(self, document: bytes | Exception) -> None:
        self.document, self.fetches = document, 0

    async def fetch(self) -> bytes:
        self.fetches += 1
        if isinstance(self.document, Exception):
            raise self.document
        return self.document


def run(source: Source, test: Callable[[JwksEndpoint], Awaitable[None]], timing: JwksTiming | None = None) -> None:
    async def main() -> None:
        endpoint = JwksEndpoint("https://keys", source.fetch, timing or JwksTiming(), SystemTime())
        async with asyncio.timeout(60):
            await endpoint.start()
            try:
                await test(endpoint)
            finally:
                await endpoint.stop()

    asyncio.run(main())


def key(endpoint: JwksEndpoint, name: str) -> object | None:
    return endpoint.keys.find(name, "RS256", SystemTime().now_ms())


def test_keys_are_there_when_the_start_returns() -> None:
    async def test(endpoint: JwksEndpoint) -> None:
        assert key(endpoint, "rsa") is not None

    run(Source(key_set(jwk("rsa"))), test)


def test_a_missing_key_is_fetched_early() -> None:
    source = Source(key_set(jwk("rsa")))

    async def test(endpoint: JwksEndpoint) -> None:
        source.document = key_set(jwk("rsa-2"))
        assert key(endpoint, "rsa-2") is None
        await eventually(lambda: key(endpoint, "rsa-2"))
        assert source.fetches == 2

    run(source, test)


def test_keys_are_fetched_again_in_time() -> None:
    source = Source(key_set(jwk("rsa")))

    async def test(endpoint: JwksEndpoint) -> None:
        source.document = key_set()
        await eventually(lambda: key(endpoint, "rsa") is None)

    run(source, test, JwksTiming(refresh_ms=1))


@pytest.mark.parametrize("failure", [DocumentError("no answer"), OSError("gone"), b"no key set"])
def test_keys_stay_while_their_source_is_out_of_reach(failure: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    source = Source(key_set(jwk("rsa")))

    async def test(endpoint: JwksEndpoint) -> None:
        source.document = failure
        before = source.fetches
        await eventually(lambda: source.fetches > before + 5)
        assert key(endpoint, "rsa") is not None
        source.document = key_set(jwk("rsa-2"))
        await eventually(lambda: key(endpoint, "rsa-2"))

    run(source, test, JwksTiming(refresh_ms=1, retry_backoff_ms=1, retry_backoff_max_ms=1))
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_a_source_that_is_out_of_reach_at_the_start_stops_nobody() -> None:
    source = Source(DocumentError("no answer"))

    async def test(endpoint: JwksEndpoint) -> None:
        assert key(endpoint, "rsa") is None
        source.document = key_set(jwk("rsa"))
        await eventually(lambda: key(endpoint, "rsa"))

    run(source, test, JwksTiming(retry_backoff_ms=1))


def test_waits_double_up_to_the_limit() -> None:
    timing = JwksTiming(refresh_ms=3_600_000, retry_backoff_ms=100, retry_backoff_max_ms=1000)
    assert [timing.wait_ms(failures) for failures in range(7)] == [3_600_000, 100, 200, 400, 800, 1000, 1000]
    assert timing.wait_ms(10**6) == 1000
