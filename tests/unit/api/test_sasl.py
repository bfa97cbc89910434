"""SaslHandshake and SaslAuthenticate on a listener that needs no login: they are answered, and the connection stays."""

import pytest

from leadline.wire.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from tests.support.in_memory_broker import InMemoryClient, run

ILLEGAL_SASL_STATE = 34


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("mechanism", ["PLAIN", "GSSAPI", "no mechanism"])
def test_a_handshake_is_illegal_where_there_is_no_login(mechanism: str, version: int) -> None:
    async def test(client: InMemoryClient) -> None:
        response = await client.send(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse, version)
        assert (response.error_code, response.mechanisms) == (ILLEGAL_SASL_STATE, [])
        versions = await client.send(ApiVersionsRequest(), ApiVersionsResponse, 0)
        assert versions.error_code == 0

    run(test)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_login_is_illegal_where_there_is_none(version: int) -> None:
    async def test(client: InMemoryClient) -> None:
        request = SaslAuthenticateRequest(auth_bytes=b"\0anna\0secret")
        response = await client.send(request, SaslAuthenticateResponse, version)
        assert (response.error_code, response.auth_bytes) == (ILLEGAL_SASL_STATE, b"")

    run(test)
