"""The two sides of logins: one user, alice, by PLAIN, SCRAM and GSSAPI."""

from collections.abc import Callable
from functools import partial

from leadline.security.gssapi import GssapiClient, GssapiExchange
from leadline.security.kerberos_names import ShortNames
from leadline.security.plain import PlainClient, PlainExchange
from leadline.security.sasl_authenticator import LoginStep, SaslAuthenticator, SaslListener
from leadline.security.sasl_client_authenticator import SaslClientAuthenticator, SaslClientExchange
from leadline.security.sasl_mechanisms import EnabledMechanisms, SaslExchange
from leadline.security.scram import ScramClient, ScramExchange, ScramUsers
from leadline.security.scram_credentials import SCRAM_MECHANISMS, ScramMechanism, credential_of_password
from leadline.security.secret import Secret
from leadline.wire.messages import ApiVersionsResponse
from tests.support.scripted_kerberos import REALM, ScriptedAcceptor, ScriptedInitiator

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI")
NAME, PASSWORD = "alice", Secret.of("alice-secret")
SERVICE = f"kafka/host@{REALM}"


def sasl_listener(
    *mechanisms: str, password: Secret = PASSWORD, iterations: int = 4096, lifetime_ms: int = 0
) -> SaslListener:
    """One that lets alice in with this password."""
    exchanges: dict[str, Callable[[], SaslExchange]] = {
        "PLAIN": lambda: PlainExchange({NAME: password}.get),
        "GSSAPI": lambda: GssapiExchange(lambda: ScriptedAcceptor(SERVICE), ShortNames(("DEFAULT",), REALM)),
        **{mechanism.mechanism_name: partial(_scram, mechanism, password, iterations) for mechanism in ScramMechanism},
    }
    enabled = {name: exchanges[name] for name in mechanisms or MECHANISMS}
    lifetimes = dict.fromkeys(enabled, lifetime_ms)
    return SaslListener(EnabledMechanisms(enabled), lifetimes, lambda *_: ApiVersionsResponse(), lambda *_: None)


def new_login(mechanism: str, password: Secret = PASSWORD, host: str = "host") -> SaslClientAuthenticator:
    """Of alice, with this password or with her ticket for a host."""
    exchange: SaslClientExchange
    if mechanism == "PLAIN":
        exchange = PlainClient(NAME, password)
    elif mechanism == "GSSAPI":
        exchange = GssapiClient(ScriptedInitiator(f"{NAME}@{REALM}", f"kafka@{host}"))
    else:
        exchange = ScramClient(SCRAM_MECHANISMS[mechanism], NAME, password, "nonce")
    return SaslClientAuthenticator(mechanism, exchange)


def received(server: SaslAuthenticator, frame: bytes, now_ms: int, monotonic_ms: int) -> LoginStep:
    """The step that follows a frame, with the work within."""
    step = server.receive(frame, now_ms, monotonic_ms)
    return step if step.work is None else server.resume(step.work.run(), now_ms, monotonic_ms)


def _scram(mechanism: ScramMechanism, password: Secret, iterations: int) -> SaslExchange:
    credential = credential_of_password(mechanism, password, b"salt", iterations)
    return ScramExchange(
        mechanism, ScramUsers({NAME: credential}.get, lambda token: None, Secret(b"decoy")), "servernonce"
    )
