"""The server's side of logins, for tests of the client's: one user, alice, by PLAIN and SCRAM."""

from collections.abc import Callable
from functools import partial

from leadline.security.plain import PlainExchange
from leadline.security.sasl_authenticator import SaslListener
from leadline.security.sasl_mechanisms import EnabledMechanisms, SaslExchange
from leadline.security.scram import ScramExchange, ScramUsers
from leadline.security.scram_credentials import ScramMechanism, credential_of_password
from leadline.security.secret import Secret
from leadline.wire.messages import ApiVersionsResponse

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
NAME, PASSWORD = "alice", Secret.of("alice-secret")


def sasl_listener(
    *mechanisms: str, password: Secret = PASSWORD, iterations: int = 4096, lifetime_ms: int = 0
) -> SaslListener:
    """One that lets alice in with this password."""
    exchanges: dict[str, Callable[[], SaslExchange]] = {
        "PLAIN": lambda: PlainExchange({NAME: password}.get),
        **{it.mechanism_name: partial(_scram, it, password, iterations) for it in ScramMechanism},
    }
    enabled = {name: exchanges[name] for name in mechanisms or MECHANISMS}
    lifetimes = dict.fromkeys(enabled, lifetime_ms)
    return SaslListener(EnabledMechanisms(enabled), lifetimes, lambda *_: ApiVersionsResponse(), lambda *_: None)


def _scram(mechanism: ScramMechanism, password: Secret, iterations: int) -> SaslExchange:
    credential = credential_of_password(mechanism, password, b"salt", iterations)
    return ScramExchange(
        mechanism, ScramUsers({NAME: credential}.get, lambda token: None, Secret(b"decoy")), "servernonce"
    )
