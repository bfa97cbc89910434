"""Delegation tokens in the tree: written, announced, followed, expired, and logged in with."""

import asyncio
import base64
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from leadline.coordination.tree import SessionState, Tree
from leadline.errors import DelegationTokenExpired, DelegationTokenNotFound, DelegationTokenOwnerMismatch
from leadline.runtime.ports import SystemTime
from leadline.security.delegation_tokens import TokenLifetimes, encode_token, token_path
from leadline.security.principal import Principal
from leadline.security.scram_credentials import ScramMechanism, credential_of_password
from leadline.security.secret import Secret
from leadline.security.token_store import TokenStore
from tests.support.ahead_clock import AheadClock
from tests.support.chance import SeededChance
from tests.support.waiting import eventually
from tests.unit.coordination.conftest import Run

ALICE, BOB, CLARA = Principal("User", "alice"), Principal("User", "bob"), Principal("User", "clara")
DAY_MS = 86_400_000
KEY = Secret.of("topsecret")


def a_store(tree: Tree, clock: SystemTime, seed: int = 0) -> TokenStore:
    return TokenStore(tree, KEY, TokenLifetimes(7 * DAY_MS, DAY_MS), clock, SeededChance(seed))


@asynccontextmanager
async def two_stores(tree: Tree, clock: AheadClock) -> AsyncIterator[tuple[TokenStore, TokenStore]]:
    stores = a_store(tree, clock, 1), a_store(tree, clock, 2)
    async with asyncio.timeout(120):
        for store in stores:
            await store.start()
        yield stores
        for store in stores:
            await store.stop()


def check(run: Run, tree: Tree, scenario: Callable[[TokenStore, TokenStore, AheadClock], Awaitable[None]]) -> None:
    async def main() -> None:
        clock = AheadClock()
        async with two_stores(tree, clock) as (one, other):
            await scenario(one, other, clock)

    run(main())


async def data_of(tree: Tree, id: str) -> bytes | None:
    node = await tree.get(token_path(id))
    return None if node is None else node.data


async def announced(tree: Tree) -> list[bytes]:
    path = "/delegation_token/token_changes"
    nodes = [await tree.get(f"{path}/{name}") for name in await tree.children(path) or []]
    return [node.data for node in nodes if node is not None]


def test_a_token_is_written_announced_and_known_to_all(run: Run, tree: Tree) -> None:
    async def scenario(one: TokenStore, other: TokenStore, clock: AheadClock) -> None:
        token = await one.create(ALICE, BOB, [CLARA], -1)
        assert len(token.id) == 22
        assert one.cache.get(token.id) == token
        assert await data_of(tree, token.id) == encode_token(token)
        assert await announced(tree) == [token.id.encode()]
        await eventually(lambda: other.cache.get(token.id) == token)
        again = a_store(tree, clock)
        await again.start()
        assert again.cache.tokens() == [token]
        await again.stop()

    check(run, tree, scenario)


def test_a_token_is_renewed_and_expired_on_any_broker(run: Run, tree: Tree) -> None:
    async def scenario(one: TokenStore, other: TokenStore, clock: AheadClock) -> None:
        token = await one.create(ALICE, ALICE, [BOB], -1)
        await eventually(lambda: other.cache.get(token.id) == token)
        hmac = one.cache.hmac(token.id).reveal()
        expiry_ms = await other.renew(BOB, hmac, 2 * DAY_MS)
        assert expiry_ms > token.expiry_ms + DAY_MS // 2
        await eventually(lambda: one.cache.by_hmac(hmac).expiry_ms == expiry_ms)
        sooner_ms = await one.expire(ALICE, hmac, 60_000)
        assert sooner_ms < token.expiry_ms
        await eventually(lambda: other.cache.by_hmac(hmac).expiry_ms == sooner_ms)
        await other.expire(ALICE, hmac, -1)
        assert await data_of(tree, token.id) is None
        await eventually(lambda: one.cache.get(token.id) is None)
        with pytest.raises(DelegationTokenNotFound):
            await one.renew(ALICE, hmac, -1)

    check(run, tree, scenario)


def test_a_token_that_another_broker_deleted_is_not_revived(run: Run, tree: Tree) -> None:
    async def scenario(one: TokenStore, other: TokenStore, clock: AheadClock) -> None:
        token = await one.create(ALICE, ALICE, [], -1)
        await tree.delete(token_path(token.id))  # its notification is still on the way
        with pytest.raises(DelegationTokenNotFound):
            await one.renew(ALICE, one.cache.hmac(token.id).reveal(), -1)
        assert await data_of(tree, token.id) is None
        assert one.cache.get(token.id) is None

    check(run, tree, scenario)


