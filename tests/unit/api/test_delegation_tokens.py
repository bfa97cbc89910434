"""Delegation tokens on a broker where nobody can log in: rejected, with the owner that the request names."""

import pytest

from leadline.errors import DelegationTokenRequestNotAllowed, UnknownServerError
from leadline.wire.messages import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from tests.support.in_memory_broker import InMemoryClient, run

REJECTED = DelegationTokenRequestNotAllowed.code


@pytest.mark.parametrize(
    ("owner_type", "owner_name", "code", "owner"),
    [
        (None, None, REJECTED, ("User", "ANONYMOUS")),
        ("User", "", REJECTED, ("User", "ANONYMOUS")),
        ("User", "anna", REJECTED, ("User", "anna")),
        (None, "anna", UnknownServerError.code, ("User", "ANONYMOUS")),
    ],
)
def test_a_rejected_token_names_the_owner_of_the_request(
    owner_type: str | None, owner_name: str | None, code: int, owner: tuple[str, str]
) -> None:
    async def test(client: InMemoryClient) -> None:
        request = CreateDelegationTokenRequest(owner_principal_type=owner_type, owner_principal_name=owner_name)
        response = await client.send(request, CreateDelegationTokenResponse, 3)
        assert (response.error_code, response.principal_type, response.principal_name) == (code, *owner)
        assert response.token_requester_principal_name == "ANONYMOUS"
        assert response.issue_timestamp_ms == response.expiry_timestamp_ms == response.max_timestamp_ms == -1

    run(test)
