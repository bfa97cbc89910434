"""How this broker gets in at a protected listener of another one: by TLS, by a login, or by both.

The network port does the TLS handshake. A SASL login follows (`security/sasl_client_authenticator.py`). Where there is
TLS alone, ApiVersions takes its place: by TLS 1.3 a client learns only from the first answer whether the peer accepts
its certificate.

    nothing else is sent before the login is complete
    a login that has an end is repeated before it, at a random moment, so that not all connections do it at once
    after a refusal there is a pause before the next connection to that peer
    the log names peer, listener and reason, once per change
"""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from leadline.model import Buffer
from leadline.security.login_failures import LoginFailures
from leadline.security.sasl_client_authenticator import (
    ClientLoginStep,
    LoginComplete,
    LoginRefused,
    LoginRequest,
    SaslClientAuthenticator,
)
from leadline.wire.frames import request_bytes
from leadline.wire.messages import ApiVersionsRequest

log = logging.getLogger(__name__)

# Name, encoder and time limit of a request; the frame of its answer. Raises what a request to the peer raises.
AskPeer = Callable[[str, Callable[[int, str], Buffer], float], Awaitable[bytearray]]


@dataclass(slots=True, kw_only=True)
class PeerSecurity:
    """How brokers reach each other on one listener. A new connection uses the values of that moment."""

    listener: str
    tls: ssl.SSLContext | None = None
    new_login: Callable[[str], SaslClientAuthenticator] | None = None  # to a host; None: there is no SASL
    in_thread: Callable[[Callable[[], Any]], Awaitable[Any]] = asyncio.to_thread  # runs what a login may block for
    login_share: Callable[[], float] = lambda: 0.9  # of a login's lifetime, after which it is repeated
    failures: LoginFailures = field(default_factory=LoginFailures)


class BrokerLogin:
    """The logins of one connection."""

    def __init__(self, security: PeerSecurity, host: str, port: int, timeout_s: float) -> None:
        self._security, self._host, self._peer, self._timeout_s = security, host, f"{host}:{port}", timeout_s

    def check_backoff(self) -> None:
        """Raises LoginRefused if it is too early for another attempt."""
        if (reason := self._security.failures.pending(self._peer, _now_s())) is not None:
            raise LoginRefused(reason)

    async def run(self, ask: AskPeer) -> float | None:
        """Seconds until the login must be repeated; None: never. Raises LoginRefused, and as `ask`."""
        try:
            lifetime_ms = await self._log_in(ask)
        except LoginRefused as error:
            raise LoginRefused(self.failed(str(error))) from None
        if self._security.failures.succeeded(self._peer):
            log.warning("%s: the login over listener %s succeeds again", self._peer, self._security.listener)
        log.debug("%s: logged in over listener %s", self._peer, self._security.listener)
        return self._security.login_share() * lifetime_ms / 1000 if lifetime_ms else None

    async def _log_in(self, ask: AskPeer) -> int:
        security = self._security
        if security.new_login is None:
            await ask("ApiVersions", partial(request_bytes, ApiVersionsRequest(), 0), self._timeout_s)
            return 0
        authenticator = security.new_login(self._host)
        step: ClientLoginStep = authenticator.begin()
        while not isinstance(step, LoginComplete):
            if isinstance(step, LoginRequest):
                step = authenticator.receive(await ask(step.name, step.encode, self._timeout_s))
            else:
                step = authenticator.resume(await security.in_thread(step.run))
        return step.lifetime_ms

    def failed(self, reason: str, *, is_refusal: bool = True) -> str:
        """Remember and report it. Returns what happened, for an error."""
        what = f"the login over listener {self._security.listener} failed: {reason}"
        if self._security.failures.failed(self._peer, what, _now_s(), is_refusal=is_refusal):
            log.warning("%s: %s", self._peer, what)
        return what


def _now_s() -> float:
    return asyncio.get_running_loop().time()
