"""The requests for delegation tokens: who gets them, who may renew and end them, and who sees them."""

from collections.abc import Awaitable, Callable

import pytest

from leadline.security.acls import AclOperation, ResourceType
from leadline.security.principal import ANONYMOUS, Principal
from leadline.wire import messages as m
from tests.support.authorized_broker import ALICE, AuthorizedBroker, rule, run_authorized
from tests.support.in_memory_broker import InMemoryClient

BOB, CLARA = Principal("User", "bob"), Principal("User", "clara")
DAY_MS = 86_400_000
RENEWER = m.CreateDelegationTokenRequest.CreatableRenewers
OWNER = m.DescribeDelegationTokenRequest.DescribeDelegationTokenOwner

DISABLED, NOT_FOUND, MISMATCH, NOT_ALLOWED, UNAUTHORIZED, BAD_TYPE = 61, 62, 63, 64, 65, 67


class TokenClient:
    """A connection of a user who has logged in."""

    def __init__(self, broker: AuthorizedBroker, principal: Principal, listener: str = "SASL_PLAINTEXT") -> None:
        self._client: InMemoryClient = broker.client(principal)
        self._client.client.listener = listener

    async def create(self, version: int = 3, **fields: object) -> m.CreateDelegationTokenResponse:
        request = m.CreateDelegationTokenRequest(**{"max_lifetime_ms": -1, **fields})  # type: ignore[arg-type]
        return await self._client.send(request, m.CreateDelegationTokenResponse, version)

    async def renew(self, hmac: bytes, period_ms: int = -1) -> tuple[int, int]:
        request = m.RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
        response = await self._client.send(request, m.RenewDelegationTokenResponse, 2)
        return response.error_code, response.expiry_timestamp_ms

    async def expire(self, hmac: bytes, period_ms: int = -1) -> tuple[int, int]:
        request = m.ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
        response = await self._client.send(request, m.ExpireDelegationTokenResponse, 2)
        return response.error_code, response.expiry_timestamp_ms

    async def describe(self, *owners: Principal, version: int = 3) -> m.DescribeDelegationTokenResponse:
        named = [OWNER(principal_type=owner.type, principal_name=owner.name) for owner in owners] or None
        request = m.DescribeDelegationTokenRequest(owners=named)
        return await self._client.send(request, m.DescribeDelegationTokenResponse, version)

    async def visible_ids(self, *owners: Principal) -> set[str]:
        response = await self.describe(*owners)
        assert response.error_code == 0
        return {token.token_id for token in response.tokens}


def run_tokens(test: Callable[[AuthorizedBroker], Awaitable[None]], **settings: str) -> None:
    defaults = {
        "listeners": "PLAINTEXT://localhost:0,SASL_PLAINTEXT://localhost:0",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "delegation.token.secret.key": "topsecret",
    }
    run_authorized(test, **{name: value for name, value in (defaults | settings).items() if value})


def principals_of(response: m.CreateDelegationTokenResponse) -> tuple[str, str]:
    return (
        f"{response.principal_type}:{response.principal_name}",
        f"{response.token_requester_principal_type}:{response.token_requester_principal_name}",
    )


def test_a_token_is_created_renewed_described_and_ended() -> None:
    async def test(broker: AuthorizedBroker) -> None:
        alice, bob = TokenClient(broker, ALICE), TokenClient(broker, BOB)
        created = await alice.create(renewers=[RENEWER(principal_type="User", principal_name="bob")])
        assert created.error_code == 0
        assert principals_of(created) == ("User:alice", "User:alice")
        assert created.expiry_timestamp_ms == created.issue_timestamp_ms + DAY_MS
        assert created.max_timestamp_ms == created.issue_timestamp_ms + 7 * DAY_MS
        (described,) = (await alice.describe()).tokens
        assert (described.token_id, described.hmac) == (created.token_id, created.hmac)
        assert described.renewers[0].principal_name == "bob"
        code, expiry_ms = await bob.renew(bytes(created.hmac), 2 * DAY_MS)
        assert (code, expiry_ms > created.expiry_timestamp_ms) == (0, True)
        assert (await bob.describe()).tokens[0].expiry_timestamp == expiry_ms
        code, sooner_ms = await alice.expire(bytes(created.hmac), 1000)
        assert (code, sooner_ms < expiry_ms) == (0, True)
        assert (await bob.expire(bytes(created.hmac)))[0] == 0
        assert await alice.visible_ids() == set()
        assert await alice.renew(bytes(created.hmac)) == (NOT_FOUND, -1)

    run_tokens(test)


