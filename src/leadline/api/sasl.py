"""The requests of a SASL login on a connection that needs none, or has completed it. A login itself never gets here."""

from leadline.api.context import Context
from leadline.errors import IllegalSaslState
from leadline.wire.messages import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)


def sasl_handshake(request: SaslHandshakeRequest, ctx: Context) -> SaslHandshakeResponse:
    """SaslHandshake, v0-1."""
    return SaslHandshakeResponse(error_code=IllegalSaslState.code)


def sasl_authenticate(request: SaslAuthenticateRequest, ctx: Context) -> SaslAuthenticateResponse:
    """SaslAuthenticate, v0-2.  v1 how long the login lasts · v2 flexible."""
    return SaslAuthenticateResponse(
        error_code=IllegalSaslState.code,
        error_message="SaslAuthenticate request received after successful authentication",
    )