def test_a_principal_without_a_part_in_a_token_changes_nothing(run: Run, tree: Tree) -> None:
    async def scenario(one: TokenStore, other: TokenStore, clock: AheadClock) -> None:
        token = await one.create(ALICE, CLARA, [BOB], -1)
        with pytest.raises(DelegationTokenOwnerMismatch):
            await one.expire(CLARA, one.cache.hmac(token.id).reveal(), -1)
        assert await data_of(tree, token.id) == encode_token(token)

    check(run, tree, scenario)


def test_expired_tokens_are_deleted_and_the_others_kept(run: Run, tree: Tree) -> None:
    async def scenario(one: TokenStore, other: TokenStore, clock: AheadClock) -> None:
        short, long = await one.create(ALICE, ALICE, [], 1000), await one.create(ALICE, ALICE, [], -1)
        clock.ahead_ms = 60_000
        with pytest.raises(DelegationTokenExpired):
            await one.renew(ALICE, one.cache.hmac(short.id).reveal(), -1)
        await one.delete_expired()
        assert one.cache.tokens() == [long]
        assert await tree.children("/delegation_token/tokens") == [long.id]
        await eventually(lambda: other.cache.tokens() == [long])

    check(run, tree, scenario)


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_a_token_logs_in_with_its_hmac_until_it_expires(run: Run, tree: Tree, mechanism: ScramMechanism) -> None:
    async def scenario(one: TokenStore, other: TokenStore, clock: AheadClock) -> None:
        token = await one.create(ALICE, ALICE, [], 1000)
        login = one.credential(token.id, mechanism)
        assert login is not None
        assert (login.owner, login.expires_ms) == (ALICE, token.expiry_ms)
        assert one.credential(token.id, mechanism) == login  # derived once
        password = Secret(base64.b64encode(one.cache.hmac(token.id).reveal()))
        assert login.credential == credential_of_password(mechanism, password, login.credential.salt, 4096)
        assert one.credential("nobody", mechanism) is None
        clock.ahead_ms = 60_000
        assert one.credential(token.id, mechanism) is None

    check(run, tree, scenario)


def test_lost_notifications_are_made_up_for_once_the_connection_is_back(run: Run, tree: Tree) -> None:
    async def scenario(one: TokenStore, other: TokenStore, clock: AheadClock) -> None:
        gone, changed = await one.create(ALICE, ALICE, [], -1), await one.create(ALICE, ALICE, [], -1)
        await eventually(lambda: len(other.cache.tokens()) == 2)
        await tree.delete(token_path(gone.id))
        other._notifications._session(SessionState.CONNECTED)
        await eventually(lambda: other.cache.tokens() == [changed])

    check(run, tree, scenario)


def test_nodes_and_notifications_that_cannot_be_read_are_passed_over(run: Run, tree: Tree) -> None:
    async def scenario(one: TokenStore, other: TokenStore, clock: AheadClock) -> None:
        token = await one.create(ALICE, ALICE, [], -1)
        await tree.set(token_path(token.id), b"no JSON")
        path = "/delegation_token/token_changes/token_change_"
        for data in (b"", b"a/../b", b"\xff", b"no such token", token.id.encode()):
            await tree.create(path, data, sequential=True)
        await eventually(lambda: one._notifications._last == 5)
        assert one.cache.get(token.id) == token
        await tree.create(token_path("broken"), b"{}")
        again = a_store(tree, clock)
        await again.start()
        assert again.cache.tokens() == []
        await again.stop()

    check(run, tree, scenario)


def test_no_line_of_the_log_has_a_secret(run: Run, tree: Tree, caplog: pytest.LogCaptureFixture) -> None:
    """CVE-2026-33558."""
    caplog.set_level(logging.DEBUG)
    secrets = [KEY.reveal_text()]

    async def scenario(one: TokenStore, other: TokenStore, clock: AheadClock) -> None:
        token = await one.create(ALICE, ALICE, [BOB], 1000)
        hmac = one.cache.hmac(token.id)
        secrets.extend([base64.b64encode(hmac.reveal()).decode(), hmac.reveal().hex(), repr(hmac.reveal())])
        for mechanism in ScramMechanism:
            one.credential(token.id, mechanism)
        with pytest.raises(DelegationTokenOwnerMismatch) as refused:
            await one.renew(CLARA, hmac.reveal(), -1)
        secrets_in(str(refused.value))
        await one.renew(BOB, hmac.reveal(), -1)
        clock.ahead_ms = 60_000
        await one.delete_expired()
        with pytest.raises(DelegationTokenNotFound) as unknown:
            await one.renew(ALICE, hmac.reveal(), -1)
        secrets_in(str(unknown.value))
        secrets_in(repr(vars(one)) + repr(vars(one.cache)))

    def secrets_in(text: str) -> None:
        assert [secret for secret in secrets if secret in text] == []

    check(run, tree, scenario)
    assert any("has expired" in message for message in caplog.messages)
    secrets_in(caplog.text)