@pytest.mark.parametrize("version", range(4))
def test_each_version_has_the_fields_that_it_has(version: int) -> None:
    async def test(broker: AuthorizedBroker) -> None:
        alice = TokenClient(broker, ALICE)
        created = await alice.create(version)
        assert created.error_code == 0
        assert principals_of(created) == ("User:alice", "User:alice" if version == 3 else ":")
        (described,) = (await alice.describe(version=version)).tokens
        assert described.token_requester_principal_name == ("alice" if version == 3 else "")

    run_tokens(test)


def test_a_token_for_another_owner_needs_the_right_to_create_his() -> None:
    async def test(broker: AuthorizedBroker) -> None:
        alice = TokenClient(broker, ALICE)

        async def for_bob() -> m.CreateDelegationTokenResponse:
            return await alice.create(owner_principal_type="User", owner_principal_name="bob")

        refused = await for_bob()
        assert (refused.error_code, *principals_of(refused)) == (UNAUTHORIZED, "User:bob", "User:alice")
        assert refused.issue_timestamp_ms == refused.expiry_timestamp_ms == refused.max_timestamp_ms == -1
        broker.put(rule(AclOperation.CREATE_TOKENS, ResourceType.USER, "User:bob"))
        created = await for_bob()
        assert (created.error_code, *principals_of(created)) == (0, "User:bob", "User:alice")
        assert await alice.visible_ids() == await TokenClient(broker, BOB).visible_ids() == {created.token_id}
        assert await alice.renew(bytes(created.hmac)) == (MISMATCH, -1)

    run_tokens(test)


@pytest.mark.parametrize(
    ("principal", "listener"),
    [
        (ANONYMOUS, "PLAINTEXT"),
        (ALICE, "PLAINTEXT"),
        (Principal("User", "alice", token_authenticated=True), "SASL_PLAINTEXT"),
    ],
)
def test_a_client_without_a_login_or_with_a_token_login_gets_no_token(principal: Principal, listener: str) -> None:
    async def test(broker: AuthorizedBroker) -> None:
        client = TokenClient(broker, principal, listener)
        refused = await client.create(owner_principal_type="User", owner_principal_name="anna")
        assert (refused.error_code, *principals_of(refused)) == (NOT_ALLOWED, "User:anna", str(principal))
        assert await client.renew(b"x") == await client.expire(b"x") == (NOT_ALLOWED, -1)
        assert (await client.describe()).error_code == NOT_ALLOWED

    run_tokens(test)


def test_without_a_secret_there_are_no_tokens() -> None:
    async def test(broker: AuthorizedBroker) -> None:
        client = TokenClient(broker, ALICE)
        assert (await client.create()).error_code == DISABLED
        assert await client.renew(b"x") == await client.expire(b"x") == (DISABLED, -1)
        assert (await client.describe()).error_code == DISABLED
        assert await broker.broker.tree.exists("/delegation_token") is False

    run_tokens(test, **{"delegation.token.secret.key": ""})


def test_the_older_name_of_the_secret_counts() -> None:
    async def test(broker: AuthorizedBroker) -> None:
        assert (await TokenClient(broker, ALICE).create()).error_code == 0

    run_tokens(test, **{"delegation.token.secret.key": "", "delegation.token.master.key": "topsecret"})


def test_what_a_request_must_not_name() -> None:
    async def test(broker: AuthorizedBroker) -> None:
        alice = TokenClient(broker, ALICE)
        group = RENEWER(principal_type="Group", principal_name="crew")
        assert (await alice.create(renewers=[group])).error_code == BAD_TYPE
        typeless = await alice.create(owner_principal_type=None, owner_principal_name="bob")
        assert (typeless.error_code, *principals_of(typeless)) == (-1, "User:ANONYMOUS", "User:ANONYMOUS")

    run_tokens(test)


def test_tokens_of_others_are_seen_with_a_right_to_the_token_or_to_its_owner() -> None:
    async def test(broker: AuthorizedBroker) -> None:
        bob, clara, alice = (TokenClient(broker, principal) for principal in (BOB, CLARA, ALICE))
        of_bob, of_clara = (await bob.create()).token_id, (await clara.create()).token_id
        assert await alice.visible_ids() == set()
        broker.put(rule(AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, of_bob))
        assert await alice.visible_ids() == {of_bob}
        broker.put(rule(AclOperation.DESCRIBE_TOKENS, ResourceType.USER, "User:clara"))
        assert await alice.visible_ids() == {of_bob, of_clara}
        assert await alice.visible_ids(CLARA) == {of_clara}
        assert await alice.visible_ids(ALICE) == set()
        nobody = m.DescribeDelegationTokenRequest(owners=[])
        assert (await alice._client.send(nobody, m.DescribeDelegationTokenResponse, 3)).tokens == []

    run_tokens(test)
