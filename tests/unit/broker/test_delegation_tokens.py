"""The delegation tokens of a broker: the controller deletes those that have expired, and the others log in."""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from leadline.broker.delegation_tokens import start_following_tokens, token_store
from leadline.broker.kerberos_logins import KerberosLogins
from leadline.broker.listener_security import Credentials
from leadline.broker.oauth_tokens import OAuthTokens
from leadline.config.broker import BrokerConfig
from leadline.coordination.tree import ConnectionLost, Tree
from leadline.runtime.documents import fetch_document
from leadline.runtime.ports import SystemTime
from leadline.security.principal import Principal
from leadline.security.sasl_mechanisms import Authenticated, Challenge, Failed
from leadline.security.scram import ScramClient, ScramExchange
from leadline.security.scram_credentials import ScramMechanism
from leadline.security.scram_users import ScramUserCredentials
from leadline.security.secret import Secret
from leadline.security.token_store import TokenStore
from tests.support.chance import SeededChance
from tests.support.scripted_kerberos import ScriptedKerberos
from tests.support.trees import run_on_tree
from tests.support.waiting import eventually

ALICE = Principal("User", "alice")
CONFIG = BrokerConfig.parse({"delegation.token.secret.key": "topsecret"})


@asynccontextmanager
async def following(tree: Tree, is_controller: Callable[[], bool]) -> AsyncIterator[TokenStore]:
    tokens = token_store(CONFIG, tree, SystemTime(), SeededChance())
    assert tokens is not None
    async with asyncio.timeout(120), AsyncExitStack() as stack:
        await start_following_tokens(tokens, is_controller, 1, stack)
        yield tokens


def test_without_a_secret_there_is_no_store() -> None:
    for texts in ({}, {"delegation.token.secret.key": ""}):
        assert token_store(BrokerConfig.parse(texts), None, SystemTime(), SeededChance()) is None  # type: ignore[arg-type]


def test_the_controller_alone_deletes_what_has_expired() -> None:
    async def test(tree: Tree) -> None:
        is_controller, checks = False, 0

        def look() -> bool:
            nonlocal checks
            checks += 1
            return is_controller

        async with following(tree, look) as tokens:
            await tokens.create(ALICE, ALICE, [], 1)
            lasting = await tokens.create(ALICE, ALICE, [], -1)
            await eventually(lambda: checks > 5)
            assert len(tokens.cache.tokens()) == 2
            is_controller = True
            await eventually(lambda: tokens.cache.tokens() == [lasting])

    run_on_tree(test)


def test_tokens_are_checked_again_after_the_tree_was_out_of_reach(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(tree: Tree) -> None:
        async with following(tree, lambda: True) as tokens:
            multi = tree.multi
            calls = 0

            async def lost_once(*arguments: object) -> object:
                nonlocal calls
                calls += 1
                if calls == 2:
                    raise ConnectionLost("/", "lost")
                return await multi(*arguments)  # type: ignore[arg-type]

            monkeypatch.setattr(tree, "multi", lost_once)
            await tokens.create(ALICE, ALICE, [], 1)
            await eventually(lambda: not tokens.cache.tokens())

    run_on_tree(test)
    assert "not deleted this time" in caplog.text


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_a_token_logs_its_owner_in_until_it_expires(mechanism: ScramMechanism) -> None:
    async def test(tree: Tree) -> None:
        async with following(tree, lambda: False) as tokens:
            token = await tokens.create(ALICE, ALICE, [], -1)
            oauth = OAuthTokens(fetch_document, lambda path: b"", SystemTime(), SeededChance())
            kerberos = KerberosLogins(ScriptedKerberos(), lambda path: b"", {})
            credentials = Credentials(ScramUserCredentials(), oauth, kerberos, SeededChance(), tokens)
            password = Secret(base64.b64encode(tokens.cache.hmac(token.id).reveal()))
            for by_token in (True, False):
                exchange = ScramExchange(mechanism, credentials.of(mechanism), "nonce")
                client = ScramClient(mechanism, token.id, password, "ours", by_token)
                challenge = exchange.evaluate(client.answer(b""), token.issue_ms)
                assert isinstance(challenge, Challenge)
                outcome = exchange.evaluate(client.answer(challenge.data), token.issue_ms)
                if not by_token:
                    assert isinstance(outcome, Failed)
                    continue
                assert isinstance(outcome, Authenticated)
                assert (outcome.principal, outcome.expires_ms) == (ALICE, token.expiry_ms)
                assert outcome.principal.token_authenticated

    run_on_tree(test)
