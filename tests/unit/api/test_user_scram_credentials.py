"""DescribeUserScramCredentials and AlterUserScramCredentials on a single node."""

import hashlib
from types import SimpleNamespace
from typing import cast

import pytest

from leadline.controller.controller import Controller
from leadline.security.client_quotas import QuotaEntity
from leadline.security.scram_credentials import ScramMechanism, credential_of_password, parse_credential
from leadline.security.secret import Secret
from leadline.wire.messages import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from tests.support.authorized_broker import AuthorizedBroker, run_authorized
from tests.support.in_memory_broker import InMemoryClient, run

DELETION = AlterUserScramCredentialsRequest.ScramCredentialDeletion
UPSERTION = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
SHA_256, SHA_512 = 1, 2
SALTED = bytes(range(32))


def upsertion(name: str = "alice", mechanism: int = SHA_256, iterations: int = 4096) -> UPSERTION:
    return UPSERTION(name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=SALTED)


async def alter(client: InMemoryClient, *entries: UPSERTION | DELETION) -> dict[str, tuple[int, str | None]]:
    request = AlterUserScramCredentialsRequest(
        deletions=[entry for entry in entries if isinstance(entry, DELETION)],
        upsertions=[entry for entry in entries if isinstance(entry, UPSERTION)],
    )
    response = await client.send(request, AlterUserScramCredentialsResponse, 0)
    return {result.user: (result.error_code, result.error_message) for result in response.results}


async def describe(client: InMemoryClient, *names: str) -> dict[str, tuple[int, list[tuple[int, int]]]]:
    users = [DescribeUserScramCredentialsRequest.UserName(name=name) for name in names] or None
    response = await client.send(
        DescribeUserScramCredentialsRequest(users=users), DescribeUserScramCredentialsResponse, 0
    )
    assert response.error_code == 0
    return {
        result.user: (result.error_code, [(info.mechanism, info.iterations) for info in result.credential_infos])
        for result in response.results
    }


def test_credentials_come_and_go_and_quotas_stay() -> None:
    async def test(client: InMemoryClient) -> None:
        store = client.broker.client_configs
        await store.alter(QuotaEntity("alice"), lambda config: {**config, "producer_byte_rate": "5"})
        assert await alter(client, upsertion(), upsertion("bob", SHA_512, 16_384)) == {
            "alice": (0, ""),
            "bob": (0, ""),
        }
        assert await describe(client) == {"alice": (0, [(SHA_256, 4096)]), "bob": (0, [(SHA_512, 16_384)])}
        assert (await store.config(QuotaEntity("alice"))).keys() == {"producer_byte_rate", "SCRAM-SHA-256"}
        assert await alter(client, DELETION(name="alice", mechanism=SHA_256), upsertion("alice", SHA_512)) == {
            "alice": (0, "")
        }
        assert await describe(client, "alice") == {"alice": (0, [(SHA_512, 4096)])}
        assert await alter(client, DELETION(name="bob", mechanism=SHA_512)) == {"bob": (0, "")}
        assert (await describe(client)).keys() == {"alice"}

    run(test)


def test_the_node_holds_what_kafka_would_derive_from_the_password() -> None:
    async def test(client: InMemoryClient) -> None:
        mechanism = ScramMechanism.SCRAM_SHA_256
        salted = hashlib.pbkdf2_hmac("sha256", b"wonderland", b"salt", 4096)
        entry = UPSERTION(name="alice", mechanism=1, iterations=4096, salt=b"salt", salted_password=salted)
        await alter(client, entry)
        config = await client.broker.client_configs.config(QuotaEntity("alice"))
        expected = credential_of_password(mechanism, Secret.of("wonderland"), b"salt")
        assert parse_credential(config["SCRAM-SHA-256"]) == expected

    run(test)


@pytest.mark.parametrize(
    ("entry", "code", "message"),
    [
        (upsertion(""), 93, "Username must not be empty"),
        (upsertion(mechanism=0), 33, "Unknown SCRAM mechanism"),
        (upsertion(mechanism=3), 33, "Unknown SCRAM mechanism"),
        (upsertion(iterations=4095), 93, "Too few iterations"),
        (upsertion(iterations=16_385), 93, "Too many iterations"),
        (DELETION(name="alice", mechanism=9), 33, "Unknown SCRAM mechanism"),
        (DELETION(name="alice", mechanism=1), 91, "Attempt to delete a user credential that does not exist"),
    ],
)
def test_a_bad_entry_fails_its_user_and_no_other(entry: UPSERTION | DELETION, code: int, message: str) -> None:
    async def test(client: InMemoryClient) -> None:
        results = await alter(client, entry, upsertion(entry.name, SHA_512), upsertion("bob"))
        assert results == {entry.name: (code, message), "bob": (0, "")}
        assert (await describe(client)).keys() == {"bob"}

    run(test)


def test_a_credential_that_is_named_twice_fails_its_user() -> None:
    async def test(client: InMemoryClient) -> None:
        message = "A user credential cannot be altered twice in the same request"
        assert await alter(client, upsertion(), upsertion()) == {"alice": (92, message)}
        assert await alter(client, upsertion(), upsertion(mechanism=SHA_512)) == {"alice": (0, "")}

    run(test)


def test_users_that_are_not_there_or_named_twice_are_described_with_an_error() -> None:
    async def test(client: InMemoryClient) -> None:
        await alter(client, upsertion())
        assert await describe(client, "alice", "eve", "alice") == {"alice": (92, []), "eve": (91, [])}

    run(test)


def test_a_broker_that_is_not_the_controller_alters_nothing() -> None:
    async def test(client: InMemoryClient) -> None:
        services = client.broker.services
        controller, services.controller = services.controller, cast(Controller, SimpleNamespace(is_active=False))
        message = "This is not the correct controller for this cluster."
        assert await alter(client, upsertion(), upsertion("bob")) == {"alice": (41, message), "bob": (41, message)}
        services.controller = controller
        assert await describe(client) == {}

    run(test)


def test_without_the_right_nothing_is_shown_or_changed() -> None:
    async def test(broker: AuthorizedBroker) -> None:
        stranger = broker.client()
        assert await alter(stranger, upsertion()) == {"alice": (31, "Cluster authorization failed.")}
        response = await stranger.send(
            DescribeUserScramCredentialsRequest(users=None), DescribeUserScramCredentialsResponse, 0
        )
        assert (response.error_code, response.results) == (31, [])
        assert await describe(broker.root) == {}

    run_authorized(test)
